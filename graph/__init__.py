"""Whole networks: a graph of calls of operators, read from ONNX, rewritten by passes, grouped into kernels and run.

`ir` has the nodes of a graph, `ops` the operators: each is defined by tensor expressions or by other operators. `builder` writes
graphs: for `onnx`, which reads files, for `passes`, which rewrite graphs, and for users. `quantisation` makes integers of floats.
`places` finds the values inside of others. `fusion` groups the other calls: each group is one function of the IR below. `memory`
plans addresses, `compilation` builds kernels, `model` runs them by one native function.
What runs needs no compiler (`network`), so that `saved` loads it in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
    from .builder import Builder
    from .compilation import compile
    from .ir import Call, Graph, GraphError, Value
    from .model import Model
    from .network import Network
    from .onnx import load_onnx
    from .ops.registry import composite, operator
    from .quantisation.quantise import quantise
    from .saved import load
    from .sizes import OpenGraph
    from .tuning import tune_graph
    from .variants import OpenModel

__all__ = [
    "Builder", "Call", "Graph", "GraphError", "Model", "Network", "OpenGraph", "OpenModel", "Value", "compile", "composite",
    "load", "load_onnx", "operator", "quantise", "tune_graph",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
