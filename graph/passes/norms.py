"""Recognition of softmax and the norms of rows by their steps."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tir import dtypes

from ..ir import Call, Value, rounded
from .rewriting import Rewriting, each_call, other


@each_call
def recognise_norms(r: Rewriting, call: Call) -> Value | list[Call] | None:
    """The steps of a softmax, a layer norm or an RMS norm become one call, with the scale and the shift that follow:

    exp(x - max(x)) / sum(exp(x - max(x)))                          Softmax
    (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon)           LayerNormalization, along the last axes
    x / sqrt(mean(x^2) + epsilon)                                   RMSNormalization, along the last axes
    """
    if not dtypes.is_float(call.outputs[0].dtype):
        return None
    softmax = _softmax(r, call) if call.operator == "Div" else None
    norm = _norm(r, call) if softmax is None and call.operator in ("Div", "Mul") else softmax
    return _scaled_norm(r, call) if norm is None else norm


# --- softmax ---------------------------------------------------------------------------------------------------------------


def _softmax(r: Rewriting, call: Call) -> Value | None:
    power, total = call.values if len(call.values) == 2 else (None, None)
    reduction, exponential = r.producer(total, "ReduceSum"), r.producer(power, "Exp")
    if reduction is None or exponential is None or reduction.values[0] != power:
        return None
    if (top := _subtracted(r, exponential.values[0], "ReduceMax")) is None:
        return None
    axes = [_axes(c) for c in (reduction, top)]
    if axes[0] is None or axes[0] != axes[1] or len(axes[0]) != 1:
        return None
    return r("Softmax", top.values[0], axis=axes[0][0])


def _subtracted(r: Rewriting, value: Value, reduction: str) -> Call | None:
    """The reduction of x, if a value is x less that."""
    difference = r.producer(value, "Sub")
    found = None if difference is None else r.producer(difference.inputs[1], reduction)
    return found if found is not None and difference is not None and found.values[0] == difference.values[0] else None


def _axes(reduction: Call) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the front, if it keeps them; else None."""
    rank, axes = len(reduction.values[0].shape), reduction.attribute("axes")
    if not reduction.attribute("keepdims", 1) or (not axes and reduction.attribute("noop_with_empty_axes", 0)):
        return None
    return tuple(sorted(a % rank for a in axes)) if axes else tuple(range(rank))


# --- norms -----------------------------------------------------------------------------------------------------------------


def _norm(r: Rewriting, call: Call) -> Value | None:
    """A value over the root of the mean of its squares, as a norm without a scale."""
    for centred, divisor in _quotients(r, call):
        mean = _mean_square(r, divisor, centred)
        if mean is None:
            continue
        square, epsilon = mean
        axes, shape = _axes(square), centred.shape
        if axes is None or axes != tuple(range(axes[0], len(shape))) or shape != call.outputs[0].shape:
            continue
        mean_of = _subtracted(r, centred, "ReduceMean")
        x = mean_of.values[0] if mean_of is not None and _axes(mean_of) == axes else None
        dtype = call.outputs[0].dtype
        ones = r.constant(rounded(np.ones(shape[axes[0] :]), dtype), name=f"{call.outputs[0].name}_scale")
        operator = "RMSNormalization" if x is None else "LayerNormalization"
        return r(operator, centred if x is None else x, ones, axis=axes[0] - len(shape), epsilon=epsilon)
    return None


def _quotients(r: Rewriting, call: Call) -> list[tuple[Value, Value]]:
    """Pairs of a value and the operand of a square root, one for each reading of a call as their quotient."""
    found = []
    for a, b in [call.values, call.values[::-1]] if len(call.values) == 2 else []:
        if call.operator == "Mul":
            inverse = r.producer(b, "Reciprocal", "Div", "Pow")
            if inverse is not None and inverse.operator == "Pow":
                found += [(a, inverse.values[0])] if r.number(inverse.values[-1]) == -0.5 else []
                continue
            if inverse is None or (inverse.operator == "Div" and r.number(inverse.inputs[0]) != 1):
                continue
            b = inverse.values[-1]
        elif (a, b) != call.values:
            continue
        root = r.producer(b, "Sqrt")
        if root is not None:
            found.append((a, root.values[0]))
    return found


def _mean_square(r: Rewriting, value: Value, of: Value) -> tuple[Call, float] | None:
    """The mean and the epsilon of a value that is the mean of another's squares, plus epsilon; None for other values."""
    added = r.producer(value, "Add")
    for mean, epsilon in [added.values, added.values[::-1]] if added is not None and len(added.values) == 2 else []:
        number, call = r.number(epsilon), r.producer(mean, "ReduceMean")
        square = None if call is None else r.producer(call.values[0], "Mul", "Pow")
        if number is None or call is None or square is None or square.inputs[0] != of:
            continue
        if square.values[-1] == of if square.operator == "Mul" else r.number(square.values[-1]) == 2:
            return call, number
    return None


def _scaled_norm(r: Rewriting, call: Call) -> list[Call] | None:
    """A product or a sum with numbers after a norm, as its scale or its shift."""
    norm = next((n for v in call.values if (n := r.producer(v, "LayerNormalization", "RMSNormalization")) is not None), None)
    if call.operator not in ("Mul", "Add") or norm is None or len(norm.outputs) > 1 or not r.read_once(norm.outputs[0]):
        return None
    factor, x, (scale, *bias) = other(call.inputs, norm.outputs[0]), norm.values[0], norm.values[1:]
    if factor is None or call.outputs[0].shape != x.shape or prod(factor.shape) != prod(scale.shape):
        return None
    if factor.shape[-len(scale.shape) :] != scale.shape:
        return None
    array, old = r.known(factor), [r.known(v) for v in (scale, *bias)]
    if array is None or any(a is None for a in old):
        return None
    new, name = array.reshape(scale.shape), call.outputs[0].name
    if call.operator == "Mul":
        numbers = [a * new for a in old if a is not None]
    elif norm.operator == "RMSNormalization":
        return None
    else:
        numbers = [a for a in old[:1] if a is not None] + [sum((a for a in old[1:] if a is not None), new)]
    constants = [r.constant(a, name=f"{name}_{what}") for what, a in zip(("scale", "shift"), numbers, strict=False)]
    return [replace(norm, inputs=(x, *constants), outputs=call.outputs)]
