"""Bounds: bindings stay in the domains of their axes, and indices in their buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..affine import Interval
from ..ir import Binary, Block, Const, Expr, PrimFunc, Stmt, Var
from ..points import Opaque, evaluate
from ..simplify import prove, simplify
from ..traverse import variables
from .accesses import Place, below, constant_extents, elements
from .points import points_of
from .report import Finding


def check_bounds(func: PrimFunc) -> Iterator[Finding]:
    """Bindings stay within their domains, and indices within their buffers."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
    for stmt, n, place in elements(func.body, Place(sizes)):
        if isinstance(n, Block):
            for it in n.iters:
                what = f"`{it.var.name}` of block `{n.name}` = `{it.binding}`"
                yield from _within(it.binding, it.extent, what, "its domain", stmt, place)
        else:
            for dim, (index, extent) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
                what = f"index `{index}` of dimension {dim} of `{n.buffer.name}`"
                yield from _within(index, extent, what, f"0 .. {last(extent)}", stmt, place)


def _within(index: Expr, extent: Expr, what: str, domain: str, stmt: Stmt, place: Place) -> Iterator[Finding]:
    """Where an index may be outside 0 .. extent - 1."""
    # Over the loops: what the loops around reach may be less than the domains of the axes.
    loops = [(var, simplify(e)) for var, e in place.loops]
    conditions = (*place.conditions, *(below(var, e) for var, e in loops if not isinstance(e, Const)))

    def proved(goal: Expr) -> bool:
        closed = place.closed(goal)
        known = prove(goal, place.ranges, place.facts)
        return known or (closed is not goal and prove(closed, place.ranges, conditions))

    if proved(Binary(">=", index, Const(0, index.dtype))) and proved(below(index, extent)):
        return
    closed, size = place.closed(index), place.closed(extent)
    extents = constant_extents((var.name, e) for var, e in loops)
    points = points_of(extents, variables(closed) | variables(size), conditions)
    if points is not None:
        try:
            values = np.broadcast_to(evaluate(closed, points.values), len(points))
            wrong = (values < 0) | (values >= evaluate(size, points.values))
        except Opaque:
            wrong = None
        if wrong is not None:
            if np.any(wrong) and points.certain:
                n = int(np.argmax(wrong))
                where = points.at(n, points.values)
                text = f"{what} is {values[n]}, outside {domain}{f', where {where}' if where else ''}"
                yield Finding("error", text, stmt)
                return
            if points.whole and not np.any(wrong):
                return
    yield Finding("unproved", f"cannot prove that {what} is within {domain}", stmt)


def last(extent: Expr) -> str:
    """The last index below an extent, as text."""
    return str(extent.value - 1) if isinstance(extent, Const) else f"{extent} - 1"
