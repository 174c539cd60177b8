"""Memory: the addresses of the values of a graph.

Values between groups, and the scratch memory of their kernels, are in one arena. They may share bytes there unless their
lifetimes overlap. Placement is greedy, the largest first, each at the lowest offset that is free during its lifetime (Pisarchyk
and Lee, arXiv 2001.03288, "greedy by size"). Inputs are read, and outputs written, in the caller's memory. Constants lie one
after the other in one block, in the order in which they are read. A value inside of another one (see `places`) moves with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codegen.runtime.alignment import aligned
from codegen.steps import Address, Carried, Copy, Invoke, Place, Repeat, Step
from tir.ir import Buffer, Const

from .fusion import Group
from .ir import Graph, Value
from .loops import LoopCarried, LoopPlaces, Repetition, Within, is_loop, loop_places, outermost
from .places import Places, places

WEIGHTS, ARENA = "weights", "arena"  # the blocks of memory that a call is given beside inputs and outputs


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a value, from the group that makes it to its last reader, by positions; loops begin between two."""

    begin: float
    end: float

    def overlaps(self, other: Lifetime) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class MemoryPlan:
    """The places of values in memory: `addresses` of the values that lie in no other, and the `places` of the others.

    `nbytes` is the size of the arena, `weights_nbytes` that of the constants. `copied` are outputs by their numbers, which lie in
    inputs, in constants, in other outputs or in larger values: they are copied after all groups. `loops` has the loops, and
    the places that change in their steps.
    """

    nbytes: int
    weights_nbytes: int
    addresses: Mapping[Value, Address]
    places: Places
    copied: Mapping[int, Value]
    loops: LoopPlaces = field(default_factory=LoopPlaces)

    def __getitem__(self, value: Value) -> Place:
        """The address of any value that is read or made."""
        place = self.places[value]
        match self.loops.places.get(place.root):
            case None:
                return self.addresses[place.root].plus(place.offset)
            case Within(whole, offset, moves):
                return self[whole].plus(offset + place.offset, *moves)
            case LoopCarried(loop, first, later):
                return Carried(loop, self[first], self[later].earlier(loop)).plus(place.offset)

    @property
    def copies(self) -> tuple[Copy, ...]:
        return tuple(Copy(Address(output_base(n)), self[v], v.nbytes) for n, v in self.copied.items())

    def steps(self, kernels: Sequence[Invoke]) -> tuple[Step, ...]:
        """The steps of a call whose groups are these calls of kernels."""
        return (*self._steps(kernels, 0, len(kernels), self.loops.repetitions), *self.copies)

    def _steps(self, kernels: Sequence[Invoke], first: int, last: int, found: Sequence[Repetition]) -> Iterator[Step]:
        outer = outermost([r.loop for r in found])
        for r in (r for r in found if r.loop in outer):
            yield from kernels[first : r.first]
            begin, inner = r.loop.begin, [o for o in found if o is not r and o.loop.begin.outputs[0] in r.loop.values]
            each, after = (tuple(Copy(self[a], self[b], b.nbytes) for a, b in pairs) for pairs in (r.each, r.after))
            count, going = begin.attribute("steps"), begin.attribute("conditional")
            yield Repeat(
                r.loop.name,
                self[begin.values[0]] if count is None else count,
                self[begin.outputs[1]] if going else None,
                (*self._steps(kernels, r.first, r.last, inner), *each),
                after,
            )
            first = r.last
        yield from kernels[first:last]


def input_base(n: int) -> str:
    """The name of the memory of an input of the graph."""
    return f"input.{n}"


def output_base(n: int) -> str:
    """The name of the memory of an output of the graph."""
    return f"output.{n}"


def plan(graph: Graph, groups: Sequence[Group], donated: Mapping[Value, Value] = {}) -> MemoryPlan:
    """The memory plan of a graph whose calls are in these groups. Outputs that are keys of `donated` are inputs of the graph, and
    lie in the memory of those that are their values."""
    inside = places(graph)
    loops = loop_places(graph, [g.outputs[0] for g in groups], inside)
    carried = [v for r in loops.repetitions for v in r.read]
    read = [inside[v].root for v in (*(v for g in groups for v in g.inputs), *carried, *graph.outputs)]
    marked = [v for c in graph.calls if is_loop(c) for v in c.outputs]
    made = {inside[v].root for v in (*graph.inputs, *(v for g in groups for v in g.outputs), *marked)}
    weights, weights_nbytes = consecutive([v for v in dict.fromkeys(read) if v not in made])
    addresses = {v: Address(WEIGHTS, offset) for v, offset in weights.items()}
    addresses |= {v: Address(input_base(n)) for n, v in enumerate(graph.inputs)}
    addresses |= {v: addresses[old] for v, old in donated.items()}
    copied: list[int] = []
    for n, value in enumerate(graph.outputs):
        root = inside[value].root
        if value in donated:
            continue
        if root in addresses or root.nbytes != value.nbytes:
            copied.append(n)
        else:
            addresses[root] = Address(output_base(n))
    lives = {v: life for v, life in lifetimes(graph, groups, inside, loops).items() if v not in addresses}
    offsets = arena_offsets(lives)
    addresses |= {v: Address(ARENA, offset) for v, offset in offsets.items()}
    nbytes = max((offset + v.nbytes for v, offset in offsets.items()), default=0)
    return MemoryPlan(nbytes, weights_nbytes, addresses, inside, {n: graph.outputs[n] for n in copied}, loops)


def lifetimes(graph: Graph, groups: Sequence[Group], inside: Places, loops: LoopPlaces | None = None) -> dict[Value, Lifetime]:
    """The lifetimes of the groups' scratch memory and of the roots of the values that they and `loops` make; outputs live to the
    end. What is made before a loop and read in it lives as long as it runs."""
    begin: dict[Value, float] = {}
    for n, group in enumerate(groups):
        for value in (*group.outputs, *group.scratch):
            begin.setdefault(inside[value].root, n)
    repetitions, moving = (loops.repetitions, loops.places) if loops is not None else ((), {})
    for r in repetitions:
        results = r.loop.end.outputs[1:]
        begin |= {inside[v].root: min(r.begin, begin.get(inside[v].root, r.begin)) for v in (*results, *r.buffers)}
    end = dict(begin)
    for n, group in enumerate(groups):
        for v in (*group.outputs, *group.inputs):
            for root in _roots(v, inside, moving):
                if root in begin:
                    end[root] = max(n, end[root])
    for r in reversed(repetitions):  # inner ones first
        for v in (*r.read, *r.buffers, *r.loop.end.values, *r.loop.end.outputs):
            for root in _roots(v, inside, moving):
                if root in begin:
                    end[root] = max(r.end, end[root])
        end |= {v: r.end for v in end if begin[v] <= r.begin <= end[v] < r.end}
    end |= {inside[v].root: len(groups) for v in graph.outputs if inside[v].root in begin}
    return {v: Lifetime(begin[v], end[v]) for v in begin if v not in moving}


def _roots(value: Value, inside: Places, moving: Mapping[Value, Within | LoopCarried]) -> Iterator[Value]:
    """The value in whose memory a value is; several for one that changes its place in steps of loops."""
    root = inside[value].root
    match moving.get(root):
        case None:
            yield root
        case Within(whole):
            yield from _roots(whole, inside, moving)
        case LoopCarried(_, first, later):
            yield from (*_roots(first, inside, moving), *_roots(later, inside, moving))


def consecutive(values: Sequence[Value]) -> tuple[dict[Value, int], int]:
    """Aligned offsets of values one after the other, and the bytes in all."""
    offsets, end = {}, 0
    for value in values:
        offsets[value] = aligned(end)
        end = offsets[value] + value.nbytes
    return offsets, end


def arena_offsets(lives: Mapping[Value, Lifetime]) -> dict[Value, int]:
    """An offset for each value, such that values whose lifetimes overlap share no bytes."""
    offsets: dict[Value, int] = {}
    for value in sorted(lives, key=lambda v: -v.nbytes):
        taken = sorted((offsets[v], offsets[v] + v.nbytes) for v in offsets if lives[v].overlaps(lives[value]))
        offset = 0
        for begin, end in taken:
            if offset + value.nbytes <= begin:
                break
            offset = max(offset, aligned(end))
        offsets[value] = offset
    return offsets


def buffer(value: Value) -> Buffer:
    """A value as a parameter of a function."""
    return Buffer(value.name, tuple(map(Const, value.shape)), value.dtype)
