"""Functions that compute the same, and how much longer one takes than another."""

from __future__ import annotations

import pytest

import tir
from schedule import Schedule
from tests.codegen.matmul import matmul, tiled
from tir import te

ONE = "llvm -num-cores 1"


def soft(shift: float = 0.0, rows: int = 7) -> tir.PrimFunc:
    X = te.placeholder((rows, 13), name="X")
    k = te.reduce_axis((0, 13), name="k")
    total = te.compute((rows,), lambda i: te.sum(te.exp(X[i, k]), axis=k), name="total")
    return te.create_prim_func(
        [X, te.compute((rows, 13), lambda i, j: te.exp(X[i, j]) / total[i] + shift, name="Y")], name="soft"
    )


def test_equal() -> None:
    found = tir.equivalent(matmul(7, 13, 5), tiled(7, 13, 5, 2, 4))
    assert found and str(found) == "equal on 3 random inputs, bit by bit"
    s = Schedule(soft())
    s.parallel(s.get_loops("Y")[0])
    found = tir.equivalent(soft(), s, seeds=2)
    u = 2.0**-24
    assert found and 13 * u < found.tolerance < 4 * 13 * u


def test_different() -> None:
    A = te.placeholder((3, 4), "int32", name="A")

    def made(wrong: bool) -> tir.PrimFunc:
        def value(i, j):
            return A[i, j] + te.if_then_else(te.all(i.equal(1), j >= 2), 1, 0) if wrong else A[i, j] + 0 * i

        return te.create_prim_func([A, te.compute((3, 4), value, name="B")])

    found = tir.equivalent(made(False), made(True))
    assert not found
    start, _, rest = str(found).partition(" is ")
    assert start == "different: B[1, 2]" and rest.endswith(" (2 of 12 elements differ), on the inputs of seed 0")
    assert not tir.equivalent(soft(), soft(1e-3))


def test_other_parameters() -> None:
    with pytest.raises(ValueError) as caught:
        tir.equivalent(soft(), soft(rows=6))
    assert str(caught.value) == (
        "soft and soft take different parameters: X: float32[7, 13], Y: float32[7, 13] against X: float32[6, 13], Y: float32[6, 13]"
    )


def test_compare() -> None:
    func = matmul(7, 13, 5)
    kernel = tir.build(func, ONE)
    found = tir.compare({"plain": func, "tiled": Schedule(tiled(7, 13, 5, 2, 4)), "built": kernel}, ONE, seconds=0.0)
    assert set(found.seconds) == {"plain", "tiled", "built"} and list(found.seconds.values()) == sorted(found.seconds.values())
    assert {len(s) for s in found.samples.values()} == {5} and found.flop == 2 * 7 * 13 * 5
    lines = str(found).splitlines()
    assert lines[0].split() == ["median", "quartiles", "GFLOP/s", "×", "fastest"] and len(lines) == 4
    assert [line.split()[0] for line in lines[1:]] == list(found.seconds)
    assert "innermost loop" in found.reports["plain"]
    html = found._repr_mimebundle_()["text/html"]
    assert html.count("<tr>") == 4 and html.count("<circle") == 15


def test_compare_refuses() -> None:
    with pytest.raises(ValueError, match=r"^compare takes at least one program$"):
        tir.compare({}, ONE)
    with pytest.raises(ValueError, match=r"^'1' takes other parameters than '0': <Kernel "):
        tir.compare([matmul(7, 13, 5), matmul(7, 13, 6)], ONE)
