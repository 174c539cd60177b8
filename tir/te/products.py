"""The matrix product of two tensors, by the rules of numpy's `@`."""

from __future__ import annotations

import builtins

from ..ir import Expr, Var, const
from .operations import compute
from .reductions import sum
from .tensors import Tensor
from .variables import reduce_axis


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of two tensors by the rules of numpy's `@`."""
    what = f"{a.name} @ {b.name}"
    if not a.ndim or not b.ndim:
        raise ValueError(f"{what}: a tensor without dimensions is a number; write `*`")
    columns = b.ndim > 1
    if a.shape[-1] != b.shape[-2 if columns else -1]:
        raise ValueError(
            f"{what}: the last dimension of {a.shape} must be the {'last but one' if columns else 'one'} of {b.shape}"
        )
    k = reduce_axis((0, a.extents[-1]), name="k")
    batch = _broadcast(what, a, b)
    rows = a.extents[-2:-1]

    def element(*index: Var) -> Expr:
        row, column = index[len(batch) : len(batch) + len(rows)], index[len(batch) + len(rows) :]
        left, right = (_broadcast_index(t, index[: len(batch)]) for t in (a, b))
        return sum(a[(*left, *row, k)] * b[(*right, k, *column)], axis=k)

    return compute((*batch, *rows, *(b.extents[-1:] if columns else ())), element, name="matmul")


def _broadcast(what: str, a: Tensor, b: Tensor) -> tuple[Expr, ...]:
    """The dimensions of a batch of two tensors: all but the last two, aligned at their ends, where 1 fits any extent."""
    ranks = builtins.max(a.ndim, b.ndim) - 2
    one = const(1)
    batch = []
    for left, right in zip(*(((one,) * ranks + t.extents[:-2])[-ranks:] if ranks > 0 else () for t in (a, b)), strict=True):
        if left != right and not left.is_one and not right.is_one:
            raise ValueError(f"{what}: the batches of {a.shape} and {b.shape} differ")
        batch.append(right if left.is_one else left)
    return tuple(batch)


def _broadcast_index(t: Tensor, index: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The index into the batch of one tensor at an index of the batch of a product."""
    extents = t.extents[:-2]
    own = index[len(index) - len(extents) :]
    return tuple(const(0, i.dtype) if e.is_one else i for i, e in zip(own, extents, strict=True))
