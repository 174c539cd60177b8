"""One form of what can be written in several."""

from __future__ import annotations

import numpy as np
import pytest

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import NUMBERS, X, chain, check, real


@pytest.mark.parametrize(("what", "operators", "opset"), [
    (node("GlobalAveragePool", "x", "y"), ["ReduceMean"], 18),
    (node("AveragePool", "x", "y", kernel_shape=[3, 7]), ["ReduceMean"], 18),
    (node("AveragePool", "x", "y", kernel_shape=[3, 5]), ["AveragePool"], 18),
    (node("ReduceMax", "x", "y", axes=[1], keepdims=0), ["ReduceMax", "Reshape"], 13),
    (node("Softmax", "x", "y", axis=3), ["Softmax"], 11),
    (node("Softmax", "x", "y", axis=2), ["Reshape", "Softmax", "Reshape"], 11),
    (node("Sum", "x x", "y"), ["Add"], 18),
    (node("Max", "zero x", "y"), ["Relu"], 18),
    (node("Max", "x two", "y"), ["Max"], 18),
    (node("Clip", "x zero", "y"), ["Relu"], 18),
    (node("Div", "x two", "y"), ["Mul"], 18),
    (node("Div", "x three", "y"), ["Mul"], 18),
    (node("Div", "x zero", "y"), ["Div"], 18),
    (node("Div", "three x", "y"), ["Div"], 18),
])  # fmt: skip
def test_forms(what, operators, opset):
    roundings = 2 if operators == ["Mul"] else 0
    check(passes.canonicalise, [what], X, ["y"], operators, NUMBERS, roundings, opset)


@pytest.mark.parametrize(("steps", "operators"), [
    (["Conv _ pixel", "Relu _"], ["Reshape", "MatMul", "Reshape", "Relu"]),
    ([("Conv _ pixel", {"pads": [1, 1, 1, 1]})], ["Conv"]),
    (["Conv _ small"], ["Conv"]),
    (["Conv _ pixel zeros", "Relu _"], ["Reshape", "MatMul", "Reshape", "Relu"]),
    (["Conv _ small zeros"], ["Conv"]),
    (["Pad _ around", ("Conv _ small", {"pads": [0, 1, 2, 0]})], ["Conv"]),
    (["Pad _ around one", "Conv _ small"], ["Pad", "Conv"]),
    (["Pad _ channels", "Conv _ wider"], ["Pad", "Conv"]),
    ([("Pad _ around", {"mode": "edge"}), "Conv _ small"], ["Pad", "Conv"]),
    (["Expand row shape", "Add _ x"], ["Add"]),
    (["Expand row shape", "Add _ two"], ["Expand", "Add"]),
])  # fmt: skip
def test_forms_of_several_calls(steps, operators):
    constants = NUMBERS | {"pixel": real(5, 4, 3, 7), "small": real(5, 4, 1, 1), "shape": np.array([4, 3, 7])}
    constants |= {"zeros": np.zeros(5), "around": np.array([0, 0, 1, 2, 0, 0, 0, 3]), "wider": real(5, 5, 1, 1)}
    constants["channels"] = np.array([0, 1, 0, 0, 0, 0, 0, 0])
    inputs = X | ({"row": real(7)} if "row" in str(steps) else {})
    check(passes.canonicalise, chain(*steps), inputs, ["y"], operators, constants, roundings=4 * 84)


@pytest.mark.parametrize(("attributes", "kernel", "left"), [
    ({"dilations": [4, 8], "pads": [4, 8, 4, 8]}, (3, 3), (1, 1)),  # all but the one in the middle
    ({"dilations": [2, 3], "pads": [2, 3, 2, 3]}, (3, 3), (3, 3)),  # all meet something
    ({"dilations": [3, 1], "pads": [6, 0, 0, 0]}, (3, 2), (1, 2)),  # the last tap alone
    ({"dilations": [3, 1], "pads": [0, 0, 6, 0]}, (3, 2), (1, 2)),  # the first
    ({"dilations": [1, 4], "strides": [1, 5], "pads": [0, 9, 0, 4]}, (1, 4), (1, 3)),  # in the image at a stride
    ({"dilations": [3, 6], "auto_pad": "SAME_UPPER"}, (3, 3), (1, 3)),
    ({"dilations": [1, 7], "pads": [0, 8, 0, 7], "strides": [1, 9]}, (1, 3), (1, 2)),  # cut to where a window begins
    ({"pads": [3, 3, 3, 3], "dilations": [9, 9], "group": 2}, (1, 1), (1, 1)),
])  # fmt: skip
def test_taps_that_meet_padding_alone(attributes, kernel, left):
    constants = {"w": real(6, 4 // attributes.get("group", 1), *kernel), "b": real(6)}
    after = check(passes.canonicalise, chain(("Conv _ w b", attributes)), X, ["y"], ["Conv"], constants, roundings=4 * 4 * 9)
    assert after.calls[0].values[1].shape[2:] == left


def test_expanded_scales_stay_where_the_operator_wants_all_of_them():
    inputs = {"x": real(3, 4), "one": real(1)}
    constants = {"four": np.array([4]), "row": real(4, low=0.5)}
    nodes = chain("Expand one four", "BatchNormalization x _ row row row")
    check(passes.canonicalise, nodes, inputs, ["y"], ["Expand", "BatchNormalization"], constants)


@pytest.mark.parametrize(("shape", "step", "operators"), [
    ((2, 4, 3, 7), "MatMul _ w", ["Reshape", "MatMul", "Reshape"]),
    ((3, 7), "MatMul _ w", ["MatMul"]),
    ((3, 7), "Gemm _ w row", ["MatMul", "Add"]),
    ((3, 7), "Gemm _ w", ["MatMul"]),
    ((3, 7), ("Gemm _ t row", {"transB": 1}), ["MatMul", "Add"]),
    ((3, 7), ("Gemm _ w row", {"beta": 0.5}), ["Gemm"]),
    ((7, 3), ("Gemm _ w", {"transA": 1}), ["Gemm"]),
    ((7, 5), "Gemm w _", ["Gemm"]),
])  # fmt: skip
def test_forms_of_products(shape, step, operators):
    given = {"w": real(3, 7) if step == "Gemm w _" else real(7, 5), "t": real(5, 7), "row": real(5)}
    check(passes.canonicalise, chain(step), {"x": real(*shape)}, ["y"], operators, given, roundings=4 * 8)


def test_quotients_whose_inverse_is_inexact_stay():
    """1 / 40000 has 10 bits less as a half than other numbers: it lies below the least normal one."""
    x, wide = np.array([30000, 7], "float16"), np.array(40000, "float16")
    check(passes.canonicalise, chain("Div _ wide"), {"x": x}, ["y"], ["Div"], {"wide": wide})
