"""Accesses to buffers, with what stands around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tir.ir import Buffer, Expr, For, If, Let, Load, Node, Select, Store, conjuncts
from tir.traverse import children


@dataclass(frozen=True)
class Around:
    """What stands around an access, outermost first: loops; variables bound; conditions under which alone it happens, those of
    statements and those of lazy selects (`selected`); conditions of which it is in the other branch; and the store whose value or
    place it is a part of."""

    loops: tuple[For, ...] = ()
    lets: tuple[Let, ...] = ()
    conditions: tuple[Expr, ...] = ()
    selected: tuple[Expr, ...] = ()
    otherwise: tuple[Expr, ...] = ()
    store: Store | None = None


def accesses(n: Node, around: Around = Around()) -> Iterator[tuple[Load | Store, Around]]:
    """The loads and stores in `n` in the order in which they happen: a store comes after what it stores."""
    parts: list[tuple[Node, Around]]
    match n:
        case For(_, extent, body):
            parts = [(extent, around), (body, replace(around, loops=(*around.loops, n)))]
        case Let(_, value, body):
            parts = [(value, around), (body, replace(around, lets=(*around.lets, n)))]
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
        case _:
            parts = [(c, around) for c in children(n) if not isinstance(c, Buffer)]
    for part, inside in parts:
        yield from accesses(part, inside)
    if isinstance(n, (Load, Store)):
        yield n, around
