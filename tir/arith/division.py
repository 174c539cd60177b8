"""Floor division and remainder of polynomials by positive constants."""

from __future__ import annotations

from math import gcd

from ..ir import Binary, Const
from .intervals import Ranges, polynomial_bounds
from .polynomial import Polynomial, add, constant, polynomial, scale, to_expr


def floordiv(p: Polynomial, c: int, ranges: Ranges, dtype: str = "int32") -> Polynomial:
    """p // c for c > 0. Terms that are multiples of c are divided. The quotient of the rest is constant where its bounds lie
    between adjacent multiples of c. Terms that a divisor g of c does not divide drop out where their sum lies between adjacent
    multiples of g."""
    if c == 1:
        return p
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for m, k in p.items():
        if m == ():
            q, r = divmod(k, c)
            quotient = add(quotient, constant(q))
            rest = add(rest, constant(r))
        elif k % c == 0:
            quotient[m] = k // c
        else:
            rest[m] = k
    low, high = polynomial_bounds(rest, ranges)
    if low is not None and high is not None and low // c == high // c:
        return add(quotient, constant(low // c))
    for g in sorted({gcd(c, k) for m, k in rest.items() if m} - {1}, reverse=True):
        low, high = polynomial_bounds({m: k for m, k in rest.items() if k % g}, ranges)
        if low is not None and high is not None and low // g == high // g:
            # floor((g x + r) / (g d)) = floor((x + floor(r / g)) / d), where r stays within one multiple of g
            whole = {m: k // g for m, k in rest.items() if k % g == 0}
            return add(quotient, floordiv(add(whole, constant(low // g)), c // g, ranges, dtype))
    if len(rest) == 1:
        ((m, k),) = rest.items()
        if k == 1 and len(m) == 1:
            match m[0]:
                case Binary("//", x, Const(d)) if d > 0:  # floor(floor(x / d) / c) = floor(x / (d c))
                    return add(quotient, floordiv(polynomial(x), d * c, ranges, dtype))
                case Binary("%", x, Const(d)) if d > 0 and d % c == 0:  # (x mod d) // c = (x // c) mod (d / c)
                    return add(quotient, remainder(floordiv(polynomial(x), c, ranges, dtype), d // c, ranges, dtype))
    return add(quotient, {(Binary("//", to_expr(rest, dtype), Const(c, dtype)),): 1})


def remainder(p: Polynomial, c: int, ranges: Ranges, dtype: str = "int32") -> Polynomial:
    """p % c for c > 0. Multiples of c are dropped; so is the operation, where the bounds lie between adjacent multiples of c."""
    if c == 1:
        return {}
    rest: Polynomial = {}
    for m, k in p.items():
        if m == ():
            rest = add(rest, constant(k % c))
        elif k % c:
            rest = add(rest, {m: k})
    for m, k in tuple(rest.items()):
        match m:
            case (Binary("%", x, Const(d)),) if d > 0 and k * d % c == 0:  # x mod d = x - d (x // d)
                return remainder(add(add(rest, {m: -k}), scale(polynomial(x), k)), c, ranges, dtype)
    low, high = polynomial_bounds(rest, ranges)
    if low is not None and high is not None and low // c == high // c:
        return add(rest, constant(-(low // c) * c))
    g = c
    for k in rest.values():
        g = gcd(g, k)
    if g > 1:
        return scale(remainder({m: k // g for m, k in rest.items()}, c // g, ranges, dtype), g)
    return {(Binary("%", to_expr(rest, dtype), Const(c, dtype)),): 1}


def recombine(p: Polynomial, ranges: Ranges, dtype: str = "int32") -> Polynomial:
    """Undo a split within a sum: k c (x // c) + k (x % c) = k x. For x = r + y // d, x // c occurs as (r d + y) // (c d)."""
    for m, k in p.items():
        if len(m) == 1 and type(m[0]) is Binary and m[0].op == "%":
            whole = _recombined(p, m[0], k, ranges, dtype)
            if whole is not None:
                return recombine(whole, ranges, dtype)
    return p


def _recombined(p: Polynomial, rest: Binary, k: int, ranges: Ranges, dtype: str) -> Polynomial | None:
    """`p` with its terms k (x % c) and k c (x // c) replaced by k x; None where it lacks the second."""
    if type(rest.b) is not Const or rest.b.value <= 0:
        return None
    x, c = polynomial(rest.a), rest.b.value
    quotients = [(x, c)]
    for m, factor in x.items():
        match m:
            case (Binary("//", y, Const(d)),) if d > 0 and factor == 1:
                quotients.append((add(scale(add(x, {m: -1}), d), polynomial(y)), c * d))
    for dividend, divisor in quotients:
        quotient = floordiv(dividend, divisor, ranges, dtype)
        if len(quotient) == 1:
            ((q, factor),) = quotient.items()
            if factor == 1 and q != () and p.get(q) == k * c:
                return add(add(add(p, {(rest,): -k}), {q: -k * c}), scale(x, k))
    return None
