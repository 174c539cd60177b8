"""Mixed radix: variables split into parts, and sums of parts such as `i * 12 + j * 4 + k`, where j < 3 and k < 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..ir import Binary, Const, Expr, Var
from ..traverse import walk
from .polynomial import Monomial, Polynomial, polynomial, to_expr
from .simplify import simplify
from .symbolic import is_one


def lower_factors(exprs: Iterable[Expr]) -> dict[str, list[int]]:
    """The lower factors of the parts of each variable under // or % by constants, ascending: 4 and 12 for x // 4 % 3."""
    found: dict[str, set[int]] = {}
    for e in exprs:
        for n in walk(e) if type(e) is not Var else ():
            match n:
                case Binary("//" | "%", a, Const(c)) if c > 1 and (divided := _divided_variable(a)) is not None:
                    name, by = divided
                    found.setdefault(name, set()).add(by * c)
    return {name: sorted(weights) for name, weights in found.items()}


def _divided_variable(e: Expr) -> tuple[str, int] | None:
    """The variable of a chain of // and % by constants, and the product of the divisors; None for any other expression."""
    match e:
        case Var(name):
            return name, 1
        case Binary("//" | "%" as op, a, Const(c)) if (divided := _divided_variable(a)) is not None:
            return divided if op == "%" else (divided[0], divided[1] * c)
    return None


def split_variable(var: Var, factors: Sequence[int], separator: str = ".") -> tuple[list[Var], Expr]:
    """A variable as a sum of parts, each times its lower factor; the factors ascend from 1. Returns the parts and the sum."""
    parts = [Var(f"{var.name}{separator}{n}", var.dtype) for n in range(len(factors))]
    total: Expr = parts[0]
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        total = part * factor + total
    return parts, total


Terms = list[tuple[str, int | Expr]]  # the variables of a sum in mixed radix and their coefficients, ascending


def mixed_radix(p: Polynomial, sizes: Mapping[str, Expr]) -> tuple[Terms, Expr] | None:
    """The terms of a sum in mixed radix and the number of its values; None unless each coefficient is the product of the extents
    below. A coefficient of symbolic sizes is an expression."""
    terms: Terms = []
    count: Expr = Const(1)
    units = {name for name, size in sizes.items() if size.is_one}  # of one value, before others of their coefficient

    def order(term: tuple[Monomial, int]) -> tuple[int, int, bool]:
        return len(term[0]), term[1], not any(type(v) is Var and v.name in units for v in term[0])

    for monomial, coefficient in sorted(p.items(), key=order):
        own = [v for v in monomial if type(v) is Var and v.name in sizes]
        if len(own) != 1:
            return None
        weight: int | Expr = coefficient
        if len(monomial) > 1:
            weight = to_expr({tuple(v for v in monomial if v is not own[0]): coefficient}, own[0].dtype)
        (name,) = (v.name for v in own)
        if polynomial(count) != (polynomial(weight) if isinstance(weight, Expr) else {(): weight}):
            return None
        terms.append((name, weight))
        count = simplify(count * sizes[name])
    return terms, count


def values_of_terms(total: Expr, terms: Terms, sizes: Mapping[str, Expr]) -> dict[str, Expr]:
    """Each variable of a sum in mixed radix, from the value of the sum."""
    found: dict[str, Expr] = {}
    for name, coefficient in terms:
        quotient = total if isinstance(coefficient, int) and is_one(coefficient) else total // coefficient
        found[name] = quotient if name == terms[-1][0] else quotient % sizes[name]
    return found
