"""Arrays that are written past the caches wherever they begin."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
from schedule import Schedule
from tests.codegen.harness import ONE, TWO, integers, runs_here, same
from tests.codegen.llvm.test_memory import plus_one, streamed
from tests.sweeps import one_in
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc

LINE = 64
LEVELS = [f"{ONE} -mcpu {level}" for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")]


def at(offset: int, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """An array that begins so many elements after a line, and the memory that it is in, full of a number."""
    size = np.dtype(dtype).itemsize
    memory = np.full(int(np.prod(shape)) + 3 * LINE // size, -9, dtype)
    first = -memory.ctypes.data % LINE // size + offset
    return memory[first : first + int(np.prod(shape))].reshape(shape), memory


def rows(*shape: int, dtype: str = "float32") -> PrimFunc:
    """y = x + 1 with whole rows as vectors, whose stores to y bypass the caches."""
    s = Schedule(plus_one(*shape, dtype=dtype))
    s.vectorize(s.get_loops("y")[-1])
    s.annotate(s.get_loops("y")[0], "non_temporal", "y")
    return s.func


def check(func: PrimFunc, target: str) -> None:
    """At every distance from a line the kernel writes what the interpreter does, and nothing beside it."""
    if not runs_here(target):
        codegen.build(func, target)
        return
    kernel = codegen.build(func, target)
    x, expected = integers(func, 0)
    run(func, x, expected)
    size = expected.itemsize
    for offset in range(LINE // size):
        y, memory = at(offset, expected.shape, str(expected.dtype))
        kernel(x, y)
        assert np.array_equal(y, expected)
        assert (memory == -9).sum() == memory.size - y.size + (y == -9).sum()


@one_in(3)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("columns", [256, 297, 421, 1019])
@pytest.mark.parametrize("target", LEVELS)
def test_rows_of_any_length_at_any_address(columns, dtype, target):
    func = rows(3, columns, dtype=dtype)
    check(func, target)
    same(func, targets=[target], fences=True)


@pytest.mark.parametrize("target", LEVELS)
def test_strips_of_some_vectors(target):
    func = streamed(13 * 64, lanes=64)
    check(func, target)
    same(func, targets=[target], fences=True)


def test_rows_shared_by_threads():
    same(streamed(7, 9 * 32 + 1, parallel=True), targets=[TWO], fences=True)


def test_other_operands_stay_where_they_are():
    """A number a row, a row for all, and the same array in another row."""
    x, b = te.placeholder((5, 300), name="x"), te.placeholder((300,), name="b")
    y = te.compute((5, 300), lambda i, j: x[4 - i, j] * b[j] + x[i, 0], name="y")
    s = Schedule(te.create_prim_func([x, b, y]))
    s.vectorize(s.get_loops("y")[1])
    s.annotate(s.get_loops("y")[0], "non_temporal", "y")
    same(s.func, targets=LEVELS, fences=True)


def text(func: PrimFunc) -> str:
    return codegen.build(func, LEVELS[-1]).asm()


def test_all_stores_are_non_temporal():
    """There is one version. The first and the last elements of a row are stored one by one, and what is left of the last vector."""
    for columns, last in ((272, 0), (297, 9)):
        asm = text(rows(3, columns))
        assert asm.count("vmovntps") == 1 and asm.count("movnti") == 2 + last


def test_nothing_is_shifted_that_cannot_be():
    """Elements of two bytes, which have no non-temporal store of their own; loops of few iterations; and what depends on the loop."""
    assert "movnti" not in text(rows(3, 297, dtype="float16")) + text(rows(3, 100))
    x = te.placeholder((3, 256), "int32", name="x")
    s = Schedule(te.create_prim_func([x, te.compute((3, 256), lambda i, j: x[i, j] + j, name="y")]))
    s.vectorize(s.split(s.get_loops("y")[1], [None, 16])[1])
    s.annotate(s.get_loops("y")[0], "non_temporal", "y")
    assert "movnti" not in text(s.func)
    check(s.func, ONE)
