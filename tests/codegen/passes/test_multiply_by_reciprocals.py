"""multiply_by_reciprocals: quotients by what stays the same along vectors."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from tests.codegen.harness import after
from tir import te
from tir.interpreter import run
from tir.script import parse


def quotients(columns: int, dtype: str = "float32", allowed: bool = True):
    A = te.placeholder((3, columns), dtype, name="A")
    R = te.placeholder((3,), dtype, name="R")
    s = tir.Schedule(te.create_prim_func([A, R, te.compute((3, columns), lambda i, j: A[i, j] / R[i], name="B")]))
    s.vectorize("j")
    if allowed:
        s.annotate("j", "allow_reciprocal", True)
    return s.func


def test_the_reciprocal_is_that_of_a_normal_number():
    after(quotients(7), "multiply_by_reciprocals", numbers=False).becomes("""
        for i in range(3):
            if T.float32(1.0842021724855044e-19) <= T.abs(R[i]) and T.abs(R[i]) <= T.float32(9.223372036854776e+18):
                for j in T.vectorized(7, annotations={"allow_reciprocal": T.bool(True)}):
                    B[i, j] = A[i, j] * (T.float32(1.0) / R[i])
            else:
                for j in T.vectorized(7, annotations={"allow_reciprocal": T.bool(True)}):
                    B[i, j] = A[i, j] * T.Select(T.abs(R[i]) < T.float32(1.0842021724855044e-19), T.float32(9.223372036854776e+18), T.Select(T.abs(R[i]) > T.float32(9.223372036854776e+18), T.float32(1.0842021724855044e-19), T.float32(1.0))) * (T.float32(1.0) / (R[i] * T.Select(T.abs(R[i]) < T.float32(1.0842021724855044e-19), T.float32(9.223372036854776e+18), T.Select(T.abs(R[i]) > T.float32(9.223372036854776e+18), T.float32(1.0842021724855044e-19), T.float32(1.0)))))
    """)


def test_divides_without_leave_and_by_what_changes():
    divided = """
        for i in range(3):
            for j in T.vectorized(7):
                B[i, j] = A[i, j] / R[i]
        """
    after(quotients(7, allowed=False), "multiply_by_reciprocals").becomes(divided)
    A = te.placeholder((7,), name="A")
    s = tir.Schedule(te.create_prim_func([A, te.compute((7,), lambda i: 3.0 / A[i], name="B")]))
    s.vectorize("i")
    s.annotate("i", "allow_reciprocal", True)
    expected = """
        for i in T.vectorized(7, annotations={"allow_reciprocal": T.bool(True)}):
            B[i] = T.float32(3.0) / A[i]
        """
    after(s.func, "multiply_by_reciprocals", numbers=False).becomes(expected)


def test_a_divisor_that_the_loop_writes_changes():
    k = te.reduce_axis((0, 7), name="k")
    A = te.placeholder((7,), name="A")
    s = tir.Schedule(te.create_prim_func([A, te.compute((1,), lambda i: te.sum(A[k] / A[0], axis=k), name="B")]))
    s.annotate("k", "combine_lanes", True)
    s.annotate("k", "allow_reciprocal", True)
    assert "T.float32(1.0) / " in tir.dump(s.func, "llvm -num-cores 1", after="multiply_by_reciprocals")
    in_place = """
@T.prim_func
def scaled(A: T.Buffer((7,), "float32")):
    for i in T.vectorized(7, annotations={"allow_reciprocal": T.bool(True)}):
        A[i] = A[i] / A[0]
"""
    assert "T.float32(1.0) / " not in tir.dump(parse(in_place), "llvm -num-cores 1", after="multiply_by_reciprocals")


def test_a_divisor_is_not_read_before_its_condition():
    """Which may say that there is none."""
    A, R = te.placeholder((7, 13), name="A"), te.placeholder((6,), name="R")
    s = tir.Schedule(
        te.create_prim_func([A, R, te.compute((7, 13), lambda i, j: te.if_then_else(i > 0, A[i, j] / R[i - 1], 0.0), name="B")])
    )
    s.vectorize("j")
    s.annotate("j", "allow_reciprocal", True)
    size = "T.abs(R[i - 1])"
    scale = (
        f"T.Select({size} < T.float32(1.0842021724855044e-19), T.float32(9.223372036854776e+18), "
        f"T.Select({size} > T.float32(9.223372036854776e+18), T.float32(1.0842021724855044e-19), T.float32(1.0)))"
    )
    expected = f"""
        for i in range(7):
            for j in T.vectorized(13, annotations={{"allow_reciprocal": T.bool(True)}}):
                B[i, j] = T.if_then_else(i > 0, A[i, j] * {scale} * (T.float32(1.0) / (R[i - 1] * {scale})), T.float32(0.0))
        """
    lowered = after(s.func, "multiply_by_reciprocals", numbers=False).becomes(expected)
    a, b = np.ones((7, 13), "float32"), np.zeros((7, 13), "float32")
    run(lowered, a, np.full(6, 2.0, "float32"), b)
    assert (b == np.where(np.arange(7) > 0, 0.5, 0.0)[:, None]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_all_sizes(dtype):
    """Three roundings of at most half a place each, and a place of the smallest number where the quotient is subnormal."""
    info = np.finfo(dtype)
    sizes = [
        0,
        -0.0,
        info.smallest_subnormal,
        info.tiny / 3,
        -info.tiny,
        1e-20,
        3.7,
        -1.0,
        7e19,
        info.max / 3,
        info.max,
        np.inf,
        np.nan,
    ]
    a = np.resize(np.array(sizes, dtype), (3, len(sizes)))
    kernel = tir.build(quotients(len(sizes), dtype), "llvm -num-cores 1")
    with np.errstate(all="ignore"):
        for k in range(0, len(sizes), 3):
            r = np.resize(np.array(sizes[k : k + 3], dtype), 3)
            found, expected = np.empty_like(a), a / r[:, None]
            kernel(a, r, found)
            finite = np.isfinite(expected)
            assert np.array_equal(found[~finite], expected[~finite], equal_nan=True), r
            off = np.abs(found[finite] - expected[finite])
            assert np.all(off <= 1.5 * info.eps * np.abs(expected[finite]) + info.smallest_subnormal), r


def test_equals_the_interpreter_where_nothing_is_rounded():
    func = quotients(13)
    rng = np.random.default_rng(0)
    a, r = rng.integers(-64, 65, (3, 13)).astype("float32"), np.array([2.0, -0.25, 16.0], "float32")
    expected, found = np.zeros((3, 13), "float32"), np.zeros((3, 13), "float32")
    run(func, a, r, expected)
    tir.build(func, "llvm -num-cores 1")(a, r, found)
    assert found.tobytes() == expected.tobytes()
