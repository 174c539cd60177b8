"""Long bodies in parts: what runs is the same, and short bodies stay whole."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
from codegen.llvm import parts
from schedule import Schedule
from tests.codegen.harness import ONE, TWO, same
from tir import te
from tir.ir import PrimFunc, Var

STAGES = 13


@pytest.fixture
def short(monkeypatch):
    """Bodies are long from nine loops and stores on."""
    monkeypatch.setattr(parts, "MAX_STATEMENTS", 8)
    monkeypatch.setattr(parts, "PART_STATEMENTS", 4)


def chain(*shape, stages: int = STAGES) -> Schedule:
    """Elementwise stages, each of which reads the one before and the first."""
    A = te.placeholder(shape, name="A")
    tensors = [A]
    for n in range(stages):
        old = tensors[-1]
        tensors.append(te.compute(shape, lambda *at, old=old, n=n: old[at] + A[at] * (n % 3), name=f"s{n}"))
    return Schedule(te.create_prim_func([A, tensors[-1]]))


def in_rows(*shape: int) -> Schedule:
    """All stages, a row at a time."""
    s = chain(*shape)
    row = s.get_loops(f"s{STAGES - 1}")[0]
    for n in reversed(range(STAGES - 1)):
        s.compute_at(f"s{n}", row)
    return s


def count(func: PrimFunc, target: str = ONE) -> int:
    return codegen.build(func, target).llvm_ir().count("define internal i32 @tir.part.")


@pytest.mark.usefixtures("short")
def test_parts():
    """Small and large temporaries, straight code, and bodies of loops, which may be parallel."""
    for shape in ((7,), (1,), (2, 4_099)):
        s = chain(*shape)
        assert count(s.func) > 2
        same(s.func)
    for shape in ((5, 9), (2, 4_099)):
        s = in_rows(*shape)
        assert count(s.func) > 2
        same(s.func, targets=[ONE])
        s.parallel(s.get_loops(f"s{STAGES - 1}")[0])
        assert count(s.func, TWO) > 2
        same(s.func, targets=[TWO])


@pytest.mark.usefixtures("short")
def test_parallel_loops_in_parts():
    s = chain(7, 13)
    for n in range(STAGES):
        i, j = s.get_loops(f"s{n}")
        s.parallel(i)
        s.vectorize(j)
    assert count(s.func, TWO) > 2
    same(s.func, targets=[TWO])


@pytest.mark.usefixtures("short")
def test_sizes_of_the_call():
    func = chain(Var("n", "int64"), 3).func
    assert count(func) > 2
    a, s = np.arange(33, dtype="float32").reshape(11, 3), np.zeros((11, 3), "float32")
    codegen.build(func, ONE)(a, s, 11)
    np.testing.assert_array_equal(s, a * (1 + sum(n % 3 for n in range(STAGES))))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("target", [ONE, TWO])
def test_no_memory_in_a_part(target):
    """Each of two nests is a part, with temporaries of its own."""
    s = chain(2, 13, stages=2 * STAGES)
    for end in (STAGES - 1, 2 * STAGES - 1):
        row = s.get_loops(f"s{end}")[0]
        for n in reversed(range(end - STAGES + 1, end)):
            s.compute_at(f"s{n}", row)
        if target == TWO:
            s.parallel(row)
    assert count(s.func, target) > 4
    same(s.func, targets=[target])
    s.storage_align(f"s{STAGES}", 0, -2, 2**53, 0)
    a = np.zeros((2, 13), "float32")
    with pytest.raises(MemoryError, match="main: no memory for its temporaries; the results are undefined"):
        codegen.build(s.func, target)(a, a.copy())


@pytest.mark.usefixtures("short")
def test_bounds():
    """Short bodies are whole; parts of long ones have as many loops and stores as they may."""
    assert count(chain(7, stages=parts.MAX_STATEMENTS // 2).func) == 0
    assert count(chain(7, stages=32).func) == 32 * 2 // parts.PART_STATEMENTS
