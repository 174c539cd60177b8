"""Bounds: bindings stay in the domains of their axes, and indices in their buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..analysis.context import accesses_and_blocks
from ..arith.enumeration import enumerate_points
from ..arith.prove import prove
from ..arith.simplify import simplify
from ..ir import Binary, Block, Const, Expr, PrimFunc, Stmt
from ..script.printer import last_index
from ..traverse import variables
from .accesses import ProgramPoint, below, constant_extents, size_ranges
from .report import Finding


def check_bounds(func: PrimFunc) -> Iterator[Finding]:
    """Bindings stay within their domains, and indices within their buffers."""
    for n, place in accesses_and_blocks(func.body, ProgramPoint(known=size_ranges(func))):
        stmt = n if isinstance(n, Stmt) else place.stmt
        if isinstance(n, Block):
            for it in n.iters:
                what = f"`{it.var.name}` of block `{n.name}` = `{it.binding}`"
                yield from _within(it.binding, it.extent, what, "its domain", stmt, place)
        else:
            for dim, (index, extent) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
                what = f"index `{index}` of dimension {dim} of `{n.buffer.name}`"
                yield from _within(index, extent, what, f"0 .. {last_index(extent)}", stmt, place)


def _within(index: Expr, extent: Expr, what: str, domain: str, stmt: Stmt | None, place: ProgramPoint) -> Iterator[Finding]:
    """Where an index may be outside 0 .. extent - 1."""
    # Over the loops: what the loops around reach may be less than the domains of the axes.
    loops = [(x.var, simplify(place.closed(x.extent))) for x in place.loops]
    conditions = (*place.conditions, *(below(var, e) for var, e in loops if not isinstance(e, Const)))

    def proved(goal: Expr) -> bool:
        closed = place.closed(goal)
        known = prove(goal, place.known, place.facts)
        return known or (closed is not goal and prove(closed, place.known, conditions))

    if proved(Binary(">=", index, Const(0, index.dtype))) and proved(below(index, extent)):
        return
    closed, size = place.closed(index), place.closed(extent)
    extents = constant_extents((var.name, e) for var, e in loops)
    points = enumerate_points(extents, variables(closed) | variables(size), conditions)
    found = None if points is None else points.evaluate((closed, size))
    if points is not None and found is not None:
        values, sizes = found
        wrong = (values < 0) | (values >= sizes)
        if np.any(wrong) and points.certain:
            n = int(np.argmax(wrong))
            where = points.at(n, points.values)
            yield Finding("error", f"{what} is {values[n]}, outside {domain}{f', where {where}' if where else ''}", stmt)
            return
        if points.whole and not np.any(wrong):
            return
    yield Finding("unproved", f"cannot prove that {what} is within {domain}", stmt)
