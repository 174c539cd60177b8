"""Calls of constants become constants."""

from __future__ import annotations

import numpy as np

from ..ir import Graph
from ..reference import run_call


def fold_constants(graph: Graph) -> Graph:
    """Run, once, every call whose inputs are all constants."""
    constants: dict[str, np.ndarray] = dict(graph.constants)
    kept = []
    for call in graph.calls:
        if all(v.name in constants for v in call.values):
            results = run_call(call, [None if v is None else constants[v.name] for v in call.inputs])
            constants |= {v.name: a for v, a in zip(call.outputs, results, strict=True)}
        else:
            kept.append(call)
    return graph if len(kept) == len(graph.calls) else graph.with_(calls=tuple(kept), constants=constants)
