"""Arrays of more than 2^31 elements: the first block, some in the middle and the last, on arrays larger than memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.launch import launches
from schedule.templates import gpu
from tests.codegen.cuda.emulation import EmulationError, compiler, emulate, emulate_texts
from tests.codegen.cuda.virtual import VirtualArray, pattern
from tir import te
from tir.arrays import ArgumentError
from tir.ir import Buffer, PrimFunc

pytestmark = pytest.mark.skipif(compiler is None or sys.platform != "linux", reason="needs g++ and Linux's mmap")
TARGET = tir.Target("cuda")


@dataclass
class Case:
    """A function of one size n, if it is open, that maps arrays to the last one. `expected(n, inputs, flat)` gives its elements
    of row-major offsets `flat`."""

    name: str
    func: PrimFunc
    expected: Callable[..., np.ndarray]
    n: int = 0


def size(n: int, is_open: bool) -> tuple[Any, list[Any]]:
    var = te.var("n")
    return (var, [var]) if is_open else (n, [])


def add(n: int, dtype: str, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A = te.placeholder((N,), dtype, name="A")
    B = te.compute((N,), lambda i: A[i] + te.const(1, dtype), name="B")
    return Case(f"add {dtype} {n}", te.create_prim_func([*sizes, A, B]), lambda n, a, at: a[at] + 1, n)


def bias(n: int, columns: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A, b = te.placeholder((N, columns), name="A"), te.placeholder((columns,), name="b")
    B = te.compute((N, columns), lambda i, j: A[i, j] + b[j], name="B")
    return Case(f"bias {n}", te.create_prim_func([*sizes, A, b, B]), lambda n, a, b, at: a[at] + b[at % columns], n)


def transpose(n: int, columns: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A = te.placeholder((columns, N), "float16", name="A")
    B = te.compute((N, columns), lambda i, j: A[j, i], name="B")
    return Case(f"transpose {n}", te.create_prim_func([*sizes, A, B]), lambda n, a, at: a[at % columns * n + at // columns], n)


def permute(n: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A = te.placeholder((7, 1031, N), "int8", name="A")
    B = te.compute((N, 7, 1031), lambda i, j, k: A[j, k, i], name="B")
    return Case(f"permute {n}", te.create_prim_func([*sizes, A, B]), lambda n, a, at: a[at % 7217 * n + at // 7217], n)


def depthwise(n: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A, W = te.placeholder((N, 3, 1033), "float32", name="A"), te.placeholder((3, 3), "float32", name="W")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((N, 3, 1031), lambda i, c, x: te.sum(A[i, c, x + k] * W[c, k], axis=k), name="B")

    def expected(n, a, w, at):
        row, x = at // 1031, at % 1031
        return sum(a[row * 1033 + x + k] * w[row % 3 * 3 + k] for k in range(3))

    return Case(f"depthwise {n}", te.create_prim_func([*sizes, A, W, B]), expected, n)


def product(n: int, columns: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A, B, k = te.placeholder((N, 3), name="A"), te.placeholder((3, columns), name="B"), te.reduce_axis((0, 3), "k")
    C = te.compute((N, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

    def expected(n, a, b, at):
        row, column = at // columns, at % columns
        return sum(a[row * 3 + k] * b[k * columns + column] for k in range(3))

    return Case(f"product {n}", te.create_prim_func([*sizes, A, B, C]), expected, n)


def sums(n: int, columns: int, is_open: bool) -> Case:
    N, sizes = size(n, is_open)
    A, k = te.placeholder((N, columns), name="A"), te.reduce_axis((0, columns), "k")
    B = te.compute((N,), lambda i: te.sum(A[i, k], axis=k), name="B")
    rows = np.arange(columns)
    return Case(f"sums {n}", te.create_prim_func([*sizes, A, B]), lambda n, a, at: a[at[:, None] * columns + rows].sum(-1), n)


CASES = [
    add(3_000_000_001, "float32", False), add(2**33 + 16, "int8", False), add(2**31 - 1, "float32", True),
    *(bias(3_000_001, 1023, o) for o in (False, True)), *(transpose(65537, 65539, o) for o in (False, True)),
    *(permute(600_011, o) for o in (False, True)), *(depthwise(900_007, o) for o in (False, True)),
    *(product(70_001, 40_003, o) for o in (False, True)), *(sums(2_100_013, 1023, o) for o in (False, True)),
]  # fmt: skip


@pytest.fixture(scope="module")
def emulated():
    return emulate(*(lower_cuda(gpu.schedule(c.func).func, TARGET) for c in CASES))


@pytest.mark.parametrize("number", range(len(CASES)), ids=[c.name.replace(" ", "_") for c in CASES])
def test_blocks_of_large_arrays_write_what_they_should(emulated, number) -> None:
    case, program = CASES[number], emulated[number]
    *inputs, output = [p for p in case.func.params if isinstance(p, Buffer)]
    sizes = {p.name: case.n for p in case.func.params if not isinstance(p, Buffer)}
    ((_, grid, _),) = launches(program.program, sizes)
    assert all(max(k.block) > 1 for k in program.program.kernels)
    count = prod(grid)

    def virtual(b: Buffer, filled: np.ndarray | None) -> VirtualArray:
        shape = tuple(case.n if not isinstance(d, tir.ir.Const) else int(d.value) for d in b.shape)
        return VirtualArray(shape, b.dtype, filled)

    given, made = [virtual(b, pattern(b.dtype)) for b in inputs], virtual(output, None)
    try:
        arrays = iter([*(g.array for g in given), made.array])
        args = [next(arrays) if isinstance(p, Buffer) else case.n for p in case.func.params]
        program(*args, blocks=sorted({0, count // 3, count // 2, count * 3 // 4, count - 1}))
        at = made.written()
        assert at[0] == 0 and at[-1] == made.array.size - 1, at
        assert len(at) > 5 or made.array.size < 100
        expected = case.expected(case.n, *given, at)
        np.testing.assert_array_equal(made.array.reshape(-1)[at], expected.astype(output.dtype))
        del args, arrays
    finally:
        for a in (*given, made):
            a.__exit__()


def test_indices_of_32_bits_are_trapped() -> None:
    """The last block of `add` where indices are cut, which is undefined in C."""
    program = lower_cuda(gpu.schedule(CASES[0].func).func, TARGET)
    text = emit(program).kernels
    assert "(long long)" in text
    (emulated,) = emulate_texts(program, text.replace("(long long)", "").replace("ll", ""))
    ((_, grid, _),) = launches(program, {})
    shape = (3_000_000_001,)
    with VirtualArray(shape, "float32", pattern("float32")) as a, VirtualArray(shape, "float32") as b:
        emulated(a.array, b.array, blocks=[0])
        with pytest.raises(EmulationError, match=r"undefined behaviour: mul_overflow at line \d+"):
            emulated(a.array, b.array, blocks=[grid[0] - 1])


def test_more_blocks_than_a_grid_has_are_refused() -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m, 4), name="A")
    func = te.create_prim_func([n, m, A, te.compute((n, m, 4), lambda i, j, k: A[i, j, k] * A[i, j, k], name="B")])
    s = tir.Schedule(func)
    for loop, thread in zip(s.get_loops("B"), ("blockIdx.y", "blockIdx.x", "threadIdx.x"), strict=True):
        s.bind(loop, thread)
    program = lower_cuda(s.func, TARGET)
    assert len(list(launches(program, {"n": 65535, "m": 1}))) == 1
    with pytest.raises(ArgumentError, match=r"^main_kernel0: 65536 blocks along y; CUDA has at most 65535$"):
        list(launches(program, {"n": 65536, "m": 1}))
    assert not list(launches(program, {"n": 65536, "m": 0}))
