"""Batch normalisation after a convolution goes into its weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import Call, Graph, Value, constant, fresh


def fold_batch_norm(graph: Graph) -> Graph:
    """With constant weights and statistics, a convolution that only a batch normalisation reads takes it in:

        (conv(x, W) + b - mean) * f + beta  =  conv(x, W f) + ((b - mean) * f + beta),  f = scale / sqrt(variance + epsilon)

    f scales each output channel of W. It is computed in float64 and rounded once.
    """
    producers, consumers = graph.producers(), graph.consumers()
    constants = dict(graph.constants)
    taken = {v.name for c in graph.calls for v in c.outputs} | {v.name for v in graph.inputs} | set(constants)
    gone: set[Value] = set()
    calls: dict[Value, Call] = {c.outputs[0]: c for c in graph.calls}
    for norm in graph.calls:
        conv = producers.get(norm.values[0]) if norm.operator == "BatchNormalization" else None
        if conv is None or conv.operator != "Conv" or consumers[conv.outputs[0]] != [norm] or conv.outputs[0] in graph.outputs:
            continue
        if not all(v.name in constants for v in (*conv.values[1:], *norm.values[1:])):
            continue
        weight, *bias = (constants[v.name].astype(np.float64) for v in conv.values[1:])
        scale, beta, mean, variance = (constants[v.name].astype(np.float64) for v in norm.values[1:])
        factor = scale / np.sqrt(variance + norm.attribute("epsilon", 1e-5))
        folded = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
        shift = ((bias[0] if bias else 0.0) - mean) * factor + beta
        dtype, named = conv.values[1].dtype, norm.outputs[0].name
        inputs = [conv.values[0]]
        for what, array in (("weight", folded), ("bias", shift)):
            name = fresh(taken, f"{named}_{what}")
            taken.add(name)
            constants[name] = array.astype(dtype)
            inputs.append(constant(name, constants[name]))
        calls[norm.outputs[0]] = replace(conv, inputs=tuple(inputs), outputs=norm.outputs)
        gone.add(conv.outputs[0])
    if not gone:
        return graph
    kept = tuple(c for value, c in calls.items() if value not in gone)
    return graph.with_(calls=kept, constants=constants)
