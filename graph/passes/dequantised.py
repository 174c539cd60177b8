"""Dequantised weights: transposed as integers for products of integers, and constants of floats where none has taken them."""

from __future__ import annotations

import numpy as np

from ..ir import Call, Graph, Value
from .integers import along, quantised
from .rewriting import Rewriting, each_call, rewrite


@each_call
def transpose_dequantised(r: Rewriting, call: Call) -> list[Call] | None:
    """Read a dequantised transpose of a constant matrix in place of a transpose of the dequantised matrix."""
    made = r.producer(call.values[0], "DequantizeLinear") if call.operator == "Transpose" else None
    if made is None or len(made.values[0].shape) != 2:
        return None
    if call.attribute("perm", (1, 0)) != (1, 0) or any(len(v.shape) == 2 and r.known(v) is None for v in made.values):
        return None
    turned = [r.transposed(v) if len(v.shape) == 2 else v for v in made.values]
    attributes = dict(made.attributes) | {"axis": 1 - made.attribute("axis", 1) % 2}
    return [r.call("DequantizeLinear", turned, [call.outputs[0]], **attributes)]


def fold_dequantised(graph: Graph) -> Graph:
    """Read a constant of floats in place of a constant that is dequantised."""
    arrays: dict[Value, np.ndarray] = {}

    def rule(r: Rewriting, call: Call) -> list[Call] | None:
        found = {v: r.constant(array, name=f"{v.name}_real") for v in call.values if (array := _real(r, v)) is not None}
        return [call.with_inputs(found)] if found else None

    def _real(r: Rewriting, value: Value) -> np.ndarray | None:
        if value not in arrays:
            q = quantised(r, value) if value.dtype == "float32" else None
            array = None if q is None else r.known(q.numbers)
            if q is None or array is None or isinstance(q.zero, Value) or not isinstance(q.scale, np.ndarray):
                return None
            exact = array.astype(np.int32) - along(q.zero, q.axis, array.ndim)
            arrays[value] = exact.astype(np.float32) * along(q.scale, q.axis, array.ndim)
        return arrays[value]

    return rewrite(graph, rule)
