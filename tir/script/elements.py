"""Subscripts of a script: elements and regions of buffers."""

from __future__ import annotations

import ast
import operator
from typing import Any

from ..arith.simplify import simplify
from ..ir import Buffer, Const, Expr, Load, Range, Region, binary
from . import namespace
from .context import FunctionContext
from .values import Handle, Pointer
from .views import ArrayView, Reshaped, Subview, as_view


class Elements(FunctionContext):
    def subscript(self, node: ast.Subscript) -> Any:
        base = self.array(node.value)
        if (view := as_view(base)) is not None:
            nodes = self.index_nodes(node)
            if self.lane is None and any(isinstance(n, ast.Slice) for n in nodes):
                return self.region(view, nodes, node)
            return Load(*self.element(view, node))
        if isinstance(base, (tuple, list, dict, str, range)):
            key = self.value(node.slice) if not isinstance(node.slice, ast.Slice) else self.python_slice(node.slice)
            return self.guard(operator.getitem, node, base, key)
        if isinstance(base, namespace.Annotation):
            raise self.error(f"`{self.text(node)}` {base.place}", node)
        if isinstance(base, Expr):
            raise self.error(f"`{self.text(node.value)}` is a scalar and has no elements", node)
        if isinstance(base, Handle):
            raise self.error(
                f"`{base.name}` is a handle and has no elements", node, f"A = T.match_buffer({base.name}, (128,)) first"
            )
        if not self.live:
            raise self.error(f"`{self.text(node)}` cannot be read: nothing is executed in a text", node)
        return self.guard(operator.getitem, node, base, self.value(node.slice))

    def python_slice(self, node: ast.Slice) -> slice:
        return slice(*(None if n is None else self.value(n) for n in (node.lower, node.upper, node.step)))

    def index_nodes(self, node: ast.Subscript) -> list[ast.expr]:
        return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]

    def array(self, node: ast.expr) -> Any:
        """A value to be indexed; memory as the buffer behind it."""
        value = self.value(node)
        return value.array if isinstance(value, Pointer) else value

    def element(self, base: ArrayView, node: ast.Subscript) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the indices that a subscript means."""
        indices = self.indices(self.index_nodes(node))
        self.rank(base, len(indices), node)
        return base.buffer, base.indices(indices, self.ranges, self.lets)

    def rank(self, base: ArrayView, found: int, node: ast.Subscript) -> None:
        wanted = len(base.shape)
        if found != wanted:
            name, shape = self.text(node.value), ", ".join(map(str, base.shape))
            rank = f"{wanted} dimension{'s' * (wanted != 1)}"
            given = "1 index is" if found == 1 else f"{found} indices are"
            hint = f"its shape is ({shape}{',' * (wanted == 1)})" + (f"; write {name}[()]" if wanted == 0 else "")
            raise self.error(f"`{name}` has {rank}, but {given} given", node, hint)

    def region(self, base: ArrayView, nodes: list[ast.expr], node: ast.Subscript) -> Region:
        """A subscript with slices."""
        if isinstance(base, Reshaped) and base.shape != base.buffer.shape:
            raise self.error(
                f"a region of `{self.text(node.value)}`, which is another view of `{base.buffer.name}`, cannot be kept",
                node,
                f"state the region of `{base.buffer.name}`",
            )
        self.rank(base, len(nodes), node)
        ranges: list[Range] = []
        for n, extent in zip(nodes, base.shape, strict=True):
            if isinstance(n, ast.Slice):
                if n.step is not None:
                    raise self.error("a region has no steps", n, "state the whole range")
                start = Const(0) if n.lower is None else self.index(n.lower)
                stop = extent if n.upper is None else self.index(n.upper)
                ranges.append(Range(start, self.between(start, stop)))
            else:
                at = self.index(n)
                ranges.append(Range(at, Const(1, at.dtype)))
        if isinstance(base, Subview):
            starts = base.indices([r.min for r in ranges], self.ranges, self.lets)
            extents: list[Expr] = [Const(1)] * len(starts)
            for d, r in zip(base.dims, ranges, strict=True):
                extents[d] = r.extent
            ranges = [Range(s, e) for s, e in zip(starts, extents, strict=True)]
        return Region(base.buffer, tuple(ranges))

    def as_region(self, value: Any) -> Any:
        """An element or a whole buffer as a region; any other value as it is."""
        match value:
            case Load(buffer, indices):
                return Region(buffer, tuple(Range(i, Const(1, i.dtype)) for i in indices))
            case Buffer(shape=shape):
                return Region(value, tuple(Range(Const(0, d.dtype), d) for d in shape))
            case _:
                return value

    def between(self, start: Expr, stop: Expr) -> Expr:
        """stop - start."""
        if start.is_zero:
            return stop
        return simplify(binary("-", stop, start))
