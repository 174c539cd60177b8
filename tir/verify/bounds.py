"""Check that bindings stay in the domains of their axes, and indices in their buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..analysis.context import accesses_and_blocks
from ..analysis.program_points import ProgramPoint, constant_extents, less_than, size_ranges
from ..arith.enumeration import Points, enumerate_all
from ..arith.prove import prove
from ..arith.simplify import simplify
from ..assumptions import assumptions
from ..empty import without_empty
from ..ir import Binary, Block, Const, Expr, PrimFunc, Stmt
from ..script.printer import last_index
from ..traverse import variables
from .report import Finding, VerifyError, VerifyReport


def refuse_out_of_bounds(func: PrimFunc) -> None:
    """Raise VerifyError where an index may be out of bounds, unless only the arguments of a call decide that."""
    findings = tuple(f for f in check_bounds(without_empty(func)) if not f.open)
    if findings:
        raise VerifyError(VerifyReport(func, findings))


def check_bounds(func: PrimFunc) -> Iterator[Finding]:
    """Findings where a binding may leave its domain, or an index its buffer."""
    for n, place in accesses_and_blocks(func.body, ProgramPoint(known=size_ranges(func), facts=assumptions(func))):
        stmt = n if isinstance(n, Stmt) else place.stmt
        if isinstance(n, Block):
            for it in n.iters:
                what = f"`{it.var.name}` of block `{n.name}` = `{it.binding}`"
                yield from _findings(it.binding, it.extent, what, "its domain", stmt, place)
        else:
            for dim, (index, extent) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
                what = f"index `{index}` of dimension {dim} of `{n.buffer.name}`"
                yield from _findings(index, extent, what, f"0 .. {last_index(extent)}", stmt, place)


def _findings(index: Expr, extent: Expr, what: str, domain: str, stmt: Stmt | None, place: ProgramPoint) -> Iterator[Finding]:
    """Findings where an index may be outside 0 .. extent - 1."""
    # Over the loops: they may reach less than the domains of the axes.
    loops = [(x.var, simplify(place.closed(x.extent))) for x in place.loops]
    conditions = (*place.conditions, *(less_than(var, e) for var, e in loops if not isinstance(e, Const)))

    def proved(goal: Expr) -> bool:
        closed = place.closed(goal)
        known = prove(goal, place.known, place.facts)
        return known or (closed is not goal and prove(closed, place.known, conditions))

    if proved(Binary(">=", index, Const(0, index.dtype))) and proved(less_than(index, extent)):
        return
    closed, size = place.closed(index), place.closed(extent)
    extents = constant_extents((var.name, e) for var, e in loops)
    if any(extent is not None and extent < 1 for extent in extents.values()):
        return  # nothing is ever accessed
    points: Points | None = None
    values = None
    for points in enumerate_all(extents, variables(closed) | variables(size), conditions):
        values = points.evaluate((closed, size))
        if values is None:
            break
        wrong = (values[0] < 0) | (values[0] >= values[1])
        if np.any(wrong):
            if points.certain:
                n = int(np.argmax(wrong))
                where = points.at(n, points.values)
                outside = f"{what} is {values[0][n]}, outside {domain}{f', where {where}' if where else ''}"
                yield Finding("error", outside, stmt)
                return
            break
    else:
        if points is not None and points.whole:
            return
    decided = values is not None and points is not None and points.certain
    yield Finding("unproved", f"cannot prove that {what} is within {domain}", stmt, open=not decided)
