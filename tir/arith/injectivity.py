"""Injectivity: variables that the values of expressions determine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from ..ir import Axis, Binary, Block, Const, Expr, For, Var
from ..traverse import variables
from .bounds import ranges_of
from .enumeration import distinct_rows, enumerate_points
from .intervals import Ranges, polynomial_bounds
from .polynomial import Polynomial, polynomial, split_terms, to_expr, wraps
from .simplify import simplify


def determined(values: Iterable[Polynomial], known: Iterable[str], ranges: Ranges) -> set[str]:
    """The variables that follow from the values of some expressions and from the `known` variables.

    The value of `c a + r`, with r in an interval narrower than |c|, determines a and r. Terms are peeled off by decreasing
    coefficient. From `x // c` and `x % c` follows x.
    """
    equations = list(values)
    follow = set(known)
    atoms: set[Expr] = set()

    def is_known(monomial: tuple[Expr, ...]) -> bool:
        return all(a in atoms or variables(a) <= follow for a in monomial)

    changed = True
    while changed:
        changed = False
        for p in equations:
            rest = {m: c for m, c in p.items() if m and not is_known(m)}
            while rest:
                top = max(rest, key=lambda m: abs(rest[m]))
                factor = abs(rest.pop(top))
                low, high = polynomial_bounds(rest, ranges)
                if len(top) != 1 or low is None or high is None or high - low >= factor:
                    break
                atoms.add(top[0])
                if isinstance(top[0], Var):
                    follow.add(top[0].name)
                changed = True
        for a in tuple(atoms):
            match a:
                case Binary("//" | "%" as op, x, Const(c)) if c > 0:
                    other = simplify(Binary("%" if op == "//" else "//", x, Const(c, x.dtype)), ranges)
                    p = polynomial(x)
                    if p not in equations and all(is_known(m) for m in polynomial(other)):
                        equations.append(p)
                        changed = True
    return follow


def counts_once(block: Block, loops: Sequence[For], axis: Axis = Axis.REDUCE) -> bool:
    """True where `loops` provably give each value of a block's axes of one kind at most once, all else fixed."""
    bindings = [it.binding for it in block.iters if it.axis is axis]
    if all(isinstance(e, Var) for e in bindings):
        return True
    driving = variables(*bindings)
    mine = [x for x in loops if x.name in driving and not x.extent.is_one]
    names = {x.name for x in mine}
    ranges = ranges_of(loops)
    if names <= determined([polynomial(simplify(e, ranges)) for e in bindings], driving - names, ranges):
        return True
    return tried_injective(names, names, bindings, loops)


def tried_injective(
    names: set[str], moving: set[str], places: Iterable[Expr], loops: Iterable[For], limit: int = 100_000
) -> bool:
    """True if iterations of the loops `moving` that differ in `names` differ in `places`, all other loops fixed: by algebra, else
    by enumeration. False where there are more than `limit`, or an extent is symbolic."""
    parts = tuple(to_expr(split_terms(polynomial(e), moving)[0], e.dtype) for e in places)
    used = variables(*parts)
    counts = {x.name: int(x.extent.value) for x in loops if x.name in used | names and isinstance(x.extent, Const)}
    if counts.keys() != used | names or any(wraps(e) for e in parts) or prod(counts.values()) > limit:
        return False
    return _injective(parts, tuple(counts.items()), frozenset(names), frozenset(used - moving))


@lru_cache(maxsize=4096)  # sketches of a function ask the same of its copies and tiles
def _injective(
    parts: tuple[Expr, ...], counts: tuple[tuple[str, int], ...], names: frozenset[str], fixed: frozenset[str]
) -> bool:
    """True if points of a grid that agree in the `fixed` variables and in the values of `parts` agree in `names`."""
    ranges = {name: (0, count - 1) for name, count in counts}
    if names <= determined([polynomial(simplify(e, ranges)) for e in parts], fixed, ranges):
        return True
    points = enumerate_points(dict(counts), set(ranges), (), prod(count for _, count in counts))
    columns = None if points is None else points.evaluate([*parts, *map(Var, sorted(fixed))])
    if points is None or columns is None:
        return False
    if not len(points):
        return True
    rows = (columns, [points.values[n] for n in sorted(names)])
    group, own = (distinct_rows(np.array(x, np.int64).reshape(len(x), len(points)).T)[1] for x in rows)
    some = np.zeros(len(points), np.int64)
    some[group] = own
    return bool(np.all(some[group] == own))
