"""Common subexpression elimination: of equal calls, and of equal small constants, one is left."""

from __future__ import annotations

from collections.abc import Hashable

from ..ir import Graph, Value, constant
from ..kinds import widens

MAX_COMPARED_BYTES = 4096  # bytes up to which constants are compared: scalars and rows of indices recur, weights do not


def merge_common(graph: Graph) -> Graph:
    """Read the first of all calls of one operator with the same inputs and attributes in place of the others.

    A call that makes an output of the graph stays, since the output keeps its name. A conversion to a wider type stays, too: each
    reader then loads the narrow value, which takes less memory, and converts it.
    """
    same: dict[Value, Value] = {}
    arrays: dict[Hashable, Value] = {}
    for name, array in graph.constants.items():
        if array.nbytes <= MAX_COMPARED_BYTES:
            value = constant(name, array)
            first = arrays.setdefault((value.shape, value.dtype, array.tobytes()), value)
            if first != value:
                same[value] = first
    seen: dict[Hashable, tuple[Value, ...]] = {}
    calls = []
    for call in graph.calls:
        call = call.with_inputs(same)
        types = tuple((v.shape, v.dtype) for v in call.outputs)
        key = (call.operator, call.opset, call.inputs, repr(call.attributes), types)
        first_outputs = seen.setdefault(key, call.outputs)
        if first_outputs is call.outputs or any(v in graph.outputs for v in call.outputs) or widens(call):
            calls.append(call)
        else:
            same |= dict(zip(call.outputs, first_outputs, strict=True))
    return graph.with_(calls=tuple(calls))
