"""Transposes through shared memory: whole lines on both sides, no bank conflicts, and right for any type, order and size."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.banks import excess_sectors, ways
from schedule import replay
from schedule.templates import gpu
from schedule.templates.gpu import transposes
from search.population.sample import sample
from search.space import generate
from tests.arrays import integers
from tests.codegen.cuda.device_programs import ORDERS, permute
from tests.codegen.cuda.emulation import EmulationError, emulate_texts
from tests.codegen.cuda.kernels import check_all, no_compiler, without
from tests.sweeps import one_in
from tir import te
from tir.ir import PrimFunc
from tir.traverse import blocks

TARGET = tir.Target("cuda")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int32", "uint8")


def activated(rows: int, columns: int) -> PrimFunc:
    """A sum of two transposed arrays and two that are not, which is rounded to halves."""
    A, B = (te.placeholder((columns, rows), "float32", name=name) for name in "AB")
    C, D = te.placeholder((rows, columns), "float32", name="C"), te.placeholder((columns,), "float32", name="D")
    T = te.compute((rows, columns), lambda i, j: A[j, i] + B[j, i], name="T")
    return te.create_prim_func(
        [
            A,
            B,
            C,
            D,
            te.compute((rows, columns), lambda i, j: te.maximum(T[i, j] * C[i, j] + D[j], 0).astype("float16"), name="E"),
        ]
    )


def is_through_shared(func: PrimFunc) -> bool:
    (kernel,) = lower_cuda(gpu.schedule(func).func, TARGET).kernels
    return bool(kernel.shared)


@no_compiler
def test_any_order_and_type() -> None:
    cases = [
        permute(shape, order, dtype) for n, (shape, order) in enumerate(ORDERS) for dtype in (DTYPES[n % 7], DTYPES[(n + 3) % 7])
    ]
    cases += [activated(77, 45), activated(64, 128)]
    check_all([(gpu.schedule(f).func, f) for f in cases])
    assert all(map(is_through_shared, cases))
    rows = permute((5, 7, 64), (1, 0, 2))  # rows stay whole
    assert not is_through_shared(rows) and not is_through_shared(permute((1, 64), (1, 0)))


@one_in(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, order", [((8192, 8192), (1, 0)), ((32, 256, 56, 56), (0, 2, 3, 1)), ((32, 56, 56, 256), (0, 3, 1, 2))]
)
def test_lines_are_whole_on_both_sides(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    """Each request of a warp moves the sectors of its bytes alone, 64 bytes at least; no two threads wait for one bank."""
    program = lower_cuda(gpu.schedule(permute(shape, order, dtype)).func, TARGET)
    (kernel,), ((accesses, ranges),) = program.kernels, emit(program).accesses
    moved = [x for x in accesses if not x.shared]
    assert len(moved) == 2 and {x.width for x in moved} == {max(4, moved[0].size)}
    assert all(excess_sectors(x, kernel, ranges) == 0 for x in moved)
    assert len(accesses) > 2 and all(ways(x, kernel, ranges) == 1 for x in accesses if x.shared)


@no_compiler
def test_the_barrier_of_a_square_is_needed() -> None:
    func = permute((72, 100), (1, 0))
    program = lower_cuda(gpu.schedule(func).func, TARGET)
    text = emit(program).kernels
    assert text.count("__syncthreads();") == 1
    (broken,) = emulate_texts(program, without(text, 0))
    with pytest.raises(EmulationError, match="race"):
        broken(*integers(func, 0))


@no_compiler
def test_random_rows_are_right() -> None:
    func = permute((45, 77, 3), (1, 2, 0), "float16")
    (sketch,) = generate(func, TARGET)
    rows = sample(sketch, TARGET, 4, np.random.default_rng(0)).tolist()
    check_all([(replay(func, sketch.trace(row)).func, func) for row in rows])


def test_edges_hold_a_line_or_more_of_the_other() -> None:
    for shape, dtype, wanted in (
        ((8192, 8192), "float32", (32, 32)), ((8192, 8192), "int8", (128, 128)), ((8192, 8192), "float64", (32, 32)),
        ((1000, 3), "float32", (3, 341)), ((3, 1000), "float32", (341, 3)), ((3, 5), "float32", (5, 3)),
    ):  # fmt: skip
        block = next(b for b in blocks(permute(shape, (1, 0), dtype)) if b.iters)
        found = transposes.matches(block)
        assert found is not None and transposes.edges(found) == wanted, (shape, dtype)
