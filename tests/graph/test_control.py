"""Branches and loops whose conditions are not known, or that have no step, against ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import exact, model

X = np.arange(6, dtype="float32").reshape(2, 3)


def info(name, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, None if dtype == TensorProto.FLOAT else [])


def body(nodes, inputs, outputs, constants=()):
    kinds = {"i": TensorProto.INT64, "goes": TensorProto.BOOL, "on": TensorProto.BOOL}
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in dict(constants).items()]
    infos = ([info(name, kinds.get(name, TensorProto.FLOAT)) for name in names] for names in (inputs, outputs))
    return helper.make_graph([helper.make_node(*n) for n in nodes], "body", *infos, weights)


def same(proto, given):
    graph = load_onnx(proto)
    for found, wanted in zip(evaluate(graph, given), exact(proto, given), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_an_open_condition_chooses_what_the_branches_made(holds, shape):
    negated, doubled = body([("Neg", ["x"], ["a"])], [], ["a"]), body([("Add", ["x", "x"], ["b"])], [], ["b"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=negated, else_branch=doubled)
    given = {"x": X, "c": np.full(shape, holds)}
    same(model([node], given, ["y"]), given)


def test_branches_that_differ_in_type_need_a_constant_condition():
    whole, part = body([("Neg", ["x"], ["a"])], [], ["a"]), body([("ReduceSum", ["x"], ["b"])], [], ["b"])
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=whole, else_branch=part)
    with pytest.raises(GraphError, match="its condition is not constant, and the branches differ in type: if_a: "):
        load_onnx(model([node], {"x": X, "c": np.array(True)}, ["y"]))


# A step doubles `v` and goes on while its sum is less than `most`.
DOUBLED = [
    ("Add", ["v", "v"], ["w"]),
    ("ReduceSum", ["w"], ["s"]),
    ("Less", ["s", "most"], ["flag"]),
    ("Squeeze", ["flag"], ["on"]),
]


@pytest.mark.parametrize("most", [0.0, 100.0, 1e9])
@pytest.mark.parametrize("starts", [True, False])
def test_a_loop_that_ends_when_a_value_says_so(most, starts):
    node = helper.make_node("Loop", ["n", "starts", "x"], ["y"], body=body(DOUBLED, ["i", "goes", "v"], ["on", "w"]))
    given = {"x": X, "most": np.array(most, "float32"), "starts": np.array(starts)}
    same(model([node], given, ["y"], {"n": np.array(7)}), given)
    node.input[1] = ""
    with pytest.raises(GraphError, match="its body says when it ends, but it is given no condition"):
        load_onnx(model([node], given, ["y"], {"n": np.array(7)}))


def test_the_number_of_rows_must_be_known():
    node = helper.make_node(
        "Loop", ["n", "c", "x"], ["y", "all"], name="loop", body=body(DOUBLED, ["i", "goes", "v"], ["on", "w", "s"])
    )
    with pytest.raises(GraphError, match="its condition is not constant, on which the shape of its scan outputs depends"):
        load_onnx(model([node], {"x": X, "most": np.array(9, "float32")}, ["y", "all"], {"n": np.array(7), "c": np.array(True)}))


def test_a_loop_whose_condition_follows_from_the_number_of_the_step():
    """As exporters write a loop with a break: as many steps as there can be, and a condition that is known while it is read."""
    nodes = [("Less", ["i", "last"], ["on"]), ("Add", ["v", "v"], ["w"]), ("Neg", ["v"], ["s"])]
    node = helper.make_node("Loop", ["n", "c", "x"], ["y", "all"], body=body(nodes, ["i", "goes", "v"], ["on", "w", "s"]))
    constants = {"last": np.array(3), "n": np.array(2**63 - 1), "c": np.array(True)}
    y, every = evaluate(load_onnx(model([node], {"x": X}, ["y", "all"], constants)), {"x": X})
    np.testing.assert_array_equal(y, X * 16)
    np.testing.assert_array_equal(every, [-X, -X * 2, -X * 4, -X * 8])
    refused = model([node], {"x": X}, ["y", "all"], constants | {"last": np.array(1000)})
    with pytest.raises(
        GraphError,
        match="up to 256 steps are written out, this loop has more; as a loop, the number of its steps is not constant",
    ):
        load_onnx(refused)


@pytest.mark.parametrize("on", ["goes", "always", "never", "most"])
def test_a_long_loop_whose_condition_does_not_follow_from_the_step(on):
    """It is not written out, so that its rows must have a known number."""
    nodes = [("Identity", [on], ["on"]), ("Sub", ["x", "v"], ["w"])]
    node = helper.make_node("Loop", ["n", "c", "x"], ["y"], body=body(nodes, ["i", "goes", "v"], ["on", "w"]))
    given = {"x": X} | ({"most": np.array(True)} if on == "most" else {})
    constants = {"n": np.array(1001), "c": np.array(True), "always": np.array(True), "never": np.array(False)}
    graph = load_onnx(model([node], given, ["y"], constants))
    assert len(graph.calls) <= 5
    np.testing.assert_array_equal(evaluate(graph, given)[0], X * 0)


@pytest.mark.parametrize(("count", "starts"), [(0, True), (3, False)])
def test_a_loop_without_steps_gives_no_rows(count, starts):
    nodes = [("Identity", ["goes"], ["on"]), ("Add", ["v", "v"], ["w"]), ("ReduceSum", ["v"], ["s"])]
    node = helper.make_node("Loop", ["n", "c", "x"], ["y", "all"], body=body(nodes, ["i", "goes", "v"], ["on", "w", "s"]))
    join = helper.make_node("Concat", ["all", "one"], ["z"], axis=0)
    constants = {"n": np.array(count), "c": np.array(starts), "one": np.ones((1, 1, 1), "float32")}
    (y, z) = evaluate(load_onnx(model([node, join], {"x": X}, ["y", "z"], constants)), {"x": X})
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, constants["one"])
