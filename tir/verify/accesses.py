"""Accesses: what statements read and write, in which loops and under which conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    conjuncts,
)
from ..simplify import extent_range
from ..traverse import children, substatements, substitute, walk


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
    collector = _Collector()
    collector.stmt(root, _Env(conditions=conditions))
    return collector.found


class _Collector:
    """Walks statements in the order in which they run, and notes their accesses."""

    def __init__(self) -> None:
        self.found: list[Access] = []

    def note(self, stmt: Stmt, buffer: Buffer, indices: tuple[Expr, ...], is_store: bool, env: _Env) -> None:
        if buffer.name not in env.private:
            closed = tuple(env.closed(i) for i in indices)
            self.found.append(Access(stmt, buffer, closed, is_store, env.loops, env.conditions, env.guarded))

    def expr(self, e: Expr, stmt: Stmt, env: _Env) -> None:
        match e:
            case Load(buffer, indices):
                for i in indices:
                    self.expr(i, stmt, env)
                self.note(stmt, buffer, indices, False, env)
            case Select(c, t, f, True):
                self.expr(c, stmt, env)
                condition = env.closed(c)
                self.expr(t, stmt, env.under(condition))
                self.expr(f, stmt, env.under(negated(condition)))
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        self.expr(child, stmt, env)

    def stmt(self, s: Stmt, env: _Env) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.stmt(x, env)
            case For(var, extent, body):
                self.expr(extent, s, env)
                self.stmt(body, env.loop(var.name, env.closed(extent)))
            case Block():
                self.block(s, env)
            case Store(buffer, indices, value):
                for e in (*indices, value):
                    self.expr(e, s, env)
                self.note(s, buffer, indices, True, env)
            case If(condition, then, orelse):
                self.expr(condition, s, env)
                closed = env.closed(condition)
                self.stmt(then, env.under(*conjuncts(closed)))
                if orelse is not None:
                    self.stmt(orelse, env.under(negated(closed)))
            case Let(var, value, body):
                self.expr(value, s, env)
                self.stmt(body, env.bound({var.name: env.closed(value)}) if is_index(value) else env)
            case Allocate(buffer, body):
                self.stmt(body, env.hiding([buffer.name]))
            case Evaluate(value):
                self.expr(value, s, env)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def block(self, b: Block, env: _Env) -> None:
        for it in b.iters:
            self.expr(it.binding, b, env)
        self.expr(b.predicate, b, env)
        inner = env.under(*conjuncts(env.closed(b.predicate)))
        inner = inner.bound({it.var.name: env.closed(it.binding) for it in b.iters}).hiding(x.name for x in b.allocs)
        if b.init is not None:
            first = [inner.closed(it.var).equal(0) for it in b.iters if it.axis is Axis.REDUCE]
            self.stmt(b.init, inner.under(*first, plain=True))
        self.stmt(b.body, inner)


def grouped(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    """The accesses by the names of their buffers."""
    groups: dict[str, list[Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return groups


Extents = dict[str, int | None]  # by variable: how many values it has, None where that is no constant


def scopes(func: PrimFunc) -> Iterator[tuple[Block | For, dict[str, Interval], Extents, Extents]]:
    """The loops and blocks, each with the ranges of what is visible inside, the extents of what is bound outside, and its own."""

    def visit(s: Stmt, ranges: dict[str, Interval], outer: Extents):
        if isinstance(s, (Block, For)):
            bound = [(s.name, s.extent)] if isinstance(s, For) else [(it.var.name, it.extent) for it in s.iters]
            ranges = {**ranges, **{name: extent_range(extent, ranges) for name, extent in bound}}
            own = constant_extents(bound)
            yield s, ranges, outer, own
            outer = {**outer, **own}
        for child in substatements(s):
            yield from visit(child, ranges, outer)

    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
    yield from visit(func.body, sizes, dict.fromkeys(sizes))


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


def constant_extents(loops: Iterable[tuple[str, Expr]]) -> dict[str, int | None]:
    return {name: extent.value if isinstance(extent, Const) else None for name, extent in loops}  # type: ignore[misc]
