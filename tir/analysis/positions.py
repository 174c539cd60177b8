"""The positions of elements in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ..arith.polynomial import Polynomial, add, multiply, polynomial
from ..ir import Buffer, Expr


def position(buffer: Buffer, indices: Sequence[Expr]) -> Polynomial:
    """The flat position of an element, in elements from the first one."""
    result: Polynomial = {}
    for index, dim in zip(indices, buffer.shape, strict=True):
        result = add(multiply(result, polynomial(dim)), polynomial(index))
    return result
