"""Recurrent layers of torch, by those of ONNX, whose gates are in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from ...ir import Value
from ...ops.registry import Apply
from .moving import reshaped
from .types import aten

GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # torch's numbers of ONNX's gates, in order


def recurrence(
    apply: Apply, operator: str, x: Value, initial: Sequence[Value], weights: Sequence[Value], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, **attributes: Any,
) -> tuple[Value, ...]:  # fmt: skip
    """The states (T, N, directions H) of all steps of the last layer, and the last states (layers directions, N, H) of each kind.

    `weights` are those of inputs and of states, and their biases, of each direction of each layer.
    """
    directions, each = 1 + bidirectional, 4 if has_biases else 2
    if train and dropout:
        raise ValueError("dropout in training is not supported")
    if len(weights) != each * directions * num_layers:
        raise ValueError("a projection of states is not supported")
    if batch_first:
        x = apply("Transpose", x, perm=(1, 0, 2))
    last: list[list[Value]] = [[] for _ in initial]
    for layer in range(num_layers):
        begin = directions * layer
        own = [weights[each * n : each * (n + 1)] for n in range(begin, begin + directions)]
        w, r = (_stacked(apply, [_gates(apply, direction[n], operator) for direction in own]) for n in range(2))
        b = None
        if has_biases:
            both = [apply("Concat", *(_gates(apply, v, operator) for v in direction[2:]), axis=0) for direction in own]
            b = _stacked(apply, both)
        states = [apply("Slice", s, starts=(begin,), ends=(begin + directions,), axes=(0,)) for s in initial]
        named = {"direction": "bidirectional" if bidirectional else "forward", **attributes}
        y, *ends = apply(operator, x, w, r, b, None, *states, **named)
        for found, end in zip(last, ends, strict=True):
            found.append(end)
        steps, _, rows, units = y.shape
        x = reshaped(apply, apply("Transpose", y, perm=(0, 2, 1, 3)), (steps, rows, directions * units))
    y = apply("Transpose", x, perm=(1, 0, 2)) if batch_first else x
    return y, *(apply("Concat", *found, axis=0) if num_layers > 1 else found[0] for found in last)


def _gates(apply: Apply, x: Value, operator: str) -> Value:
    """Weights of gates, one after the other, in ONNX's order."""
    order = GATES[operator]
    if len(order) == 1:
        return x
    units = x.shape[0] // len(order)
    ends = list(pairwise(range(0, x.shape[0] + 1, units)))
    return apply("Concat", *(apply("Slice", x, starts=ends[n][:1], ends=ends[n][1:], axes=(0,)) for n in order), axis=0)


def _stacked(apply: Apply, parts: Sequence[Value]) -> Value:
    rows = [reshaped(apply, v, (1, *v.shape)) for v in parts]
    return apply("Concat", *rows, axis=0) if len(rows) > 1 else rows[0]


def _of_one_state(operator: str, **attributes: Any) -> Callable[..., tuple[Value, ...]]:
    return lambda apply, x, initial, *others: recurrence(apply, operator, x, [initial], *others, **attributes)


@aten("lstm.input", "tir.lstm")
def lstm(apply, x, initial, weights, *others):
    return recurrence(apply, "LSTM", x, initial, weights, *others)


for name, define in {
    "gru": _of_one_state("GRU", linear_before_reset=1),
    "rnn_tanh": _of_one_state("RNN"),
    "rnn_relu": lambda apply, x, initial, weights, has_biases, layers, dropout, train, bidirectional, batch_first: recurrence(
        apply, "RNN", x, [initial], weights, has_biases, layers, dropout, train, bidirectional, batch_first,
        activations=("Relu",) * (1 + bidirectional),
    ),
}.items():  # fmt: skip
    aten(f"{name}.input", f"tir.{name}")(define)
