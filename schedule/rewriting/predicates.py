"""The guards of statements, trimming of loops by guards, and conditions given as text."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Interval
from tir.arith.polynomial import coefficient, nonpositive, scale, split_terms, to_expr
from tir.arith.statements import drop_implied_conditions
from tir.ir import Binary, Block, Const, Expr, For, If, Let, PrimFunc, Stmt, Store, Var, conjunction, conjuncts
from tir.nearest import did_you_mean
from tir.script.error import ScriptError
from tir.traverse import map_statements, substatements

from ..error import ScheduleError, listing
from ..primitive import constant_extent


@dataclass(frozen=True, eq=False)
class Guarded:
    """A block, or a statement outside of blocks, with the conditions under which it runs and the loops around it."""

    stmt: Stmt
    conditions: tuple[Expr, ...]
    loops: tuple[For, ...]


def guarded_statements(stmt: Stmt) -> list[Guarded]:
    """The outermost blocks, and the statements outside of blocks, below a statement, with guards and loops, in program order."""
    result: list[Guarded] = []

    def visit(s: Stmt, conditions: tuple[Expr, ...], loops: tuple[For, ...]) -> None:
        match s:
            case Block():
                result.append(Guarded(s, (*conditions, *conjuncts(s.predicate)), loops))
            case For():
                visit(s.body, conditions, (*loops, s))
            case If(condition, then, None):
                visit(then, (*conditions, *conjuncts(condition)), loops)
            case If(_, then, orelse):
                for branch in (then, orelse):
                    if branch is not None:
                        visit(branch, conditions, loops)
            case _:
                below = list(substatements(s))
                for child in below:
                    visit(child, conditions, loops)
                if not below:
                    result.append(Guarded(s, conditions, loops))

    visit(stmt, (), ())
    return result


def sharpened(condition: Expr, ranges: Mapping[str, Interval]) -> Expr:
    """The condition with `v != c` as an inequality where c is the first or last value of v."""
    parts = []
    for part in conjuncts(condition):
        match part:
            case Binary("!=", Var(name) as v, Const(c)) if name in ranges and c == ranges[name][0]:
                parts.append(v >= c + 1)
            case Binary("!=", Var(name) as v, Const(c)) if name in ranges and c == ranges[name][1]:
                parts.append(v < c)
            case _:
                parts.append(part)
    return conjunction(*parts)


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition `factor * variable + rest >= 0`."""

    factor: int
    rest: Expr


def bound_on(condition: Expr, variable: str) -> Bound | None:
    """An integer comparison as a bound on one variable; None for other conditions."""
    p = nonpositive(condition)
    factor = None if p is None else coefficient(p, variable)
    if not p or not factor:
        return None
    _, rest = split_terms(p, {variable})
    return Bound(-factor, to_expr(scale(rest, -1)))


def iterations_where(condition: Expr, loop: For, ranges: dict[str, Interval], always: bool) -> tuple[int, int] | None:
    """The range of iterations in which a condition `always`, or else ever, holds, the end exclusive; None if unknown."""
    extent = constant_extent(loop)
    bound = bound_on(condition, loop.name)
    if bound is None:
        return None
    low, high = bounds(bound.rest, ranges)
    rest = low if always else high
    if rest is None:
        return None
    if bound.factor < 0:  # |factor| v <= rest
        return 0, max(0, min(extent, rest // -bound.factor + 1))
    return max(0, min(extent, -(rest // bound.factor))), extent  # v >= -rest / factor


def trimmed(stmt: Stmt, ranges: dict[str, Interval]) -> Stmt:
    """`stmt` with all loops in it trimmed by guards, outer ones first; `ranges` are those of the variables around it."""
    match stmt:
        case For(extent=Const(value)):
            size = max(useful_iterations(stmt, ranges), 1) if value > 1 else value
            name = stmt.name
            if size < value:
                stmt = drop_implied_conditions(stmt.with_(extent=Const(size, stmt.extent.dtype)), ranges)
            ranges = {**ranges, name: (0, size - 1)}
        case Block(body=Store()):
            return stmt
        case _:
            ranges = ranges_of([stmt], ranges)
    return map_statements(stmt, lambda s: trimmed(s, ranges))


def useful_iterations(loop: For, ranges: dict[str, Interval]) -> int:
    """The number of iterations of a loop of constant extent after which no guarded statement below runs."""
    extent = constant_extent(loop)
    most = 0
    for g in guarded_statements(loop):
        inside = ranges_of(g.loops, ranges)
        found = [iterations_where(c, loop, inside, always=False) for c in g.conditions]
        most = max(most, min((stop for _, stop in (f for f in found if f is not None)), default=extent))
    return most


def parsed_condition(func: PrimFunc, above: Sequence[Stmt], text: str) -> Expr:
    """A condition over the variables at the end of a path: loops in its block, that block's axes, the function's sizes."""
    from tir.script.conditions import read_condition
    from tir.script.source import python_tree

    visible: dict[str, Var] = {}
    for s in above[:-1]:
        match s:
            case Block(iters=iters):
                visible = {it.var.name: it.var for it in iters}
            case For(var) | Let(var):
                visible[var.name] = var
    visible |= {p.name: p for p in func.sizes}
    try:
        node = python_tree(text.strip(), mode="eval").body
    except SyntaxError as e:
        raise ScheduleError(f"the condition {text!r} is not an expression: {e.msg}", hint="'i < 3 and j >= 1'") from None
    unknown = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(visible) - {"T"})
    if unknown:
        raise ScheduleError(
            f"`{unknown[0]}` in the condition is not visible here; variables are {listing(visible)}",
            hint=did_you_mean(unknown[0], visible),
        )
    try:
        return read_condition(text, visible)
    except ScriptError as e:
        raise ScheduleError(f"the condition {text!r} cannot be read: {e.reason}", hint=e.hint) from None
