"""Predicates of blocks over their axes, in place of the loops that these are bound to."""

from __future__ import annotations

from collections.abc import Collection

from ..arith.intervals import Ranges
from ..arith.polynomial import Polynomial, add, nonpositive, polynomial, to_expr
from ..arith.simplify import simplify
from ..ir import FALSE, Binary, Block, Const, Expr, Iter, Var, conjuncts
from ..traverse import substitute, variables


def axis_conditions(block: Block, ranges: Ranges, outside: Collection[str] = ()) -> list[Expr]:
    """The conditions of a block's predicate that are over its axes and variables from `outside`, or that never hold."""
    bound: dict[str, Expr] = {it.binding.name: it.var for it in block.iters if type(it.binding) is Var}
    axes = {it.var.name for it in block.iters}
    visible = axes.union(outside)
    found = []
    for condition in conjuncts(block.predicate):
        c = simplify(condition, ranges)
        over = substitute(c, bound)
        if not variables(over) <= visible and (excessive := nonpositive(c)) is not None and isinstance(c, Binary):
            for it in block.iters:
                excessive = _over_axis(excessive, it, ranges)
            over = to_expr(excessive, c.a.dtype) <= Const(0, c.a.dtype)
        if over == FALSE or (not axes.isdisjoint(variables(over)) and variables(over) <= visible):
            found.append(over)
    return found


def _over_axis(p: Polynomial, it: Iter, ranges: Ranges) -> Polynomial:
    """A polynomial with an axis in place of a multiple of the sum of loops that it is bound to."""
    binding = polynomial(simplify(it.binding, ranges))
    for m, factor in binding.items():
        if m and p.get(m, 0) and p[m] % factor == 0:
            times = p[m] // factor
            return add(add(p, binding, -times), {(it.var,): times})
    return p
