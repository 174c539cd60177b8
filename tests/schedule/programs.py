"""Small programs of odd extents that the tests of primitives share."""

from __future__ import annotations

from tests.schedule.harness import Checked
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


def fork() -> PrimFunc:
    """C = 3 B and D = 2 B, of B = A + 1."""
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] * 3.0, name="C")
    D = te.compute((7,), lambda i: B[i] * 2.0, name="D")
    return te.create_prim_func([A, C, D])


def slice_of(n: int, start: int) -> PrimFunc:
    """C = 2 times five elements of B = A + 1."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((5,), lambda i: B[i + start] * 2.0, name="C")
    return te.create_prim_func([A, C])


def reduction(reducer=te.sum, dtype: str = "float32", n: int = 13) -> PrimFunc:
    """C = A, reduced along its rows."""
    A = te.placeholder((7, n), dtype, name="A")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: reducer(A[i, k], axis=k), name="C")])


def sums_of_chain() -> PrimFunc:
    """C = sums of the rows of B = A + 1."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 13), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.sum(B[i, k], axis=k), name="C")])


def tiled_matmul(*order: str) -> Checked:
    """`matmul` with its loops `i` and `j` split by 4 and 5, which don't divide, in an order of all loops."""
    s = Checked(matmul())
    s.split("i", [None, 4])
    s.split("j", [None, 5])
    s.reorder(*order)
    return s


def relu_of_matmul(m: int = 7, n: int = 13, k: int = 5) -> PrimFunc:
    """D = max(A · B, 0)."""
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def padded(n: int = 13) -> PrimFunc:
    """P = A with a zero at each end."""
    A = te.placeholder((n,), name="A")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), A[i - 1], 0.0), name="P")
    return te.create_prim_func([A, P])


def stencil(n: int = 13) -> PrimFunc:
    """C = three neighbours of B = 2 A, zero outside, by way of a padded P."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), B[i - 1], 0.0), name="P")
    C = te.compute((n,), lambda i: P[i] + P[i + 1] + P[i + 2], name="C")
    return te.create_prim_func([A, C])
