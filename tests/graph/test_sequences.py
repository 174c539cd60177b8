"""Sequences of tensors, as exports that are not folded have them: each tensor is a slice."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import exact, model

X = np.arange(2 * 7 * 3, dtype="float32").reshape(2, 7, 3)


def taken(position, split=None, opset=18, **attributes):
    """A model that splits X into a sequence and takes one tensor of it."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"] + ["split"] * (split is not None), ["s"], **attributes),
        helper.make_node("SequenceAt", ["s", "position"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    constants = {"position": np.array(position)} | ({} if split is None else {"split": np.array(split)})
    return model(nodes, {"x": X}, ["y"], constants, opset)


@pytest.mark.parametrize(("position", "split", "attributes"), [
    (0, [3, 4], {"axis": 1}),
    (1, [3, 4], {"axis": 1}),
    (-1, [2, 4, 1], {"axis": -2}),
    (2, 3, {"axis": 1}),  # what is left: one of seven
    (1, None, {"axis": 1}),
    (1, None, {"keepdims": 0}),
    (0, [1, 1], {"keepdims": 0}),  # which sizes override
])  # fmt: skip
@pytest.mark.parametrize("opset", [11, 18])
def test_tensors_are_slices(position, split, attributes, opset):
    proto = taken(position, split, opset, **attributes)
    graph = load_onnx(proto)
    assert {c.operator for c in graph.calls} <= {"Slice", "Squeeze", "Relu"}
    (found,), (wanted,) = evaluate(graph, {"x": X}), exact(proto, {"x": X})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("arguments", "message"), [
    ((2, [3, 4]), "SequenceAt of opset 18: the sequence has 2 tensors, none at 2"),
    ((0, [3, 5]), "SplitToSequence of opset 18: an extent of 7 cannot be split into [3, 5]"),
])  # fmt: skip
def test_what_is_not_there_is_refused(arguments, message):
    with pytest.raises(GraphError) as caught:
        load_onnx(taken(*arguments, axis=1))
    assert message in str(caught.value)


@pytest.mark.parametrize("joined", [{"axis": 1}, {"axis": -1, "new_axis": 1}])
def test_sequences_of_known_tensors(joined):
    """(x, y), without its last, with z before that, and y again at the end; where the first is chosen by the length, which is 3."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "y"], ["a"]),
        helper.make_node("SequenceErase", ["a"], ["b"]),
        helper.make_node("SequenceInsert", ["b", "z", "zero"], ["c"]),
        helper.make_node("SequenceInsert", ["c", "y"], ["d"]),
        helper.make_node("ConcatFromSequence", ["d"], ["all"], **joined),
        helper.make_node("SequenceLength", ["d"], ["n"]),
        helper.make_node("Mod", ["n", "three"], ["i"]),
        helper.make_node("SequenceAt", ["d", "i"], ["first"]),
    ]
    inputs = {name: X[:, n : n + 2] for n, name in enumerate("xyz")}
    proto = model(nodes, inputs, ["all", "first"], {"zero": np.array(0), "three": np.array(3)})
    graph = load_onnx(proto)
    assert {c.operator for c in graph.calls} <= {"Concat", "Unsqueeze", "Identity"}
    for found, wanted in zip(evaluate(graph, inputs), exact(proto, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("node", "message"), [
    (helper.make_node("Relu", ["s"], ["y"]), "Relu of opset 18: it reads a sequence of tensors"),
    (helper.make_node("Shape", ["s"], ["y"]), "Shape of opset 18: it reads a sequence of tensors"),
    (helper.make_node("SequenceLength", ["x"], ["y"]), "SequenceLength of opset 18: its first input is no sequence of tensors"),
    (helper.make_node("Identity", ["s"], ["y"]), "test: the output `y` is a sequence of tensors"),
])  # fmt: skip
def test_a_sequence_is_no_tensor(node, message):
    with pytest.raises(GraphError) as caught:
        load_onnx(model([helper.make_node("SequenceConstruct", ["x"], ["s"]), node], {"x": X}, ["y"]))
    assert message in str(caught.value)


@pytest.mark.parametrize("place", [0, 1, -1])
def test_an_open_position(place):
    """One of tensors of one type is chosen while the network runs; where they differ it must be known before."""
    nodes = [helper.make_node("SplitToSequence", ["x", *sizes], ["s"], axis=1) for sizes in ([], ["c"])]
    nodes = [[node, helper.make_node("SequenceAt", ["s", "n"], ["y"])] for node in nodes]
    given = {"x": X, "n": np.array(place)}
    (found,) = evaluate(load_onnx(model(nodes[0], given, ["y"])), given)
    np.testing.assert_array_equal(found, X[:, place][:, None])
    with pytest.raises(GraphError, match="its position must be constant, as the tensors of the sequence differ in type"):
        load_onnx(model(nodes[1], given, ["y"], {"c": np.array([1, X.shape[1] - 1])}))
