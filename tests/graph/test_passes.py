"""Each pass: what it leaves, and that the graph computes the same as before."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from onnx import TensorProto, helper

from graph import passes
from graph.ir import Call, Graph, GraphError, Value, verify
from graph.onnx import load_onnx
from graph.ops import result_types
from graph.passes.check import check_passes, widened
from graph.reference import evaluate, remembering, run_call

from .models import close, model, residual, same_outputs, transformer

RNG = np.random.default_rng(0)


def real(*shape, low=-2.0):
    return RNG.uniform(low, 2, shape)


def check(run, nodes, inputs, outputs, operators, constants=None, roundings=0, opset=18):
    """A pass leaves these operators, a well-formed graph, and what it computes."""
    before = load_onnx(model(nodes, inputs, outputs, constants, opset))
    after = verify(run(before))
    assert [c.operator for c in after.calls] == operators
    assert after.inputs == before.inputs and after.outputs == before.outputs
    same_outputs(before, after, inputs, roundings)
    return after


def node(operator, inputs, output, **attributes):
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def test_identities():
    nodes = [
        node("Identity", "x", "a"), node("Dropout", "a", "b"), node("Relu", "b", "c"), node("Reshape", "c s", "d"),
        node("Unsqueeze", "d zero", "e"), node("Cast", "e", "f", to=11), node("Transpose", "f", "g", perm=[0, 1]),
        node("Flatten", "f", "h"), node("Squeeze", "e zero", "i"), node("Neg", "i", "y"), node("Exp", "h", "z"),
    ]  # fmt: skip
    nodes = [n for n in nodes if n.op_type != "Transpose"]
    constants = {"s": np.array([21]), "zero": np.array([0])}
    after = check(
        passes.remove_identities,
        nodes,
        {"x": real(3, 7)},
        ["y", "z"],
        ["Relu", "Reshape", "Reshape", "Reshape", "Reshape", "Neg", "Exp"],
        constants,
    )
    views = [c for c in after.calls if c.operator == "Reshape"]
    assert {c.values[0].name for c in views} == {"c"}, "each is a view of what was computed"
    after = check(
        lambda g: passes.remove_unread(passes.remove_identities(g)),
        nodes,
        {"x": real(3, 7)},
        ["y", "z"],
        ["Relu", "Reshape", "Reshape", "Neg", "Exp"],
        constants,
    )


@pytest.mark.parametrize(
    "what",
    [
        node("Transpose", "x", "a", perm=[0, 1, 2]), node("Concat", "x", "a", axis=1), node("Sum", "x", "a"),
        node("Cast", "x", "a", to=11), node("Expand", "x ones", "a"), node("Slice", "x zero high", "a"), node("Pad", "x none", "a"),
    ],
    ids=lambda n: n.op_type,
)  # fmt: skip
def test_what_changes_nothing(what):
    constants = {"ones": np.array([1, 1, 1]), "zero": np.array([0]), "high": np.array([99]), "none": np.zeros(6, "int64")}
    check(passes.remove_identities, [what, node("Relu", "a", "y")], {"x": real(3, 5, 3)}, ["y"], ["Relu"], constants)


@pytest.mark.parametrize("step", ["Add _ zeros", "Add zeros _", "Sub _ zeros", "Mul _ ones", "Mul ones _", "Div _ ones"])
def test_neutral_operands(step):
    constants = {"zeros": np.full((5, 1), 0.0 if "Sub" in step else -0.0), "ones": np.ones((3, 5, 3))}
    given = {k: a for k, a in constants.items() if k in step}
    check(passes.remove_identities, chain(step, "Relu _"), {"x": real(3, 5, 3)}, ["y"], ["Relu"], given)


@pytest.mark.parametrize("step", ["Sub zeros _", "Div ones _", "Add _ ones", "Add _ wide", "Add _ zeros", "Sub _ minus"])
def test_operands_that_are_not_neutral(step):
    constants = {
        "zeros": np.zeros((5, 1)), "ones": np.ones((3, 5, 3)), "wide": np.full((2, 3, 5, 3), -0.0), "minus": np.full((5, 1), -0.0),
    }  # fmt: skip
    given = {k: a for k, a in constants.items() if k in step}
    check(passes.remove_identities, chain(step, "Relu _"), {"x": real(3, 5, 3)}, ["y"], [step.split()[0], "Relu"], given)


@pytest.mark.parametrize(
    ("dtype", "operators"), [("float32", ["MatMul", "Reciprocal"]), ("float16", ["MatMul", "Add", "Reciprocal"])]
)
def test_zero_added_to_what_may_be_negative_zero(dtype, operators):
    """A sum begins with 0, so it is -0 only where it is rounded once more: of float16 in which the product below is too small."""
    x, w = np.full((3, 1), 6e-8, dtype), np.full((1, 5), -0.25, dtype)
    steps = chain("MatMul _ w", "Add _ zeros", "Reciprocal _")
    check(passes.remove_identities, steps, {"x": x}, ["y"], operators, {"w": w, "zeros": np.zeros(5, dtype)})


@pytest.mark.parametrize(
    "what",
    [
        node("Transpose", "x", "a"),
        node("Slice", "x last lowest zero minus", "a"),
        node("Sum", "x x", "a"),
        node("Relu", "x", "a"),
    ],
    ids=lambda n: n.op_type,
)
def test_what_changes_something(what):
    constants = {"last": np.array([-1]), "lowest": np.array([-99]), "zero": np.array([0]), "minus": np.array([-1])}
    check(passes.remove_identities, [what, node("Neg", "a", "y")], {"x": real(3, 5, 3)}, ["y"], [what.op_type, "Neg"], constants)


def test_an_identity_that_is_an_output_stays():
    check(
        passes.remove_identities, [node("Relu", "x", "a"), node("Identity", "a", "y")], {"x": real(3)}, ["y"], ["Relu", "Reshape"]
    )


def test_powers():
    nodes = [node("Pow", "x two", "a"), node("Pow", "a three", "b"), node("Pow", "b half", "c"), node("Pow", "c odd", "y")]
    constants = {"two": np.array(2.0), "three": np.array([3.0]), "half": np.array(0.5), "odd": np.array(1.7)}
    x = {"x": real(3, 5, low=0.5)}
    check(passes.expand_powers, nodes, x, ["y"], ["Mul", "Mul", "Mul", "Pow", "Pow"], constants, roundings=64)
    check(passes.expand_powers, [node("Pow", "x wide", "y")], x, ["y"], ["Pow"], {"wide": np.full((1, 1, 1), 2.0)})
    check(passes.expand_powers, [node("Pow", "x twos", "y")], x, ["y"], ["Pow"], {"twos": np.full(5, 2.0)})


NORM = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c s o m v", "n", epsilon=0.01)]
STATISTICS = {"w": real(5, 3, 3, 3), "b": real(5), "s": real(5), "o": real(5), "m": real(5), "v": real(5, low=0.1)}


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


CONV = ("Conv _ w b", {"pads": [1, 1, 1, 1]})
NORMED = ("BatchNormalization _ s o m v", {"epsilon": 0.01})
WEIGHTS = {
    "w": real(5, 3, 3, 3), "b": real(5), "s": real(5), "o": real(5), "m": real(5), "v": real(5, low=0.1),
    "factor": real(5, 1, 1), "same": real(1), "row": real(7), "plane": real(7, 5),
}  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        [CONV, NORMED],
        [("Conv _ w", {"pads": [1, 1, 1, 1]}), NORMED],
        [CONV, "Mul factor _", "Add _ factor"],
        [("Conv _ w", {"pads": [1, 1, 1, 1]}), "Sub factor _", "Div _ same"],
        [CONV, "Sub _ same", NORMED, "Mul _ same"],
    ],
)
def test_affine_after_convolutions(steps):
    nodes = chain(*steps, "Relu _")
    after = check(passes.fold_affine, nodes, {"x": real(2, 3, 7, 5)}, ["y"], ["Conv", "Relu"], WEIGHTS, roundings=4 * 27)
    assert after.calls[0].attribute("pads") == (1, 1, 1, 1) and after.calls[0].outputs[0].name == f"s{len(steps) - 1}"


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
        (["MatMul _ m", "Mul _ row"], ["MatMul"]),
        (["MatMul _ m", "Add row _", "Mul _ row", "Add _ same"], ["MatMul", "Add"]),
        (["MatMul _ m", "Add _ row"], ["MatMul", "Add"]),
        (["MatMul _ m", "Add _ deep", "Mul _ row"], ["MatMul", "Add", "Mul"]),
        ([("Gemm _ m row", {"beta": 0.5, "alpha": 2.0}), "Mul _ row", "Add _ row"], ["Gemm"]),
        ([("Gemm _ t", {"transB": 1}), ("BatchNormalization _ row row row square", {"epsilon": 0.01})], ["Gemm"]),
    ],
)
def test_affine_after_products(steps, operators):
    constants = {"m": real(4, 7), "t": real(7, 4), "row": WEIGHTS["row"], "same": WEIGHTS["same"], "square": WEIGHTS["row"] ** 2}
    constants["deep"] = real(1, 1, 7)
    given = {k: a for k, a in constants.items() if any(k in str(step) for step in steps)}
    check(passes.fold_affine, chain(*steps), {"x": real(3, 4)}, ["y"], operators, given, roundings=64)


def test_affine_that_stays():
    x, conv = {"x": real(2, 3, 7, 5)}, ["Conv", "Mul", "Add", "Relu"]
    nodes = chain(CONV, NORMED, "Relu _")
    check(passes.fold_affine, nodes, x, ["y", "s0"], conv, WEIGHTS, roundings=64)
    check(passes.fold_affine, [*nodes, node("Neg", "s0", "z")], x, ["y", "z"], [*conv, "Neg"], WEIGHTS, roundings=64)
    check(passes.fold_affine, chain(CONV, "Mul _ plane"), x, ["y"], ["Conv", "Mul"], WEIGHTS)
    check(passes.fold_affine, chain("Relu _", NORMED), {"x": real(2, 5, 7)}, ["y"], ["Relu", "Mul", "Add"], WEIGHTS, roundings=16)
    scale = {"s": WEIGHTS["s"]}
    others = {name: a for name, a in WEIGHTS.items() if name != "s"}
    check(passes.fold_affine, nodes, x | scale, ["y"], ["Conv", "BatchNormalization", "Relu"], others)


NUMBERS = {
    name: np.array(value)
    for name, value in {
        "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "root": np.sqrt(2), "inverse": np.sqrt(0.5),
        "cubic": 0.044715, "pi": np.sqrt(2 / np.pi), "zero": 0.0, "minus": -0.5, "tiny": 2.0**-16,
    }.items()
}  # fmt: skip
CUBE = ["Mul x x", "Mul _ x"]
TANH = [*CUBE, "Mul _ cubic", "Add x _", "Mul _ pi", "Tanh _", "Add _ one"]


@pytest.mark.parametrize(
    ("steps", "operator"),
    [
        (["Div _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ half"], "Gelu"),
        (["Mul _ inverse", "Erf _", "Add one _", "Mul half _", "Mul _ x"], "Gelu"),
        (["Div _ root", "Erf _", "Mul _ x", "Add _ x", "Div _ two"], "Gelu"),
        ([*TANH, "Mul x _", "Mul _ half"], "Gelu"),
        ([*TANH, "Mul half _", "Mul _ x"], "Gelu"),
        (["Add _ three", "Clip _ zero six", "Div _ six"], "HardSigmoid"),
        (["Add _ three", "Clip _ zero six", "Mul x _", "Div _ six"], "HardSwish"),
        (["Add _ three", "Clip _ zero six", "Div _ six", "Mul x _"], "HardSwish"),
        ([("HardSigmoid _", {"alpha": 1 / 6, "beta": 0.5}), "Mul _ x"], "HardSwish"),
        ([("HardSigmoid _", {"alpha": 1 / 6}), "Mul _ x"], "HardSwish"),
        (["Neg _", "Exp _", "Add _ one", "Div one _"], "Sigmoid"),
        (["Neg _", "Exp _", "Add one _", "Reciprocal _"], "Sigmoid"),
    ],
)
def test_activations(steps, operator):
    given = {k: a for k, a in NUMBERS.items() if any(f" {k}" in str(step) for step in steps)}
    nodes = [*chain(*steps), node("Neg", "y", "z")]
    roundings = 256 if given else 2**29  # attributes are float32
    after = check(passes.recognise_activations, nodes, {"x": real(3, 5)}, ["z"], [operator, "Neg"], given, roundings)
    assert after.calls[0].values[0].name == "x"


@pytest.mark.parametrize(
    "steps",
    [
        ["Div _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ two"],
        ["Mul _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ half"],
        ["Div _ root", "Tanh _", "Add _ one", "Mul x _", "Mul _ half"],
        ["Add _ three", "Clip _ zero three", "Mul x _", "Div _ six"],
        ["Add _ three", "Clip _ - six", "Mul x _", "Div _ six"],
        ["HardSigmoid _", "Mul _ x"],
        ["Neg _", "Exp _", "Add _ two", "Div one _"],
        ["Div _ root", "Erf _", "Add _ one", "Mul w _", "Mul _ half"],
    ],
)
def test_what_is_near_an_activation(steps):
    given = {k: a for k, a in NUMBERS.items() if any(f" {k}" in str(step) for step in steps)}
    kept = [step.split()[0] for step in steps]
    check(passes.recognise_activations, chain(*steps), {"x": real(3, 5), "w": real(3, 5)}, ["y"], kept, given)


DEVIATION = ["ReduceMean _ last", "Sub x _", "Mul _ _", "ReduceMean _ last", "Add _ tiny", "Sqrt _"]


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
        ([*DEVIATION, "Div s1 _"], ["LayerNormalization"]),
        ([*DEVIATION, "Reciprocal _", "Mul s1 _", "Mul _ row", "Add row _"], ["LayerNormalization"]),
        ([*DEVIATION, "Div s1 _", "Add _ row", "Relu _"], ["LayerNormalization", "Relu"]),
        (["Mul _ _", *DEVIATION[3:], "Div one _", "Mul x _", "Mul row _"], ["RMSNormalization"]),
        (["Mul _ _", *DEVIATION[3:5], "Pow _ minus", "Mul x _"], ["RMSNormalization"]),
        (["Mul _ _", *DEVIATION[3:], "Div x _", "Mul _ row", "Add _ row"], ["RMSNormalization", "Add"]),
        ([*DEVIATION, "Div x _"], ["ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div"]),
        (["ReduceMax _ last", "Sub x _", "Exp _", "ReduceSum _ last", "Div s2 _", "Neg _"], ["Softmax", "Neg"]),
        (
            ["ReduceMax _ last", "Sub x _", "Exp _", "ReduceSum _ first", "Div s2 _"],
            ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"],
        ),
    ],
)
def test_norms(steps, operators):
    constants = NUMBERS | {"row": real(5, low=0.5), "last": np.array([-1]), "first": np.array([0])}
    given = {k: a for k, a in constants.items() if any(f" {k}" in str(step) for step in steps)}
    check(passes.recognise_norms, chain(*steps), {"x": real(3, 4, 5)}, ["y"], operators, given, roundings=64)


@pytest.mark.parametrize(
    ("what", "operators", "opset"),
    [
        (node("GlobalAveragePool", "x", "y"), ["ReduceMean"], 18),
        (node("AveragePool", "x", "y", kernel_shape=[3, 7]), ["ReduceMean"], 18),
        (node("AveragePool", "x", "y", kernel_shape=[3, 5]), ["AveragePool"], 18),
        (node("ReduceMax", "x", "y", axes=[1], keepdims=0), ["ReduceMax", "Reshape"], 13),
        (node("Softmax", "x", "y", axis=3), ["Softmax"], 11),
        (node("Softmax", "x", "y", axis=2), ["Softmax"], 11),
        (node("Sum", "x x", "y"), ["Add"], 18),
        (node("Max", "zero x", "y"), ["Relu"], 18),
        (node("Max", "x two", "y"), ["Max"], 18),
        (node("Clip", "x zero", "y"), ["Relu"], 18),
        (node("Div", "x two", "y"), ["Mul"], 18),
        (node("Div", "x three", "y"), ["Mul"], 18),
        (node("Div", "x zero", "y"), ["Div"], 18),
        (node("Div", "three x", "y"), ["Div"], 18),
    ],
)
def test_forms(what, operators, opset):
    given = {name: a for name, a in NUMBERS.items() if name in what.input}
    roundings = 2 if operators == ["Mul"] else 0
    check(passes.canonicalise, [what], {"x": real(2, 4, 3, 7)}, ["y"], operators, given, roundings, opset)


X = {"x": real(2, 4, 3, 7)}


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
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
    ],
)
def test_forms_of_several_calls(steps, operators):
    constants = NUMBERS | {"pixel": real(5, 4, 3, 7), "small": real(5, 4, 1, 1), "shape": np.array([4, 3, 7])}
    constants |= {"zeros": np.zeros(5), "around": np.array([0, 0, 1, 2, 0, 0, 0, 3]), "wider": real(5, 5, 1, 1)}
    constants["channels"] = np.array([0, 1, 0, 0, 0, 0, 0, 0])
    given = {k: a for k, a in constants.items() if any(k in re.findall(r"\w+", str(step)) for step in steps)}
    inputs = X | ({"row": real(7)} if "row" in str(steps) else {})
    check(passes.canonicalise, chain(*steps), inputs, ["y"], operators, given, roundings=4 * 84)


def test_expanded_scales_stay_where_the_operator_wants_all_of_them():
    inputs = {"x": real(3, 4), "one": real(1)}
    constants = {"four": np.array([4]), "row": real(4, low=0.5)}
    nodes = chain("Expand one four", "BatchNormalization x _ row row row")
    check(passes.canonicalise, nodes, inputs, ["y"], ["Expand", "BatchNormalization"], constants)


@pytest.mark.parametrize(
    ("shape", "step", "operators"),
    [
        ((2, 4, 3, 7), "MatMul _ w", ["Reshape", "MatMul", "Reshape"]),
        ((3, 7), "MatMul _ w", ["MatMul"]),
        ((3, 7), "Gemm _ w row", ["MatMul", "Add"]),
        ((3, 7), "Gemm _ w", ["MatMul"]),
        ((3, 7), ("Gemm _ t row", {"transB": 1}), ["MatMul", "Add"]),
        ((3, 7), ("Gemm _ w row", {"beta": 0.5}), ["Gemm"]),
        ((7, 3), ("Gemm _ w", {"transA": 1}), ["Gemm"]),
        ((7, 5), "Gemm w _", ["Gemm"]),
    ],
)
def test_forms_of_products(shape, step, operators):
    given = {"w": real(7, 5), "t": real(5, 7), "row": real(5)}
    given = {k: a for k, a in given.items() if k in str(step).split() or f" {k} " in str(step) or f" {k}'" in str(step)}
    if step == "Gemm w _":
        given["w"] = real(3, 7)
    check(passes.canonicalise, chain(step), {"x": real(*shape)}, ["y"], operators, given, roundings=4 * 8)


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
        (["MatMul _ w", "Mul _ two", "Mul three _"], ["MatMul", "Mul"]),
        (["Mul _ two", "MatMul _ w"], ["MatMul", "Mul"]),
        (["Mul _ wide", "MatMul _ w"], ["Mul", "MatMul"]),
        (["Mul _ wide", "Mul _ two"], ["Mul", "Mul"]),
    ],
)
def test_factors(steps, operators):
    constants = NUMBERS | {"w": real(7, 5), "wide": real(7)}
    given = {k: a for k, a in constants.items() if any(f" {k}" in step for step in steps)}
    check(passes.move_factors, chain(*steps), X, ["y"], operators, given, roundings=64)


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, True),
        ({"g": (1, 1, 1, 1)}, False),  # one number for all channels
        ({"x": (2, 7, 5, 3), "g": (2, 7, 1, 1)}, False),  # images with gates of their own
        ({"w": (40, 7, 1, 1)}, False),  # weights that are not much smaller than the image
        ({"w": (2, 7, 3, 3), "pads": [1, 1, 1, 1]}, False),  # with zeros around the image
        ({"outputs": ["y", "s0"]}, False),
    ],
)
def test_gates(changes, moves):
    shapes = {"x": (1, 7, 5, 9), "g": (1, 7, 1, 1), "w": (3, 7, 1, 1), "b": (3,)} | changes
    inputs = {name: real(*shapes[name]) for name in ("x", "g")}
    given = {"w": real(*shapes["w"]), "b": real(shapes["w"][0])}
    nodes = chain("Mul g _", ("Conv _ w b", {"pads": changes.get("pads", [0] * 4)}))
    after = check(passes.move_gates, nodes, inputs, changes.get("outputs", ["y"]), ["Mul", "Conv"], given, roundings=4 * 7 * 9)
    assert (after.calls[-1].inputs[0] == after.inputs[0]) == moves


def test_factors_keep_products_of_halves_finite():
    x, w = np.full((1, 4), 200, "float16"), np.full((4, 1), 200, "float16")
    given = {"w": w, "small": np.array(0.125, "float16")}
    after = check(passes.move_factors, chain("Mul _ small", "MatMul _ w"), {"x": x}, ["y"], ["Mul", "MatMul"], given)
    assert np.isfinite(evaluate(after, {"x": x})[0]).all()


def test_quotients_whose_inverse_is_inexact_stay():
    """1 / 40000 has 10 bits less as a half than other numbers: it lies below the least normal one."""
    x, wide = np.array([30000, 7], "float16"), np.array(40000, "float16")
    check(passes.canonicalise, chain("Div _ wide"), {"x": x}, ["y"], ["Div"], {"wide": wide})


HEADS = [
    node("MatMul", "x wq", "q0"), node("Add", "q0 bq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v0"),
    node("Add", "bv v0", "v"), node("Transpose", "q", "a"), node("Transpose", "k", "b"), node("Transpose", "v", "c"),
]  # fmt: skip
LAYERS = {"wq": real(5, 6), "wk": real(5, 4), "wv": real(5, 6), "bq": real(6), "bv": real(6)}


def test_products_of_one_operand():
    x = {"x": real(7, 5)}
    wanted = ["MatMul", "Add", "Split", "Transpose", "Transpose", "Transpose"]
    after = check(passes.merge_products, HEADS, x, ["a", "b", "c"], wanted, LAYERS, roundings=32)
    assert after.calls[0].inputs[1].shape == (5, 16)
    check(passes.merge_products, HEADS[2:3] + HEADS[6:7], x, ["b"], ["MatMul", "Transpose"], {"wk": LAYERS["wk"]})


def test_products_of_integers_keep_large_biases():
    layers = {name: array.astype("int64") for name, array in LAYERS.items()} | {"bq": np.full(6, 2**53 + 1)}
    wanted = ["MatMul", "Add", "Split", "Transpose", "Transpose", "Transpose"]
    check(passes.merge_products, HEADS, {"x": np.ones((7, 5), "int64")}, ["a", "b", "c"], wanted, layers)


def test_products_whose_bias_adds_dimensions_stay_apart():
    layers = LAYERS | {"bq": real(1, 1, 6), "bv": real(1, 1, 6)}
    check(passes.merge_products, HEADS, {"x": real(7, 5)}, ["a", "b", "c"], [n.op_type for n in HEADS], layers)


def test_products_that_are_computed_with_stay_apart():
    x, outputs = {"x": real(7, 5)}, ["a", "b", "c", "d"]
    nodes = [*HEADS, node("Relu", "q", "d")]
    wanted = ["MatMul", "Add", "MatMul", "Add", "Split", "Transpose", "Transpose", "Transpose", "Relu"]
    check(passes.merge_products, nodes, x, outputs, wanted, LAYERS, roundings=32)
    nodes = [*HEADS, node("Relu", "q", "d"), node("Exp", "k", "e")]
    check(passes.merge_products, nodes, x, [*outputs, "e"], [n.op_type for n in nodes], LAYERS)
    check(passes.merge_products, HEADS, x, ["a", "b", "c", "q", "v"], [n.op_type for n in HEADS], LAYERS)


def moved(rng, shape):
    """A random chain of calls that move elements of `x`, and what they make."""
    value, calls, constants = Value("x", shape, "float32"), [], {}
    for n in range(rng.integers(1, 6)):
        rank, kind = len(value.shape), rng.choice(["Reshape", "Transpose", "Slice", "Gather", "Split"])
        axis = int(rng.integers(rank)) if rank else 0
        if kind == "Reshape" or not rank:
            left, extents = prod(value.shape), []
            while left > 1:
                extents.append(int(rng.choice([d for d in range(1, left + 1) if left % d == 0])))
                left //= extents[-1]
            call = Call("Reshape", (value,), (), (("shape", tuple(extents)),))
        elif kind == "Transpose":
            call = Call("Transpose", (value,), (), (("perm", tuple(map(int, rng.permutation(rank)))),))
        elif kind == "Slice":
            start, step = int(rng.integers(value.shape[axis])), int(rng.integers(1, 3))
            attributes = {"axes": (axis,), "ends": (99,), "starts": (start - value.shape[axis],), "steps": (step,)}
            call = Call("Slice", (value,), (), tuple(attributes.items()))
        elif kind == "Gather":
            constants[f"i{n}"] = np.array(int(rng.integers(value.shape[axis])))
            call = Call("Gather", (value, Value(f"i{n}", (), "int64")), (), (("axis", axis),))
        else:
            first = int(rng.integers(1, max(2, value.shape[axis])))
            sizes = (first, value.shape[axis] - first) if first < value.shape[axis] else (first,)
            call = Call("Split", (value,), (), (("axis", axis), ("split", sizes)))
        outputs = tuple(Value(f"v{n}_{m}", *t) for m, t in enumerate(result_types(call)))
        calls.append(replace(call, outputs=outputs))
        value = outputs[int(rng.integers(len(outputs)))]
    y = Value("y", value.shape, "float32")
    return Graph("g", (Value("x", shape, "float32"),), (*calls, Call("Neg", (value,), (y,))), (y,), constants)


def test_layouts():
    """Random chains: nothing is moved more often than before, and most often once."""
    rng, counts = np.random.default_rng(0), []
    for _ in range(150):
        shape = tuple(map(int, rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5))))
        graph = verify(moved(rng, shape))
        after = verify(passes.simplify_layouts(graph))
        same_outputs(graph, after, [np.arange(prod(shape), dtype="float32").reshape(shape)])
        counts.append([sum(c.operator not in ("Reshape", "Neg") for c in g.calls) for g in (graph, after)])
    assert all(a <= b for b, a in counts) and sum(a for _, a in counts) < 0.6 * sum(b for b, _ in counts)


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
        ([("Transpose _", {"perm": [0, 2, 3, 1]}), ("Transpose _", {"perm": [0, 3, 1, 2]}), "Relu _"], ["Reshape", "Relu"]),
        ([("Transpose _", {"perm": [0, 2, 3, 1]}), ("Transpose _", {"perm": [3, 0, 1, 2]}), "Relu _"], ["Transpose", "Relu"]),
        ([("Gather _ one", {"axis": 0}), "Relu _"], ["Slice", "Reshape", "Relu"]),
        (["Slice _ zero two three", "Relu _"], ["Slice", "Relu"]),
    ],
)
def test_chains_of_layouts(steps, operators):
    constants = {"one": np.array(1), "zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
    given = {k: a for k, a in constants.items() if any(f" {k}" in str(step) for step in steps)}
    check(passes.simplify_layouts, chain(*steps), X, ["y"], operators, given)


def test_parts_in_order_keep_what_they_are_parts_of():
    """As the shuffled channels of two branches."""
    nodes = [
        node("Relu", "x", "r"), node("Transpose", "r", "t", perm=[1, 0, 2, 3]), node("Reshape", "t s", "v"),
        helper.make_node("Split", ["v"], ["a", "b"], axis=0, num_outputs=2), node("Exp", "a", "y"), node("Neg", "b", "z"),
    ]  # fmt: skip
    after = check(
        passes.simplify_layouts, nodes, X, ["y", "z"],
        ["Relu", "Transpose", "Reshape", "Slice", "Reshape", "Reshape", "Slice", "Reshape", "Exp", "Neg"], {"s": np.array([8, 3, 7])},
    )  # fmt: skip
    assert sum(c.operator == "Transpose" for c in after.calls) == 1


@pytest.mark.parametrize(
    ("steps", "operators"),
    [
        (["Exp _", "Reshape _ flat", "Relu _", "Add _ row"], ["Exp", "Relu", "Add", "Reshape"]),
        (["Exp _", "Reshape _ flat", "Add _ same"], ["Exp", "Reshape", "Add", "Reshape"]),
        (["Exp _", "Reshape _ flat", "Add _ plane"], ["Exp", "Reshape", "Add"]),
        (["Exp _", "Reshape _ flat", "Sigmoid _", "Mul s1 _"], ["Exp", "Sigmoid", "Mul", "Reshape"]),
        (["Exp _", "Reshape _ five", "Add _ side"], ["Exp", "Add", "Reshape"]),
        (["Exp _", "Transpose _", "Relu _", "Mul _ row"], ["Exp", "Relu", "Mul", "Transpose"]),
        (["Exp _", "Transpose _", "Relu _", "Mul _ two", "Transpose _"], ["Exp", "Relu", "Mul", "Transpose", "Transpose"]),
        (["Exp _", "Transpose _", "Sigmoid _", "Mul s1 _"], ["Exp", "Transpose", "Sigmoid", "Mul"]),
        (["Transpose _", "Relu _"], ["Transpose", "Relu"]),
    ],
)
def test_sinking(steps, operators):
    text = str(steps)
    constants = {"flat": np.array([8, 21]), "row": real(21 if "flat" in text else 2), "two": np.array(2.0)}
    constants |= {"five": np.array([1, 2, 4, 3, 7]), "plane": real(8, 1), "side": real(1, 1, 4, 1, 1)}
    given = {k: a for k, a in constants.items() if any(f" {k}" in step for step in steps)}
    inputs = X | ({"same": real(8, 21)} if "same" in text else {})
    check(passes.sink_layouts, chain(*steps), inputs, ["y"], operators, given)


def test_sinking_of_one_element():
    nodes = [node("ReduceMax", "x", "a"), node("Reshape", "a none", "b"), node("Exp", "b", "c"), node("Add", "b c", "y")]
    check(
        passes.sink_layouts,
        nodes,
        {"x": real(3, 5)},
        ["y"],
        ["ReduceMax", "Exp", "Add", "Reshape"],
        {"none": np.zeros(0, "int64")},
    )


def test_norms_by_channel_do_not_sink():
    """The channels of a matrix are its columns, those of what it is a view of are not."""
    nodes = [node("Exp", "x", "a"), node("Reshape", "a s", "b"), node("BatchNormalization", "b w w w v", "y")]
    constants = {"s": np.array([6, 3]), "w": real(3), "v": real(3, low=0.5)}
    check(passes.sink_layouts, nodes, {"x": real(2, 3, 3)}, ["y"], ["Exp", "Reshape", "BatchNormalization"], constants)


def test_common():
    nodes = [
        node("Add", "x one", "a"),
        node("Add", "x also_one", "b"),
        node("Add", "x two", "c"),
        node("Mul", "a b", "d"),
        node("Mul", "d c", "y"),
    ]
    constants = {"one": np.array(1.0), "also_one": np.array(1.0), "two": np.array(2.0)}
    check(passes.merge_common, nodes, {"x": real(3, 5)}, ["y"], ["Add", "Add", "Mul", "Mul"], constants)
    check(passes.merge_common, nodes, {"x": real(3, 5)}, ["y", "b"], ["Add", "Add", "Add", "Mul", "Mul"], constants)
    nodes = [node("Softmax", "x", "a", axis=0), node("Softmax", "x", "b", axis=1), node("Add", "a b", "y")]
    check(passes.merge_common, nodes, {"x": real(3, 5)}, ["y"], ["Softmax", "Softmax", "Add"])


def test_unread():
    nodes = [node("Exp", "x", "a"), node("Add", "a w", "b"), node("Relu", "x", "y")]
    graph = load_onnx(model(nodes, {"x": real(3, 5)}, ["y"], {"w": real(5)}))
    assert list(graph.constants) == ["w"]
    after = check(passes.remove_unread, nodes, {"x": real(3, 5)}, ["y"], ["Relu"], {"w": real(5)})
    assert not after.constants


def test_the_list():
    graph = load_onnx(model(chain(CONV, NORMED, "Relu _"), {"x": real(2, 3, 7, 5)}, ["y"], WEIGHTS))
    seen = []
    passes.optimize(graph, observe=lambda name, after: seen.append((name, len(after.calls))))
    assert [name for name, _ in seen] == [p.__name__ for p in passes.PASSES] and seen[-1][1] == 2
    with pytest.raises(GraphError):
        passes.optimize(graph.with_(calls=graph.calls[::-1]))


@pytest.mark.parametrize("make", [residual, transformer])
def test_checked_passes(make):
    proto, inputs = make(np.random.default_rng(0), "float32")
    checks = check_passes(load_onnx(proto), inputs)
    assert [c.name for c in checks] == [p.__name__ for p in passes.PASSES] and max(c.change for c in checks) < 2**-14


@pytest.mark.parametrize("to", [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT])
def test_widened(to):
    """All floats are float64; constants keep the values that they were rounded to."""
    nodes = [node("Cast", "w", "c", to=to), node("Cast", "x", "a", to=to), node("MatMul", "a c", "y")]
    x, w = real(3, 5).astype("float32"), real(5, 7).astype("float32")
    graph = load_onnx(model(nodes, {"x": x}, ["y"], {"w": w}))
    wide, inputs = widened(graph, {"x": x})
    assert {v.dtype for c in wide.calls for v in (*c.values, *c.outputs)} == {"float64"}
    (rounded,) = (a.astype("float64") for a in graph.constants.values())
    (found,) = evaluate(wide, inputs)
    close(found, x.astype("float64") @ rounded, 2 * 5)
    assert [c.change for c in check_passes(graph, {"x": x})] == [0] * len(passes.PASSES)


def test_equal_calls_run_once():
    calls = []

    def run(call, inputs):
        calls.append(call.operator)
        return run_call(call, inputs)

    nodes = [node("Neg", "x", "a"), node("Neg", "x", "b"), node("Neg", "a", "c"), node("Add", "b c", "y")]
    graph = load_onnx(model(nodes, {"x": real(3)}, ["y"]))
    remembered, x = remembering(run), np.array([0.0, 1, 2])
    for array in (x, x + 0, x + 1):
        np.testing.assert_array_equal(evaluate(graph, [array], remembered), [0 * x])
    assert calls == ["Neg", "Neg", "Add"] * 2


def test_a_pass_that_is_wrong_is_named():
    def lose_the_bias(graph):
        return graph.with_(constants={n: a * 0 if n == "b" else a for n, a in graph.constants.items()}, name="other")

    graph = load_onnx(model(chain(CONV, "Relu _"), {"x": real(2, 3, 7, 5)}, ["y"], WEIGHTS))
    with pytest.raises(GraphError, match=r"^graph test: the pass lose_the_bias changes the output `y` by 0\.\d+ of its largest"):
        check_passes(graph, [real(2, 3, 7, 5)], (passes.remove_unread, lose_the_bias))


@pytest.mark.parametrize(
    ("shape", "weight", "attributes", "operators"),
    [
        ((2, 3, 5, 7), (3, 4, 2, 2), {"strides": [2, 2]}, ["Conv", "Reshape", "Transpose", "Reshape"]),
        ((1, 3, 5, 7), (3, 4, 4, 3), {"strides": [2, 2], "pads": [1, 1, 1, 0]}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        (
            (1, 4, 5, 7), (4, 2, 3, 5), {"strides": [2, 3], "pads": [1, 2, 0, 1], "output_padding": [1, 2], "group": 2},
            ["Conv", "Reshape", "Transpose", "Reshape", "Slice"],
        ),
        ((1, 3, 9), (3, 4, 5), {"strides": [3], "auto_pad": "SAME_UPPER"}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        ((1, 2, 2, 3, 4), (2, 3, 2, 2, 3), {"strides": [1, 2, 2]}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"pads": [1, 1, 1, 1]}, ["Conv"]),
        ((1, 3, 1, 1), (3, 4, 4, 4), {"strides": [3, 3]}, ["Conv", "Reshape", "Transpose", "Reshape"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"dilations": [2, 1]}, ["ConvTranspose"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"pads": [3, 0, 3, 0]}, ["ConvTranspose"]),
    ],
)  # fmt: skip
def test_transposed_convolutions(shape, weight, attributes, operators):
    given = {"w": real(*weight), "b": real(weight[1] * attributes.get("group", 1))}
    steps = chain(("ConvTranspose _ w b", attributes))
    check(passes.expand_transposed, steps, {"x": real(*shape)}, ["y"], operators, given, roundings=4 * prod(weight))
