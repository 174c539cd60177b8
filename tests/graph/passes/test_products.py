"""Products of one operand become one."""

from __future__ import annotations

import numpy as np

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import check, real

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
    check(passes.merge_products, HEADS[2:3] + HEADS[6:7], x, ["b"], ["MatMul", "Transpose"], LAYERS)


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
