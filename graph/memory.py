"""Memory: the addresses of the values of a graph.

Values between groups, and the scratch memory of their kernels, are in one arena. They may share bytes there unless their
lifetimes overlap. Placement is greedy, the largest first, each at the lowest offset that is free during its lifetime (Pisarchyk
and Lee, arXiv 2001.03288, "greedy by size"). Inputs are read, and outputs written, in the caller's memory. Constants lie one
after the other in one block, in the order in which they are read. A value inside of another one (see `places`) moves with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.runtime.alignment import ALIGNMENT
from codegen.steps import Address, Copy
from tir.ir import Buffer, Const

from .fusion import Group
from .ir import Graph, Value
from .places import Places, places

WEIGHTS, ARENA = "weights", "arena"  # the blocks of memory that a call is given beside inputs and outputs


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a value, from the group that makes it to the last one that reads it, both included, by their positions."""

    begin: int
    end: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class MemoryPlan:
    """The places of values in memory: `addresses` of the values that lie in no other, and the `places` of the others.

    `nbytes` is the size of the arena, `weights_nbytes` that of the constants. `copies` run after all groups, for outputs that
    lie in inputs, in constants, in other outputs or in larger values.
    """

    nbytes: int
    weights_nbytes: int
    addresses: Mapping[Value, Address]
    places: Places
    copies: tuple[Copy, ...]

    def __getitem__(self, value: Value) -> Address:
        """The address of any value that is read or made."""
        return _address(value, self.addresses, self.places)


def relocated(plan: MemoryPlan, graph: Graph, found: Mapping[Value, Address]) -> MemoryPlan:
    """The plan with constants at other addresses."""
    addresses = {**plan.addresses, **found}
    sources = {output_base(n): _address(v, addresses, plan.places) for n, v in enumerate(graph.outputs)}
    copies = tuple(replace(copy, source=sources[copy.target.base]) for copy in plan.copies)
    return replace(plan, addresses=addresses, copies=copies)


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
    read = [inside[v].root for v in (*(v for g in groups for v in g.inputs), *graph.outputs)]
    made = {inside[v].root for v in (*graph.inputs, *(v for g in groups for v in g.outputs))}
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
    lives = {v: life for v, life in lifetimes(graph, groups, inside).items() if v not in addresses}
    offsets = arena_offsets(lives)
    addresses |= {v: Address(ARENA, offset) for v, offset in offsets.items()}
    nbytes = max((offset + v.nbytes for v, offset in offsets.items()), default=0)
    copies = [
        Copy(Address(output_base(n)), _address(graph.outputs[n], addresses, inside), graph.outputs[n].nbytes) for n in copied
    ]
    return MemoryPlan(nbytes, weights_nbytes, addresses, inside, tuple(copies))


def _address(value: Value, addresses: Mapping[Value, Address], inside: Places) -> Address:
    place = inside[value]
    root = addresses[place.root]
    return Address(root.base, root.offset + place.offset)


def lifetimes(graph: Graph, groups: Sequence[Group], inside: Places) -> dict[Value, Lifetime]:
    """The lifetimes of the groups' scratch memory and of the roots of the values that they make; outputs live to the end."""
    begin: dict[Value, int] = {}
    for n, group in enumerate(groups):
        for value in (*group.outputs, *group.scratch):
            begin.setdefault(inside[value].root, n)
    end = dict(begin)
    for n, group in enumerate(groups):
        end |= {inside[v].root: n for v in (*group.outputs, *group.inputs) if inside[v].root in begin}
    end |= {inside[v].root: len(groups) for v in graph.outputs if inside[v].root in begin}
    return {v: Lifetime(begin[v], end[v]) for v in begin}


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


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def buffer(value: Value) -> Buffer:
    """A value as a parameter of a function."""
    return Buffer(value.name, tuple(map(Const, value.shape)), value.dtype)
