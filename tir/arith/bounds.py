"""Bounds of expressions, and the ranges of the variables of loops and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Set
from types import MappingProxyType

from ..ir import Binary, Block, Const, Expr, For, Stmt
from ..traverse import divisions, loads
from .intervals import Interval, Ranges, expr_bounds, polynomial_bounds
from .polynomial import add, coefficient, constant, nonpositive, scale, split_terms, to_expr, wraps
from .simplify import normal_form, simplify


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


def upper_limit(condition: Expr, name: str, inner: Set[str], ranges: Ranges) -> Expr | None:
    """The exclusive upper bound on `name` that `condition` implies for any values of `inner` variables, or None."""
    p = nonpositive(condition) if is_pure(condition) else None
    if not p or (factor := coefficient(p, name) or 0) <= 0:
        return None
    _, rest = split_terms(p, {name})
    moving, fixed = split_terms(rest, inner)
    low, _ = polynomial_bounds(moving, ranges)
    if low is None:
        return None
    bound = scale(add(fixed, constant(low)), -1)  # factor * v <= bound, so that there are bound // factor + 1
    return simplify(Binary("//", to_expr(add(bound, constant(factor))), Const(factor)), ranges)


def is_pure(condition: Expr) -> bool:
    """True if a condition may be evaluated elsewhere: indices in range, no loads, and divisions by constants alone."""
    match condition:
        case Binary(_, a, b):
            fixed = all(isinstance(n.b, Const) for n in divisions(condition))
            return fixed and not wraps(a) and not wraps(b) and not loads(condition)
        case _:
            return False
