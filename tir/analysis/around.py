"""Accesses to buffers, with what stands around them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from ..arith.bounds import extent_range
from ..arith.intervals import Interval, Ranges
from ..ir import Allocate, Block, Buffer, Const, Expr, For, If, Let, Load, Node, Select, Stmt, Store, Var, conjuncts
from ..traverse import N, children, substitute, walk

A = TypeVar("A", bound="Around")


@dataclass(frozen=True)
class Around:
    """What stands around an access, outermost first: loops; variables bound; blocks; conditions under which alone it happens,
    those of statements and those of lazy selects (`selected`); conditions of which it is in the other branch; and the store whose
    value or place it is a part of. `bound` says what the variables of lets and blocks are, over those bound before."""

    loops: tuple[For, ...] = ()
    lets: tuple[Let, ...] = ()
    blocks: tuple[Block, ...] = ()
    conditions: tuple[Expr, ...] = ()
    selected: tuple[Expr, ...] = ()
    otherwise: tuple[Expr, ...] = ()
    store: Store | None = None
    bound: tuple[Mapping[str, Expr], ...] = ()

    def closed(self, e: N) -> N:
        """An expression over the loop variables alone."""
        for bindings in reversed(self.bound):
            e = substitute(e, bindings)
        return e

    def ranges(self, outside: Ranges) -> dict[str, Interval]:
        """The ranges of the loops, given those of the variables outside of them."""
        found: dict[str, Interval] = {}
        for x in self.loops:
            found[x.name] = extent_range(self.closed(x.extent), {**outside, **found})
        return found

    def inside(self, s: For | Let | Allocate | Block) -> Self:
        """What stands around the body of a statement that stands here."""
        match s:
            case For():
                return replace(self, loops=(*self.loops, s))
            case Let(var, value):
                return replace(self, lets=(*self.lets, s), bound=(*self.bound, {var.name: value}))
            case Block(predicate=predicate):
                bound = (*self.bound, {it.var.name: it.binding for it in s.iters})
                return replace(self.under(predicate), blocks=(*self.blocks, s), bound=bound)
        return self

    def under(self, condition: Expr, *, selected: bool = False) -> Self:
        """Where a condition holds, of a statement or of a lazy select."""
        if selected:
            return replace(self, selected=(*self.selected, *conjuncts(condition)))
        return replace(self, conditions=(*self.conditions, *conjuncts(condition)))

    def unless(self, condition: Expr, *, selected: bool = False) -> Self:
        """Where it does not hold."""
        return self if selected else replace(self, otherwise=(*self.otherwise, condition))

    def part_of(self, s: Stmt) -> Self:
        """In an expression of a statement that stands here."""
        return replace(self, store=s) if isinstance(s, Store) else self

    def first(self, block: Block) -> Self:
        """In the init of a block, given what stands around its body."""
        return self


def elements(n: Node, around: A, only: Collection[str] | None = None) -> Iterator[tuple[Load | Store | Block, A]]:
    """The loads, stores and blocks in `n` in the order in which they happen: a store comes after what it stores; a block, with
    what stands around its body, before that. With `only`, blocks that access none of these buffers are left out."""
    here = around.part_of(n) if isinstance(n, Stmt) else around
    parts: list[tuple[Node, A]]
    match n:
        case For(_, value, body) | Let(_, value, body):
            parts = [(value, here), (body, around.inside(n))]
        case Allocate(_, body):
            parts = [(body, around.inside(n))]
        case If(condition, then, orelse):
            parts = [(condition, here), (then, around.under(condition))]
            if orelse is not None:
                parts.append((orelse, around.unless(condition)))
        case Select(condition, value, other, True):
            under, unless = around.under(condition, selected=True), around.unless(condition, selected=True)
            parts = [(condition, around), (value, under), (other, unless)]
        case Block(body=body, init=init):
            if only is not None and not any(type(x) is Buffer and x.name in only for x in walk(n)):
                return
            for e in (*(it.binding for it in n.iters), n.predicate):
                yield from elements(e, here, only)
            inside = around.inside(n)
            yield n, inside
            parts = [(body, inside)] if init is None else [(init, inside.first(n)), (body, inside)]
        case _:
            parts = [(c, here) for c in children(n) if not isinstance(c, Buffer)]
    for part, inside in parts:
        if type(part) is not Var and type(part) is not Const:
            yield from elements(part, inside, only)
    if isinstance(n, (Load, Store)):
        yield n, around


def accesses(n: Node, around: Around = Around()) -> Iterator[tuple[Load | Store, Around]]:
    """The loads and stores in `n` in the order in which they happen: a store comes after what it stores."""
    for x, inside in elements(n, around):
        if not isinstance(x, Block):
            yield x, inside
