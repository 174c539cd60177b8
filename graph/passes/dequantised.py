"""Dequantised weights that no product of integers has taken become constants of floats."""

from __future__ import annotations

import numpy as np

from ..ir import Call, Graph, Value
from .integers import along, quantised
from .rewriting import Rewriting, rewrite


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
