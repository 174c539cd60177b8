"""Points of a program with the facts known there, and the accesses, loops and blocks of it with what is around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from .. import dtypes
from ..arith.bounds import bounds, extent_range, ranges_of
from ..arith.enumeration import Points, enumerate_points
from ..arith.intervals import Interval
from ..ir.blocks import Block
from ..ir.buffers import Load
from ..ir.expressions import Binary, Call, Cast, Const, Expr, Unary, Var, conjuncts
from ..ir.functions import PrimFunc
from ..ir.statements import Allocate, For, If, Let, Stmt, Store
from ..traverse import substatements, walk
from .context import Access, Context, accesses_and_blocks


def accesses_in(root: Stmt, *conditions: Expr) -> list[Access]:
    """The accesses of a statement to buffers that are not allocated inside it, in execution order."""
    return [
        Access(
            n.buffer,
            tuple(place.closed(i) for i in n.indices),
            isinstance(n, Store),
            place.conditions,
            tuple((x.name, place.closed(x.extent)) for x in place.loops),
            n if isinstance(n, Store) else place.stmt,
            place.guarded,
        )
        for n, place in accesses_and_blocks(root, ProgramPoint(conditions=conditions))
        if not isinstance(n, Block) and n.buffer.name not in place.private
    ]


@dataclass(frozen=True)
class ProgramPoint(Context):
    """The facts known at a point of a program. `conditions`, over loop variables, all hold where it is reached."""

    known: dict[str, Interval] = field(default_factory=dict)  # the ranges of the visible variables
    facts: tuple[Expr, ...] = ()  # conditions that hold, over them
    private: frozenset[str] = frozenset()  # the buffers allocated on the way
    guarded: bool = False  # True if a condition decides whether it is reached

    def inside(self, s: For | Let | Allocate | Block) -> Self:
        match s:
            case For(var, extent):
                return super().inside(s)._running([(var, extent)])
            case Let(var, value):  # seen through where its value is an integer without loads
                if not dtypes.is_int(value.dtype) or any(isinstance(n, (Load, Call)) for n in walk(value)):
                    return self
                return super().inside(s).with_(known={**self.known, var.name: bounds(value, self.known)})
            case Allocate(buffer):
                return self.with_(private=self.private | {buffer.name})
            case Block():
                inside = super().inside(s)._running((it.var, it.extent) for it in s.iters)
                return inside.with_(private=self.private | {x.name for x in s.allocs})

    def _running(self, bound: Iterable[tuple[Var, Expr]]) -> Self:
        """This point, within variables that run over their extents."""
        known, facts = {**self.known}, self.facts
        for var, extent in bound:
            known[var.name] = extent_range(extent, self.known)
            if not isinstance(extent, Const):
                facts = (*facts, less_than(var, extent))
        return self.with_(known=known, facts=facts)

    def _where(self, *conditions: Expr) -> Self:
        found = tuple(c for condition in conditions for c in conjuncts(condition))
        closed = tuple(c for condition in found for c in conjuncts(self.closed(condition)))
        return self.with_(facts=self.facts + found, conditions=self.conditions + closed)

    def under(self, condition: Expr, *, selected: bool = False) -> Self:
        place = self._where(condition)
        return place.with_(guarded=self.guarded or len(place.conditions) > len(self.conditions))

    def unless(self, condition: Expr, *, selected: bool = False) -> Self:
        return self.under(negated(condition))

    def first(self, block: Block) -> Self:
        return self._where(*first_iteration(block))  # some iteration is always the first


def first_iteration(block: Block) -> list[Expr]:
    """The conditions of the first iteration of a block's reduction."""
    return [it.var.equal(0) for it in block.reduction]


def negated(c: Expr) -> Expr:
    match c:
        case Binary("or", a, b):
            return Binary("and", negated(a), negated(b))
        case _:
            return Unary("not", c)


def less_than(a: Expr, b: Expr) -> Expr:
    """`a < b` of two integers, whose dtypes may differ."""
    if a.dtype == b.dtype:
        return Binary("<", a, b)
    if isinstance(b, Const):
        return Binary("<", a, Const(b.value, a.dtype))
    return Binary("<", Cast("int64", a), Cast("int64", b))


def grouped_by_buffer(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    """The accesses by the names of their buffers."""
    groups: dict[str, list[Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return groups


Extents = dict[str, int | None]  # by variable: the number of its values, None if symbolic


@dataclass(frozen=True)
class IterationScope:
    """A loop or a block, and the facts known inside it."""

    stmt: Block | For
    ranges: dict[str, Interval]  # of the variables visible inside
    outer: Extents  # of the variables bound outside
    own: Extents
    loops: tuple[For, ...]  # around it, up to the block that encloses it
    conditions: tuple[Expr, ...]  # there, a predicate of its own included

    def points(self) -> Points | None:
        """The iterations of `loops` that reach it; see `enumerate_points`."""
        extents = constant_extents((x.name, x.extent) for x in self.loops)
        return enumerate_points(extents, set(extents), self.conditions)


def iteration_scopes(func: PrimFunc) -> Iterator[IterationScope]:
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
                ranges = ranges_of([s], ranges)
                own = constant_extents(bound)
                inside = conditions if isinstance(s, For) else (*conditions, *conjuncts(s.predicate))
                yield IterationScope(s, ranges, outer, own, loops, inside)
                outer = {**outer, **own}
                loops, conditions = ((*loops, s), conditions) if isinstance(s, For) else ((), ())
        for child in substatements(s):
            yield from visit(child, ranges, outer, loops, conditions)

    sizes = size_ranges(func)
    yield from visit(func.body, sizes, dict.fromkeys(sizes), (), ())


def size_ranges(func: PrimFunc) -> dict[str, Interval]:
    """The ranges of the sizes that a function takes."""
    return {p.name: (1, None) for p in func.sizes}


def constant_extents(loops: Iterable[tuple[str, Expr]]) -> dict[str, int | None]:
    return {name: extent.value if isinstance(extent, Const) else None for name, extent in loops}  # type: ignore[misc]
