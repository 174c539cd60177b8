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
        if first is not None and is_view(call) and first.dtype == result.dtype:
            source = viewed.get(first, first)
            call = Call("Reshape", (source,), call.outputs, (("shape", result.shape),))
            viewed[result] = first = source
        if any(others):
            first = _given_back(graph, call)
        if first is not None and result not in graph.outputs and (any(others) or _changes_nothing(call, first)):
            same[result] = first
        else:
            calls.append(call)
    return graph.with_(calls=tuple(calls))


def _given_back(graph: Graph, call: Call) -> Value | None:
    """The operand that a call of two gives back, since the other one, a constant, is neutral."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(call.operator)
    for operand, constant in zip(call.inputs, call.inputs[::-1], strict=True) if neutral is not None else ():
        if operand is None or constant is None or constant.name not in graph.constants or operand.shape != call.outputs[0].shape:
            continue
        if (operand == call.inputs[0] or call.operator in ("Add", "Mul")) and (graph.constants[constant.name] == neutral).all():
            return operand
    return None


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
