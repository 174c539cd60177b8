"""Each pass: what it leaves, and that the graph computes the same as before."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from graph import passes
from graph.ir import GraphError, verify
from graph.onnx import load_onnx

from .models import model, same_outputs

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


def test_constants():
    nodes = [node("MatMul", "a x", "p"), node("Transpose", "w", "t"), node("Add", "p t", "y")]
    graph = load_onnx(model(nodes, {"a": real(3, 3), "x": real(3, 5), "w": real(5, 3)}, ["y"]))
    w = real(5, 3)
    constant = graph.with_(inputs=graph.inputs[:2], constants={"w": w})
    after = verify(passes.fold_constants(constant))
    assert [c.operator for c in after.calls] == ["MatMul", "Add"]
    same_outputs(constant, after, {"a": real(3, 3), "x": real(3, 5)})
    assert passes.fold_constants(after) is after


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
    check(passes.expand_powers, nodes, x, ["y"], ["Mul", "Mul", "Mul", "Sqrt", "Pow"], constants, roundings=64)
    check(passes.expand_powers, [node("Pow", "x wide", "y")], x, ["y"], ["Pow"], {"wide": np.full((1, 1, 1), 2.0)})
    check(passes.expand_powers, [node("Pow", "x twos", "y")], x, ["y"], ["Pow"], {"twos": np.full(5, 2.0)})


NORM = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c s o m v", "n", epsilon=0.01)]
STATISTICS = {"w": real(5, 3, 3, 3), "b": real(5), "s": real(5), "o": real(5), "m": real(5), "v": real(5, low=0.1)}


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm(bias):
    nodes = NORM if bias else [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), NORM[1]]
    nodes = [*nodes, node("Relu", "n", "y")]
    after = check(passes.fold_batch_norm, nodes, {"x": real(2, 3, 7, 5)}, ["y"], ["Conv", "Relu"], STATISTICS, roundings=4 * 27)
    assert after.calls[0].attribute("pads") == (1, 1, 1, 1) and after.calls[0].outputs[0].name == "n"


def test_batch_norms_that_stay():
    x = {"x": real(2, 3, 7, 5)}
    both = ["Conv", "BatchNormalization", "Relu"]
    check(passes.fold_batch_norm, [*NORM, node("Relu", "c", "y")], x, ["y", "n"], both, STATISTICS)
    check(passes.fold_batch_norm, [*NORM, node("Relu", "n", "y")], x, ["y", "c"], both, STATISTICS)
    scale = {"s": STATISTICS["s"]}
    others = {name: a for name, a in STATISTICS.items() if name != "s"}
    check(passes.fold_batch_norm, [*NORM, node("Relu", "n", "y")], x | scale, ["y"], both, others)


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
    graph = load_onnx(model([*NORM, node("Relu", "n", "y")], {"x": real(2, 3, 7, 5)}, ["y"], STATISTICS))
    seen = []
    passes.optimize(graph, observe=lambda name, after: seen.append((name, len(after.calls))))
    assert [name for name, _ in seen] == [p.__name__ for p in passes.PASSES] and seen[-1][1] == 2
    with pytest.raises(GraphError):
        passes.optimize(graph.with_(calls=graph.calls[::-1]))
