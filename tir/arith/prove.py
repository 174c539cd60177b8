"""Proofs that a condition holds for all values of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from .. import dtypes
from ..ir import TRUE, Binary, Cast, Const, Expr, Select, Unary, conjuncts
from ..traverse import divisions
from .intervals import Ranges, polynomial_bounds
from .polynomial import Polynomial, add, as_constant, constant, nonpositive, polynomial, scale, wraps
from .simplify import normal_form, simplify


def prove(condition: Expr, ranges: Ranges, facts: Iterable[Expr] = ()) -> bool:
    """True where `condition` holds for all values within `ranges` for which `facts` hold. False means unknown, not untrue."""
    result = simplify(condition, ranges)
    if result == TRUE:
        return True
    known = [p for f in facts for c in conjuncts(simplify(f, ranges)) for p in nonnegative(c)]
    if not known and not divisions(result):
        return False
    for part in conjuncts(result):
        goals = nonnegative(part)
        if not goals or not all(_follows(g, [*known, *_quotient_bounds(g, known)], ranges, depth=2) for g in goals):
            return False
    return True


def _follows(goal: Polynomial, known: list[Polynomial], ranges: Ranges, depth: int) -> bool:
    """True where goal >= 0, as a sum of at most `depth` multiples of `known`, all >= 0, and a rest >= 0."""
    if _at_least_zero(goal, ranges):
        return True
    if depth == 0:
        return False
    for k in known:
        factors = {1} | {c // k[m] for m, c in goal.items() if m and m in k and c % k[m] == 0}
        for factor in sorted(f for f in factors if f > 0):
            if _follows(add(goal, k, -factor), known, ranges, depth - 1):
                return True
    return False


def _quotient_bounds(goal: Polynomial, known: list[Polynomial]) -> Iterator[Polynomial]:
    """Polynomials >= 0: the bounds of each a // c of a goal, for c > 0, that follow from `known` bounds of a."""
    for m in goal:
        match m:
            case (Binary("//", a, Const(int(c))),) if c > 0:
                for k, sign in product(known, (1, -1)):
                    rest = as_constant(add(k, polynomial(a), -sign))
                    if rest is not None:  # sign * a + rest >= 0
                        yield add(constant(-sign * (-sign * rest // c)), {m: sign})


def provably_equal(a: Expr, b: Expr, ranges: Ranges | None = None) -> bool:
    """True where two integer expressions are provably equal."""
    return not add(normal_form(a, ranges or {}), normal_form(b, ranges or {}), -1)


def constant_difference(a: Expr, b: Expr) -> int | None:
    """The constant a - b; None if it is not constant."""
    return as_constant(add(polynomial(simplify(a)), polynomial(simplify(b)), -1))


def _at_least_zero(p: Polynomial, ranges: Ranges) -> bool:
    low, _ = polynomial_bounds(p, ranges)
    if (low is None or low < 0) and (whole := _without_parts(p)) is not None:
        low, _ = polynomial_bounds(whole, ranges)
    return low is not None and low >= 0


def _without_parts(p: Polynomial) -> Polynomial | None:
    """A polynomial with a - a % c in place of c * (a // c). None where it has no such term."""
    for m, factor in p.items():
        match m:
            case (Binary("//", a, Const(int(c)) as divisor) as quotient,) if c > 0 and factor % c == 0:
                whole = add(polynomial(a), {(Binary("%", a, divisor),): 1}, -1)
                return add(add(p, {(quotient,): factor}, -1), whole, factor // c)
    return None


def nonnegative(condition: Expr) -> list[Polynomial]:
    """Polynomials that are all >= 0 exactly where a comparison of integers holds; [] for any other condition."""
    match condition:
        case Binary(_, a, b) if _may_wrap(a) or _may_wrap(b):
            return []
        case Binary("==", a, b) if dtypes.is_int(a.dtype):
            d = add(polynomial(b), polynomial(a), -1)
            return [d, scale(d, -1)]
    p = nonpositive(condition)
    return [] if p is None else [_without_quotient(scale(p, -1))]


def _may_wrap(e: Expr) -> bool:
    """True for integer arithmetic that may wrap around: on loaded elements, or in a narrow type."""
    match e:
        case Binary() | Unary() | Select():
            return wraps(e)
        case Cast(_, value):
            return _may_wrap(value)
    return False


def _without_quotient(p: Polynomial) -> Polynomial:
    """A polynomial >= 0 where `p` is: for c > 0, a // c + d becomes a + c * d, and d - a // c becomes c * d + c - 1 - a."""
    match [(m, factor) for m, factor in p.items() if m]:
        case [((Binary("//", a, Const(int(c))),), 1 | -1 as sign)] if c > 0:
            free = c * p.get((), 0) + (c - 1 if sign < 0 else 0)
            return add(constant(free), polynomial(a), sign)
    return p
