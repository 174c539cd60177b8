"""The inputs that are made up for a network have a meaning in it."""

import numpy as np
from onnx import TensorProto

import tir
from graph.onnx import load_onnx
from graph.reference import evaluate, random_inputs

from .models import model, node


def test_tokens_divisors_and_masks():
    table = np.arange(100 * 4, dtype="float32").reshape(100, 4)
    nodes = [
        node("Gather", "table tokens", "rows"),
        node("Cast", "lengths", "wide", to=TensorProto.INT64),
        node("Reshape", "wide shape", "flat"),
        node("Div", "tokens flat", "shares"),
        node("Where", "mask rows zero", "y"),
    ]
    given = {"tokens": np.zeros((1, 60), "int64"), "lengths": np.zeros((60, 1), "int32"), "mask": np.zeros((1, 60, 1), bool)}
    constants = {"table": table, "shape": np.array([1, 60]), "zero": np.float32(0)}
    graph = load_onnx(model(nodes, given, ["y", "shares"], constants))
    found = random_inputs(graph)
    assert found["tokens"].min() >= 0 and 50 < found["tokens"].max() < 100
    assert 1 <= found["lengths"].min() < found["lengths"].max() <= 8
    assert found["mask"].all() and found["mask"].dtype == bool  # the first of each row, which has one
    for one, other in zip(tir.compile(graph)(found), evaluate(graph, found), strict=True):
        assert np.array_equal(one, other)


def test_masks_of_both_kinds_let_something_through():
    graph = load_onnx(
        model(
            [node("Not", "m", "y"), node("Neg", "n", "z")],
            {"m": np.ones((9, 9), bool), "n": np.ones((9, 9), "int64")},
            ["y", "z"],
        )
    )
    for mask in random_inputs(graph).values():
        assert mask[:, 0].all() and not mask.all() and set(np.unique(mask).tolist()) == {0, 1}
