"""Layouts sink below what is computed element by element."""

from __future__ import annotations

import numpy as np
import pytest

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import X, chain, check, real


@pytest.mark.parametrize(("steps", "operators"), [
    (["Exp _", "Reshape _ flat", "Relu _", "Add _ row"], ["Exp", "Relu", "Add", "Reshape"]),
    (["Exp _", "Reshape _ flat", "Add _ same"], ["Exp", "Reshape", "Add", "Reshape"]),
    (["Exp _", "Reshape _ flat", "Add _ plane"], ["Exp", "Reshape", "Add"]),
    (["Exp _", "Reshape _ flat", "Sigmoid _", "Mul s1 _"], ["Exp", "Sigmoid", "Mul", "Reshape"]),
    (["Exp _", "Reshape _ five", "Add _ side"], ["Exp", "Add", "Reshape"]),
    (["Exp _", "Transpose _", "Relu _", "Mul _ row"], ["Exp", "Relu", "Mul", "Transpose"]),
    (["Exp _", "Transpose _", "Relu _", "Mul _ two", "Transpose _"], ["Exp", "Relu", "Mul", "Transpose", "Transpose"]),
    (["Exp _", "Transpose _", "Sigmoid _", "Mul s1 _"], ["Exp", "Transpose", "Sigmoid", "Mul"]),
    (["Transpose _", "Relu _"], ["Transpose", "Relu"]),
])  # fmt: skip
def test_sinking(steps, operators):
    text = str(steps)
    constants = {"flat": np.array([8, 21]), "row": real(21 if "flat" in text else 2), "two": np.array(2.0)}
    constants |= {"five": np.array([1, 2, 4, 3, 7]), "plane": real(8, 1), "side": real(1, 1, 4, 1, 1)}
    inputs = X | ({"same": real(8, 21)} if "same" in text else {})
    check(passes.sink_layouts, chain(*steps), inputs, ["y"], operators, constants)


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
