"""Kernels emulated on the CPU, beside the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.compile import available
from schedule import Schedule
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import compiler, emulate
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc

TARGET = tir.Target("cuda")
no_compiler = pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")


def without(text: str, n: int) -> str:
    """CUDA C without its barrier number `n`."""
    parts = text.split("__syncthreads();")
    return "__syncthreads();".join(parts[: n + 1]) + parts[n + 1] + "".join(f"__syncthreads();{p}" for p in parts[n + 2 :])


def check(after: PrimFunc, func: PrimFunc, barriers: int | None = None) -> str:
    """`after` computes on the emulation what `func` does in the interpreter; its CUDA C."""
    (text,) = check_all([(after, func)])
    if barriers is not None:
        assert text.count("__syncthreads") == barriers, text
    return text


def check_all(pairs: list[tuple[PrimFunc, PrimFunc]], target: tir.Target = TARGET) -> list[str]:
    """The same for many, with one call of the compiler."""
    programs = [lower_cuda(after, target) for after, _ in pairs]
    for (_, func), emulated in zip(pairs, emulate(*programs), strict=True):
        args = integers(func, 0)
        expected = copies(args)
        run(func, *expected)
        for seed in (0, 1, 2):
            got = copies(args)
            emulated(*got, seed=seed)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=emulated.source.text)
    return [emit(p).text for p in programs]


def sums(rows: int, columns: int, reducer=te.sum, dtype: str = "float32") -> PrimFunc:
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    B = te.compute((rows,), lambda i: reducer(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


def staged(value, scope: str) -> PrimFunc:
    """`value(B, i)`, where the 16 threads of a block compute their elements of B in memory of a scope."""
    A = te.placeholder((64,), "float32", name="A")
    B = te.compute((64,), lambda i: A[i] * te.const(2, "float32"), name="B")
    C = te.compute((64,), lambda i: value(B, i), name="C")
    s = Schedule(te.create_prim_func([A, C]))
    bx, tx = s.split(s.get_loops("C")[0], [None, 16])
    s.compute_at("B", bx)
    s.set_scope("B", 0, scope)
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    s.bind(tx, "threadIdx.x")
    s.bind(bx, "blockIdx.x")
    return s.func
