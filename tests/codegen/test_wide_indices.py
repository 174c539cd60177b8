"""Indices are exact: where 32 bits do not hold what is computed on the way to one, 64 do, and more than these are refused."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import lower_cuda
from tests.codegen.cuda.emulation import compiler, emulate
from tests.codegen.harness import ONE, same
from tests.sweeps import one_in
from tir.script import parse

N = 64
HEAD = '@T.prim_func\ndef main(A: T.Buffer((64,), "{dtype}"), C: T.Buffer((64,), "{dtype}"), n: T.int32):\n    for i in {loop}:\n        '
BIG = "i * 65536 * 65536"
BODIES = {
    "quotient": f"C[i] = A[({BIG} + i) // 65536 // 65536]",
    "product of variables": "for j in range(3):\n            C[i] = A[(i * 50000) * (j * 50000) // 1000000007 % 64]",
    "product of sizes": "C[i] = A[(n * 60000) * (n * 60000) % 63]",
    "sum": "C[i] = A[(i + 2147483647 + n) % 64]",
    "least": f"C[i] = A[T.min({BIG}, i)]",
    "choice": f"C[i] = A[T.Select(i > 3, {BIG} + i, {BIG} + 63) % 64]",
    "sign": f"C[i] = A[-({BIG} - 3) % 64]",
    "condition": f"C[i] = T.if_then_else({BIG} + i > 8589934592, A[i], 1)",
    "value": f"C[i] = {BIG} // 65536 + i",
    "divisor": f"C[i] = (A[i] - 7) // ({BIG} + 5)",
    "remainder": f"C[i] = (A[i] - 7) % ({BIG} + 5)",
    "dividend": f"C[i] = ({BIG} + 5) // (A[i] + 1)",
    "least beside an element": f"C[i] = T.min(A[i], {BIG} - 5)",
    "largest beside an element": f"C[i] = T.max(A[i], {BIG} - 5)",
    "choice beside an element": f"C[i] = T.Select(A[i] > 5, {BIG} + 3, A[i]) // 3",
    "lazy choice": f"C[i] = T.if_then_else(A[i] > 5, {BIG} + 3, A[i]) // 3",
    "comparison with an element": f"C[i] = T.if_then_else(A[i] > {BIG} - 5, 1, 0)",
    "compared quotient": f"C[i] = T.if_then_else(A[i] // ({BIG} + 5) == 0, 1, 0)",
    "magnitude": f"C[i] = T.abs({BIG} - 9) // 65536",
    "shift": f"C[i] = T.shr({BIG} + i, 3)",
    "float": f'C[i] = T.Cast("{{dtype}}", T.Cast("float64", {BIG}) / 65536.0)',
}


@one_in(2)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("body", BODIES)
def test_exact(body, dtype):
    head, text = HEAD.format(dtype=dtype, loop="range(64)"), BODIES[body].replace("{dtype}", dtype)
    args = [np.arange(N).astype(dtype), np.zeros(N, dtype), 5]
    for loop in ("range(64)", "T.vectorized(64)"):
        func = parse(head.replace("range(64)", loop) + text)
        expected = same(func, args, targets=[ONE])
    if "largest" in body or "choice" in body:
        tir.run(func, *args, fast=True)
        assert np.array_equal(args[1], expected[1])


@pytest.mark.skipif(compiler is None, reason="needs g++")
def test_exact_on_a_gpu():
    """Emitted CUDA C, compiled as C++ in one piece."""
    head = HEAD.format(dtype="int32", loop='T.thread_binding(64, thread="threadIdx.x")')
    funcs = [parse(head + text.replace("{dtype}", "int32")) for text in BODIES.values()]
    programs = [lower_cuda(f, tir.Target("cuda")) for f in funcs]
    for body, func, program in zip(BODIES, funcs, emulate(*programs), strict=True):
        a, c = np.arange(N, dtype="int32"), np.zeros(N, "int32")
        expected = c.copy()
        tir.run(func, a, expected, 5)
        program(a, c, 5)
        assert np.array_equal(c, expected), (body, program.source.kernels)


def test_loops_of_a_gpu_that_32_bits_do_not_count():
    text = "C[i] = 0\n        for j in range(4294967296 + 3):\n            C[i] = C[i] + j // 4294967296"
    func = parse(HEAD.format(dtype="int64", loop='T.thread_binding(64, thread="threadIdx.x")') + text)
    assert "for (long long j = 0; j < 4294967299" in tir.dump(func, "cuda", after="cuda")


def test_more_than_64_bits_are_refused():
    """Where nothing is left to simplify; the plain interpreter computes with Python's integers."""
    text = "for j in range(9):\n            C[i] = A[(i * 65536 * 65536 + 1) * (j * 65536 * 65536 + 1) % 63]"
    func = parse(HEAD.format(dtype="int32", loop="range(64)") + text)
    args = [np.arange(N, dtype="int32"), np.zeros(N, "int32"), 5]
    tir.run(func, *args)
    what = r"`i \* j \* 18446744073709551616` may be as large as \d+, and indices are computed in 64 bits"
    with pytest.raises(ValueError, match=f"^main: {what}$"):
        tir.build(func, ONE)
    with pytest.raises(tir.interpreter.InterpreterError, match="computed in 64 bits; run it with fast=False"):
        tir.run(func, *args, fast=True)
