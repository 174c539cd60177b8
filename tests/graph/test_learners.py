"""Operators of ai.onnx.ml: random trees of all modes against a walk through their nodes, linear models against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tir
from graph import GraphError
from graph.ops.learners import MODES
from graph.reference import evaluate
from tests.sweeps import one_in

COMPARE = {
    "BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal,
}  # fmt: skip
VALUES = np.array([-2, -0.5, 0, 0.25, 1, 3], "float32")  # of thresholds and features, so that many are equal
FEATURES = 5


class Tree:
    """Nodes of a random tree in lists, as attributes have them, the root anywhere among them."""

    def __init__(self, rng, modes):
        self.rows = []
        self.root = self.grown(rng, modes, 4)

    def grown(self, rng, modes, depth):
        place = len(self.rows)
        self.rows.append(None)
        if depth == 0 or (depth < 4 and rng.integers(4) == 0):
            self.rows[place] = ("LEAF", 0, 0.0, 0, 0, 0)
        else:
            mode, feature, value = str(rng.choice(modes)), int(rng.integers(FEATURES)), float(rng.choice(VALUES))
            children = [self.grown(rng, modes, depth - 1) for _ in range(2)]
            self.rows[place] = (mode, feature, value, *children, int(rng.integers(2)))
        return place

    def leaf(self, row):
        at = self.root
        while (node := self.rows[at])[0] != "LEAF":
            mode, feature, value, yes, no, tracks = node
            x = row[feature]
            at = yes if COMPARE[mode](x, np.float32(value)) or (np.isnan(x) and tracks) else no
        return at


def attributes(trees):
    rows = [(number, n, *row) for number, tree in enumerate(trees) for n, row in enumerate(tree.rows)]
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def file(operator, outputs, x, **given):
    node = helper.make_node(operator, ["x"], outputs, domain="ai.onnx.ml", **given)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = helper.make_graph(
        [node], "learner", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)])


def rows(rng, count, dtype="float32"):
    x = rng.choice(np.array([*VALUES, np.nan, np.inf, -np.inf]), (count, FEATURES))
    return (x + rng.choice([0, 1e-6], x.shape)).astype(dtype)


@one_in(4)
@pytest.mark.parametrize("count", [1, 7, 109])
@pytest.mark.parametrize("modes", [MODES[:1], MODES[1:2], MODES[2:4], MODES[4:6], MODES[:6]], ids=lambda m: m[0])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_trees(aggregate, modes, count):
    rng = np.random.default_rng(len(modes) + count)
    trees = [Tree(rng, modes) for _ in range(1 if count == 1 else 5)]
    weights = {}  # of each leaf for one of two targets, for some for both
    for number, tree in enumerate(trees):
        for n in (n for n, row in enumerate(tree.rows) if row[0] == "LEAF"):
            for target in [[0], [1], [0, 1]][rng.integers(3)]:
                weights[number, n, target] = float(rng.integers(-8, 8)) / 4
    targets = dict(zip(("target_treeids", "target_nodeids", "target_ids"), map(list, zip(*weights, strict=True)), strict=True))
    x = rows(rng, count, "float64" if modes == MODES[1:2] else "float32")
    given = attributes(trees) | targets | {"target_weights": list(weights.values())}
    made = file("TreeEnsembleRegressor", ["y"], x, n_targets=2, aggregate_function=aggregate, base_values=[0.5, -1.0], **given)
    graph = tir.load_onnx(made)
    combine = {"SUM": sum, "AVERAGE": lambda v: sum(v) / len(trees), "MIN": min, "MAX": max}[aggregate]
    wanted = np.zeros((count, 2), "float32")
    for n, row in enumerate(x):
        for target in range(2):
            own = [weights[k, leaf, target] for k, t in enumerate(trees) if (k, leaf := t.leaf(row), target) in weights]
            wanted[n, target] = (combine(own) if own else 0) + [0.5, -1.0][target]
    rounding = 16 * np.finfo("float32").eps  # sums of a few quarters are exact, averages are not
    for found in (evaluate(graph, [x])[0], tir.compile(graph, "llvm -num-cores 1", cache=None)(x)[0]):
        np.testing.assert_allclose(found, wanted, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("classes", "scored"), [(2, 0), (2, 1), (3, None)])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classification_trees(classes, scored, negative, transform):
    """Of two classes, the weights are those of one alone. If that is the first, they count for the second, and the first has the
    rest, or the opposite; else the first has 0. So onnxruntime has it."""
    rng = np.random.default_rng(classes)
    trees, x = [Tree(rng, MODES[:1]) for _ in range(4)], rows(rng, 13)
    leaves = [(k, n) for k, tree in enumerate(trees) for n, row in enumerate(tree.rows) if row[0] == "LEAF"]
    ids = rng.integers(0, classes, len(leaves)) if scored is None else np.full(len(leaves), scored)
    weights = rng.uniform(-1 if negative else 0, 0.25, len(leaves)).astype("float32")
    given = {"class_treeids": [k for k, _ in leaves], "class_nodeids": [n for _, n in leaves], "class_ids": ids.tolist()}
    labels = [5, -3, 9][:classes]
    made = file(
        "TreeEnsembleClassifier", ["label", "scores"], x, classlabels_int64s=labels, class_weights=weights.tolist(),
        post_transform=transform, **attributes(trees), **given,
    )  # fmt: skip
    scores = np.zeros((13, classes))
    for n, row in enumerate(x):
        for (k, leaf), column, weight in zip(leaves, ids, weights, strict=True):
            scores[n, column] += weight * (trees[k].leaf(row) == leaf)
    chosen = scores.argmax(1)
    if classes == 2:
        score = scores[:, scored]
        chosen = (score > (0 if negative else 0.5)).astype(int)
    if scored == 0:
        scores = np.stack([-score if negative or transform == "LOGISTIC" else 1 - score, score], 1)
    if transform == "LOGISTIC":
        scores = 1 / (1 + np.exp(-scores))
    elif transform == "SOFTMAX" and scored != 0:
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    label, found = tir.compile(tir.load_onnx(made), "llvm -num-cores 1", cache=None)(x)
    np.testing.assert_array_equal(label, np.array(labels)[chosen])
    np.testing.assert_allclose(found, scores, rtol=32 * np.finfo("float32").eps, atol=32 * np.finfo("float32").eps)


def test_linear_models_and_scaling():
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(7, 5)).astype("float32"), rng.normal(size=(3, 5)), rng.normal(size=3)
    x[2] = 0
    size = np.abs(x).sum(1, keepdims=True)
    length = np.sqrt((x**2).sum(1, keepdims=True))
    cases = [
        ("LinearRegressor", {"coefficients": w.ravel(), "intercepts": b, "targets": 3}, [x @ w.T + b]),
        ("LinearClassifier", {"coefficients": w.ravel(), "intercepts": b, "classlabels_ints": [4, 2, 7]},
         [np.array([4, 2, 7])[(x @ w.T + b).argmax(1)], x @ w.T + b]),
        ("Scaler", {"offset": w[0], "scale": w[1]}, [(x - w[0]) * w[1]]),
        ("Normalizer", {"norm": "L1"}, [x / np.where(size == 0, 1, size)]),
        ("Normalizer", {"norm": "L2"}, [x / np.where(length == 0, 1, length)]),
    ]  # fmt: skip
    for operator, given, wanted in cases:
        made = file(operator, [f"y{n}" for n in range(len(wanted))], x, **given)
        for found, exact in zip(evaluate(tir.load_onnx(made), [x]), wanted, strict=True):
            np.testing.assert_allclose(found, exact, rtol=64 * np.finfo("float32").eps, atol=64 * np.finfo("float32").eps)


def test_refusals():
    x, tree = np.zeros((3, FEATURES), "float32"), Tree(np.random.default_rng(0), MODES[:1])
    given = attributes([tree]) | {"class_treeids": [0], "class_nodeids": [0], "class_ids": [0], "class_weights": [1.0]}
    with pytest.raises(GraphError, match="labels that are text are not supported"):
        tir.load_onnx(file("TreeEnsembleClassifier", ["label", "scores"], x, classlabels_strings=["a", "b"], **given))
    with pytest.raises(GraphError, match=r'mappings are not supported; convert with options=\{"zipmap": False\}'):
        tir.load_onnx(file("ZipMap", ["y"], x, classlabels_int64s=[0, 1]))
    circle = {**given, "nodes_truenodeids": [0] * len(tree.rows)}
    with pytest.raises(GraphError, match="its nodes are no trees"):
        tir.load_onnx(file("TreeEnsembleClassifier", ["label", "scores"], x, classlabels_int64s=[0, 1], **circle))
