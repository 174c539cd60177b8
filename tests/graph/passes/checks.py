"""Graphs that passes are applied to, and what is asserted of all."""

from __future__ import annotations

import numpy as np
from onnx import helper

from graph.ir import verify
from graph.onnx import load_onnx
from graph.passes.check import widened
from graph.reference import evaluate
from tests.graph.models import model, same_outputs
from tir import dtypes

HALVES = ("float16", "bfloat16")
RNG = np.random.default_rng(0)


def real(*shape, low=-2.0):
    return RNG.uniform(low, 2, shape)


def check(run, nodes, inputs, outputs, operators, constants=None, roundings=0, opset=18):
    """A pass leaves these operators, a well-formed graph, and what it computes. Of the constants those are there that are read."""
    read = {name for n in nodes for name in n.input}
    given = {name: array for name, array in (constants or {}).items() if name in read}
    before = load_onnx(model(nodes, inputs, outputs, given, opset))
    after = verify(run(before))
    assert [c.operator for c in after.calls] == operators
    assert after.inputs == before.inputs and after.outputs == before.outputs
    same_outputs(before, after, inputs, roundings)
    return after


def check_halves(run, nodes, inputs, operators, constants, dtype):
    """A pass on a network of halves leaves these operators (None: all), and what it computes, but for the rounding of factors."""
    read = {name for n in nodes for name in n.input}
    given = {name: np.asarray(array, np.dtype(dtype)) for name, array in constants.items() if name in read}
    narrow = {name: array.astype(np.dtype(dtype)) for name, array in inputs.items()}
    before = load_onnx(model(nodes, narrow, [nodes[-1].output[0]], given))
    after = verify(run(before))
    assert [c.operator for c in after.calls] == (operators or [c.operator for c in before.calls])
    assert {v.dtype for c in after.calls for v in (*c.values, *c.outputs)} == {dtype}
    found, wanted = (evaluate(*widened(g, narrow))[0] for g in (after, before))
    assert np.abs(found - wanted).max() <= 8 * dtypes.unit(dtype) * np.abs(wanted).max() < np.abs(wanted).max()
    return after


def chain(*steps, output="y"):
    """Nodes of steps "Operator input other", each the input `_` of the next, `-` one that is left out; attributes in a
    dict after it."""
    nodes, last = [], "x"
    for n, step in enumerate(steps):
        (text, attributes) = step if isinstance(step, tuple) else (step, {})
        operator, *inputs = text.split()
        made = output if n == len(steps) - 1 else f"s{n}"
        inputs = [{"_": last, "-": ""}.get(i, i) for i in inputs]
        nodes.append(helper.make_node(operator, inputs, [made], **attributes))
        last = made
    return nodes


NUMBERS = {
    name: np.array(value)
    for name, value in {
        "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "root": np.sqrt(2), "inverse": np.sqrt(0.5),
        "cubic": 0.044715, "pi": np.sqrt(2 / np.pi), "zero": 0.0, "minus": -0.5, "tiny": 2.0**-16,
    }.items()
}  # fmt: skip
CONV = ("Conv _ w b", {"pads": [1, 1, 1, 1]})
NORMED = ("BatchNormalization _ s o m v", {"epsilon": 0.01})
WEIGHTS = {
    "w": real(5, 3, 3, 3), "b": real(5), "s": real(5), "o": real(5), "m": real(5), "v": real(5, low=0.1),
    "factor": real(5, 1, 1), "same": real(1), "row": real(7), "plane": real(7, 5),
}  # fmt: skip
X = {"x": real(2, 4, 3, 7)}
