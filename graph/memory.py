"""Memory: all values of a graph at offsets of one arena.

Values that are never needed at the same time may share bytes. They are placed greedily, the largest first, each at the lowest
offset that is free for as long as it lives (Pisarchyk and Lee, arXiv 2001.03288, "greedy by size"). A view lies where its source
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .fusion import Group
from .ir import Graph, Value
from .ops import is_view

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


@dataclass(frozen=True)
class Lifetime:
    """From the group that makes a value to the last one that reads it, both included, by their positions."""

    begin: int
    end: int

    def meets(self, other: Lifetime) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class MemoryPlan:
    """Where values lie: `sources` gives of a view what it is a view of, `offsets` the bytes from the begin of the arena.

    Constants are not in the arena, nor are views of them.
    """

    nbytes: int
    offsets: Mapping[Value, int]
    sources: Mapping[Value, Value]

    def source(self, value: Value) -> Value:
        """What a value is a view of; itself where it is none."""
        return self.sources.get(value, value)


def plan(graph: Graph, groups: Sequence[Group]) -> MemoryPlan:
    """Places for the inputs of a graph and for what its groups make."""
    sources: dict[Value, Value] = {}
    for call in graph.calls:
        if is_view(call):
            assert call.inputs[0] is not None
            sources[call.outputs[0]] = sources.get(call.inputs[0], call.inputs[0])
    lives = lifetimes(graph, groups, sources)
    offsets = place({v: v.nbytes for v in lives}, lives)
    nbytes = max((offsets[v] + v.nbytes for v in offsets), default=0)
    return MemoryPlan(nbytes, offsets, sources)


def lifetimes(graph: Graph, groups: Sequence[Group], sources: Mapping[Value, Value]) -> dict[Value, Lifetime]:
    """Of each value that lies in the arena; inputs live from the start, outputs to the end."""
    begin = dict.fromkeys(graph.inputs, -1)
    begin |= {v: n for n, g in enumerate(groups) for v in g.outputs}
    end = dict(begin)
    for n, group in enumerate(groups):
        end |= {v: n for v in (sources.get(w, w) for w in group.inputs) if v in begin}
    end |= {v: len(groups) for v in (sources.get(w, w) for w in graph.outputs) if v in begin}
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
