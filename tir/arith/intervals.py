"""Intervals of integers, and interval arithmetic on polynomials."""

from __future__ import annotations

from collections.abc import Mapping

from .. import dtypes
from ..ir import Binary, Call, Cast, Const, Expr, Select, Unary, Var
from .polynomial import Polynomial, polynomial, wraps

Interval = tuple[int | None, int | None]  # inclusive; None is unbounded
Ranges = Mapping[str, Interval]  # by variable name
UNBOUNDED: Interval = (None, None)


def polynomial_bounds(p: Polynomial, ranges: Ranges) -> Interval:
    """An interval that contains all values of `p`: the sum of the intervals of its monomials."""
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        a: int | None = 1
        b: int | None = 1
        for atom in m:
            a, b = _interval_product((a, b), _atom_bounds(atom, ranges))
        if c < 0:
            a, b = b, a
        low = None if low is None or a is None else low + c * a
        high = None if high is None or b is None else high + c * b
    return low, high


def _interval_product(x: Interval, y: Interval) -> Interval:
    if x == (1, 1):
        return y
    if None not in x and None not in y:
        products = [u * v for u in x for v in y]  # type: ignore[operator]
        return min(products), max(products)
    if x[0] is not None and y[0] is not None and x[0] >= 0 and y[0] >= 0:
        return x[0] * y[0], None
    return UNBOUNDED


def _atom_bounds(atom: Expr, ranges: Ranges) -> Interval:
    match atom:
        case Var(name):
            return ranges.get(name, UNBOUNDED)
        case Const(value):
            return value, value
        case Binary("//", x, Const(c)) if c > 0:
            low, high = expr_bounds(x, ranges)
            return None if low is None else low // c, None if high is None else high // c
        case Binary("%", x, Const(c)) if c > 0:
            low, high = expr_bounds(x, ranges)
            if low is not None and high is not None and low // c == high // c:
                return low % c, high % c
            return 0, c - 1
        case Call("bit_and", (_, Const(c))) if c >= 0:
            return 0, c
        case Call("bit_xor", (x, y)):
            ends = (*expr_bounds(x, ranges), *expr_bounds(y, ranges))
            known = [n for n in ends if n is not None and n >= 0]
            return (0, (1 << max(known).bit_length()) - 1) if len(known) == len(ends) else UNBOUNDED
        case Binary("min" | "max", a, b) | Select(_, a, b):
            (la, ha), (lb, hb) = expr_bounds(a, ranges), expr_bounds(b, ranges)
            low = None if la is None or lb is None else min(la, lb)
            high = None if ha is None or hb is None else max(ha, hb)
            if isinstance(atom, Binary) and atom.op == "min":
                high = min((h for h in (ha, hb) if h is not None), default=None)
            elif isinstance(atom, Binary):
                low = max((x for x in (la, lb) if x is not None), default=None)
            return low, high
        case Cast(dtype, value) if dtypes.is_int(value.dtype) and dtypes.is_int(dtype):
            low, high = expr_bounds(value, ranges)
            minimum, maximum = _int_limits(dtype)
            if low is not None and high is not None and minimum <= low and high <= maximum:
                return low, high
            return UNBOUNDED if dtypes.bits(dtype) > 16 else (minimum, maximum)
        case _ if dtypes.is_int(atom.dtype) and dtypes.bits(atom.dtype) <= 16:
            return _int_limits(atom.dtype)
        case _:
            return UNBOUNDED


def _int_limits(dtype: str) -> tuple[int, int]:
    low, high = dtypes.limits(dtype)
    return int(low), int(high)


def expr_bounds(expr: Expr, ranges: Ranges) -> Interval:
    """An interval that contains all values of an expression, without simplification."""
    if isinstance(expr, (Binary, Unary, Select)) and wraps(expr):  # then it is no sum of products
        return _atom_bounds(expr, ranges)
    return polynomial_bounds(polynomial(expr), ranges)
