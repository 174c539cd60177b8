"""Simplification of expressions, and proofs about them, from the ranges of their variables.

Integer expressions go through the normal form of `affine`; each rule is proved by brute force in its test. Floating
expressions are never reassociated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import inf
from operator import is_
from types import MappingProxyType
from typing import Any

from .. import dtypes
from ..ir import (
    COMPARISONS,
    FALSE,
    NOTHING,
    TRUE,
    Binary,
    Block,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Node,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Unary,
    Var,
    conjunction,
    conjuncts,
    guarded,
    seq,
)
from ..traverse import map_children, map_statements
from .affine import (
    Interval,
    Polynomial,
    Ranges,
    add,
    as_constant,
    constant,
    excess,
    floordiv,
    multiply,
    polynomial,
    recombine,
    remainder,
    scale,
    to_expr,
)
from .affine import bounds as polynomial_bounds
from .points import ON_NUMBERS
from .size import fixed

_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An equal expression, of the same dtype, in normal form; `ranges` maps variable names to inclusive intervals (None is
    unbounded). Raises TypeError for what is no expression."""
    if not isinstance(expr, Expr):
        raise TypeError(f"simplify takes an expression, got {type(expr).__name__}")
    result = _simplify(expr, ranges or {})
    return expr if result == expr else result


def bounds(expr: Expr, ranges: Ranges) -> Interval:
    """An interval (inclusive, None is unbounded) that contains every value of an integer expression."""
    return polynomial_bounds(_integer(expr, ranges), ranges)


def prove(condition: Expr, ranges: Ranges, facts: Iterable[Expr] = ()) -> bool:
    """Whether `condition` holds for all values within `ranges` for which `facts` hold. False means unknown, not untrue."""
    result = _simplify(condition, ranges)
    if result == TRUE:
        return True
    known = [p for f in facts for c in conjuncts(_simplify(f, ranges)) for p in nonnegative(c)]
    if not known:
        return False
    for part in conjuncts(result):
        goals = nonnegative(part)
        if not goals or not all(_follows(g, known, ranges, depth=2) for g in goals):
            return False
    return True


def _follows(goal: Polynomial, known: list[Polynomial], ranges: Ranges, depth: int) -> bool:
    """Whether goal >= 0 because it is a sum of at most `depth` multiples of `known`, all >= 0, and something that is >= 0."""
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


def equal(a: Expr, b: Expr, ranges: Ranges | None = None) -> bool:
    """Whether two integer expressions are provably the same."""
    return not add(_integer(a, ranges or {}), _integer(b, ranges or {}), -1)


def _at_least_zero(p: Polynomial, ranges: Ranges) -> bool:
    low, _ = polynomial_bounds(p, ranges)
    return low is not None and low >= 0


def nonnegative(condition: Expr) -> list[Polynomial]:
    """Polynomials that are all >= 0 exactly where the integer comparison holds; [] for any other condition."""
    match condition:
        case Binary("==", a, b) if dtypes.is_int(a.dtype):
            d = add(polynomial(b), polynomial(a), -1)
            return [d, scale(d, -1)]
    p = excess(condition)
    return [] if p is None else [scale(p, -1)]


def _integer(e: Expr, ranges: Ranges) -> Polynomial:
    """The normal form of an integer expression."""
    kind = type(e)
    if kind is Const:
        return constant(e.value)  # type: ignore[attr-defined]
    if kind is Var:
        low, high = ranges.get(e.name, (None, None))  # type: ignore[attr-defined]
        return constant(low) if low is not None and low == high and fixed(high) else {(e,): 1}
    if kind is Binary:
        return _arithmetic(e, ranges)  # type: ignore[arg-type]
    match e:
        case Unary("neg", a):
            return scale(_integer(a, ranges), -1)
        case Cast(dtype, value):
            inner = _simplify(value, ranges)
            folded = _fold_cast(dtype, inner)
            return {(Cast(dtype, inner),): 1} if folded is None else constant(folded.value)
        case Select(c, t, f, lazy):
            condition = _simplify(c, ranges)
            if condition == TRUE:
                return _integer(t, ranges)
            if condition == FALSE:
                return _integer(f, ranges)
            p, q = _integer(t, ranges), _integer(f, ranges)
            return p if p == q else {(Select(condition, to_expr(p, e.dtype), to_expr(q, e.dtype), lazy),): 1}
        case _:
            return {(map_children(e, lambda n: _node(n, ranges)),): 1}  # type: ignore[dict-item]


def _arithmetic(e: Binary, ranges: Ranges) -> Polynomial:
    """The normal form of an operation on integers."""
    p, q = _integer(e.a, ranges), _integer(e.b, ranges)
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


def wraps(e: Expr) -> bool:
    """Whether integer arithmetic in `e` may wrap around: it involves loaded or narrow values, so it must not be rearranged."""
    kind = type(e)
    if kind is Var or kind is Const:
        return e.dtype != "int32" and e.dtype != "int64"
    match e:
        case Binary(_, a, b) | Select(_, a, b):
            return wraps(a) or wraps(b)
        case Load() | Call():
            return True
        case Cast(_, a):
            return wraps(a) or e.dtype not in ("int32", "int64") or not dtypes.is_int(a.dtype)
        case Unary(_, a):
            return wraps(a)
        case _:
            return False


def _node(n: Node, ranges: Ranges) -> Node:
    return _simplify(n, ranges) if isinstance(n, Expr) else n


def _simplify(e: Expr, ranges: Ranges) -> Expr:
    if type(e) is Const:
        return e
    if dtypes.is_int(e.dtype) and not wraps(e):
        return to_expr(_integer(e, ranges), e.dtype)
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
    """The constant converted, where it is one and that is exact; None otherwise."""
    if not isinstance(value, Const) or dtypes.is_float(value.dtype) or dtype == "bool":
        return None
    low, high = dtypes.limits(dtype)
    if dtypes.is_float(dtype):
        exact = 2 ** {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        return Const(float(value.value), dtype) if abs(value.value) <= exact else None
    return Const(int(value.value), dtype) if low <= value.value <= high else None


def _comparison(op: str, a: Expr, b: Expr, ranges: Ranges) -> Expr:
    if not _exact(a, b):
        a, b = _simplify(a, ranges), _simplify(b, ranges)
        if isinstance(a, Const) and isinstance(b, Const):
            return TRUE if ON_NUMBERS[op](a.value, b.value) else FALSE
        if not _exact(a, b):
            return Binary(op, a, b)
    p, q = _integer(a, ranges), _integer(b, ranges)
    difference = polynomial_bounds(add(p, q, -1), ranges)
    if _always(op, difference):
        return TRUE
    if _always(_NEGATED[op], difference):
        return FALSE
    return Binary(op, to_expr(p, a.dtype), to_expr(q, b.dtype))


def _exact(a: Expr, b: Expr) -> bool:
    """Whether both are integers whose arithmetic may be rearranged."""
    return dtypes.is_int(a.dtype) and not wraps(a) and not wraps(b)


def _always(op: str, interval: Interval) -> bool:
    """Whether `d op 0` for all d of an interval."""
    low, high = -inf if interval[0] is None else interval[0], inf if interval[1] is None else interval[1]
    if op == "==":
        return low == high == 0
    below, above = high < 0, low > 0
    return {"<": below, "<=": high <= 0, ">": above, ">=": low >= 0, "!=": below or above}[op]


def simplify_tree(node: Node, ranges: Ranges | None = None) -> Node:
    """Simplify every expression of a statement or function with the ranges of the loops around it; conditions that are
    decided disappear, and with them the statements they exclude."""
    return _or_nothing(_tree(node, dict(ranges or {})))


def _tree(n: Node, env: dict[str, Interval]) -> Any:
    """The node simplified; None where nothing of it is left."""
    match n:
        case Expr():
            return simplify(n, env)
        case For(var, extent):
            extent = simplify(extent, env)
            if extent == Const(0, extent.dtype):
                return None
            body = _tree(n.body, {**env, var.name: extent_range(extent, env)})
            return None if body is None else n.with_(body=body, extent=extent)
        case If():
            return _if(n, env)
        case Seq(stmts):
            kept = [_tree(s, env) for s in stmts]
            if all(map(is_, kept, stmts)):
                return n
            remaining = [s for s in kept if s is not None]
            return seq(*remaining) if remaining else None
        case Block():
            return _block(n, env)
        case PrimFunc():
            return n.with_(body=_or_nothing(_tree(n.body, env)))
        case Stmt():
            failed = False

            def child(c: Node) -> Node:
                nonlocal failed
                result = _tree(c, env)
                failed = failed or result is None
                return c if result is None else result

            result = map_children(n, child)
            return None if failed else result
        case _:
            return n


def _if(n: If, env: dict[str, Interval]) -> Stmt | None:
    condition = simplify(n.condition, env)
    if condition == TRUE:
        return _tree(n.then, env)
    orelse = None if n.orelse is None else _tree(n.orelse, env)
    if condition == FALSE:
        return orelse
    then = _tree(n.then, env)
    if then is None:
        return None if orelse is None else If(simplify(Unary("not", condition), env), orelse)
    return n.with_(condition=condition, then=then, orelse=orelse)


def _block(n: Block, env: dict[str, Interval]) -> Block | None:
    predicate = simplify(n.predicate, env)
    if predicate == FALSE:
        return None
    iters = tuple(map_children(it, lambda c: _tree(c, env)) for it in n.iters)
    if all(map(is_, iters, n.iters)):
        iters = n.iters
    inside = ranges_of([n], env)
    init = None if n.init is None else _tree(n.init, inside)
    return n.with_(iters=iters, predicate=predicate, body=_or_nothing(_tree(n.body, inside)), init=init)


def extent_range(extent: Expr, ranges: Ranges | None = None) -> Interval:
    """The interval of a variable that runs over `range(extent)`."""
    if type(extent) is Const:
        return 0, extent.value - 1
    _, high = bounds(extent, ranges or {})
    return 0, None if high is None else high - 1


def ranges_of(stmts: Iterable[Stmt], outside: Ranges = MappingProxyType({})) -> dict[str, Interval]:
    """The inclusive ranges of the variables of loops and blocks, given outermost first, and of those from outside."""
    ranges = dict(outside)
    for s in stmts:
        if type(s) is For:
            ranges[s.name] = extent_range(s.extent, ranges)
        elif type(s) is Block:
            ranges |= {it.var.name: extent_range(it.extent, ranges) for it in s.iters}
    return ranges


def assuming(stmt: Stmt, ranges: Ranges, facts: Sequence[Expr] = ()) -> Stmt:
    """`stmt` without the conditions, and the bounds of loops, that say nothing new, given the ranges of the variables around it
    and some facts about them."""

    def left(condition: Expr, inside: Ranges) -> Expr:
        parts = conjuncts(condition)
        kept = [c for c in parts if not prove(c, inside, facts)]
        return condition if len(kept) == len(parts) else conjunction(*kept)

    def visit(s: Any, inside: Ranges) -> Any:
        match s:
            case Block():
                s = s.with_(predicate=left(s.predicate, inside))
            case If(condition, then, None):
                rest = left(condition, inside)
                body = visit(then, inside)
                return s if rest is condition and body is then else guarded(rest, body)
            case For(_, Binary("min") as extent):
                s = s.with_(extent=_shortest(extent, inside, facts))
        within = ranges_of([s], inside)
        return map_statements(s, lambda c: visit(c, within))

    return visit(stmt, ranges)


def least_of(extent: Expr) -> list[Expr]:
    """The expressions of which one is the least."""
    match extent:
        case Binary("min", a, b):
            return least_of(a) + least_of(b)
        case _:
            return [extent]


def _shortest(extent: Expr, ranges: Ranges, facts: Sequence[Expr]) -> Expr:
    """The extent without those bounds that the facts put beyond another."""
    parts = least_of(extent)
    kept = list(parts)
    for part in parts:
        if any(other is not part and prove(Binary("<=", other, part), ranges, facts) for other in kept):
            kept.remove(part)
    return extent if len(kept) == len(parts) else reduce(lambda a, b: Binary("min", a, b), kept)


def _or_nothing(n: Node | None) -> Node:
    """A statement that does nothing for None."""
    return NOTHING if n is None else n


__all__ = ["bounds", "equal", "extent_range", "polynomial", "prove", "simplify", "simplify_tree"]
