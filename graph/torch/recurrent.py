"""Recurrent layers of a module as one node each, in place of the nodes of all their steps into which torch writes them out.

They become operators of the library `tir`, with the schemas of ATen's. In eager mode these are torch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

STATES = {torch.lstm: 2, torch.gru: 1, torch.rnn_tanh: 1, torch.rnn_relu: 1}
LIBRARY = torch.library.Library("tir", "DEF")
SCHEMA = (
    "{name}(Tensor input, {states} hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first) -> ({results})"
)


def keep_recurrences(module: GraphModule) -> None:
    """Put operators of `tir` in place of a module's recurrences, but for those of packed sequences."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in STATES and len(node.args) > 2 and isinstance(node.args[2], list | tuple):
            node.target = getattr(torch.ops.tir, node.target.__name__).default
    module.recompile()


def _types(x: torch.Tensor, initial: Any, *others: Any) -> tuple[torch.Tensor, ...]:
    """Tensors like the results: the states of all steps, and the last ones."""
    states = initial if isinstance(initial, list | tuple) else (initial,)
    bidirectional = others[5]
    y = x.new_empty(*x.shape[:-1], states[0].shape[-1] * (1 + bidirectional))
    return y, *(s.new_empty(s.shape) for s in states)


for function, count in STATES.items():
    name = function.__name__
    results = ", ".join(["Tensor"] * (1 + count))
    LIBRARY.define(SCHEMA.format(name=name, states="Tensor[]" if count > 1 else "Tensor", results=results))
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tir::{name}", _types, lib=LIBRARY)
