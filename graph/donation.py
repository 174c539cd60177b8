"""Inputs donated to outputs: an operator that changes some elements of an input writes them there, and copies nothing.

A cache of keys is read and gets some rows in each call. As an input donated to the output that has the new rows, it stays where
it is. The operator becomes a kernel of these rows alone; all others that read the input run before it, those that read the
output after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError

from tir import te
from tir.ir import PrimFunc
from tir.traverse import loaded_names, stores, substatements

from .fusion import Group, fuse
from .general import fitted
from .growth import GrowingGraph, Growth, appended
from .ir import Call, Graph, GraphError, Value, stable_order
from .ops import definition, find, function, function_name, names, placeholder
from .ops.indexing import rows_scattered
from .places import places
from .sizes import OpenGraph
from .tables import Row

READ_FOR_GROWTH = 3  # sizes at which the numbers of new rows are compared: two give a polynomial, the third checks it


@dataclass(frozen=True)
class Donation:
    """An input whose memory an output takes, and the call that changes it there."""

    input: Value
    output: Value
    call: Call


def donations(graph: Graph, donate: Mapping[str, str]) -> list[Donation]:
    """The donations of inputs to outputs, by their names. Raises GraphError for one that cannot be made in place."""
    if not isinstance(donate, Mapping):
        raise TypeError(f"donate is a dict of outputs by the names of inputs, such as {{'past': 'present'}}, got {donate!r}")
    makers, found = graph.producers(), []
    inputs, outputs = ({v.name: v for v in values} for values in (graph.inputs, graph.outputs))
    for given, taken in donate.items():
        where = f"{graph.name}: donate {{{given!r}: {taken!r}}}"
        if given not in inputs or taken not in outputs:
            raise GraphError(f"{where}: the inputs are {', '.join(inputs)}, the outputs {', '.join(outputs)}")
        call = makers.get(outputs[taken])
        if call is None or not definition(call).changes or call.inputs[0] != inputs[given]:
            made = "no operator" if call is None else call.operator
            changing = ", ".join(name for name in names() if (o := find(name)) is not None and o.changes)
            raise GraphError(f"{where}: the output must be made by one of {changing} of the input; it is made by {made}")
        found.append(Donation(inputs[given], outputs[taken], call))
    inside = places(graph)
    for d in found:
        if also := [v.name for v in graph.outputs if inside[v].root == d.input]:
            raise GraphError(f"{graph.name}: `{d.input.name}` is donated, so it cannot be the output {', '.join(also)}, too")
    if len({d.output for d in found}) < len(found):
        raise GraphError(f"{graph.name}: donate gives one output the memory of two inputs")
    return found


def growing(graph: OpenGraph, donate: Mapping[str, str], rows: Iterable[Row]) -> OpenGraph:
    """The network whose donated inputs are views of buffers with room, where an output appends rows to them (see `growth`); the
    same network where none does. It is read at some of these sizes."""
    read: list[tuple[Row, dict[tuple[str, str, int], int]]] = []
    for row in rows:
        with suppress(GraphError):
            found = _appending(graph.at(row), donate)
            if not found:
                return graph
            read.append((row, found))
        if len(read) == READ_FOR_GROWTH:
            break
    growths = []
    for key in read[0][1] if read else ():
        added = fitted(graph.sizes, [row for row, _ in read], [found.get(key, 0) for _, found in read])
        if added is None:
            raise GraphError(f"{graph.name}: donate {{{key[0]!r}: {key[1]!r}}}: the number of new rows follows from no size")
        growths.append(Growth(*key, added))
    return GrowingGraph(graph.name, graph.inputs, graph.outputs, graph.read, tuple(growths)) if growths else graph


def _appending(graph: Graph, donate: Mapping[str, str]) -> dict[tuple[str, str, int], int]:
    """The donated pairs of which an output appends rows to the input, along an axis, and the numbers of these rows."""
    found = {}
    inputs, outputs = ({v.name: v for v in values} for values in (graph.inputs, graph.outputs))
    for given, taken in donate.items():
        if given in inputs and taken in outputs and (call := appended(graph, inputs[given], outputs[taken])) is not None:
            axis = call[0].attribute("axis") % len(inputs[given].shape)
            found[given, taken, axis] = call[1].shape[axis]
    return found


def planned_graph(graph: Graph, found: Sequence[Donation]) -> Graph:
    """The graph without the calls of donations: what they make is an input, which lies in the memory of the donated one."""
    calls = tuple(c for c in graph.calls if all(c is not d.call for d in found))
    return graph.with_(inputs=(*graph.inputs, *(d.output for d in found)), calls=calls)


def fuse_in_place(graph: Graph, found: Sequence[Donation]) -> list[Group]:
    """The groups of a graph in an order in which they can run, with those that write in place; GraphError if there is none."""
    if not found:
        return fuse(graph)
    rest = planned_graph(graph, found)
    made = {v for c in rest.calls for v in c.outputs}
    read = [v for d in found for v in d.call.values[1:] if v in made]
    groups = fuse(rest.with_(outputs=(*rest.outputs, *read)))
    changing = [Group((d.call,), tuple(dict.fromkeys(d.call.values[1:])), (d.output,), in_place(d.call)) for d in found]
    return _in_order(rest, [*groups, *changing], {d.output: d.input for d in found})


def in_place(call: Call) -> PrimFunc:
    """The function of a call of a changing operator on its other inputs and its output, whose other elements it leaves."""
    func = _scattering(call)
    _copying, changing = substatements(func.body)
    assert {x.buffer for x in stores(changing)} == {func.buffers[-1]} and func.buffers[0].name not in loaded_names(changing), func
    name = f"{function_name(call.operator)}_in_place"
    return func.with_(name=name, params=func.params[1:], body=changing)


def _scattering(call: Call) -> PrimFunc:
    """The function of a call as a copy of its first input, then the changes."""
    if call.operator != "TensorScatter":
        return function(call)
    given = {v: placeholder(v, f"p{n}") for n, v in enumerate(dict.fromkeys(call.values))}
    operands = [None if v is None else given[v] for v in call.inputs]
    return te.create_prim_func([*given.values(), rows_scattered(*operands, **dict(call.attributes))])


def _in_order(graph: Graph, groups: Sequence[Group], donated: Mapping[Value, Value]) -> list[Group]:
    """The groups in an order in which each value is made before it is read, and inputs are read before they are changed."""
    inside = places(graph)
    maker = {inside[v].root: n for n, g in enumerate(groups) for v in g.outputs}
    before: list[set[int]] = [{maker[r] for v in g.inputs if (r := inside[v].root) in maker} - {n} for n, g in enumerate(groups)]
    for new, old in donated.items():
        readers = {n for n, g in enumerate(groups) for v in g.inputs if inside[v].root == old}
        before[maker[new]] |= readers
    try:
        return [groups[n] for n in stable_order([*map(list, before)])]
    except CycleError as error:
        stuck = next(new for new in donated if maker[new] in error.args[1])
        raise GraphError(
            f"{graph.name}: `{donated[stuck].name}` cannot be donated to `{stuck.name}`: it is read together with "
            "something that depends on that"
        ) from None
