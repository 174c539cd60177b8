"""Bounds of expressions, and the ranges of the variables of loops and blocks."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from ..ir import Block, Const, Expr, For, Stmt
from .intervals import Interval, Ranges, expr_bounds, polynomial_bounds
from .polynomial import wraps
from .simplify import normal_form


def bounds(expr: Expr, ranges: Ranges) -> Interval:
    """An interval (inclusive, None is unbounded) that contains every value of an integer expression."""
    if wraps(expr):
        return expr_bounds(expr, ranges)
    return polynomial_bounds(normal_form(expr, ranges), ranges)


def extent_range(extent: Expr, ranges: Ranges | None = None) -> Interval:
    """The interval of a variable that runs over `range(extent)`."""
    if type(extent) is Const:
        return 0, extent.value - 1
    _, high = bounds(extent, ranges or {})
    return 0, None if high is None else high - 1


def ranges_of(stmts: Iterable[Stmt], outside: Ranges = MappingProxyType({})) -> dict[str, Interval]:
    """The inclusive ranges of the variables of loops and blocks, outermost first, added to those of `outside`."""
    ranges = dict(outside)
    for s in stmts:
        if type(s) is For:
            ranges[s.name] = extent_range(s.extent, ranges)
        elif type(s) is Block:
            ranges |= {it.var.name: extent_range(it.extent, ranges) for it in s.iters}
    return ranges


def without_units(ranges: Ranges) -> dict[str, Interval]:
    """The ranges of the variables with more than one value: simplification with them keeps variables of one value, too."""
    return {name: interval for name, interval in ranges.items() if interval[0] is None or interval[0] != interval[1]}
