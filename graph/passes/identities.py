"""Removal of calls that change nothing, and of views of views."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tir import dtypes

from ..ir import Call, Graph, Value
from ..kinds import copies
from ..ops import definition

WIDE_FLOATS = ("float32", "float64")  # types whose sums are made in the type itself, so that they are not rounded once more


def remove_identities(graph: Graph) -> Graph:
    """Read through every call whose output is its input, and make every other view one Reshape of a value that is no view.

    A call that makes an output of the graph stays, since the output keeps its name; so does x + 0 where x may be -0, as it makes
    that 0.
    """
    producers = graph.producers()
    same: dict[Value, Value] = {}
    viewed: dict[Value, Value] = {}  # the source of each view
    calls = []
    for call in graph.calls:
        call = call.with_inputs(same)
        (first, *others), result = call.inputs or (None,), call.outputs[0]
        if first is not None and definition(call).view and first.dtype == result.dtype:
            source = viewed.get(first, first)
            call = Call("Reshape", (source,), call.outputs, (("shape", result.shape),))
            viewed[result] = first = source
        if any(others):
            first = _given_back(graph, call, lambda v: _starts_at_zero(producers.get(viewed.get(v, v))))
        if first is not None and result not in graph.outputs and (any(others) or copies(call, first)):
            same[result] = first
        else:
            calls.append(call)
    return graph.with_(calls=tuple(calls))


def _given_back(graph: Graph, call: Call, starts_at_zero: Callable[[Value], bool]) -> Value | None:
    """The operand that a call of two gives back, as the other one is a neutral constant; None for other calls."""
    if (neutral := definition(call).neutral) is None:
        return None
    for operand, constant in zip(call.inputs, call.inputs[::-1], strict=True):
        array = None if constant is None else graph.constants.get(constant.name)
        if operand is None or array is None or operand.shape != call.outputs[0].shape:
            continue
        if operand != call.inputs[0] and not definition(call).commutative:
            continue
        exact = neutral or not dtypes.is_float(operand.dtype) or (np.signbit(array) == np.signbit(neutral)).all()
        if (array == neutral).all() and (exact or starts_at_zero(operand)):
            return operand
    return None


def _starts_at_zero(call: Call | None) -> bool:
    """True where a call makes sums, which begin with 0 and so are never -0; where they are rounded once more they may be."""
    return call is not None and definition(call).sums and call.outputs[0].dtype in WIDE_FLOATS
