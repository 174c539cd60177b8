"""Integer expressions as multivariate polynomials, with exact interval bounds.

A polynomial maps monomials to integer coefficients. A monomial is a sorted tuple of atoms: variables (loop variables and
symbolic sizes alike) and expressions that are opaque to addition and multiplication (`x // c`, `x % c`, `min`, loads). So
`i * 16 + j` and `i * t0 + j` are the same kind of thing. Terms keep the order in which they first appeared, so that an
expression which comes back unchanged also prints unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import gcd

from .. import dtypes
from ..ir import Binary, Cast, Const, Expr, Select, Unary, Var
from ..traverse import variables
from .size import single

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]
Interval = tuple[int | None, int | None]  # inclusive; None is unbounded
Ranges = Mapping[str, Interval]  # by variable name

UNBOUNDED: Interval = (None, None)


def _key(atom: Expr) -> str:
    return atom.name if type(atom) is Var else repr(atom)


def constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def add(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    """p + scale * q."""
    result = dict(p)
    for m, c in q.items():
        total = result.get(m, 0) + scale * c
        if total:
            result[m] = total
        else:
            result.pop(m, None)
    return result


def scale(p: Polynomial, factor: int) -> Polynomial:
    return {m: c * factor for m, c in p.items()} if factor else {}


def multiply(p: Polynomial, q: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for m, c in p.items():
        for n, d in q.items():
            atoms = m + n
            key = tuple(sorted(atoms, key=_key)) if len(atoms) > 1 and m and n else atoms
            total = result.get(key, 0) + c * d
            if total:
                result[key] = total
            else:
                result.pop(key, None)
    return result


def as_constant(p: Polynomial) -> int | None:
    """The value of a polynomial without variables, else None."""
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


def to_expr(p: Polynomial, dtype: str = "int32") -> Expr:
    """The polynomial as an expression: terms in order, the constant last, subtraction where a coefficient is negative; a positive
    term comes first, if there is one."""
    result: Expr | None = None
    terms = sorted(p.items(), key=lambda term: term[0] == ())
    if terms and terms[0][1] < 0:
        first = next((n for n, (_, c) in enumerate(terms) if c > 0), 0)
        terms.insert(0, terms.pop(first))
    for m, c in terms:
        magnitude = abs(c) if result is not None else c
        term: Expr | None = None
        for atom in m:
            term = atom if term is None else Binary("*", term, atom)
        if term is None:
            term = Const(magnitude, dtype)
        elif not single(magnitude):
            term = Binary("*", term, Const(magnitude, dtype))
        result = term if result is None else Binary("-" if c < 0 else "+", result, term)
    return Const(0, dtype) if result is None else result


# --- bounds ------------------------------------------------------------------------------------------------------------


def bounds(p: Polynomial, ranges: Ranges) -> Interval:
    """The smallest interval that contains `p`, each monomial taken by itself."""
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        a: int | None = 1
        b: int | None = 1
        for atom in m:
            a, b = _interval_product((a, b), atom_bounds(atom, ranges))
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


def atom_bounds(atom: Expr, ranges: Ranges) -> Interval:
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
            least, most = dtypes.limits(dtype)
            inside = low is not None and high is not None and least <= low and high <= most
            return (low, high) if inside else (None, None) if dtypes.bits(dtype) > 16 else (int(least), int(most))
        case _ if dtypes.is_int(atom.dtype) and dtypes.bits(atom.dtype) <= 16:
            return dtypes.limits(atom.dtype)  # type: ignore[return-value]
        case _:
            return UNBOUNDED


def expr_bounds(expr: Expr, ranges: Ranges) -> Interval:
    return bounds(polynomial(expr), ranges)


# --- from expressions ----------------------------------------------------------------------------------------------------


def polynomial(expr: Expr) -> Polynomial:
    """The polynomial of an integer expression as it stands; divisions, remainders and the like are taken as atoms.

    So is arithmetic on narrow and unsigned integers, which wraps around.
    """
    if type(expr) is not Const and expr.dtype not in ("int32", "int64"):
        return {(expr,): 1}
    return _polynomial(expr)


def _polynomial(expr: Expr) -> Polynomial:
    match expr:
        case Const(value):
            return constant(value)
        case Binary("+", a, b):
            return add(_polynomial(a), _polynomial(b))
        case Binary("-", a, b):
            return add(_polynomial(a), _polynomial(b), -1)
        case Binary("*", a, b):
            return multiply(_polynomial(a), _polynomial(b))
        case Unary("neg", a):
            return scale(_polynomial(a), -1)
        case _:
            return {(expr,): 1}


def split_terms(p: Polynomial, inner: Collection[str]) -> tuple[Polynomial, Polynomial]:
    """The terms that mention a variable of `inner`, and the rest."""
    with_inner: Polynomial = {}
    rest: Polynomial = {}
    for m, c in p.items():
        touched = any(a.name in inner if type(a) is Var else not variables(a).isdisjoint(inner) for a in m)
        (with_inner if touched else rest)[m] = c
    return with_inner, rest


def names_in(p: Polynomial) -> set[str]:
    """The names of the variables that a polynomial mentions."""
    return {name for m in p for a in m for name in variables(a)}


def coefficient(p: Polynomial, name: str) -> int | None:
    """The constant factor of variable `name`, if `p` is affine in it (0 where it is absent); None otherwise."""
    touched, _ = split_terms(p, {name})
    found = linear(touched)
    return found[1] if found is not None else None if touched else 0


def linear(p: Polynomial) -> tuple[str, int, int] | None:
    """(v, a, c) where a polynomial is a * v + c for a variable v and constants a and c; None otherwise."""
    match [(m, a) for m, a in p.items() if m]:
        case [((Var(name),), a)]:
            return name, a, p.get((), 0)
    return None


def excess(condition: Expr) -> Polynomial | None:
    """An order of integers as a polynomial that is at most 0 exactly where it holds; None for anything else."""
    match condition:
        case Binary("<" | "<=" as op, less, more) | Binary(">" | ">=" as op, more, less) if dtypes.is_int(less.dtype):
            difference = add(polynomial(less), polynomial(more), -1)
            return add(difference, constant(1)) if op in ("<", ">") else difference
    return None


def floordiv(p: Polynomial, c: int, ranges: Ranges, dtype: str = "int32") -> Polynomial:
    """p // c for c > 0: multiples of c are taken out; what is left vanishes if its bounds lie within one multiple; and so does a
    part of it that lies within one multiple of a divisor of c and of all other factors."""
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
    low, high = bounds(rest, ranges)
    if low is not None and high is not None and low // c == high // c:
        return add(quotient, constant(low // c))
    for g in sorted({gcd(c, k) for m, k in rest.items() if m} - {1}, reverse=True):
        low, high = bounds({m: k for m, k in rest.items() if k % g}, ranges)
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
    """p % c for c > 0: multiples of c vanish, and so does the operation where the bounds allow it."""
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
    low, high = bounds(rest, ranges)
    if low is not None and high is not None and low // c == high // c:
        return add(rest, constant(-(low // c) * c))
    g = c
    for k in rest.values():
        g = gcd(g, k)
    if g > 1:
        return scale(remainder({m: k // g for m, k in rest.items()}, c // g, ranges, dtype), g)
    return {(Binary("%", to_expr(rest, dtype), Const(c, dtype)),): 1}


def recombine(p: Polynomial, ranges: Ranges, dtype: str = "int32") -> Polynomial:
    """Undo a split that lies within one sum: k c (x // c) + k (x % c) = k x."""
    for m, k in p.items():
        if len(m) == 1 and type(m[0]) is Binary and m[0].op == "%":
            whole = _recombined(p, m[0], k, ranges, dtype)
            if whole is not None:
                return recombine(whole, ranges, dtype)
    return p


def _recombined(p: Polynomial, rest: Binary, k: int, ranges: Ranges, dtype: str) -> Polynomial | None:
    """`p`, its term k (x % c) and the one for x // c replaced by k x; None where there is no such pair."""
    if type(rest.b) is not Const or rest.b.value <= 0:
        return None
    x, c = polynomial(rest.a), rest.b.value
    quotient = floordiv(x, c, ranges, dtype)
    if len(quotient) != 1:
        return None
    ((q, factor),) = quotient.items()
    if factor != 1 or q == () or p.get(q) != k * c:
        return None
    return add(add(add(p, {(rest,): -k}), {q: -k * c}), scale(x, k))
