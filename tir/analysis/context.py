"""Accesses to buffers, each with its context: the loops, blocks, lets and conditions around it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from ..arith.bounds import extent_range
from ..arith.intervals import Interval, Ranges
from ..ir import Allocate, Block, Buffer, Const, Expr, For, If, Let, Load, Node, Select, Stmt, Store, Var, conjuncts
from ..traverse import N, children, substitute, walk

A = TypeVar("A", bound="AccessContext")


@dataclass(frozen=True)
class AccessContext:
    """What encloses an access, outermost first: loops, lets and blocks; the conditions that must hold for it to happen, those of
    statements and those of lazy selects (`selected`); the conditions that must not hold (`otherwise`); the store whose value or
    index it is a part of. `bound` maps the variables of lets and blocks to their values, over variables bound before."""

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
        """The context of the body of a statement."""
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
        """The context where a condition holds, of a statement or of a lazy select."""
        if selected:
            return replace(self, selected=(*self.selected, *conjuncts(condition)))
        return replace(self, conditions=(*self.conditions, *conjuncts(condition)))

    def unless(self, condition: Expr, *, selected: bool = False) -> Self:
        """The context where it does not hold."""
        return self if selected else replace(self, otherwise=(*self.otherwise, condition))

    def part_of(self, s: Stmt) -> Self:
        """The context of an expression of a statement."""
        return replace(self, store=s) if isinstance(s, Store) else self

    def first(self, block: Block) -> Self:
        """The context of a block's init; this is the one of its body."""
        return self


def accesses_and_blocks(n: Node, around: A, only: Collection[str] | None = None) -> Iterator[tuple[Load | Store | Block, A]]:
    """The loads, stores and blocks in `n` in execution order, each with its context. A store follows the loads of its value; a
    block comes before its body, with the context of that. With `only`, blocks that access none of these buffers are skipped."""
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
                yield from accesses_and_blocks(e, here, only)
            inside = around.inside(n)
            yield n, inside
            parts = [(body, inside)] if init is None else [(init, inside.first(n)), (body, inside)]
        case _:
            parts = [(c, here) for c in children(n) if not isinstance(c, Buffer)]
    for part, inside in parts:
        if type(part) is not Var and type(part) is not Const:
            yield from accesses_and_blocks(part, inside, only)
    if isinstance(n, (Load, Store)):
        yield n, around


def accesses(n: Node, around: AccessContext = AccessContext()) -> Iterator[tuple[Load | Store, AccessContext]]:
    """The loads and stores in `n` in execution order, each with its context; a store follows the loads of its value."""
    for x, inside in accesses_and_blocks(n, around):
        if not isinstance(x, Block):
            yield x, inside
