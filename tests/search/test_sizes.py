"""Functions of open sizes: schedules that are right for all, kernels with variants, tuning."""

from __future__ import annotations

import pickle
import subprocess
from typing import Any

import numpy as np
import pytest

import tir
from codegen import ObjectCache
from schedule import Schedule
from search.measure import Comparison, Measurement
from search.sizes import adapted, combinations
from tests.arrays import integers
from tests.codegen.c_programs import CC, needs_cc
from tests.search.tuning.test_race import Scripted
from tir import te

ONE, TWO = TARGETS = ("llvm -num-cores 1", "llvm -num-cores 2")


def product(relu: bool = True) -> tir.PrimFunc:
    n = te.var("n")
    A, B = te.placeholder((n, 9), name="A"), te.placeholder((9, 48), name="B")
    k = te.reduce_axis((0, 9), name="k")
    C = te.compute((n, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((n, 48), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return te.create_prim_func([n, A, B, D if relu else C], name="product")


def softmax() -> tir.PrimFunc:
    n = te.var("n")
    X = te.placeholder((n, 20), name="X")
    j, k = te.reduce_axis((0, 20), name="j"), te.reduce_axis((0, 20), name="k")
    most = te.compute((n,), lambda i: te.max(X[i, j], axis=j), name="most")
    total = te.compute((n,), lambda i: te.sum(X[i, k] - most[i], axis=k), name="total")
    return te.create_prim_func([X, te.compute((n, 20), lambda i, j: X[i, j] - total[i], name="Y"), n], name="rows")


def convolution() -> tir.PrimFunc:
    n = te.var("n")
    X, W = te.placeholder((n, 4, 4, 4), name="X"), te.placeholder((3, 3, 4, 16), name="W")
    r, s, c = (te.reduce_axis((0, e), name=name) for name, e in (("r", 3), ("s", 3), ("c", 4)))
    inside = lambda x: te.all(x >= 1, x < 5)  # noqa: E731
    P = te.compute(
        (n, 6, 6, 4), lambda b, h, w, c: te.if_then_else(te.all(inside(h), inside(w)), X[b, h - 1, w - 1, c], 0.0), name="P"
    )
    C = te.compute((n, 4, 4, 16), lambda b, h, w, f: te.sum(P[b, h + r, w + s, c] * W[r, s, c, f], axis=[r, s, c]), name="C")
    return te.create_prim_func([n, X, W, C], name="conv")


def elements() -> tir.PrimFunc:
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), name="X")
    return te.create_prim_func([n, m, X, te.compute((n, m), lambda i, j: X[i, j] * 2.0 + 1.0, name="Y")], name="elements")


FUNCTIONS = {f.__name__: f for f in (product, softmax, convolution, elements)}


def agree(kernel: Any, func: tir.PrimFunc, values: dict[str, int]) -> None:
    """The numbers of a kernel are those of the interpreter."""
    arguments = integers(func, 0, values)
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    tir.run(func, *wanted)
    kernel(*arguments)
    assert all(np.array_equal(x, y) for x, y in zip(arguments, wanted, strict=True)), values


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_default_schedules_are_right_for_all_sizes(name, target) -> None:
    func = FUNCTIONS[name]()
    kernel = tir.build(tir.default_schedule(func, target), target)
    for n in (1, 2, 13):
        agree(kernel, func, {"n": n, "m": 7 * n})


def test_the_default_schedule_of_a_product() -> None:
    """The levels that cover the rows at the known size are not repeated at small ones; the epilogue follows each tile."""
    s = tir.default_schedule(product(), "llvm -num-cores 1 -mcpu x86-64-v3", sizes={"n": 100})
    assert (
        s.func.outline()
        == """\
product(A[n, 9], B[9, 48], D[n, 48], n)
    allocates C[n, 48]
    for i_0 in (n + 3) // 4, j_1_1 in 2:
        for k in 9, i_2 in unroll(4), j_2 in vectorized(24) where i_0 * 4 + i_2 < n:
            C[i_0 * 4 + i_2, j_1_1 * 24 + j_2] += A[i_0 * 4 + i_2, k] * B[k, j_1_1 * 24 + j_2]  # from 0
        for ax0 in 4, ax1 in vectorized(24) where i_0 * 4 + ax0 < n:
            D[i_0 * 4 + ax0, j_1_1 * 24 + ax1] = max(C[i_0 * 4 + ax0, j_1_1 * 24 + ax1], 0)
"""
    )


def test_a_loop_becomes_a_vector_in_parts() -> None:
    func = elements()
    known = Schedule(tir.specialize(func, {"n": 7, "m": 16}))
    known.vectorize("j")
    assert (
        str(adapted(func, known.trace, {"n": 7, "m": 16}).trace)
        == """\
s.split('j', [None, 32])  # j_0, j_1
s.vectorize('j_1')
"""
    )


def test_names_that_differ_are_found_by_place() -> None:
    """A step that is refused makes no loops, so that later ones have other names."""
    func = product()
    known = Schedule(tir.specialize(func, {"n": 40}))
    known.split("i", [None, 8], tail="perfect")
    _, inner = known.split("i_1", [None, 4])
    known.vectorize(inner)
    assert str(known.trace).splitlines() == [
        "s.split('i', [None, 8], tail='perfect')  # i_0, i_1_1",
        "s.split('i_1', [None, 4])  # i_1_0, i_1_1_1",
        "s.vectorize('i_1_1_1')",
    ]
    assert str(adapted(func, known.trace, {"n": 40}).trace).splitlines() == [
        "s.split('i_1', [None, 4])  # i_1_0, i_1_1",
        "s.vectorize('i_1_1')",
    ]


def test_combinations() -> None:
    func = elements()
    assert combinations(func, {"n": 7, "m": (1, 13)}) == [{"n": 7, "m": 1}, {"n": 7, "m": 13}]
    assert combinations(func, None) == [{"n": 128, "m": 128}]
    for sizes, message in (
        ({"n": 7}, "sizes names sizes for all of n, m of elements; m is left out"),
        ({"n": 7, "m": range(1, 80)}, "sizes names 79 combinations for elements; 1 to 64 can be built"),
        ({"n": 7, "m": ()}, "sizes names 0 combinations for elements; 1 to 64 can be built"),
        ({"n": 7, "m": 7, "k": 7}, "no size of elements is named 'k'; there are: n, m"),
        ({"n": 7, "m": -1}, "the size m of elements must be a positive integer, got -1"),
    ):
        with pytest.raises(ValueError) as caught:
            combinations(func, sizes)
        assert str(caught.value) == message


@pytest.mark.parametrize("target", [TWO])
def test_a_kernel_has_a_variant_for_each_of_the_sizes(tmp_path, target) -> None:
    func, cache = elements(), ObjectCache(tmp_path)
    kernel = tir.compile(func, target, sizes={"n": (1, 13), "m": 16}, cache=cache)
    assert [name for name in ("n1_m16", "n13_m16", "any") if f"@tir_elements_{name}(" in kernel.llvm_ir()] == [
        "n1_m16",
        "n13_m16",
        "any",
    ]
    for n in (1, 2, 13):
        for m in (16, 17):
            agree(kernel, func, {"n": n, "m": m})
    again = tir.compile(func, target, sizes={"n": (1, 13), "m": 16}, cache=cache)
    assert again.code == kernel.code and cache.statistics.hits == 1
    agree(pickle.loads(pickle.dumps(again)), func, {"n": 13, "m": 16})


@needs_cc
def test_variants_are_exported(tmp_path) -> None:
    kernel = tir.compile(elements(), ONE, sizes={"n": 3, "m": 5}, cache=None)
    kernel.export(tmp_path / "elements.o")
    (tmp_path / "main.c").write_text(
        """#include "elements.h"
int main(void) {
    float x[21], y[21];
    int wrong = 0;
    for (int i = 0; i < 21; i++) x[i] = i;
    for (int n = 3; n < 5; n++) {
        elements(n, 5, x, y);
        for (int i = 0; i < n * 5; i++) wrong += y[i] != 2 * i + 1;
    }
    return wrong;
}
"""
    )
    subprocess.run([CC, "main.c", "elements.o", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"]).returncode == 0


class Untimed(Scripted):
    """Takes each candidate to need as many seconds as its sketch's name has letters, and the default schedule 100."""

    def measure(self, candidates):
        for c in candidates:
            seconds = 100.0 if c.sketch == "default" else float(len(c.sketch))
            yield Measurement(c, "ok", (seconds,), max_error=0.0, digest=str(c.row))

    def compare(self, candidates, **options):
        return Comparison(tuple(self.measure(candidates)))


def test_tuning_at_several_sizes(tmp_path) -> None:
    func, file, seen = product(), tmp_path / "tune.db", []
    options = {"policy": "random", "model": "none", "measurer": lambda task: Untimed(task, written=(200.0,))}
    found = tir.autotune(func, ONE, trials=6, sizes={"n": (3, 13)}, records=file, callbacks=[seen.append], **options)
    assert found.sizes == ({"n": 3}, {"n": 13}) and seen
    each = [r.seconds for r in found.results if r is not None]
    assert len(each) == 2 and max(each) < 100 and found.seconds == pytest.approx(np.sqrt(each[0] * each[1]), rel=1e-12)
    tuned = tir.compile(func, ONE, sizes={"n": (3, 13)}, records=file, cache=None)
    assert tuned.llvm_ir() == found.kernel.llvm_ir() != tir.compile(func, ONE, sizes={"n": (3, 13)}, cache=None).llvm_ir()
    for n in (1, 3, 13):
        agree(tuned, func, {"n": n})
    assert pickle.loads(pickle.dumps(found)).sizes == found.sizes


def test_refusals() -> None:
    func = tir.specialize(product(), {"n": 7})
    with pytest.raises(ValueError, match=r"^sizes was given, but no size of product is open$"):
        tir.compile(func, ONE, sizes={"n": 7})
    with pytest.raises(ValueError, match=r"^rules, workload, workers, builder and inputs are for a function of constant sizes$"):
        tir.autotune(product(), ONE, sizes={"n": 7}, workers=1)
    with pytest.raises(ValueError, match=r"^sizes is for processors, target llvm, got cuda$"):
        tir.compile(product(), "cuda", sizes={"n": 7})
