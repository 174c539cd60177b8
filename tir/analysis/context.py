"""Accesses to buffers, and their context: the loops, blocks, lets and conditions around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from ..arith.bounds import extent_range
from ..arith.intervals import Interval, Ranges
from ..ir import Allocate, Block, Buffer, Const, Expr, For, If, Let, Load, Node, Select, Stmt, Store, Var, conjuncts
from ..ir.memo import memoized
from ..traverse import N, children, substitute, walk

C = TypeVar("C", bound="Context")


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of an element, its indices and `conditions` over loop variables.

    `stmt` is the statement that it is a part of. `loops` are those around it within the analysed statement, with their extents.
    `guarded` if it happens only under a condition.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    conditions: tuple[Expr, ...] = ()
    loops: tuple[tuple[str, Expr], ...] = ()
    stmt: Stmt | None = None
    guarded: bool = False

    @property
    def verb(self) -> str:
        return "writes" if self.is_store else "reads"

    def at(self, element: Iterable[int]) -> str:
        """An element of the buffer, as text."""
        return f"{self.buffer.name}[{', '.join(map(str, element)) or '()'}]"


@dataclass(frozen=True)
class Context:
    """The surroundings of a node, outermost first. `conditions` of statements and `selected` ones of lazy selects hold;
    `otherwise` are conditions of statements that do not. `stmt` is the statement that the node is a part of. `bindings` maps the
    variables of lets and blocks to their values over loop variables."""

    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    stmt: Stmt | None = None
    bindings: Mapping[str, Expr] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    selected: tuple[Expr, ...] = ()
    otherwise: tuple[Expr, ...] = ()

    def with_(self, **changes: Any) -> Self:
        """A copy with the given fields changed, made several times faster than by `dataclasses.replace`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **changes)
        return made

    def closed(self, e: N) -> N:
        """An expression over the loop variables alone."""
        return substitute(e, self.bindings)

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
                return self.with_(loops=(*self.loops, s))
            case Let(var, value):
                return self.with_(bindings={**self.bindings, var.name: self.closed(value)})
            case Block():
                bindings = {**self.bindings, **{it.var.name: self.closed(it.binding) for it in s.iters}}
                return self.under(s.predicate).with_(bindings=bindings, blocks=(*self.blocks, s))
        return self

    def under(self, condition: Expr, *, selected: bool = False) -> Self:
        """The context where a condition holds, of a statement or (`selected`) of a lazy select."""
        if selected:
            return self.with_(selected=(*self.selected, *conjuncts(condition)))
        return self.with_(conditions=(*self.conditions, *conjuncts(condition)))

    def unless(self, condition: Expr, *, selected: bool = False) -> Self:
        """The context where a condition does not hold."""
        return self if selected else self.with_(otherwise=(*self.otherwise, condition))

    def first(self, block: Block) -> Self:
        """The context of a block's init, from that of its body."""
        return self


def accesses_and_blocks(n: Node, around: C, only: Collection[str] | None = None) -> Iterator[tuple[Load | Store | Block, C]]:
    """The loads, stores and blocks in `n` in execution order, each with its context. A store follows the loads of its value; a
    block comes before its body, with the context of that. With `only`, statements that name none of these buffers are skipped."""
    if not isinstance(n, Stmt):
        here = around
    elif only is None or not buffer_names(n).isdisjoint(only):
        here = around.with_(stmt=n)
    else:
        return
    parts: list[tuple[Node, C]]
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


@memoized
def buffer_names(s: Stmt) -> frozenset[str]:
    """The names of all buffers in a statement, of those in regions and in addresses, too."""
    below = (buffer_names(c) if isinstance(c, Stmt) else {x.name for x in walk(c) if type(x) is Buffer} for c in children(s))
    return frozenset().union(*below)


def accesses(n: Node, around: Context = Context(), only: Collection[str] | None = None) -> Iterator[tuple[Load | Store, Context]]:
    """The loads and stores in `n` in execution order, each with its context; a store follows the loads of its value. With `only`,
    statements that name none of these buffers are skipped."""
    for x, inside in accesses_and_blocks(n, around, only):
        if not isinstance(x, Block):
            yield x, inside
