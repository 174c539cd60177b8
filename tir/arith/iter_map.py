"""Iter maps: variables split by constants, and whether the values of expressions determine the variables in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir import Axis, Binary, Block, Const, Expr, For, Var
from ..traverse import substitute, variables, walk
from .bounds import ranges_of
from .enumeration import injective_on_grid
from .intervals import Ranges, polynomial_bounds
from .polynomial import Polynomial, polynomial
from .simplify import simplify


def lower_factors(exprs: Iterable[Expr]) -> dict[str, list[int]]:
    """For each variable under // or % by constants, the lower factors of the parts that these split it into, ascending, without
    1: 4 and 12 for x // 4 % 3."""
    found: dict[str, set[int]] = {}
    for e in exprs:
        for n in walk(e) if type(e) is not Var else ():
            match n:
                case Binary("//" | "%", a, Const(c)) if c > 1 and (divided := _divided(a)) is not None:
                    name, by = divided
                    found.setdefault(name, set()).add(by * c)
    return {name: sorted(weights) for name, weights in found.items()}


def _divided(e: Expr) -> tuple[str, int] | None:
    """The variable of a chain of // and % by constants, and the product of the divisors; None for any other expression."""
    match e:
        case Var(name):
            return name, 1
        case Binary("//" | "%" as op, a, Const(c)) if (divided := _divided(a)) is not None:
            return divided if op == "%" else (divided[0], divided[1] * c)
    return None


def split_variable(var: Var, factors: Sequence[int]) -> tuple[list[Var], Expr]:
    """A variable as a sum of parts, each times its lower factor; the factors ascend from 1. Returns the parts and the sum."""
    parts = [Var(f"{var.name}.{n}", var.dtype) for n in range(len(factors))]
    total: Expr = parts[0]
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        total = part * factor + total
    return parts, total


def determined(values: Iterable[Polynomial], known: Iterable[str], ranges: Ranges) -> set[str]:
    """The variables that follow from the values of some expressions and from the `known` variables.

    In `c a + r` with r in an interval narrower than |c|, the value determines a and r: the terms are peeled off by decreasing
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


def counts_once(block: Block, loops: Sequence[For]) -> bool:
    """Whether each step of the reduction of a block provably runs at most once while those of the `loops` that it depends on run
    and all other variables are fixed."""
    bindings = [it.binding for it in block.iters if it.axis is Axis.REDUCE]
    if all(isinstance(e, Var) for e in bindings):
        return True
    driving = set().union(*(variables(e) for e in bindings))
    mine = [x for x in loops if x.name in driving and x.extent != Const(1, x.extent.dtype)]
    names = {x.name for x in mine}
    ranges = ranges_of(loops)
    if names <= determined([polynomial(simplify(e, ranges)) for e in bindings], driving - names, ranges):
        return True
    counts = {x.name: int(x.extent.value) for x in mine if isinstance(x.extent, Const)}
    still = {name: Const(0) for name in driving - names}
    return len(counts) == len(mine) and injective_on_grid(names, [substitute(e, still) for e in bindings], counts)
