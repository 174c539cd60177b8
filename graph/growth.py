"""Caches that grow: an input to which an output appends rows, in the memory of a buffer with room for more.

The Concat of a past and new rows copies the past at each call. Where it is donated, the past is a view of the first rows of a
buffer, and the network is compiled for the whole buffer: TensorScatter writes the new rows behind the past, and a Slice has all
rows so far. The rows that a buffer has room for, ROOM, are an open size of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from codegen.runtime.memory import address

from .ir import Call, Graph, GraphError, Value
from .sizes import OpenGraph
from .tables import ROOM, Polynomial, Row, polynomial_value


@dataclass(frozen=True)
class Growth:
    """An input that grows along an axis, and the output that has `added` rows more."""

    input: str
    output: str
    axis: int
    added: Polynomial


@dataclass(frozen=True, eq=False)
class GrowingGraph(OpenGraph):
    """A network whose inputs are views of buffers, as `growths` has them. `at` gives it for whole buffers."""

    growths: tuple[Growth, ...] = ()

    @cached_property
    def sizes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.named, ROOM)

    @cached_property
    def free(self) -> frozenset[str]:  # type: ignore[override]
        axes = {g.input: g.axis for g in self.growths}
        return frozenset(str(v.shape[axes[v.name]]) for v in self.inputs if v.name in axes) & {*self.named}

    def at(self, sizes: Mapping[str, int]) -> Graph:
        return in_room(super().at(sizes), self.growths, sizes[ROOM])

    def sampled(self, row: Row, number: int) -> dict[str, int]:
        return {ROOM: sum(row.values()) + 2 + number, **row}

    def buffers(self, given: Sequence[Any], sizes: Row) -> tuple[list[Any], int]:
        """The arrays of a call with whole buffers in place of views, and the rows that these have room for. Raises GraphError
        where an array is no such view, or has too little room."""
        at, found, rooms = {v.name: n for n, v in enumerate(self.inputs)}, list(given), dict[str, int]()
        for g in self.growths:
            past = found[at[g.input]]
            found[at[g.input]], rooms[g.input] = _whole(g, past)
            if (rows := past.shape[g.axis] + polynomial_value(g.added, sizes)) > rooms[g.input]:
                raise GraphError(
                    f"input `{g.input}` has room for {rooms[g.input]} rows along axis {g.axis}, and the call makes it {rows}; "
                    f"pass a view of the first rows of a longer array"
                )
        if len({*rooms.values()}) > 1:
            raise GraphError(f"{self.name}: inputs that grow must have room for as many rows, got {rooms}")
        return found, next(iter(rooms.values()))

    def views(self, given: Sequence[Any], sizes: Row, outputs: list[Any]) -> list[Any]:
        """The outputs of a call with the rows so far in place of whole buffers; `given` are its inputs."""
        at = {v.name: n for n, v in enumerate(self.inputs)}
        for g in self.growths:
            n, rows = self.outputs.index(g.output), given[at[g.input]].shape[g.axis] + polynomial_value(g.added, sizes)
            outputs[n] = outputs[n][(slice(None),) * g.axis + (slice(rows),)]
        return outputs


def _whole(growth: Growth, view: Any) -> tuple[Any, int]:
    """The buffer of which an array is the first rows along an axis, and the rows that it has room for."""
    axis, shape, steps = growth.axis, tuple(view.shape), _steps(view)
    row = prod(shape[axis + 1 :])
    room = steps[axis - 1] // max(1, row)
    whole = (*shape[:axis], room, *shape[axis + 1 :])
    wanted = [prod(whole[n + 1 :]) for n in range(len(whole))]
    if room >= shape[axis] and all(a == b or e < 2 for a, b, e in zip(steps, wanted, shape, strict=True)):
        try:
            if not isinstance(view, np.ndarray):
                return view.as_strided(whole, wanted), room
            base = view.base if isinstance(view.base, np.ndarray) else view
            return np.ndarray(whole, view.dtype, base.data, address(view) - address(base)), room  # type: ignore[arg-type]
        except (AttributeError, RuntimeError, TypeError, ValueError):  # it would reach beyond the memory of the array
            pass
    first = ", ".join([*":" * axis, f":{shape[axis]}"])
    raise GraphError(f"input `{growth.input}` must be a view of the first rows of an array with room, such as buffer[{first}]")


def _steps(array: Any) -> list[int]:
    """The strides of an array in elements."""
    if isinstance(array, np.ndarray):
        return [s // array.itemsize for s in array.strides]
    return list(array.stride()) if hasattr(array, "stride") else [0] * len(array.shape)


def appended(graph: Graph, past: Value, present: Value) -> tuple[Call, Value, Value | None] | None:
    """The call by which a value is another and new rows, with these rows, and the places where each row of a batch has them if
    they are not behind it: Concat, or TensorScatter of the same rows into it. None for any other value."""
    makers = graph.producers()
    call = next(reversed([*_origin(makers, present)]), None)
    joined, places = call, None
    if call is not None and call.operator == "TensorScatter" and len(graph.consumers()[call.values[0]]) == 1:
        joined, places = makers.get(call.values[0]), call.inputs[2]
    if call is None or joined is None or joined.operator != "Concat" or len(joined.inputs) != 2 or joined.inputs[0] != past:
        return None
    new, axis = joined.values[1], joined.attribute("axis") % len(past.shape)
    if axis == 0 or call.inputs[1] != new or past in graph.outputs:
        return None
    return (call, new, places) if call is joined or call.attribute("axis") % len(past.shape) == axis else None


def _origin(makers: Mapping[Value, Call], value: Value) -> Iterator[Call]:
    """The call that makes a value, before it those of Identity on the way."""
    while (call := makers.get(value)) is not None:
        yield call
        if call.operator != "Identity":
            return
        value = call.values[0]


def in_room(graph: Graph, growths: Sequence[Growth], room: int) -> Graph:
    """The graph in which inputs and outputs are whole buffers with room for so many rows."""
    from tir.traverse import fresh  # a loaded model does not need it

    inputs, outputs = ({v.name: v for v in values} for values in (graph.inputs, graph.outputs))
    makers, taken = graph.producers(), graph.names()
    buffers: dict[Value, Value] = {}
    first: list[Call] = []
    instead: dict[Value, Value] = {}  # what readers of a value read
    written: dict[Value, list[Call]] = {}  # calls in place of those that make a value
    for g in growths:
        past, present = inputs[g.input], outputs[g.output]
        if (found := appended(graph, past, present)) is None:
            raise GraphError(f"{graph.name}: `{g.output}` does not append rows to `{g.input}` at these sizes")
        call, new, places = found
        for value in (past, present):
            shape = tuple(room if n == g.axis else e for n, e in enumerate(value.shape))
            buffers[value] = replace(value, shape=shape)
        before, after = (replace(v, name=fresh(taken, f"{v.name}_rows")) for v in (past, present))
        begin = () if places is not None else (("begin", past.shape[g.axis]),)
        operands = (buffers[past], new, *(() if places is None else (places,)))
        scatter = Call("TensorScatter", operands, (buffers[present],), (("axis", g.axis), *begin), node=call.node)
        first.append(_rows(buffers[past], before, g.axis))
        written[call.outputs[0]] = [scatter, _rows(buffers[present], after, g.axis)]
        identities = [c.outputs[0] for c in _origin(makers, present) if c is not call]
        instead |= {past: before, **dict.fromkeys((call.outputs[0], *identities), after)}
        written |= {v: [] for v in identities}
        if places is not None:
            written[call.values[0]] = []
    calls = [new for c in graph.calls for new in written.get(c.outputs[0], [c])]
    calls = [*first, *(c.with_inputs(instead) for c in calls)]
    read = {v for c in calls for v in c.values}
    calls = [c for c in calls if c not in first or c.outputs[0] in read]
    return graph.with_(
        inputs=tuple(buffers.get(v, v) for v in graph.inputs),
        calls=tuple(calls),
        outputs=tuple(buffers.get(v, v) for v in graph.outputs),
    )


def _rows(buffer: Value, rows: Value, axis: int) -> Call:
    """The call that takes the first rows of a buffer."""
    return Call("Slice", (buffer,), (rows,), (("axes", (axis,)), ("ends", (rows.shape[axis],)), ("starts", (0,))))
