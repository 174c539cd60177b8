"""Injectivity: whether the values of expressions determine the variables in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir import Axis, Binary, Block, Const, Expr, For, Var
from ..traverse import substitute, variables
from .bounds import ranges_of
from .enumeration import injective_on_grid
from .intervals import Ranges, polynomial_bounds
from .polynomial import Polynomial, polynomial
from .simplify import simplify


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


def counts_once(block: Block, loops: Sequence[For], axis: Axis = Axis.REDUCE) -> bool:
    """Whether each value of a block's axes of a kind, such as a step of its reduction, provably comes at most once as those of
    its `loops` run that drive them, all else fixed."""
    bindings = [it.binding for it in block.iters if it.axis is axis]
    if all(isinstance(e, Var) for e in bindings):
        return True
    driving = variables(*bindings)
    mine = [x for x in loops if x.name in driving and not x.extent.is_one]
    names = {x.name for x in mine}
    ranges = ranges_of(loops)
    if names <= determined([polynomial(simplify(e, ranges)) for e in bindings], driving - names, ranges):
        return True
    counts = {x.name: int(x.extent.value) for x in mine if isinstance(x.extent, Const)}
    zeros = {name: Const(0) for name in driving - names}
    return len(counts) == len(mine) and injective_on_grid(names, [substitute(e, zeros) for e in bindings], counts)
