"""Accesses: what statements read and write, in which loops and under which conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from .. import dtypes
from ..affine import Interval
from ..ir import (
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    conjuncts,
)
from ..simplify import bounds
from ..traverse import children, substitute, walk


@dataclass(frozen=True)
class Access:
    """A load or store: its indices over the variables free around the statement and the loops inside it, under `conditions`."""

    stmt: Stmt
    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    loops: tuple[tuple[str, Expr], ...]  # the loops inside: name, extent
    conditions: tuple[Expr, ...]
    guarded: bool = False  # executed only under some condition


def negated(c: Expr) -> Expr:
    match c:
        case Binary("or", a, b):
            return Binary("and", negated(a), negated(b))
        case _:
            return Unary("not", c)


def accesses_in(root: Stmt, *conditions: Expr) -> list[Access]:
    """The accesses of a statement to buffers that are not allocated inside it, in the order in which they happen."""
    found: list[Access] = []

    def expr(e: Expr, stmt: Stmt, env: _Env) -> None:
        match e:
            case Load(buffer, indices):
                for i in indices:
                    expr(i, stmt, env)
                note(stmt, buffer, indices, False, env)
            case Select(c, t, f, True):
                expr(c, stmt, env)
                condition = env.closed(c)
                expr(t, stmt, env.under(condition))
                expr(f, stmt, env.under(negated(condition)))
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        expr(child, stmt, env)

    def note(stmt: Stmt, buffer: Buffer, indices: tuple[Expr, ...], is_store: bool, env: _Env) -> None:
        if buffer.name not in env.private:
            closed = tuple(env.closed(i) for i in indices)
            found.append(Access(stmt, buffer, closed, is_store, env.loops, env.conditions, env.guarded))

    def visit(s: Stmt, env: _Env) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    visit(x, env)
            case For(var, extent, body):
                expr(extent, s, env)
                visit(body, env.loop(var.name, env.closed(extent)))
            case Block():
                for it in s.iters:
                    expr(it.binding, s, env)
                expr(s.predicate, s, env)
                inner = env.under(*conjuncts(env.closed(s.predicate)))
                inner = inner.bound({it.var.name: env.closed(it.binding) for it in s.iters}).hiding(b.name for b in s.allocs)
                if s.init is not None:
                    first = [inner.closed(it.var).equal(0) for it in s.iters if it.axis is Axis.REDUCE]
                    visit(s.init, inner.under(*first, plain=True))
                visit(s.body, inner)
            case Store(buffer, indices, value):
                for i in indices:
                    expr(i, s, env)
                expr(value, s, env)
                note(s, buffer, indices, True, env)
            case If(condition, then, orelse):
                expr(condition, s, env)
                closed = env.closed(condition)
                visit(then, env.under(*conjuncts(closed)))
                if orelse is not None:
                    visit(orelse, env.under(negated(closed)))
            case Let(var, value, body):
                expr(value, s, env)
                visit(body, env.bound({var.name: env.closed(value)}) if is_index(value) else env)
            case Allocate(buffer, body):
                visit(body, env.hiding([buffer.name]))
            case Evaluate(value):
                expr(value, s, env)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    visit(root, _Env(conditions=conditions))
    return found


def is_index(e: Expr) -> bool:
    """Whether a let of this value may be seen through: an integer without loads."""
    return dtypes.is_int(e.dtype) and not any(isinstance(n, (Load, Call)) for n in walk(e))


@dataclass(frozen=True)
class _Env:
    """What is known on the way down from a statement to an access inside it."""

    bindings: dict[str, Expr] = field(default_factory=dict)
    loops: tuple[tuple[str, Expr], ...] = ()
    conditions: tuple[Expr, ...] = ()
    private: frozenset[str] = frozenset()
    guarded: bool = False

    def closed(self, e: Expr) -> Expr:
        return substitute(e, self.bindings)  # type: ignore[return-value]

    def bound(self, bindings: Mapping[str, Expr]) -> _Env:
        return _Env({**self.bindings, **bindings}, self.loops, self.conditions, self.private, self.guarded)

    def loop(self, name: str, extent: Expr) -> _Env:
        return _Env(self.bindings, (*self.loops, (name, extent)), self.conditions, self.private, self.guarded)

    def under(self, *conditions: Expr, plain: bool = False) -> _Env:
        """Under these conditions too; `plain` if some iteration is sure to satisfy them."""
        return _Env(
            self.bindings, self.loops, self.conditions + conditions, self.private, self.guarded or bool(conditions and not plain)
        )

    def hiding(self, buffers: Iterable[str]) -> _Env:
        return _Env(self.bindings, self.loops, self.conditions, self.private | set(buffers), self.guarded)


def range_of(extent: Expr, ranges: Mapping[str, Interval]) -> Interval:
    _, high = bounds(extent, ranges)
    return 0, None if high is None else high - 1


def constant_extents(loops: Iterable[tuple[str, Expr]]) -> dict[str, int | None]:
    return {name: extent.value if isinstance(extent, Const) else None for name, extent in loops}  # type: ignore[misc]
