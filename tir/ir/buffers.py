"""Buffers, their elements and regions, and the sizes of those of constant shape."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from .expressions import Const, Expr, as_index, as_int
from .nodes import Node, node


@node
class Buffer(Node):
    """A dense row-major array. `scope` is one of `memory.SCOPES`: "global", or a memory nearer to the processor.
    `axis_separators` group its dimensions for memory of several dimensions, such as textures: a group is one dimension there.
    Flat memory ignores them."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str = "float32"
    scope: str = "global"
    axis_separators: tuple[int, ...] = ()

    @property
    def has_const_shape(self) -> bool:
        return all(isinstance(dim, Const) for dim in self.shape)

    def __getitem__(self, indices) -> Load:
        return Load(self, tuple(as_index(i) for i in (indices if isinstance(indices, tuple) else (indices,))))


class Element(Expr):
    """An element of memory: of a buffer, or of a tensor of `te`."""

    __slots__ = ()


@node
class Load(Element):
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@node
class Range(Node):
    """The integers `min .. min + extent - 1`."""

    min: Expr
    extent: Expr


@node
class Region(Node):
    """A box of elements of a buffer, one range a dimension."""

    buffer: Buffer
    ranges: tuple[Range, ...]


def are_axis_separators(separators: Any, rank: int) -> bool:
    """True where `separators` divide the dimensions of a buffer of this rank into groups, none empty."""
    if not isinstance(separators, list | tuple) or not all(type(n) is int for n in separators):
        return False
    return all(0 < n < rank for n in separators) and list(separators) == sorted(set(separators))


def const_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape as Python ints; ValueError if a dimension is symbolic."""
    return tuple(as_int(dim, f"a dimension of {buffer.name}") for dim in buffer.shape)


def buffer_nbytes(*buffers: Buffer) -> int:
    """The bytes of buffers of constant shape, all together; ValueError if a dimension is symbolic."""
    return sum(math.prod(const_shape(b)) * dtypes.nbytes(b.dtype) for b in buffers)
