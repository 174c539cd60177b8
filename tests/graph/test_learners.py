"""Operators of ai.onnx.ml: random trees of all modes against a walk through their nodes, other models against numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

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

    def leaf(self, row, members=None):
        """The leaf of a row; `members` are the numbers that each of some nodes looks for."""
        at = self.root
        while (node := self.rows[at])[0] != "LEAF":
            mode, feature, value, yes, no, tracks = node
            x = row[feature]
            holds = COMPARE[mode](x, np.float32(value)) if at not in (members or {}) else x in members[at]
            at = yes if holds or (np.isnan(x) and tracks) else no
        return at


def attributes(trees):
    rows = [(number, n, *row) for number, tree in enumerate(trees) for n, row in enumerate(tree.rows)]
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def file(operator, outputs, x, version=3, **given):
    node = helper.make_node(operator, ["x"], outputs, domain="ai.onnx.ml", **given)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = helper.make_graph(
        [node], "learner", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)])


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


@one_in(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aggregate", range(4))
def test_trees_of_version_5(aggregate, dtype):
    """Leaves lie apart from nodes, and a node may ask for one of several numbers: some nodes that compare for equality do."""
    rng = np.random.default_rng(aggregate)
    trees, x = [Tree(rng, MODES[:6]) for _ in range(4)], rows(rng, 13, dtype)
    nodes, leaves, sets, weights, place = [], [], [], [], {}
    for k, tree in enumerate(trees):
        tree.rows[tree.root] = tree.rows[tree.root] if tree.rows[tree.root][0] != "LEAF" else ("BRANCH_LT", 0, 0.0, 0, 0, 0)
        for n, row in enumerate(tree.rows):
            own = leaves if row[0] == "LEAF" else nodes
            place[k, n] = len(own), own is leaves
            own.append((k, n))
    members = {}
    for k, n in nodes:
        mode, _, value, *_ = trees[k].rows[n]
        if mode == "BRANCH_EQ" and rng.integers(2):
            members[k, n] = [value, 1.0, 3.0][: rng.integers(4)]
            sets += [*members[k, n], np.nan]
    weights = rng.integers(-8, 8, len(leaves)) / 4
    targets = rng.integers(0, 2, len(leaves))

    def column(field):
        return [trees[k].rows[n][field] for k, n in nodes]

    sides = {
        name: [place[k, trees[k].rows[n][field]] for k, n in nodes] for name, field in (("true", 3), ("false", 4))
    }  # fmt: skip
    modes = [6 if node in members else MODES.index(mode) for node, mode in zip(nodes, column(0), strict=True)]
    made = file(
        "TreeEnsemble", ["y"], x, 5, n_targets=2, aggregate_function=aggregate,
        tree_roots=[place[k, t.root][0] for k, t in enumerate(trees)],
        nodes_featureids=column(1), nodes_splits=numpy_helper.from_array(np.array(column(2), dtype)),
        nodes_modes=numpy_helper.from_array(np.array(modes, "uint8")), nodes_missing_value_tracks_true=column(5),
        **{f"nodes_{name}nodeids": [n for n, _ in own] for name, own in sides.items()},
        **{f"nodes_{name}leafs": [int(leaf) for _, leaf in own] for name, own in sides.items()},
        leaf_targetids=targets.tolist(), leaf_weights=numpy_helper.from_array(weights.astype(dtype)),
        **({"membership_values": numpy_helper.from_array(np.array(sets, dtype))} if sets else {}),
    )  # fmt: skip
    combine = [lambda v: sum(v) / len(trees), sum, min, max][aggregate]
    wanted = np.zeros((13, 2), dtype)
    for i, row in enumerate(x):
        found = [leaves.index((k, t.leaf(row, {n: m for (q, n), m in members.items() if q == k}))) for k, t in enumerate(trees)]
        for target in range(2):
            own = [weights[n] for n in found if targets[n] == target]
            wanted[i, target] = combine(own) if own else 0
    graph = tir.load_onnx(made)
    ways = [lambda: evaluate(graph, [x])[0], lambda: tir.compile(graph, "llvm -num-cores 1", cache=None)(x)[0]]
    for found in (way() for way in ways[: 1 + (aggregate == 2)]):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=16 * np.finfo(dtype).eps, atol=16 * np.finfo(dtype).eps)


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


def kernel(kind, x, vectors, gamma, shift, degree):
    match kind:
        case "LINEAR":
            return x @ vectors.T
        case "POLY":
            return (gamma * x @ vectors.T + shift) ** degree
        case "RBF":
            return np.exp(-gamma * ((x[:, None] - vectors) ** 2).sum(2))
        case "SIGMOID":
            return np.tanh(gamma * x @ vectors.T + shift)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind):
    """Scores of pairs and votes one by one, as onnxruntime has them: the pair's first class has the positive side."""
    rng, params = np.random.default_rng(3), (0.25, 0.5, 3.0)
    x = rng.normal(size=(13, 5)).astype("float32")

    def near(found, wanted):
        bound = 256 * np.finfo("float32").eps * max(1, np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)

    given = {"kernel_type": kind, "kernel_params": list(params)}
    for counts in ([3, 4], [3, 1, 7, 2]):
        n, labels = len(counts), [4, -2, 7, 9][: len(counts)]
        vectors, starts = rng.normal(size=(sum(counts), 5)).astype("float32"), np.cumsum([0, *counts])
        weights = rng.normal(size=(n - 1, sum(counts))).astype("float32")
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        rho = rng.normal(size=len(pairs)).astype("float32")
        k = kernel(kind, x.astype("float64"), vectors.astype("float64"), *params)
        of = [slice(a, b) for a, b in pairwise(starts)]
        sums = [k[:, of[i]] @ weights[j - 1, of[i]] + k[:, of[j]] @ weights[i, of[j]] for i, j in pairs]
        scores = np.stack(sums, 1) + rho
        votes = np.zeros((13, n))
        for column, pair in enumerate(pairs):
            for row in range(13):
                votes[row, pair[int(scores[row, column] <= 0)]] += 1
        made = file(
            "SVMClassifier", ["label", "scores"], x, classlabels_ints=labels, vectors_per_class=counts, rho=rho,
            coefficients=weights.ravel(), support_vectors=vectors.ravel(), **given,
        )  # fmt: skip
        label, found = evaluate(tir.load_onnx(made), [x])
        np.testing.assert_array_equal(label, np.array(labels)[votes.argmax(1)])
        near(found, np.concatenate([-scores, scores], 1) if n == 2 else scores)
        given_too = given | {
            "support_vectors": vectors.ravel(),
            "n_supports": sum(counts),
            "coefficients": weights[0],
            "rho": rho[:1],
        }
        (number,) = evaluate(tir.load_onnx(file("SVMRegressor", ["y"], x, **given_too)), [x])
        near(number, (k @ weights[0] + rho[0])[:, None])
        (inside,) = evaluate(tir.load_onnx(file("SVMRegressor", ["y"], x, one_class=1, **given_too)), [x])
        np.testing.assert_array_equal(inside, np.where((k @ weights[0] + rho[0])[:, None] > 0, 1, -1))
    (number,) = evaluate(tir.load_onnx(file("SVMRegressor", ["y"], x, coefficients=weights[0, :5], rho=rho[:1])), [x])
    near(number, (x @ weights[0, :5] + rho[0])[:, None])


def test_columns_of_numbers():
    x = np.array([[3, np.nan, -1, 0.5, 2], [5, 1, 3, np.nan, 7], [0, 0, 0, 0, 0.25]], "float32")
    whole = np.array([[3, 1], [9, 5], [0, 3]])
    keys = [3.0, float("nan"), 0.5, 3.0]
    tensors = {f"{n}_tensor": numpy_helper.from_array(np.array(v)) for n, v in
               (("keys", [3, 9, 0]), ("values", [0.5, 1.5, 2.5]), ("default", [8.0]))}  # fmt: skip
    as_float = np.array([[0.5, -9], [1.5, -9], [2.5, 0.5]], "float32")
    cases = [
        ("Binarizer", x, {"threshold": 0.5}, (x > 0.5).astype("float32")),
        ("Imputer", x, {"imputed_value_floats": [1, 2, 3, 4, 5], "replaced_value_float": float("nan")},
         np.where(np.isnan(x), np.arange(1, 6, dtype="float32"), x)),
        ("Imputer", x, {"imputed_value_floats": [9], "replaced_value_float": 3.0}, np.where(x == 3, np.float32(9), x)),
        ("Imputer", whole, {"imputed_value_int64s": [4, 6], "replaced_value_int64": 5}, np.array([[3, 1], [9, 6], [0, 3]])),
        ("OneHotEncoder", whole, {"cats_int64s": [9, 1, 3]}, (whole[:, :, None] == np.array([9, 1, 3])).astype("float32")),
        ("OneHotEncoder", x, {"cats_int64s": [0, 3]}, (np.trunc(x)[:, :, None] == np.array([0, 3])).astype("float32")),
        ("LabelEncoder", x, {"keys_floats": keys, "values_int64s": [7, 8, 9, 10]},
         np.select([x == 3, np.isnan(x), x == 0.5], [7, 8, 9], -1)),
        ("LabelEncoder", whole, {"keys_int64s": [3, 9, 0], "values_floats": [0.5, 1.5, 2.5], "default_float": -9.0}, as_float),
        ("LabelEncoder", whole, tensors, np.where(as_float == -9, 8, as_float.astype("float64"))),
        ("FeatureVectorizer", whole, {"inputdimensions": [2]}, whole.astype("float32")),
    ]  # fmt: skip
    for operator, given_x, given, wanted in cases:
        (found,) = evaluate(tir.load_onnx(file(operator, ["y"], given_x, 4, **given)), [given_x])
        assert found.dtype == wanted.dtype, operator
        np.testing.assert_array_equal(found, wanted, operator)


def test_refusals():
    x, tree = np.zeros((3, FEATURES), "float32"), Tree(np.random.default_rng(0), MODES[:1])
    given = attributes([tree]) | {"class_treeids": [0], "class_nodeids": [0], "class_ids": [0], "class_weights": [1.0]}
    with pytest.raises(GraphError, match="labels that are text are not supported"):
        tir.load_onnx(file("TreeEnsembleClassifier", ["label", "scores"], x, classlabels_strings=["a", "b"], **given))
    with pytest.raises(GraphError, match=r'mappings are not supported; convert with options=\{"zipmap": False\}'):
        tir.load_onnx(file("ZipMap", ["y"], x, classlabels_int64s=[0, 1]))
    for operator, own, why in [
        ("SVMClassifier", {"classlabels_ints": [0, 1], "coefficients": [1.0], "rho": [0.0]}, "without support vectors"),
        ("SVMClassifier", {"classlabels_ints": [0, 1], "vectors_per_class": [1, 1], "coefficients": [1.0, -1.0], "rho": [0.0],
                           "support_vectors": [1.0] * 10, "prob_a": [1.0], "prob_b": [0.0]}, "found by iteration"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 1, "support_vectors": [1.0] * 5,
                          "kernel_type": "OWN"}, "the kernel_type OWN is not supported"),
        ("SVMRegressor", {"coefficients": [1.0] * 5, "rho": [0.0], "post_transform": "LOGISTIC"}, "LOGISTIC of one number"),
        ("SVMClassifier", {"classlabels_ints": [0, 1], "vectors_per_class": [1, 1], "coefficients": [1.0, -1.0], "rho": [0.0],
                           "support_vectors": [1.0] * 10, "post_transform": "SOFTMAX"}, "SOFTMAX of two classes"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_strings": ["a"]}, "text"),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "zeros must be 1"),
        ("FeatureVectorizer", {"inputdimensions": [2]}, "columns other than `inputdimensions`"),
    ]:  # fmt: skip
        with pytest.raises(GraphError, match=why):
            tir.load_onnx(file(operator, ["y"], x, **own))
    circle = {**given, "nodes_truenodeids": [0] * len(tree.rows)}
    with pytest.raises(GraphError, match="its nodes are no trees"):
        tir.load_onnx(file("TreeEnsembleClassifier", ["label", "scores"], x, classlabels_int64s=[0, 1], **circle))
