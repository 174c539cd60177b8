"""Views of buffers. The IR has none: an access through a view becomes an access to the buffer itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..arith.intervals import Interval
from ..arith.polynomial import as_constant, polynomial
from ..arith.simplify import simplify
from ..ir import Address, Buffer, Const, Expr, Foreign, Range, Region, Text, Var, as_index, binary
from ..traverse import divisions, substitute, walk

_ACCESS = {"r": 1, "w": 2, "rw": 3, "wr": 3}  # the mode of a pointer, as tvm_access_ptr has it


@dataclass(frozen=True, slots=True)
class ArrayView(ABC):
    """Elements of `buffer` as an array of a shape of its own."""

    buffer: Buffer
    shape: tuple[Expr, ...]

    @property
    @abstractmethod
    def strides(self) -> list[Expr]:
        """The distances of neighbours in each dimension, in elements of the buffer."""

    @property
    @abstractmethod
    def first(self) -> Expr:
        """The number of elements of the buffer before the first one."""

    @abstractmethod
    def indices(self, indices: Sequence[Expr], ranges: Mapping[str, Interval], lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """The indices in the buffer of the element at `indices`; `//` and `%` stay only where they cannot be resolved."""

    def region(self, starts: Sequence[Expr], extents: Sequence[Expr]) -> Region:
        """The region of the buffer under a box of the view, for a view with the indices of the buffer."""
        return Region(self.buffer, tuple(map(Range, starts, extents)))

    def access_ptr(self, access_mask: Any, ptr_type: str = "handle", *, offset: Any = 0, extent: Any = None) -> Foreign:
        """A pointer to the elements, for a foreign call. ValueError where the mode of access is unknown."""
        mode = _ACCESS.get(access_mask) if isinstance(access_mask, str) else as_constant(polynomial(as_index(access_mask)))
        if mode not in _ACCESS.values():
            raise ValueError(f"the access of a pointer is one of {', '.join(map(repr, _ACCESS))}, got {access_mask!r}")
        count = simplify(element_count(self.shape) - as_index(offset)) if extent is None else as_index(extent)
        pointed = Foreign("type_annotation", (Text(self.buffer.dtype),))
        first = simplify(self.first + as_index(offset))
        return Foreign("tvm_access_ptr", (pointed, Address(self.buffer), first, count, Const(mode)))


@dataclass(frozen=True, slots=True)
class Reshaped(ArrayView):
    """The elements of `buffer`, from `offset` on, in row-major order as an array of another shape."""

    offset: Expr = Const(0)  # noqa: RUF009 - a frozen node

    @property
    def strides(self) -> list[Expr]:
        return strides(self.shape)

    @property
    def first(self) -> Expr:
        return self.offset

    def indices(self, indices: Sequence[Expr], ranges: Mapping[str, Interval], lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
        if self.shape == self.buffer.shape and self.offset == Const(0):
            return tuple(indices)
        flat = simplify(_memory_position(self.offset, indices, self.strides), ranges)
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
class Subview(ArrayView):
    """A box of `buffer` that starts at `starts`, with the dimensions `dims` of it; the others have extent 1."""

    starts: tuple[Expr, ...]
    dims: tuple[int, ...]

    @property
    def strides(self) -> list[Expr]:
        steps = strides(self.buffer.shape)
        return [steps[d] for d in self.dims]

    @property
    def first(self) -> Expr:
        return simplify(_memory_position(Const(0), self.starts, strides(self.buffer.shape)))

    def indices(self, indices: Sequence[Expr], ranges: Mapping[str, Interval], lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
        result = list(self.starts)
        for d, index in zip(self.dims, indices, strict=True):
            start = result[d]
            if not index.is_zero:
                result[d] = index if start.is_zero else binary("+", start, index)
        return tuple(result)

    def region(self, starts: Sequence[Expr], extents: Sequence[Expr]) -> Region:
        found: list[Expr] = [Const(1)] * len(self.starts)
        for d, extent in zip(self.dims, extents, strict=True):
            found[d] = extent
        return Region(self.buffer, tuple(map(Range, self.indices(starts, {}, {}), found)))


def as_view(value: Any) -> ArrayView | None:
    """A buffer, all of it, or a view; None for anything else."""
    return Reshaped(value, value.shape) if isinstance(value, Buffer) else value if isinstance(value, ArrayView) else None


def _memory_position(first: Expr, indices: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    """The position of an element in memory, where the element at indices 0 is at `first`."""
    for index, stride in zip(indices, strides, strict=True):
        first = binary("+", first, binary("*", index, stride))
    return first


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
