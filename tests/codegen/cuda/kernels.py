"""Kernels emulated on the CPU, beside the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import compiler, emulate
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc

TARGET = tir.Target("cuda")
no_compiler = pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")


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


def check_all(pairs: list[tuple[PrimFunc, PrimFunc]]) -> list[str]:
    """The same for many, with one call of the compiler."""
    programs = [lower_cuda(after, TARGET) for after, _ in pairs]
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
