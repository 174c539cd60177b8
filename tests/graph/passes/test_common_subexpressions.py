"""Equal calls, and calls that nobody reads."""

from __future__ import annotations

import numpy as np

from graph import passes
from graph.onnx import load_onnx
from tests.graph.models import model, node
from tests.graph.passes.checks import check, real


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


def test_conversions_to_a_wider_type_stay_with_their_readers():
    nodes = [node("Cast", "x", "a", to=1), node("Cast", "x", "b", to=1), node("Exp", "a", "c"), node("Mul", "c b", "y")]
    check(passes.merge_common, nodes, {"x": real(3, 5).astype("float16")}, ["y"], ["Cast", "Cast", "Exp", "Mul"], roundings=4)
    nodes = [node("Cast", "x", "a", to=10), node("Cast", "x", "b", to=10), node("Mul", "a b", "y")]
    check(passes.merge_common, nodes, {"x": real(3, 5).astype("float32")}, ["y"], ["Cast", "Mul"], roundings=4)


def test_unread():
    nodes = [node("Exp", "x", "a"), node("Add", "a w", "b"), node("Relu", "x", "y")]
    graph = load_onnx(model(nodes, {"x": real(3, 5)}, ["y"], {"w": real(5)}))
    assert list(graph.constants) == ["w"]
    after = check(passes.remove_unread, nodes, {"x": real(3, 5)}, ["y"], ["Relu"], {"w": real(5)})
    assert not after.constants
