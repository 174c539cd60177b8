"""Values without elements, and the results of calls on these alone, become constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tir import dtypes

from ..ir import Call, Graph, Value, typed
from ..reference import run_call


def fold_empty(graph: Graph) -> Graph:
    """Values without elements become constants, and leave concatenations. A call that reads only such values runs now."""
    if not any(0 in v.shape for v in (*graph.inputs, *(v for c in graph.calls for v in (*c.values, *c.outputs)))):
        return graph
    constants = dict(graph.constants)
    calls = list[Call]()
    for call in graph.calls:
        if call.operator == "Concat" and (full := tuple(v for v in call.values if 0 not in v.shape)):
            call = replace(call, inputs=full)
        if any(0 in v.shape for v in (*call.values, *call.outputs)) and all(0 in v.shape for v in call.outputs):
            constants |= {v.name: _nothing(v) for v in call.outputs}
        elif any(0 in v.shape for v in call.values) and all(0 in v.shape or v.name in constants for v in call.values):
            given = [None if v is None else constants.get(v.name, _nothing(v)) for v in call.inputs]
            constants |= {v.name: typed(a, v.dtype) for v, a in zip(call.outputs, run_call(call, given), strict=True)}
        else:
            calls.append(call)
    return graph.with_(calls=tuple(calls), constants=constants)


def _nothing(value: Value) -> np.ndarray:
    return typed(np.empty(value.shape if 0 in value.shape else 0, dtypes.storage(value.dtype)), value.dtype)
