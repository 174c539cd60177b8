"""Places of values inside of others, which need no kernel.

A view has the elements of another value in their order. The part that a slice or a split takes out of the outermost dimension
lies in its input. The inputs of a concatenation along that dimension are computed in place, inside of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tir import dtypes
from tir.analysis.positions import position
from tir.arith.polynomial import add, as_constant
from tir.ir import Block, Const, Load, Store
from tir.traverse import blocks, substitute

from .ir import Call, Graph, Value
from .ops import definition, function
from .ops.loops import BEGIN, END


@dataclass(frozen=True)
class Place:
    """The place of a value: `offset` bytes into `root`, which lies in no other value."""

    root: Value
    offset: int


@dataclass(frozen=True)
class Places:
    """The places of the values of a graph: `inside` has those of values in others. `free` are the values that no kernel makes."""

    inside: Mapping[Value, Place]
    free: frozenset[Value]

    def __getitem__(self, value: Value) -> Place:
        return self.inside.get(value, Place(value, 0))


def places(graph: Graph) -> Places:
    """The places of all values: views and parts in order, then concatenations from the last, the longest result, on."""
    parents: dict[Value, Place] = {}  # one step toward the root
    free: set[Value] = set()
    for call in graph.calls:
        if call.operator in (BEGIN, END):
            free |= set(call.outputs)
        elif offsets := part_offsets(call):
            free |= set(call.outputs)
            parents |= {v: Place(call.values[0], offset) for v, offset in zip(call.outputs, offsets, strict=True)}
    made = {v for c in graph.calls for v in c.outputs} - free  # by kernels
    for call in reversed(graph.calls):
        (result, *_), found = call.outputs, [_root(v, parents) for v in call.values]
        if not _joins_outermost(call):
            continue
        if _is_row(call.values, found):
            if result not in parents:
                parents[result] = found[0]
                free.add(result)
        elif len({p.root for p in found if p.root in made and p.offset == 0}) == len(found) and _fill(call.values, found):
            for n, place in enumerate(found):
                parents[place.root] = Place(result, sum(v.nbytes for v in call.values[:n]))
            free.add(result)
    return Places({v: _root(v, parents) for v in parents}, frozenset(free))


def _root(value: Value, parents: Mapping[Value, Place]) -> Place:
    offset = 0
    while value in parents:
        value, offset = parents[value].root, offset + parents[value].offset
    return Place(value, offset)


def _joins_outermost(call: Call) -> bool:
    """True where a call writes its inputs one after the other."""
    if call.operator != "Concat":
        return False
    shape = call.outputs[0].shape
    return all(e == 1 for e in shape[: call.attribute("axis") % len(shape)])


def _is_row(values: Sequence[Value], found: Sequence[Place]) -> bool:
    """True where values lie one after the other already."""
    ends = accumulate((v.nbytes for v in values), initial=found[0].offset)
    return all(p == Place(found[0].root, end) for p, end in zip(found, ends, strict=False))


def _fill(values: Sequence[Value], found: Sequence[Place]) -> bool:
    """True where each value is as large as its root."""
    return all(v.nbytes == p.root.nbytes for v, p in zip(values, found, strict=True))


def part_offsets(call: Call) -> tuple[int, ...]:
    """The offsets of a call's outputs in its only input, in bytes; empty unless they are contiguous parts of it."""
    if definition(call).view:
        return (0,)
    if len(call.inputs) != 1 or call.inputs[0] is None or any(v.dtype != call.inputs[0].dtype for v in call.outputs):
        return ()
    offsets = [_part_offset(block) for block in blocks(function(call))]
    if len(offsets) != len(call.outputs):
        return ()
    found = tuple(o * dtypes.nbytes(call.inputs[0].dtype) for o in offsets if o is not None)
    return found if len(found) == len(offsets) else ()


def _part_offset(block: Block) -> int | None:
    """The offset, in elements, of the contiguous elements that a block copies in order; None for another block."""
    if not isinstance(block.body, Store) or not isinstance(block.body.value, Load):
        return None
    single = {it.var: Const(0) for it in block.iters if it.extent.is_one}
    read, written = (position(x.buffer, [substitute(i, single) for i in x.indices]) for x in (block.body.value, block.body))
    return as_constant(add(read, written, -1))
