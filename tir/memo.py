"""Answers about nodes, kept for as long as the nodes live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from .ir import Node

K = TypeVar("K", bound=Node)
V = TypeVar("V")


class _Life(ref):
    """A reference to a node that knows under which number its answer is kept."""

    __slots__ = ("number",)
    number: int


def memoized(ask: Callable[[K], V]) -> Callable[[K], V]:
    """Decorator of a function of one node: each node, by identity, is asked about once. An answer that held the node itself would
    keep it alive for ever; what is below the node may be in it."""
    known: dict[int, tuple[_Life, V]] = {}

    def forget(life: _Life) -> None:
        known.pop(life.number, None)

    def answer(node: K) -> V:
        found = known.get(id(node))
        if found is None:
            life = _Life(node, forget)
            life.number = id(node)
            found = known[id(node)] = life, ask(node)
        return found[1]

    return answer
