"""Products in tile registers: one instruction where the processor has it, the same numbers everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import Schedule
from tests.arrays import integers, widened
from tests.schedule.harness import same_numbers
from tests.schedule.primitives.blocks.test_tensorize import dot

AMX = tir.Target("llvm", num_cores=1, mcpu="sapphirerapids", vector_bits=512)
HERE = tir.Target("llvm", num_cores=1).features >= {"amx-tile", "amx-int8", "amx-bf16"}
runs = pytest.mark.skipif(not HERE, reason="this processor has no tile registers")
KINDS = {
    "s8s8": ("int8", "int8", "int32", "tdpbssd"), "s8u8": ("int8", "uint8", "int32", "tdpbsud"),
    "u8s8": ("uint8", "int8", "int32", "tdpbusd"), "u8u8": ("uint8", "uint8", "int32", "tdpbuud"),
    "bf16": ("bfloat16", "bfloat16", "float32", "tdpbf16ps"),
}  # fmt: skip


def tiled(kind: str, rows: int = 2, columns: int = 2, steps: int = 3, decomposed: bool = True):
    """A product of so many tiles, and its schedule: register tiles of two by two, so far as there are as many."""
    left, right, total, _ = KINDS[kind]
    parts = 4 if total == "int32" else 2
    func = dot(16 * rows, 16 * columns, 16 * steps, parts, left, right, total)
    s = Schedule(func)
    i0, i1, i2 = s.split("i", [None, min(rows, 2), 16])
    j0, j1, j2 = s.split("j", [None, min(columns, 2), 16])
    k0, k1 = s.split("ko", [None, 16])
    s.reorder(i0, j0, k0, i1, j1, i2, j2, k1, "ki")
    s.unroll(i1)
    s.unroll(j1)
    if decomposed:
        s.decompose_reduction("C", k0)
    s.tensorize(i2, f"amx_16x16x{16 * parts}_{kind}")
    return func, s


def right(kernel, func, seed: int = 0) -> bool:
    """Whether a kernel computes the product of `func`, of integers that no sum of rounds."""
    a, b, c = integers(func, seed)
    kernel(a, b, c)
    x, y = (widened(v, p.dtype) for v, p in zip((a, b), func.buffers, strict=False))
    return np.array_equal(c, x @ y.transpose(0, 2, 1).reshape(x.shape[1], -1))


@runs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tiles", [(1, 1, 1), (2, 2, 3), (4, 6, 2), (1, 4, 2)])
def test_one_instruction(kind, tiles):
    func, s = tiled(kind, *tiles)
    kernel = tir.build(s.func, tir.Target("llvm", num_cores=1))
    assert KINDS[kind][-1] in kernel.asm()
    assert right(kernel, func)


@pytest.mark.parametrize("steps", [1, 3])
def test_results_stay_in_registers_and_start_from_zero(steps):
    _, s = tiled("s8s8", 4, 4, steps)
    text = tir.build(s.func, AMX).llvm_ir()
    calls = {name: text.count(f"call void @llvm.x86.{name}(") for name in ("tilezero", "tileloadd64", "tdpbssd", "tilestored64")}
    assert calls == {"tilezero": 4, "tileloadd64": 4, "tdpbssd": 4, "tilestored64": 4}
    assert text.count("ldtilecfg(ptr @") == text.count("tilerelease()") - 1 == 1


@runs
def test_an_init_of_more_than_the_tiles_stays():
    """A row of tiles is set to zero at once, in front of the loop over them."""
    func, s = tiled("s8s8", 2, 6, decomposed=False)
    s.decompose_reduction("C_o", s.get_loops("C_o")[1])
    kernel = tir.build(s.func, tir.Target("llvm", num_cores=1))
    assert "tilezero" not in kernel.llvm_ir() and right(kernel, func)


@runs
@pytest.mark.parametrize("cores", [1, 2])
def test_threads_have_registers_of_their_own(cores):
    func, s = tiled("s8s8", 8, 2)
    s.parallel(s.get_loops("C_update_o")[0])
    assert right(tir.build(s.func, tir.Target("llvm", num_cores=cores)), func)


@pytest.mark.parametrize("kind", KINDS)
def test_other_processors_run_the_nest(kind):
    before, s = tiled(kind, 1, 1, 1)
    kernel = tir.build(s.func, tir.Target("llvm", num_cores=1, mcpu="x86-64-v3"))
    assert "tdp" not in kernel.asm() and "x86.tile" not in kernel.llvm_ir() and right(kernel, before)
    same_numbers(before, s.func, seeds=(0,), llvm=False)


@runs
def test_extreme_bytes():
    _, s = tiled("s8s8", 1, 1, 2)
    a, b = np.full((16, 128), -128, np.int8), np.full((32, 16, 4), -128, np.int8)
    b[:, ::2] = 127
    c = np.zeros((16, 16), np.int32)
    tir.build(s.func, tir.Target("llvm", num_cores=1))(a, b, c)
    assert np.array_equal(c, a.astype(np.int32) @ b.transpose(0, 2, 1).reshape(128, 16).astype(np.int32))


@runs
def test_subnormal_numbers_are_taken_as_zero():
    """As the documentation of bfloat16 says; sums of two products are rounded to even."""
    _, s = tiled("bf16", 1, 1, 1)
    a, b = np.full((16, 32), 0x0001, np.uint16), np.full((16, 16, 2), 0x3F80, np.uint16)
    c = np.ones((16, 16), np.float32)
    tir.build(s.func, tir.Target("llvm", num_cores=1))(a, b, c)
    assert np.all(c == 0)
