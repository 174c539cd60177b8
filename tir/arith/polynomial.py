"""Integer expressions as multivariate polynomials.

A polynomial maps monomials to integer coefficients. A monomial is a sorted tuple of atoms. An atom is a variable (of a loop, or
a symbolic size) or an opaque expression: `x // c`, `x % c`, `min`, a load. So `i * 16 + j` and `i * n + j` have the same form.
Terms keep their order: an expression in normal form prints unchanged after conversion to a polynomial and back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .. import dtypes
from ..ir import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var
from ..traverse import variable_names, variables
from .symbolic import is_one

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]


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
    """The value of a constant polynomial; None for any other."""
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


def polynomial(expr: Expr) -> Polynomial:
    """The polynomial of an integer expression, without simplification: divisions, remainders and the like are atoms.

    Arithmetic on narrow or unsigned integers, which wraps around, is an atom, too.
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


def to_expr(p: Polynomial, dtype: str | None = None) -> Expr:
    """The polynomial as an expression: a positive term first, then terms in order, the constant last."""
    dtype = dtype or next((a.dtype for m in p for a in m), "int32")
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
        elif not is_one(magnitude):
            term = Binary("*", term, Const(magnitude, dtype))
        result = term if result is None else Binary("-" if c < 0 else "+", result, term)
    return Const(0, dtype) if result is None else result


def split_terms(p: Polynomial, inner: Collection[str]) -> tuple[Polynomial, Polynomial]:
    """The terms in which a variable of `inner` occurs, and the other terms."""
    with_inner: Polynomial = {}
    rest: Polynomial = {}
    for m, c in p.items():
        touched = any(a.name in inner if type(a) is Var else not variables(a).isdisjoint(inner) for a in m)
        (with_inner if touched else rest)[m] = c
    return with_inner, rest


def names_in(p: Polynomial) -> set[str]:
    """The names of the variables in a polynomial."""
    return {name for m in p for a in m for name in variable_names(a)}


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


def affine_index(index: Expr, names: Iterable[str]) -> tuple[str, int] | None:
    """(v, c) where an index is the iteration variable v of `names` plus the constant c; None otherwise."""
    match linear(polynomial(index)):
        case (name, 1, offset) if name in set(names):
            return name, offset
    return None


def plus_constant(e: Expr, by: int) -> Expr:
    """`e` plus a constant, folded."""
    return e if by == 0 else to_expr(add(polynomial(e), constant(by)), e.dtype)


def nonpositive(condition: Expr) -> Polynomial | None:
    """A polynomial that is <= 0 exactly where a condition `a < b`, `<=`, `>` or `>=` on integers holds; else None."""
    match condition:
        case Binary("<" | "<=" as op, less, more) | Binary(">" | ">=" as op, more, less) if dtypes.is_int(less.dtype):
            difference = add(polynomial(less), polynomial(more), -1)
            return add(difference, constant(1)) if op in ("<", ">") else difference
    return None


def wraps(e: Expr) -> bool:
    """True where integer arithmetic in `e` may wrap around: it involves loaded or narrow values, so it must not be rearranged."""
    kind = type(e)
    if kind is Var or kind is Const:
        return e.dtype != "int32" and e.dtype != "int64"
    match e:
        case Binary(_, a, b) | Select(_, a, b) | Call("bit_xor", (a, b)):
            return wraps(a) or wraps(b)
        case Element() | Call():
            return True
        case Cast(_, a):
            return wraps(a) or e.dtype not in ("int32", "int64") or not dtypes.is_int(a.dtype)
        case Unary(_, a):
            return wraps(a)
        case _:
            return False
