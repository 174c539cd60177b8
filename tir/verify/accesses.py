"""Accesses: what statements read and write, in which loops and under which conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
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
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    Node,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    conjuncts,
)
from ..simplify import bounds, extent_range
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


def accesses_in(root: Stmt, *conditions: Expr) -> list[Access]:
    """The accesses of a statement to buffers that are not allocated inside it, in the order in which they happen."""
    return [
        Access(
            stmt,
            n.buffer,
            tuple(place.closed(i) for i in n.indices),
            isinstance(n, Store),
            tuple((var.name, extent) for var, extent in place.loops),
            place.conditions,
            place.guarded,
        )
        for stmt, n, place in elements(root, Place(conditions=conditions))
        if not isinstance(n, Block) and n.buffer.name not in place.private
    ]


def elements(s: Stmt, place: Place) -> Iterator[tuple[Stmt, Load | Store | Block, Place]]:
    """The loads, stores and blocks of a statement that stands at `place`, in the order in which they happen; before each the
    statement that it is part of, and after it what is known there."""
    match s:
        case Seq(stmts):
            for x in stmts:
                yield from elements(x, place)
        case For(var, extent, body):
            yield from _loads(extent, s, place)
            yield from elements(body, place.loop(var, extent))
        case Block():
            for e in (*(it.binding for it in s.iters), s.predicate):
                yield from _loads(e, s, place)
            place = place.under(s.predicate)
            yield s, s, place
            inside = place.block(s)
            if s.init is not None:
                first = [it.var.equal(0) for it in s.iters if it.axis is Axis.REDUCE]
                yield from elements(s.init, inside.under(*first, plain=True))
            yield from elements(s.body, inside)
        case Store(_, indices, value):
            for e in (*indices, value):
                yield from _loads(e, s, place)
            yield s, s, place
        case If(condition, then, orelse):
            yield from _loads(condition, s, place)
            yield from elements(then, place.under(condition))
            if orelse is not None:
                yield from elements(orelse, place.under(negated(condition)))
        case Let(var, value, body):
            yield from _loads(value, s, place)
            yield from elements(body, place.let(var, value))
        case Allocate(buffer, body):
            yield from elements(body, replace(place, private=place.private | {buffer.name}))
        case Evaluate(value):
            yield from _loads(value, s, place)
        case _:
            assert_never(s)  # type: ignore[arg-type]


def _loads(e: Node, stmt: Stmt, place: Place) -> Iterator[tuple[Stmt, Load, Place]]:
    match e:
        case Select(c, t, f, True):
            yield from _loads(c, stmt, place)
            yield from _loads(t, stmt, place.under(c))
            yield from _loads(f, stmt, place.under(negated(c)))
        case Expr():
            for child in children(e):
                yield from _loads(child, stmt, place)
            if isinstance(e, Load):
                yield stmt, e, place


@dataclass(frozen=True)
class Place:
    """What is known at a place of a program, on the way down to it."""

    ranges: dict[str, Interval] = field(default_factory=dict)  # of the visible variables
    facts: tuple[Expr, ...] = ()  # what holds, over them
    bindings: dict[str, Expr] = field(default_factory=dict)  # iteration variables and lets, over loop variables
    loops: tuple[tuple[Var, Expr], ...] = ()  # with their extents, over loop variables
    conditions: tuple[Expr, ...] = ()  # under which it is reached, over loop variables
    private: frozenset[str] = frozenset()  # the buffers allocated on the way
    guarded: bool = False  # whether it may not be reached

    def closed(self, e: Expr) -> Expr:
        return substitute(e, self.bindings)  # type: ignore[return-value]

    def under(self, *conditions: Expr, plain: bool = False) -> Place:
        """Under these conditions too; `plain` if some iteration is sure to satisfy them."""
        found = tuple(c for condition in conditions for c in conjuncts(condition))
        closed = tuple(c for condition in found for c in conjuncts(self.closed(condition)))
        guarded = self.guarded or bool(closed and not plain)
        return replace(self, facts=self.facts + found, conditions=self.conditions + closed, guarded=guarded)

    def _running(self, bound: Iterable[tuple[Var, Expr]]) -> Place:
        """With variables that run from 0 up to extents."""
        ranges, facts = {**self.ranges}, self.facts
        for var, extent in bound:
            ranges[var.name] = extent_range(extent, self.ranges)
            if not isinstance(extent, Const):
                facts = (*facts, below(var, extent))
        return replace(self, ranges=ranges, facts=facts)

    def loop(self, var: Var, extent: Expr) -> Place:
        return replace(self._running([(var, extent)]), loops=(*self.loops, (var, self.closed(extent))))

    def let(self, var: Var, value: Expr) -> Place:
        """Within a let; seen through where its value is an integer without loads."""
        if not dtypes.is_int(value.dtype) or any(isinstance(n, (Load, Call)) for n in walk(value)):
            return self
        ranges = {**self.ranges, var.name: bounds(value, self.ranges)}
        return replace(self, ranges=ranges, bindings={**self.bindings, var.name: self.closed(value)})

    def block(self, b: Block) -> Place:
        bindings = {**self.bindings, **{it.var.name: self.closed(it.binding) for it in b.iters}}
        private = self.private | {x.name for x in b.allocs}
        return replace(self._running((it.var, it.extent) for it in b.iters), bindings=bindings, private=private)


def negated(c: Expr) -> Expr:
    match c:
        case Binary("or", a, b):
            return Binary("and", negated(a), negated(b))
        case _:
            return Unary("not", c)


def below(a: Expr, b: Expr) -> Expr:
    """`a < b` of two integers, whose dtypes may differ."""
    if a.dtype == b.dtype:
        return Binary("<", a, b)
    if isinstance(b, Const):
        return Binary("<", a, Const(b.value, a.dtype))
    return Binary("<", Cast("int64", a), Cast("int64", b))


def grouped(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    """The accesses by the names of their buffers."""
    groups: dict[str, list[Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return groups


Extents = dict[str, int | None]  # by variable: how many values it has, None where that is no constant


@dataclass(frozen=True)
class Scope:
    """A loop or a block, and what is known in it."""

    stmt: Block | For
    ranges: dict[str, Interval]  # of what is visible inside
    outer: Extents  # of what is bound outside
    own: Extents
    loops: tuple[For, ...]  # around it, up to the block that encloses it
    conditions: tuple[Expr, ...]  # there, a predicate of its own included


def scopes(func: PrimFunc) -> Iterator[Scope]:
    """The loops and blocks, outer before inner."""

    def visit(s: Stmt, ranges: dict[str, Interval], outer: Extents, loops: tuple[For, ...], conditions: tuple[Expr, ...]):
        match s:
            case If(condition, then, orelse):
                yield from visit(then, ranges, outer, loops, (*conditions, *conjuncts(condition)))
                if orelse is not None:
                    yield from visit(orelse, ranges, outer, loops, (*conditions, negated(condition)))
                return
            case Block() | For():
                bound = [(s.name, s.extent)] if isinstance(s, For) else [(it.var.name, it.extent) for it in s.iters]
                ranges = {**ranges, **{name: extent_range(extent, ranges) for name, extent in bound}}
                own = constant_extents(bound)
                inside = conditions if isinstance(s, For) else (*conditions, *conjuncts(s.predicate))
                yield Scope(s, ranges, outer, own, loops, inside)
                outer = {**outer, **own}
                loops, conditions = ((*loops, s), conditions) if isinstance(s, For) else ((), ())
        for child in substatements(s):
            yield from visit(child, ranges, outer, loops, conditions)

    sizes = size_ranges(func)
    yield from visit(func.body, sizes, dict.fromkeys(sizes), (), ())


def size_ranges(func: PrimFunc) -> dict[str, Interval]:
    """The ranges of the sizes that a function takes."""
    return {p.name: (1, None) for p in func.params if isinstance(p, Var)}


def constant_extents(loops: Iterable[tuple[str, Expr]]) -> dict[str, int | None]:
    return {name: extent.value if isinstance(extent, Const) else None for name, extent in loops}  # type: ignore[misc]
