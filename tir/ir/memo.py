"""Memoization of functions of a node, for as long as the node lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from .nodes import Node

K = TypeVar("K", bound=Node)
V = TypeVar("V")


class _Life(ref):
    """A weak reference to a node, with the key of its answer."""

    __slots__ = ("number",)
    number: int


def memoized(ask: Callable[[K], V]) -> Callable[[K], V]:
    """Decorator of a function of one node: computes its value once for each node, by identity. The value must not hold the node
    itself, which would then live for ever; it may hold nodes below."""
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
