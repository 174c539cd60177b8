"""Operators of the domain ai.onnx.ml, as skl2onnx leaves them in files, as composites; scores are those of onnxruntime.

Labels are integers; those of text are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..ir import Value
from .registry import Apply, composite

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
OPPOSITES = ("BRANCH_GTE", "BRANCH_GT", "BRANCH_NEQ")  # the negation of LT, LEQ and EQ, but for NaN
ml = partial(composite, domain="ai.onnx.ml")


def _floats(apply: Apply, x: Value) -> Value:
    return x if x.dtype in ("float32", "float64") else apply("Cast", x, to="float32")


def _transformed(apply: Apply, scores: Value, transform: str) -> Value:
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return apply("Sigmoid", scores)
        case "SOFTMAX":
            return apply("Softmax", scores, axis=-1)
    raise ValueError(f"the post_transform {transform} is not supported")


def _labels(apply: Apply, index: Value, classes: Sequence[int], texts: Sequence[str]) -> Value:
    """The labels of classes by index."""
    if texts or not classes:
        raise ValueError("labels that are text are not supported; convert a model of integer labels")
    return apply("Gather", apply.constant(classes, "int64"), index, axis=0)


# --- trees -------------------------------------------------------------------------------------------------------------


class _Trees:
    """The nodes of an ensemble of trees in arrays, each node with its two children, a leaf with itself.

    Where a feature is at most the threshold, the first child follows; where it is equal to it in nodes of that mode; and for a
    NaN in nodes that say so. Other comparisons are one of these, with children exchanged: x < t is x <= t' with t' just below.
    """

    def __init__(self, given: Mapping[str, Any], dtype: str):
        ids = list(zip(given["nodes_treeids"], given["nodes_nodeids"], strict=True))
        self.number = {key: n for n, key in enumerate(ids)}
        modes = list(given["nodes_modes"])
        if unknown := sorted(set(modes) - set(MODES)):
            raise ValueError(f"nodes of the mode {unknown[0]} are not supported")
        self.leaf = np.array([mode == "LEAF" for mode in modes])
        swapped = np.array([mode in OPPOSITES for mode in modes])
        self.equal = np.array([mode in ("BRANCH_EQ", "BRANCH_NEQ") for mode in modes])
        below = np.array([mode in ("BRANCH_LT", "BRANCH_GTE") for mode in modes])
        values = np.array(given["nodes_values"], "float32").astype(dtype)
        self.threshold = np.where(below, np.nextafter(values, values.dtype.type(-np.inf)), values)
        self.feature = np.where(self.leaf, 0, given["nodes_featureids"])
        parents = list(zip(ids, self.leaf, strict=True))
        children = [
            [
                n if leaf else self.number[tree, child]
                for n, (((tree, _), leaf), child) in enumerate(zip(parents, own, strict=True))
            ]
            for own in (given["nodes_truenodeids"], given["nodes_falsenodeids"])
        ]
        tracks = np.array(given.get("nodes_missing_value_tracks_true") or np.zeros(len(ids)), bool)
        self.yes, self.no = np.where(swapped, children[::-1], children)
        self.nan_yes = (tracks ^ swapped) & ~np.array([mode == "BRANCH_NEQ" for mode in modes])  # a NaN is unequal to all
        inner = set(np.concatenate([self.yes[~self.leaf], self.no[~self.leaf]]).tolist())
        roots = {tree: n for n, (tree, _) in reversed([*enumerate(ids)]) if n not in inner}
        self.roots = np.array(list(roots.values()))

    @property
    def depth(self) -> int:
        """The number of comparisons on the longest way from a root to a leaf. ValueError for nodes in a circle."""
        level, depth = self.roots, 0
        while not self.leaf[level].all():
            inner = np.unique(level[~self.leaf[level]])
            level, depth = np.concatenate([self.yes[inner], self.no[inner]]), depth + 1
            if depth > len(self.leaf):
                raise ValueError("its nodes are no trees")
        return depth

    def leaves(self, apply: Apply, x: Value) -> Value:
        """The leaf of each row (N, F) in each tree (N, T)."""
        rows = x.shape[0]
        tables = {name: apply.constant(getattr(self, name).astype(np.int64)) for name in ("feature", "yes", "no")}
        threshold, flags = apply.constant(self.threshold), (self.equal.any(), self.nan_yes[~self.leaf].any())
        equal, nan = (apply.constant(flag) for flag in (self.equal, self.nan_yes))
        node = apply.constant(np.broadcast_to(self.roots, (rows, len(self.roots))).astype(np.int64))

        def at(table: Value) -> Value:
            return apply("Gather", table, node, axis=0)

        for _ in range(self.depth):
            found, bound = apply("GatherElements", x, at(tables["feature"]), axis=1), at(threshold)
            first = apply("LessOrEqual", found, bound)
            if flags[0]:
                first = apply("Where", at(equal), apply("Equal", found, bound), first)
            if flags[1]:
                first = apply("Or", first, apply("And", apply("IsNaN", found), at(nan)))
            node = apply("Where", first, at(tables["yes"]), at(tables["no"]))
        return node

    def weights(self, places: Any, given: Sequence[float], columns: int, missing: float, dtype: str) -> np.ndarray:
        """The sums that leaves (nodes, columns) add to each column; `missing` where a leaf adds nothing."""
        table = np.full((len(self.leaf), columns), missing, dtype)
        for tree, node, column, weight in zip(*places, given, strict=True):
            place = self.number[tree, node], column
            table[place] = weight if table[place] == missing else table[place] + weight
        return table


def _scores(apply: Apply, x: Value, given: Mapping[str, Any], kind: str, columns: int, aggregate: str = "SUM") -> Value:
    """The sums, averages, or extremes of the leaves' weights over all trees, for each row and column."""
    if any(key.endswith("_as_tensor") for key in given):
        raise ValueError("thresholds and weights of float64 are not supported")
    reductions = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    if aggregate not in reductions:
        raise ValueError(f"the aggregate_function {aggregate} is not supported")
    trees = _Trees(given, x.dtype)
    missing = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
    places = [given[f"{kind}_{part}"] for part in ("treeids", "nodeids", "ids")]
    weights = apply.constant(trees.weights(places, given[f"{kind}_weights"], columns, missing, "float32"))
    found = apply(reductions[aggregate], apply("Gather", weights, trees.leaves(apply, x), axis=0), axes=(1,), keepdims=0)
    if aggregate == "AVERAGE":
        return apply("Div", found, apply.constant(len(trees.roots), "float32"))
    if missing:
        found = apply("Where", apply("Equal", found, apply.constant(missing, "float32")), apply.constant(0, "float32"), found)
    return found


@ml("TreeEnsembleRegressor")
def tree_regressor(apply, x, *, n_targets=1, aggregate_function="SUM", post_transform="NONE", base_values=(), **trees):
    """Rows (N, F) -> numbers (N, targets) of an ensemble of regression trees."""
    found = _scores(apply, _floats(apply, x), trees, "target", n_targets, aggregate_function)
    found = apply("Add", found, apply.constant(base_values, "float32")) if base_values else found
    return _transformed(apply, found, post_transform)


@ml("TreeEnsembleClassifier")
def tree_classifier(
    apply, x, *, classlabels_int64s=(), classlabels_strings=(), post_transform="NONE", base_values=(), **trees
):  # fmt: skip
    """Rows (N, F) -> labels (N) and scores (N, classes). Of two classes, trees may score one alone."""
    if classlabels_strings:
        _labels(apply, x, (), classlabels_strings)
    count = len(classlabels_int64s)
    if count == 2 and len(set(trees["class_ids"])) == 1:
        one = trees | {"class_ids": (0,) * len(trees["class_ids"])}
        score = _scores(apply, _floats(apply, x), one, "class", 1)
        base = base_values[-1:]
        score = apply("Add", score, apply.constant(base, "float32")) if base else score
        positive = min(trees["class_weights"]) >= 0
        flat = apply("Reshape", score, shape=(score.shape[0],), allowzero=1)
        chosen = apply("Greater", flat, apply.constant(0.5 if positive else 0, "float32"))
        if trees["class_ids"][0] == 1:  # the first class has the score 0
            if base:
                raise ValueError("base_values of an ensemble that scores the second class alone are not supported")
            both = _transformed(apply, apply("Concat", apply("Sub", score, score), score, axis=1), post_transform)
        elif post_transform == "LOGISTIC":
            both = apply("Sigmoid", apply("Concat", apply("Neg", score), score, axis=1))
        else:
            other = apply("Sub", apply.constant(1, "float32"), score) if positive else apply("Neg", score)
            both = apply("Concat", other, score, axis=1)
        return _labels(apply, apply("Cast", chosen, to="int64"), classlabels_int64s, ()), both
    scores = _scores(apply, _floats(apply, x), trees, "class", count)
    scores = apply("Add", scores, apply.constant(base_values, "float32")) if base_values else scores
    labels = _labels(apply, apply("ArgMax", scores, axis=1, keepdims=0), classlabels_int64s, ())
    return labels, _transformed(apply, scores, post_transform)


# --- linear models and scaling -------------------------------------------------------------------------------------------


def _linear(apply: Apply, x: Value, coefficients: Sequence[float], intercepts: Sequence[float], rows: int) -> Value:
    weights = np.array(coefficients, "float32").reshape(rows, -1)
    bias = apply.constant(intercepts, "float32") if intercepts else None
    return apply("Gemm", apply("Cast", x, to="float32"), apply.constant(weights), bias, transB=1)


@ml("LinearRegressor")
def linear_regressor(apply, x, *, coefficients, intercepts=(), targets=1, post_transform="NONE"):
    return _transformed(apply, _linear(apply, x, coefficients, intercepts, targets), post_transform)


@ml("LinearClassifier")
def linear_classifier(
    apply, x, *, coefficients, intercepts, classlabels_ints=(), classlabels_strings=(), multi_class=0, post_transform="NONE"
):
    """Rows (N, F) -> labels (N) and scores (N, classes); each class has coefficients of its own."""
    scores = _linear(apply, x, coefficients, intercepts, len(intercepts))
    if len(classlabels_ints) != len(intercepts) and not classlabels_strings:
        raise ValueError("one row of coefficients for two classes is not supported")
    labels = _labels(apply, apply("ArgMax", scores, axis=1, keepdims=0), classlabels_ints, classlabels_strings)
    return labels, _transformed(apply, scores, post_transform)


@ml("Scaler")
def scaler(apply, x, *, offset=(0.0,), scale=(1.0,)):
    centred = apply("Sub", apply("Cast", x, to="float32"), apply.constant(offset, "float32"))
    return apply("Mul", centred, apply.constant(scale, "float32"))


@ml("Normalizer")
def normalizer(apply, x, *, norm="MAX"):
    """Rows divided by their largest element, sum of sizes, or length; rows of 0 stay."""
    x = apply("Cast", x, to="float32")
    reduction = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[norm]
    size = apply(reduction, x, axes=(-1,), keepdims=1)
    return apply("Div", x, apply("Where", apply("Equal", size, apply.constant(0, "float32")), apply.constant(1, "float32"), size))


@ml("ArrayFeatureExtractor")
def columns(apply, x, indices):
    """Elements of the last dimension."""
    flat = apply("Reshape", indices, shape=(-1,))
    found = apply("Gather", x, flat, axis=-1)
    return apply("Reshape", found, shape=(1, -1)) if len(x.shape) == 1 else found


@ml("ZipMap")
def zip_map(apply, x, **labels):
    raise ValueError('mappings are not supported; convert with options={"zipmap": False}')
