"""Small programs of odd extents that the tests of primitives share."""

from __future__ import annotations

from tir import te
from tir.ir import PrimFunc


def matmul(m: int = 7, n: int = 13, k: int = 5) -> PrimFunc:
    """C = A · B."""
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.create_prim_func([A, B, C])


def elementwise(*shape: int) -> PrimFunc:
    """B = A + 1."""
    A = te.placeholder(shape or (7, 13), name="A")
    B = te.compute(shape or (7, 13), lambda *i: A[i] + 1.0, name="B")
    return te.create_prim_func([A, B])


def vector(n: int = 13) -> PrimFunc:
    """B = 2 A."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    return te.create_prim_func([A, B])


def symbolic() -> PrimFunc:
    """B = 2 A, of a size given at the call."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    return te.create_prim_func([A, B, n])


def chain() -> PrimFunc:
    """C = 3 (A + 1)."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    return te.create_prim_func([A, C])


def relu_of_matmul(m: int = 7, n: int = 13, k: int = 5) -> PrimFunc:
    """D = max(A · B, 0)."""
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def stencil(n: int = 13) -> PrimFunc:
    """C = three neighbours of B = 2 A, zero outside, by way of a padded P."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), B[i - 1], 0.0), name="P")
    C = te.compute((n,), lambda i: P[i] + P[i + 1] + P[i + 2], name="C")
    return te.create_prim_func([A, C])
