"""Subscripts of a script: elements and regions of buffers, and items of Python's values."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from ..arith.simplify import simplify
from ..ir import Buffer, Const, Expr, Load, Region, binary
from . import namespace
from .values import Handle, Pointer
from .views import ArrayView, Reshaped, as_view

if TYPE_CHECKING:
    from .expressions import Expressions


def subscript(read: Expressions, node: ast.Subscript) -> Any:
    """The element or region of a buffer, or the item of a Python value, that a subscript means."""
    base = array(read, node)
    if (view := as_view(base)) is not None:
        nodes = index_nodes(node)
        if read.lane is None and any(isinstance(n, ast.Slice) for n in nodes):
            return _region(read, view, nodes, node)
        return Load(*element(read, view, node))
    if isinstance(base, (tuple, list, dict, str, range)):
        return read.guard(operator.getitem, node, base, _key(read, node.slice))
    if isinstance(base, namespace.Annotation):
        raise read.error(f"`{read.text(node)}` {base.place}", node)
    if isinstance(base, Expr):
        raise read.error(f"`{read.text(node.value)}` is a scalar and has no elements", node)
    if isinstance(base, Handle):
        hint = f"A = T.match_buffer({base.name}, (128,)) first"
        raise read.error(f"`{base.name}` is a handle and has no elements", node, hint)
    if not read.live:
        raise read.error(f"`{read.text(node)}` cannot be read: nothing is executed in a text", node)
    return read.guard(operator.getitem, node, base, read.value(node.slice))


def array(read: Expressions, node: ast.Subscript) -> Any:
    """The value that a subscript indexes; memory as the buffer behind it."""
    value = read.value(node.value)
    return value.array if isinstance(value, Pointer) else value


def _key(read: Expressions, node: ast.expr) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(None if n is None else read.value(n) for n in (node.lower, node.upper, node.step)))
    return read.value(node)


def index_nodes(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def element(read: Expressions, view: ArrayView, node: ast.Subscript) -> tuple[Buffer, tuple[Expr, ...]]:
    """The buffer and the indices that a subscript means."""
    indices = read.indices(index_nodes(node))
    _need_rank(read, view, len(indices), node)
    return view.buffer, view.indices(indices, read.facts.ranges, read.facts.lets)


def _need_rank(read: Expressions, view: ArrayView, found: int, node: ast.Subscript) -> None:
    wanted = len(view.shape)
    if found != wanted:
        name, shape = read.text(node.value), ", ".join(map(str, view.shape))
        rank = f"{wanted} dimension{'s' * (wanted != 1)}"
        given = "1 index is" if found == 1 else f"{found} indices are"
        hint = f"its shape is ({shape}{',' * (wanted == 1)})" + (f"; write {name}[()]" if wanted == 0 else "")
        raise read.error(f"`{name}` has {rank}, but {given} given", node, hint)


def _region(read: Expressions, view: ArrayView, nodes: list[ast.expr], node: ast.Subscript) -> Region:
    """The region of a subscript with slices."""
    if isinstance(view, Reshaped) and view.shape != view.buffer.shape:
        name = view.buffer.name
        reason = f"a region of `{read.text(node.value)}`, which is another view of `{name}`, cannot be kept"
        raise read.error(reason, node, f"state the region of `{name}`")
    _need_rank(read, view, len(nodes), node)
    starts: list[Expr] = []
    extents: list[Expr] = []
    for n, extent in zip(nodes, view.shape, strict=True):
        if not isinstance(n, ast.Slice):
            starts.append(read.index(n))
            extents.append(Const(1, starts[-1].dtype))
            continue
        if n.step is not None:
            raise read.error("a region has no steps", n, "state the whole range")
        starts.append(Const(0) if n.lower is None else read.index(n.lower))
        extents.append(between(starts[-1], extent if n.upper is None else read.index(n.upper)))
    return view.region(starts, extents)


def between(start: Expr, stop: Expr) -> Expr:
    """stop - start."""
    return stop if start.is_zero else simplify(binary("-", stop, start))
