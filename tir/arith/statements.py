"""Simplification of statements: of their expressions, and of conditions that the loops around them decide."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import is_
from typing import Any

from ..empty import inits_of_empty_reductions, is_empty
from ..ir.blocks import Block
from ..ir.expressions import FALSE, TRUE, Binary, Const, Expr, Select, Unary, conjunction, conjuncts
from ..ir.functions import PrimFunc
from ..ir.nodes import Node
from ..ir.statements import NOTHING, For, If, Seq, Stmt, Store, guarded, seq
from ..traverse import loads, map_children, map_statements, walk
from .bounds import bounds, extent_range, ranges_of
from .intervals import Interval, Ranges
from .prove import prove
from .simplify import simplify


def simplify_tree(node: Node, ranges: Ranges | None = None) -> Node:
    """Simplify every expression, given the loops around it; drop conditions that always hold and statements that never run."""
    return _or_nothing(_tree(node, dict(ranges or {})))


def _tree(n: Node, env: dict[str, Interval]) -> Any:
    """The simplified node; None for a statement that does nothing."""
    match n:
        case Expr():
            return simplify(n, env)
        case For(var, extent):
            extent = simplify(extent, env)
            if is_empty(extent):
                left = inits_of_empty_reductions(n.with_(extent=extent))
                return None if left is None else _tree(left, env)
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


def drop_implied_conditions(stmt: Stmt, ranges: Ranges, facts: Sequence[Expr] = ()) -> Stmt:
    """`stmt` without conditions, bounds, quotients and remainders implied by ranges, `facts` and conditions around."""

    def left(condition: Expr, inside: Ranges, facts: Sequence[Expr]) -> Expr:
        parts = conjuncts(condition)
        kept = [c for c in parts if not prove(c, inside, facts)]
        return condition if len(kept) == len(parts) else conjunction(*kept)

    def plain(e: Expr, inside: Ranges, facts: Sequence[Expr]) -> Expr:
        """An expression without the implied conditions of its selects, and without implied quotients and remainders."""
        if not any(isinstance(n, Select) or (isinstance(n, Binary) and n.op in ("//", "%")) for n in walk(e)):
            return e
        new = map_children(e, lambda c: plain(c, inside, facts) if isinstance(c, Expr) else c)
        match new:
            case Select():
                rest = left(new.condition, inside, facts)
                return new.true_value if rest == TRUE else new.with_(condition=rest)
            case Binary("//" | "%" as op, a, Const(int(n))) if n > 0 and isinstance(low := bounds(a, inside)[0], int):
                if prove(a < (low // n + 1) * n, inside, facts):
                    return simplify(Const(low // n, a.dtype) if op == "//" else a - low // n * n, inside)
        return new

    def visit(s: Any, inside: Ranges, facts: Sequence[Expr]) -> Any:
        match s:
            case Block():
                s = s.with_(predicate=left(s.predicate, inside, facts))
            case If(condition, then, None):
                rest = left(condition, inside, facts)
                known = [c for c in conjuncts(condition) if not loads(c)]  # no store changes these
                body = visit(then, inside, (*facts, *known))
                return s if rest is condition and body is then else guarded(rest, body)
            case For(_, Binary("min") as extent):
                s = s.with_(extent=_without_implied_bounds(extent, inside, facts))
            case Store():
                return map_children(s, lambda c: plain(c, inside, facts) if isinstance(c, Expr) else c)
        within = ranges_of([s], inside)
        return map_statements(s, lambda c: visit(c, within, facts))

    return visit(stmt, ranges, facts)


def min_operands(extent: Expr) -> list[Expr]:
    """The operands of a chain of `min`; of any other extent, itself."""
    match extent:
        case Binary("min", a, b):
            return min_operands(a) + min_operands(b)
        case _:
            return [extent]


def _without_implied_bounds(extent: Expr, ranges: Ranges, facts: Sequence[Expr]) -> Expr:
    """A minimum without the operands that are provably at least another one."""
    parts = min_operands(extent)
    kept = list(parts)
    for part in parts:
        if any(other is not part and prove(Binary("<=", other, part), ranges, facts) for other in kept):
            kept.remove(part)
    return extent if len(kept) == len(parts) else reduce(lambda a, b: Binary("min", a, b), kept)


def _or_nothing(n: Node | None) -> Node:
    """The node; for None, a statement without effect."""
    return NOTHING if n is None else n
