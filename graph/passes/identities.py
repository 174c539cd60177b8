"""Calls that change nothing go; of views of views one is left."""

from __future__ import annotations

from ..ir import Call, Graph, Value
from ..ops import is_view


def remove_identities(graph: Graph) -> Graph:
    """Read through every call whose output is its input, and bring every other view to one Reshape of what it is a view of.

    A call that makes an output of the graph stays, since the output keeps its name.
    """
    same: dict[Value, Value] = {}
    viewed: dict[Value, Value] = {}  # of each view, what it is a view of
    calls = []
    for call in graph.calls:
        call = call.with_inputs(same)
        (first, *others), result = call.inputs or (None,), call.outputs[0]
        if first is not None and is_view(call):
            source = viewed.get(first, first)
            call = Call("Reshape", (source,), call.outputs, (("shape", result.shape),))
            viewed[result] = first = source
        if first is not None and not any(others) and _changes_nothing(call, first) and result not in graph.outputs:
            same[result] = first
        else:
            calls.append(call)
    return graph.with_(calls=tuple(calls))


def _changes_nothing(call: Call, first: Value) -> bool:
    result = call.outputs[0]
    if (first.shape, first.dtype) != (result.shape, result.dtype):
        return False
    match call.operator:
        case "Reshape" | "Cast" | "Concat" | "Sum" | "Max" | "Min" | "Expand":
            return True
        case "Slice":
            return all(step > 0 for step in call.attribute("steps", ()))
        case "Transpose":
            order = call.attribute("perm", tuple(range(len(first.shape)))[::-1])
            return order == tuple(sorted(order))
        case "Pad":
            return not any(call.attribute("pads"))
        case _:
            return False
