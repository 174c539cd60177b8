"""Views of buffers. The IR has none: an access through a view becomes an access to the buffer itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..arith.intervals import Interval
from ..arith.simplify import simplify
from ..ir import Buffer, Const, Expr, Var, binary
from ..traverse import divisions, substitute, walk


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The elements of `buffer`, from `offset` on, in row-major order as an array of another shape."""

    buffer: Buffer
    shape: tuple[Expr, ...]
    offset: Expr = Const(0)  # noqa: RUF009 - a frozen node

    def indices(self, indices: Sequence[Expr], ranges: Mapping[str, Interval], lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """Where the element at `indices` lies in the buffer; `//` and `%` are left only where they cannot be resolved."""
        if self.shape == self.buffer.shape and self.offset == Const(0):
            return tuple(indices)
        flat = self.offset
        for index, stride in zip(indices, strides(self.shape), strict=True):
            flat = binary("+", flat, binary("*", index, stride))
        flat = simplify(flat, ranges)
        result = self._place(flat, ranges)
        if lets and divisions(*result):
            while any(isinstance(n, Var) and n.name in lets for n in walk(flat)):
                flat = substitute(flat, lets)
            result = self._place(simplify(flat, ranges), ranges)
        return result

    def _place(self, flat: Expr, ranges: Mapping[str, Interval]) -> tuple[Expr, ...]:
        shape = self.buffer.shape
        if len(shape) == 1:
            return (flat,)
        result = []
        for d, (extent, stride) in enumerate(zip(shape, strides(shape), strict=True)):
            index = binary("//", flat, stride)
            result.append(simplify(index if d == 0 else binary("%", index, extent), ranges))
        return tuple(result)


@dataclass(frozen=True, slots=True)
class Subview:
    """A box of `buffer` that starts at `starts`, with the dimensions `dims` of it; the others have extent 1."""

    buffer: Buffer
    shape: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    dims: tuple[int, ...]

    def indices(self, indices: Sequence[Expr], ranges: Mapping[str, Interval], lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """Where the element at `indices` lies in the buffer."""
        result = list(self.starts)
        for d, index in zip(self.dims, indices, strict=True):
            start = result[d]
            if not index.is_zero:
                result[d] = index if start.is_zero else binary("+", start, index)
        return tuple(result)


View = Reshaped | Subview


def strides(shape: Sequence[Expr]) -> list[Expr]:
    """The strides of an array of this shape in row-major order, in elements."""
    result: list[Expr] = []
    step: Expr = Const(1)
    for extent in reversed(shape):
        result.append(step)
        step = simplify(binary("*", step, extent))
    return result[::-1]


def element_count(shape: Sequence[Expr]) -> Expr:
    """The number of elements."""
    total: Expr = Const(1)
    for extent in shape:
        total = simplify(binary("*", total, extent))
    return total
