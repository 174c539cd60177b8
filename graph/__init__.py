"""Whole networks: a graph of calls of operators, read from ONNX, rewritten by passes, grouped into kernels and run.

`ir` has the nodes of a graph, `ops` the operators: each is defined by tensor expressions or by other operators. `builder` writes
graphs: for `onnx`, which reads files, for `passes`, which rewrite graphs, and for users. `quantisation` makes integers of floats.
`places` finds the values inside of others. `fusion` groups the other calls: each group is one function of the IR below. `memory`
plans addresses, `compilation` builds kernels, `model` runs them by one native function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import Builder
    from .compilation import compile
    from .ir import Call, Graph, GraphError, Value
    from .model import Model
    from .onnx import load_onnx
    from .ops.registry import composite, operator
    from .quantisation.quantise import quantise
    from .tuning import tune_graph

_NAMES = {
    **dict.fromkeys(("Call", "Graph", "GraphError", "Value"), "ir"),
    **dict.fromkeys(("composite", "operator"), "ops"),
    "Builder": "builder",
    "Model": "model",
    "compile": "compilation",
    "load_onnx": "onnx",
    "quantise": "quantisation.quantise",
    "tune_graph": "tuning",
}

__all__ = [
    "Builder", "Call", "Graph", "GraphError", "Model", "Value", "compile", "composite", "load_onnx", "operator", "quantise",
    "tune_graph",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
