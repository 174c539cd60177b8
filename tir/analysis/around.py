"""Accesses to buffers, with what stands around them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..affine import Interval, Ranges
from ..ir import Block, Buffer, Const, Expr, For, If, Let, Load, Node, Select, Store, Var, conjuncts
from ..simplify import extent_range
from ..traverse import N, children, substatements, substitute, walk


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

    def inside(self, s: For | Let | Block) -> Around:
        """What stands around the body of a statement that stands here."""
        match s:
            case For():
                return replace(self, loops=(*self.loops, s))
            case Let(var, value):
                return replace(self, lets=(*self.lets, s), bound=(*self.bound, {var.name: value}))
            case Block(predicate=predicate):
                conditions = (*self.conditions, *conjuncts(predicate))
                bound = (*self.bound, {it.var.name: it.binding for it in s.iters})
                return replace(self, blocks=(*self.blocks, s), conditions=conditions, bound=bound)


def elements(
    n: Node, around: Around = Around(), only: Collection[str] | None = None
) -> Iterator[tuple[Load | Store | Block, Around]]:
    """The loads, stores and blocks in `n` in the order in which they happen: a store comes after what it stores; a block, with
    what stands around its body, before that. With `only`, blocks that access none of these buffers are left out."""
    parts: list[tuple[Node, Around]]
    match n:
        case For(_, extent, body):
            parts = [(extent, around), (body, around.inside(n))]
        case Let(_, value, body):
            parts = [(value, around), (body, around.inside(n))]
        case If(condition, then, orelse):
            under = replace(around, conditions=(*around.conditions, *conjuncts(condition)))
            parts = [(condition, around), (then, under)]
            if orelse is not None:
                parts.append((orelse, replace(around, otherwise=(*around.otherwise, condition))))
        case Select(condition, value, other, True):
            under = replace(around, selected=(*around.selected, *conjuncts(condition)))
            parts = [(condition, around), (value, under), (other, around)]
        case Store(_, indices, value):
            parts = [(e, replace(around, store=n)) for e in (*indices, value)]
        case Block():
            if only is not None and not any(type(x) is Buffer and x.name in only for x in walk(n)):
                return
            for e in (*(it.binding for it in n.iters), n.predicate):
                yield from elements(e, around, only)
            under = around.inside(n)
            yield n, under
            parts = [(s, under) for s in substatements(n)]
        case _:
            parts = [(c, around) for c in children(n) if not isinstance(c, Buffer)]
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
