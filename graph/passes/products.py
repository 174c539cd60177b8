"""Products of one operand with several constant matrices become one product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..ir import Call, Graph, Value
from ..ops import definition
from .rewriting import Rewriting, other, rewrite


@dataclass(frozen=True)
class MergeableProduct:
    """A product with a constant matrix, plus a constant row if it has a `bias`; `result` is their value."""

    calls: tuple[Call, ...]
    weight: Value
    bias: Value | None
    result: Value


def merge_products(graph: Graph) -> Graph:
    """x W1 + b1 and x W2 + b2 become parts of x (W1 | W2) + (b1 | b2), where their readers only move them, as the queries, keys
    and values of attention. Readers that compute would no longer be in one kernel with the product."""
    consumers = graph.consumers()
    merged: dict[Call, list[MergeableProduct]] = {}  # by the first call of them
    gone: set[Call] = set()
    for value, calls in consumers.items():
        parts = [p for c in calls if c.inputs[0] == value and (p := _mergeable(graph, consumers, c)) is not None]
        if len(parts) > 1:
            merged[parts[0].calls[0]] = parts
            gone |= {c for p in parts for c in p.calls}

    def rule(r: Rewriting, call: Call) -> list[Call] | None:
        return _merged(r, merged[call]) if call in merged else [] if call in gone else None

    return rewrite(graph, rule)


def _mergeable(graph: Graph, consumers: Mapping[Value, list[Call]], call: Call) -> MergeableProduct | None:
    """A call as a product that may be merged with others; None where it is none."""
    weight = call.inputs[1] if call.operator == "MatMul" else None
    if weight is None or weight.name not in graph.constants or len(weight.shape) != 2:
        return None
    calls, bias = [call], None
    match consumers.get(call.outputs[0], []):
        case [Call("Add") as added]:
            bias = other(added.inputs, call.outputs[0])
            row = bias is not None and (bias.shape[-1:], prod(bias.shape)) == (weight.shape[1:], weight.shape[1])
            if bias is None or not row or bias.name not in graph.constants or added.outputs[0].shape != call.outputs[0].shape:
                return None
            calls.append(added)
    made = {c.outputs[0] for c in calls}
    moved = consumers.get(calls[-1].outputs[0], [])
    fits = moved and all(definition(c).moves for c in moved) and not made & set(graph.outputs)
    return MergeableProduct(tuple(calls), weight, bias, calls[-1].outputs[0]) if fits else None


def _merged(r: Rewriting, parts: Sequence[MergeableProduct]) -> list[Call]:
    """One product, the sum with its bias, and the split into its parts."""
    name, axis = parts[0].result.name, len(parts[0].result.shape) - 1
    weight = r.constant(np.concatenate([r.constants[p.weight.name] for p in parts], axis=1), name=f"{name}_weights")
    calls = [r.call("MatMul", [parts[0].calls[0].inputs[0], weight], f"{name}_parts")]
    if any(p.bias is not None for p in parts):
        rows = [
            np.zeros(p.weight.shape[1:], weight.dtype) if p.bias is None else r.constants[p.bias.name].reshape(-1) for p in parts
        ]
        bias = r.constant(np.concatenate(rows), name=f"{name}_biases")
        calls.append(r.call("Add", [calls[0].outputs[0], bias], f"{name}_sums"))
    sizes = tuple(p.weight.shape[1] for p in parts)
    return [*calls, r.call("Split", calls[-1].outputs, [p.result for p in parts], axis=axis, split=sizes)]
