"""The programs of the puzzles."""

from __future__ import annotations

from tir import te
from tir.ir import PrimFunc, need_func
from tir.script import parse


def product(M: int, K: int, N: int) -> PrimFunc:
    """C = A · B."""
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


def product_relu(M: int, K: int, N: int) -> PrimFunc:
    """D = max(A · B, 0)."""
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.maximum(C[i, j], 0.0), name="D")])


def doubled(*shape: int) -> PrimFunc:
    """B = 2 A."""
    A = te.placeholder(shape, name="A")
    return te.create_prim_func([A, te.compute(shape, lambda *i: A[i] * 2.0, name="B")])


def transposed(M: int, N: int) -> PrimFunc:
    """B = the transpose of A."""
    A = te.placeholder((M, N), name="A")
    return te.create_prim_func([A, te.compute((N, M), lambda i, j: A[j, i], name="B")])


def column_sums(M: int, N: int) -> PrimFunc:
    """S = the sums of the columns of A."""
    A = te.placeholder((M, N), name="A")
    k = te.reduce_axis((0, M), name="k")
    return te.create_prim_func([A, te.compute((N,), lambda j: te.sum(A[k, j], axis=k), name="S")])


def total(N: int) -> PrimFunc:
    """S = the sum of X."""
    X = te.placeholder((N,), name="X")
    k = te.reduce_axis((0, N), name="k")
    return te.create_prim_func([X, te.compute((1,), lambda i: te.sum(X[k], axis=k), name="S")])


def neighbours(N: int) -> PrimFunc:
    """Y adds three neighbours in a column of E = exp(X)."""
    X = te.placeholder((N + 2, N), name="X")
    E = te.compute((N + 2, N), lambda i, j: te.exp(X[i, j]), name="E")
    return te.create_prim_func([X, te.compute((N, N), lambda i, j: E[i, j] + E[i + 1, j] + E[i + 2, j], name="Y")])


def chain(M: int, N: int) -> PrimFunc:
    """Four steps, element by element: Y = max(2 (X + 1), 0) - 3."""
    X = te.placeholder((M, N), name="X")
    A = te.compute((M, N), lambda i, j: X[i, j] + 1.0, name="A")
    B = te.compute((M, N), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((M, N), lambda i, j: te.maximum(B[i, j], 0.0), name="C")
    return te.create_prim_func([X, te.compute((M, N), lambda i, j: C[i, j] - 3.0, name="Y")])


def layers(N: int) -> PrimFunc:
    """Two layers of a network: Z = max(X · V, 0) · W."""
    X, V, W = (te.placeholder((N, N), name=name) for name in "XVW")
    k, m = te.reduce_axis((0, N), name="k"), te.reduce_axis((0, N), name="m")
    H = te.compute((N, N), lambda i, j: te.sum(X[i, k] * V[k, j], axis=k), name="H")
    R = te.compute((N, N), lambda i, j: te.maximum(H[i, j], 0.0), name="R")
    return te.create_prim_func([X, V, W, te.compute((N, N), lambda i, j: te.sum(R[i, m] * W[m, j], axis=m), name="Z")])


def statement(text: str, shape: str, *extents: int) -> PrimFunc:
    """Loops i, j, ... around one statement on an array A."""
    names = "ijk"[: len(extents)]
    heads = (
        f"for {', '.join(names)} in T.grid({', '.join(map(str, extents))})"
        if len(extents) > 1
        else f"for i in range({extents[0]})"
    )
    lines = ["@T.prim_func", f'def recurrence(A: T.Buffer({shape}, "float32")):', f"    {heads}:", f"        {text}"]
    return need_func(parse("\n".join(lines) + "\n"), "statement")
