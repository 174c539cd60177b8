"""Simplification of expressions, given the ranges of their variables.

Integer expressions are brought into the normal form of `polynomial`; each rule is proved by brute force in its test. Floating
expressions are never reassociated.
"""

from __future__ import annotations

from math import inf

from .. import dtypes
from ..ir import COMPARISONS, FALSE, TRUE, Binary, Cast, Const, Expr, Node, Select, Unary, Var
from ..traverse import map_children
from .division import floordiv, recombine, remainder
from .enumeration import PYTHON_OPERATORS
from .intervals import Interval, Ranges, expr_bounds, polynomial_bounds
from .polynomial import Polynomial, add, as_constant, constant, multiply, scale, to_expr, wraps
from .symbolic import is_fixed

_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An equal expression of the same dtype in normal form; `ranges` maps names to inclusive intervals. Raises TypeError."""
    if not isinstance(expr, Expr):
        raise TypeError(f"simplify takes an expression, got {type(expr).__name__}")
    result = _simplify(expr, ranges or {})
    return expr if result == expr else result


def normal_form(e: Expr, ranges: Ranges) -> Polynomial:
    """The normal form of an integer expression."""
    kind = type(e)
    if kind is Const:
        return constant(e.value)  # type: ignore[attr-defined]
    if kind is Var:
        low, high = ranges.get(e.name, (None, None))  # type: ignore[attr-defined]
        return constant(low) if low is not None and low == high and is_fixed(high) else {(e,): 1}
    if kind is Binary:
        return _arithmetic(e, ranges)  # type: ignore[arg-type]
    match e:
        case Unary("neg", a):
            return scale(normal_form(a, ranges), -1)
        case Cast(dtype, value):
            inner = _simplify(value, ranges)
            folded = _fold_cast(dtype, inner)
            return {(Cast(dtype, inner),): 1} if folded is None else constant(folded.value)
        case Select(c, t, f, lazy):
            condition = _simplify(c, ranges)
            if condition == TRUE:
                return normal_form(t, ranges)
            if condition == FALSE:
                return normal_form(f, ranges)
            p, q = normal_form(t, ranges), normal_form(f, ranges)
            return p if p == q else {(Select(condition, to_expr(p, e.dtype), to_expr(q, e.dtype), lazy),): 1}
        case _:
            return {(map_children(e, lambda n: _node(n, ranges)),): 1}  # type: ignore[dict-item]


def _arithmetic(e: Binary, ranges: Ranges) -> Polynomial:
    """The normal form of an operation on integers."""
    p, q = normal_form(e.a, ranges), normal_form(e.b, ranges)
    match e.op:
        case "+":
            return recombine(add(p, q), ranges, e.dtype)
        case "-":
            return recombine(add(p, q, -1), ranges, e.dtype)
        case "*":
            return multiply(p, q)
        case "//" | "%":
            c, value = as_constant(q), as_constant(p)
            if c is not None and c > 0:
                return (floordiv if e.op == "//" else remainder)(p, c, ranges, e.dtype)
            if c and value is not None:
                return constant(value // c if e.op == "//" else value % c)
        case "min" | "max":
            low, high = polynomial_bounds(add(p, q, -1), ranges)
            if high is not None and high <= 0:
                return p if e.op == "min" else q
            if low is not None and low >= 0:
                return q if e.op == "min" else p
    return {(Binary(e.op, to_expr(p, e.dtype), to_expr(q, e.dtype)),): 1}


def _node(n: Node, ranges: Ranges) -> Node:
    return _simplify(n, ranges) if isinstance(n, Expr) else n


def _simplify(e: Expr, ranges: Ranges) -> Expr:
    if type(e) is Const:
        return e
    if dtypes.is_int(e.dtype) and not wraps(e):
        return to_expr(normal_form(e, ranges), e.dtype)
    match e:
        case Binary("and" | "or" as op, a, b):
            neutral, deciding = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
            a, b = _simplify(a, ranges), _simplify(b, ranges)
            if deciding in (a, b):
                return deciding
            if a in (neutral, b):
                return b
            return a if b == neutral else Binary(op, a, b)
        case Unary("not", a):
            a = _simplify(a, ranges)
            match a:
                case Const(value):
                    return FALSE if value else TRUE
                case Binary(op, x, y) if op in COMPARISONS and not dtypes.is_float(x.dtype):
                    return Binary(_NEGATED[op], x, y)
                case Unary("not", x):
                    return x
            return Unary("not", a)
        case Binary(op, a, b) if op in COMPARISONS:
            return _comparison(op, a, b, ranges)
        case Select(c, t, f, lazy):
            condition = _simplify(c, ranges)
            if condition == TRUE:
                return _simplify(t, ranges)
            if condition == FALSE:
                return _simplify(f, ranges)
            return Select(condition, _simplify(t, ranges), _simplify(f, ranges), lazy)
        case Cast(dtype, value):
            value = _simplify(value, ranges)
            folded = _fold_cast(dtype, value)
            if folded is not None:
                return folded
            return Cast(dtype, value) if value.dtype != dtype else value
        case _:
            return map_children(e, lambda n: _node(n, ranges))  # type: ignore[return-value]


def _fold_cast(dtype: str, value: Expr) -> Const | None:
    """A constant converted to `dtype`, if that is exact; None otherwise."""
    if not isinstance(value, Const) or dtypes.is_float(value.dtype) or dtype == "bool":
        return None
    low, high = dtypes.limits(dtype)
    if dtypes.is_float(dtype):
        return Const(float(value.value), dtype) if abs(value.value) <= 2 / dtypes.TABLE[dtype].eps else None
    return Const(int(value.value), dtype) if low <= value.value <= high else None


def _comparison(op: str, a: Expr, b: Expr, ranges: Ranges) -> Expr:
    if not _exact(a, b):
        a, b = _simplify(a, ranges), _simplify(b, ranges)
        if isinstance(a, Const) and isinstance(b, Const):
            return TRUE if PYTHON_OPERATORS[op](a.value, b.value) else FALSE
        if not _exact(a, b):
            if dtypes.is_int(a.dtype):
                difference = _difference(expr_bounds(a, ranges), expr_bounds(b, ranges))
                if _always(op, difference) or _always(_NEGATED[op], difference):
                    return TRUE if _always(op, difference) else FALSE
            return Binary(op, a, b)
    p, q = normal_form(a, ranges), normal_form(b, ranges)
    difference = polynomial_bounds(add(p, q, -1), ranges)
    if _always(op, difference):
        return TRUE
    if _always(_NEGATED[op], difference):
        return FALSE
    return Binary(op, to_expr(p, a.dtype), to_expr(q, b.dtype))


def _difference(x: Interval, y: Interval) -> Interval:
    """The interval of a - b for all a of one interval and b of another."""
    (low, high), (least, most) = x, y
    return None if low is None or most is None else low - most, None if high is None or least is None else high - least


def _exact(a: Expr, b: Expr) -> bool:
    """True for integers whose arithmetic may be rearranged."""
    return dtypes.is_int(a.dtype) and not wraps(a) and not wraps(b)


def _always(op: str, interval: Interval) -> bool:
    """True where `d op 0` for all d of an interval."""
    low, high = -inf if interval[0] is None else interval[0], inf if interval[1] is None else interval[1]
    if op == "==":
        return low == high == 0
    below, above = high < 0, low > 0
    return {"<": below, "<=": high <= 0, ">": above, ">=": low >= 0, "!=": below or above}[op]
