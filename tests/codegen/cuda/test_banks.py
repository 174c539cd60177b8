"""Conflicts in shared memory: counted by hand, and none in the library's tiles."""

from __future__ import annotations

import pytest

from benchmarks.gpu_row import product
from codegen.cuda import emit, lower_cuda
from codegen.cuda.banks import ThreadAccess, ways
from codegen.cuda.program import DeviceFunction
from codegen.target import Target
from schedule.templates import gpu
from tests.sweeps import one_in
from tir import workloads
from tir.ir import Const, Seq, Var

TARGET = Target("cuda")
tx, ty, k = Var("tx"), Var("ty"), Var("k")
one = Const(1)
INDICES = {"threadIdx.x": tx, "threadIdx.y": ty, "threadIdx.z": Var("tz")}
KERNEL = DeviceFunction("k", (one, one, one), (32, 2, 1), INDICES, {}, Seq(()), 1, params=(), shared=())


@pytest.mark.parametrize("offset, size, width, worst", [
    (tx, 4, 4, 1),  # a row
    (tx * 32, 4, 4, 32),  # a column
    (tx * 33, 4, 4, 1),  # a column of rows one word longer
    (tx // 32 + k, 4, 4, 1),  # one word for all
    (tx * 2, 4, 4, 2),
    (tx * 2, 4, 8, 1),  # half a warp at once
    (tx * 4, 4, 4, 4),
    (tx * 4, 4, 16, 1),  # a quarter
    (tx % 4 * 132 + tx // 4, 4, 4, 2),  # rows that end 16 bytes off
    (tx % 4 * 136 + tx // 4, 4, 4, 1),  # and 32
    (tx * 40 + k, 2, 16, 1),  # `ldmatrix` of rows of 64 bytes that end 16 off
    (tx * 32, 2, 16, 4),
    (tx // 4 * 40 + tx % 4 * 8, 2, 16, 2),  # two rows of 64 bytes that end 16 off
    (tx, 2, 2, 1),  # two halves of a word
    (ty * 32 + tx * 64, 4, 4, 32),  # warps do not meet
    (tx * (k + 1), 4, 4, 16),  # by 1, and by 16
])  # fmt: skip
def test_by_hand(offset, size, width, worst):
    assert ways(ThreadAccess(offset, size, width), KERNEL, {"k": (0, 15)}) == worst


ROWS = [
    ("float32", (1024, 1024, 1024)), ("float32", (109, 1013, 1007)), ("tf32", (4096, 4096, 4096)), ("float16", (4096, 4096, 4096)),
    ("float16", (1000, 1000, 1000)), ("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)),
]  # fmt: skip


@one_in(2)
@pytest.mark.parametrize("name, shape", ROWS)
def test_tiles_of_the_library_are_free_of_conflicts(name, shape):
    func = workloads.make(name, shape).func if name == "conv2d" else product(name, *shape)
    program = lower_cuda(gpu.schedule(func, TARGET.arch, tf32=name == "tf32").func, TARGET)
    found = [
        (ways(access, kernel, ranges), access)
        for kernel, (accesses, ranges) in zip(program.kernels, emit(program).accesses, strict=True)
        for access in accesses
        if access.shared
    ]
    assert len(found) >= 4 and {n for n, _ in found} == {1}
    assert 16 in {access.width for _, access in found}
