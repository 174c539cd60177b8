"""Memory: all values of a graph at offsets of one arena.

Values that are never needed at the same time may share bytes. They are placed greedily, the largest first, each at the lowest
offset that is free for as long as it lives (Pisarchyk and Lee, arXiv 2001.03288, "greedy by size"). What lies inside of another
value (see `places`) moves with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .fusion import Group
from .ir import Graph, Value
from .places import Places, places

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


@dataclass(frozen=True)
class Lifetime:
    """From the first group that writes a value to the last one that reads it, both included, by their positions."""

    begin: int
    end: int

    def meets(self, other: Lifetime) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class MemoryPlan:
    """Where values lie: `offsets` are the bytes from the begin of the arena to each value that `places` puts into no other.

    Constants are not in the arena, nor is what lies in them.
    """

    nbytes: int
    offsets: Mapping[Value, int]
    places: Places


def plan(graph: Graph, groups: Sequence[Group]) -> MemoryPlan:
    """Places for the inputs of a graph and for what its groups make."""
    inside = places(graph)
    lives = lifetimes(graph, groups, inside)
    offsets = place({v: v.nbytes for v in lives}, lives)
    nbytes = max((offsets[v] + v.nbytes for v in offsets), default=0)
    return MemoryPlan(nbytes, offsets, inside)


def lifetimes(graph: Graph, groups: Sequence[Group], inside: Places) -> dict[Value, Lifetime]:
    """Of each value that lies in the arena and in no other value; inputs live from the start, outputs to the end."""
    begin = dict.fromkeys(graph.inputs, -1)
    for n, group in enumerate(groups):
        for value in group.outputs:
            begin.setdefault(inside[value].root, n)
    end = dict(begin)
    for n, group in enumerate(groups):
        end |= {inside[v].root: n for v in (*group.outputs, *group.inputs) if inside[v].root in begin}
    end |= {inside[v].root: len(groups) for v in graph.outputs if inside[v].root in begin}
    return {v: Lifetime(begin[v], end[v]) for v in begin}


def place(sizes: Mapping[Value, int], lives: Mapping[Value, Lifetime]) -> dict[Value, int]:
    """An offset for each value, such that no two whose lifetimes meet overlap."""
    offsets: dict[Value, int] = {}
    for value in sorted(sizes, key=lambda v: -sizes[v]):
        taken = sorted((offsets[v], offsets[v] + sizes[v]) for v in offsets if lives[v].meets(lives[value]))
        offset = 0
        for begin, end in taken:
            if offset + sizes[value] <= begin:
                break
            offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
        offsets[value] = offset
    return offsets
