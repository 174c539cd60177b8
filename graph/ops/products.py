"""Products of matrices."""

from __future__ import annotations

import numpy as np

from tir import te
from tir.ir import Expr

from .elementwise import at
from .registry import need, operator, shape_of


@operator("MatMul")
def matmul(a, b):
    """numpy's matmul: the last two dimensions are matrices, the others are broadcast; a vector is a row, or a column."""
    need("the left operand", a, dtype="number", ranks=range(1, 9))
    need("the right operand", b, dtype=a.dtype, ranks=range(1, 9))
    (*a_batch, length) = shape_of(a)
    rows = [a_batch.pop()] if a_batch else []
    (*b_batch, other) = shape_of(b)
    columns = [other] if b_batch else []
    other = b_batch.pop() if b_batch else other
    if length != other:
        raise ValueError(f"{list(shape_of(a))} and {list(shape_of(b))} cannot be multiplied")
    try:
        batch = np.broadcast_shapes(tuple(a_batch), tuple(b_batch))
    except ValueError:
        raise ValueError(f"batches {a_batch} and {b_batch} do not broadcast") from None
    k = te.reduce_axis((0, length), "k")

    def formula(*index: Expr) -> Expr:
        place, own = index[: len(batch)], index[len(batch) :]
        left = _batched(place, a_batch, (*own[: len(rows)], k))
        right = _batched(place, b_batch, (k, *own[len(rows) :]))
        return te.sum(a[left] * b[right], axis=k)

    return te.compute([*batch, *rows, *columns], formula, name="matmul")


def _batched(place: tuple[Expr, ...], extents: list[int], inner: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of an element of an operand whose batch has these extents."""
    own = place[len(place) - len(extents) :]
    return (*(te.const(0) if e == 1 else i for e, i in zip(extents, own, strict=True)), *inner)


@operator("Gemm", 7)
def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """alpha A B + beta C, with A and B transposed where `transA` and `transB` say so, and C broadcast."""
    need("A", a, (None, None), "number")
    need("B", b, (None, None), a.dtype)
    (rows, length), (other, columns) = (shape_of(x)[::-1] if turned else shape_of(x) for x, turned in ((a, transA), (b, transB)))
    if length != other:
        raise ValueError(f"matrices of {rows} x {length} and {other} x {columns} cannot be multiplied")
    need("C", c, dtype=a.dtype, broadcast=(rows, columns))
    k = te.reduce_axis((0, length), "k")
    product = te.compute(
        (rows, columns),
        lambda i, j: te.sum((a[k, i] if transA else a[i, k]) * (b[j, k] if transB else b[k, j]), axis=k),
        name="gemm",
    )
    if c is None and alpha == 1:
        return product

    def formula(i: Expr, j: Expr) -> Expr:
        value = product[i, j] if alpha == 1 else product[i, j] * te.const(alpha, a.dtype)
        if c is None:
            return value
        added = at(c, (i, j))
        return value + (added if beta == 1 else added * te.const(beta, a.dtype))

    return te.compute((rows, columns), formula, name="scaled")
