"""Loops written out as their steps, for targets whose networks run no loop."""

from __future__ import annotations

from dataclasses import replace

from ..builder import Builder
from ..ir import Call, Graph, GraphError, Value
from ..loops import Loop, loops_of, ordered, outermost
from ..ops.recurrence import STEPS


def write_out_loops(graph: Graph) -> Graph:
    """The graph without loops. Raises GraphError for a loop whose number of steps is computed."""
    while loops := outermost(loops_of(graph)):
        graph = _without(ordered(graph), loops[0])
    return graph


def _without(graph: Graph, loop: Loop) -> Graph:
    if loop.steps is None:
        raise GraphError(f"graph {graph.name}: the loop that makes `{loop.end.outputs[1].name}` has a computed number of steps")
    write = Builder(graph.name, fold=False)
    write.constants, write.taken = dict(graph.constants), graph.names()
    first, last = graph.calls.index(loop.begin), graph.calls.index(loop.end)
    write.calls = [*graph.calls[:first]]
    found = {state: given for given, state, *_ in loop.states}
    zero = {v for v in found.values() if v.name in graph.constants and not graph.constants[v.name].any()}
    rows: list[list[Value]] = []
    for n in range(loop.steps):
        for array, piece, backward in loop.arrays(loop.begin):
            at = loop.steps - 1 - n if backward else n
            row = write("Slice", array, starts=(at,), ends=(at + 1,), axes=(0,))
            found[piece] = write("Reshape", row, shape=piece.shape, allowzero=1)
        for call in graph.calls[first + 1 : last]:
            outputs = tuple(write.value(v.name, v.shape, v.dtype) for v in call.outputs)
            new = replace(call.with_inputs(found), outputs=outputs)
            if call.operator in STEPS:  # cells of recurrent layers, which need no product with an omitted state
                new = replace(new, inputs=tuple(None if k in (1, 2) and v in zero else v for k, v in enumerate(new.inputs)))
            write.calls.append(new)
            found |= dict(zip(call.outputs, outputs, strict=True))
        rows.append([found.get(v, v) for v, *_ in loop.arrays(loop.end)])
        left = [found.get(made, made) for _, _, made, _ in loop.states]
        found |= {state: value for (_, state, _, _), value in zip(loop.states, left, strict=True)}
    found |= {final: found[state] for _, state, _, final in loop.states}
    for n, (_, array, backward) in enumerate(loop.arrays(loop.end)):
        own = [write("Unsqueeze", row[n], axes=(0,)) for row in (reversed(rows) if backward else rows)]
        found[array] = write("Concat", *own, axis=0)
    calls = [*write.calls, *(c.with_inputs(found) for c in graph.calls[last + 1 :])]
    calls += [Call("Identity", (found[v],), (v,)) for v in dict.fromkeys(graph.outputs) if v in found]
    return graph.with_(calls=tuple(calls), constants=write.constants)
