"""Operators of the domain ai.onnx.ml, as skl2onnx leaves them in files, as composites; scores are those of onnxruntime.

Labels, keys and categories are numbers; those of text are refused.
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


def _labels(apply: Apply, index: Value, classes: Sequence[int]) -> Value:
    """The labels of classes by index."""
    _refuse_text(classes)
    return apply("Gather", apply.constant(classes, "int64"), index, axis=0)


def _refuse_text(numbers: Any) -> None:
    if not len(numbers):
        raise ValueError("labels that are text are not supported; convert a model of integer labels")


def _with_base(apply: Apply, scores: Value, base: Sequence[float]) -> Value:
    return apply("Add", scores, apply.constant(base, "float32")) if base else scores


def _matches(apply: Apply, x: Value, keys: np.ndarray) -> Value:
    """True for each element and each of the keys (K) that it equals: (..., K)."""
    column = apply("Reshape", x, shape=(*x.shape, 1), allowzero=1)
    found = apply("Equal", column, apply.constant(keys, x.dtype))
    if (nan := keys != keys).any():
        found = apply("Or", found, apply("And", apply("IsNaN", column), apply.constant(nan)))
    return found


# --- trees -------------------------------------------------------------------------------------------------------------


def _array(numbers: Any) -> np.ndarray:
    """The numbers of an attribute, which are of float32 unless it is a tensor."""
    return numbers if isinstance(numbers, np.ndarray) else np.array(numbers, "float32")


class _Trees:
    """The nodes of an ensemble of trees in arrays, each node with its two children, a leaf with itself. Thresholds have the type
    of their array, or are of float32.

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
        values = _array(given["nodes_values"]).astype(dtype)
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
        self.roots = np.array(given.get("roots", list(roots.values())))

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

    def weights(self, places: Any, given: Any, columns: int, missing: float, dtype: str) -> np.ndarray:
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
    added = _array(given[f"{kind}_weights"])
    weights = apply.constant(trees.weights(places, added, columns, missing, added.dtype.name))
    found = apply(reductions[aggregate], apply("Gather", weights, trees.leaves(apply, x), axis=0), axes=(1,), keepdims=0)
    if aggregate == "AVERAGE":
        return apply("Div", found, apply.constant(len(trees.roots), found.dtype))
    if missing:
        found = apply("Where", apply("Equal", found, apply.constant(missing, found.dtype)), apply.constant(0, found.dtype), found)
    return found


@ml("TreeEnsemble", 5)
def tree_ensemble(
    apply, x, *, tree_roots, nodes_featureids, nodes_splits, nodes_modes, nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids,
    nodes_falseleafs, leaf_targetids, leaf_weights, n_targets=None, membership_values=(), aggregate_function=1, post_transform=0,
    nodes_missing_value_tracks_true=None, nodes_hitrates=None,
):  # fmt: skip
    """Rows (N, F) -> numbers (N, targets). A node of a set of members becomes a chain of nodes, one for each member."""
    count, leaves = len(nodes_modes), len(leaf_targetids)
    ids = (nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs)
    children = [[n + count * leaf for n, leaf in zip(*side, strict=True)] for side in ids]  # leaves are counted after nodes
    members: list[list[float]] = [[]]
    for value in membership_values:
        members = [*members, []] if np.isnan(value) else [*members[:-1], [*members[-1], value]]
    columns = (nodes_modes, nodes_featureids, nodes_splits, *children, nodes_missing_value_tracks_true or (0,) * count)
    sets, rows = iter(members), {count + n: ("LEAF", 0, 0, 0, 0, 0) for n in range(leaves)}
    for number, (mode, feature, value, yes, no, tracks) in enumerate(zip(*columns, strict=True)):
        equal = (next(sets) or [np.nan]) if mode == len(MODES) - 1 else None
        chain = [number, *range(len(rows) + count, len(rows) + count + len(equal or ()) - 1)]
        for at, after, each in zip(chain, (*chain[1:], no), equal or [value], strict=True):
            rows[at] = "BRANCH_EQ" if equal else MODES[mode], feature, each, yes, after, tracks
    names = ("modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    given: dict[str, Any] = {f"nodes_{n}": column for n, column in zip(names, zip(*rows.values(), strict=True), strict=True)}
    place = {number: n for n, number in enumerate(rows)}
    given |= {"nodes_treeids": (0,) * len(rows), "nodes_nodeids": (*rows,), "roots": [place[n] for n in tree_roots]}
    given |= {"target_treeids": (0,) * leaves, "target_nodeids": range(count, count + leaves), "target_ids": leaf_targetids}
    given |= {"nodes_values": np.array(given["nodes_values"], nodes_splits.dtype), "target_weights": leaf_weights}
    targets = max(leaf_targetids) + 1 if n_targets is None else n_targets
    found = _scores(apply, x, given, "target", targets, ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function])
    transforms = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return _transformed(apply, found, transforms[post_transform])


@ml("TreeEnsembleRegressor")
def tree_regressor(apply, x, *, n_targets=1, aggregate_function="SUM", post_transform="NONE", base_values=(), **trees):
    """Rows (N, F) -> numbers (N, targets) of an ensemble of regression trees."""
    found = _scores(apply, _floats(apply, x), trees, "target", n_targets, aggregate_function)
    return _transformed(apply, _with_base(apply, found, base_values), post_transform)


@ml("TreeEnsembleClassifier")
def tree_classifier(
    apply, x, *, classlabels_int64s=(), classlabels_strings=(), post_transform="NONE", base_values=(), **trees
):  # fmt: skip
    """Rows (N, F) -> labels (N) and scores (N, classes). Of two classes, trees may score one alone."""
    _refuse_text(classlabels_int64s)
    count = len(classlabels_int64s)
    if count == 2 and len(set(trees["class_ids"])) == 1:
        one = trees | {"class_ids": (0,) * len(trees["class_ids"])}
        base = base_values[-1:]
        score = _with_base(apply, _scores(apply, _floats(apply, x), one, "class", 1), base)
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
        return _labels(apply, apply("Cast", chosen, to="int64"), classlabels_int64s), both
    scores = _with_base(apply, _scores(apply, _floats(apply, x), trees, "class", count), base_values)
    labels = _labels(apply, apply("ArgMax", scores, axis=1, keepdims=0), classlabels_int64s)
    return labels, _transformed(apply, scores, post_transform)


# --- support vectors --------------------------------------------------------------------------------------------------


def _kernels(apply: Apply, x: Value, vectors: np.ndarray, kind: str, params: Sequence[float]) -> Value:
    """The kernel function of each row (N, F) and each vector (V, F): (N, V)."""
    gamma, *others = [apply.constant(p, "float32") for p in params or (0.0, 0.0, 0.0)]
    if kind == "RBF":
        apart = apply("Sub", apply("Reshape", x, shape=(x.shape[0], 1, -1)), apply.constant(vectors))
        size = apply("ReduceSumSquare", apart, axes=(2,), keepdims=0)
        return apply("Exp", apply("Neg", apply("Mul", size, gamma)))
    dots = apply("Gemm", x, apply.constant(vectors), transB=1)
    if kind == "LINEAR":
        return dots
    along = apply("Add", apply("Mul", dots, gamma), others[0])
    match kind:
        case "POLY":
            return apply("Pow", along, others[1])
        case "SIGMOID":
            return apply("Tanh", along)
    raise ValueError(f"the kernel_type {kind} is not supported")


@ml("SVMRegressor")
def svm_regressor(
    apply, x, *, coefficients, rho, support_vectors=(), n_supports=0, kernel_type="LINEAR", kernel_params=(), one_class=0,
    post_transform="NONE",
):  # fmt: skip
    """Rows (N, F) -> numbers (N, 1); for one class, 1 within and -1 outside."""
    if post_transform != "NONE":
        raise ValueError(f"the post_transform {post_transform} of one number is not supported")
    x, weights = apply("Cast", x, to="float32"), np.array(coefficients, "float32")[:, None]
    if n_supports:
        x = _kernels(apply, x, np.array(support_vectors, "float32").reshape(n_supports, -1), kernel_type, kernel_params)
    found = apply("Gemm", x, apply.constant(weights), apply.constant(rho[:1], "float32"))
    if one_class:
        inside, *signs = [apply.constant(n, "float32") for n in (0, 1, -1)]
        return apply("Where", apply("Greater", found, inside), *signs)
    return found


@ml("SVMClassifier")
def svm_classifier(
    apply, x, *, coefficients, rho, support_vectors=(), vectors_per_class=(), kernel_type="LINEAR", kernel_params=(), prob_a=(),
    prob_b=(), classlabels_ints=(), classlabels_strings=(), post_transform="NONE",
):  # fmt: skip
    """Rows (N, F) -> labels (N), by votes of each pair of classes, and scores: of each pair, or of both classes of two."""
    _refuse_text(classlabels_ints)
    classes, vectors = len(classlabels_ints), sum(vectors_per_class)
    if not vectors or len(vectors_per_class) != classes or min(coefficients) >= 0:
        raise ValueError("a classifier without support vectors of each class, and of both signs, is not supported")
    if prob_a or prob_b:
        raise ValueError("probabilities, found by iteration, are not supported; convert a model with probability=False")
    if classes == 2 and post_transform == "SOFTMAX":
        raise ValueError("the post_transform SOFTMAX of two classes is not supported")
    own = np.array(coefficients, "float32").reshape(classes - 1, vectors)
    ends = np.cumsum((0, *vectors_per_class))
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights, votes = np.zeros((vectors, len(pairs)), "float32"), np.zeros((len(pairs), classes), "float32")
    for n, (i, j) in enumerate(pairs):
        for a, b in ((i, j - 1), (j, i)):
            weights[ends[a] : ends[a + 1], n] = own[b, ends[a] : ends[a + 1]]
        votes[n, [i, j]] = 1, -1
    given = apply("Cast", x, to="float32")
    kernels = _kernels(apply, given, np.array(support_vectors, "float32").reshape(vectors, -1), kernel_type, kernel_params)
    scores = apply("Gemm", kernels, apply.constant(weights), apply.constant(rho, "float32"))
    first = apply("Cast", apply("Greater", scores, apply.constant(0, "float32")), to="float32")
    counted = apply("Gemm", first, apply.constant(votes), apply.constant((votes < 0).sum(0), "float32"))
    if classes == 2:
        scores = apply("Concat", apply("Neg", scores), scores, axis=1)
    labels = _labels(apply, apply("ArgMax", counted, axis=1, keepdims=0), classlabels_ints)
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
    _refuse_text(classlabels_ints)
    if len(classlabels_ints) != len(intercepts):
        raise ValueError("one row of coefficients for two classes is not supported")
    labels = _labels(apply, apply("ArgMax", scores, axis=1, keepdims=0), classlabels_ints)
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


@ml("Binarizer")
def binarizer(apply, x, *, threshold=0.0):
    return apply("Cast", apply("Greater", x, apply.constant(threshold, x.dtype)), to=x.dtype)


@ml("Imputer")
def imputer(
    apply, x, *, imputed_value_floats=(), replaced_value_float=0.0, imputed_value_int64s=(), replaced_value_int64=0
):  # fmt: skip
    """Rows with one value, which may be NaN, replaced by that of all columns or of its own."""
    whole = x.dtype.startswith("int")
    value, new = (replaced_value_int64, imputed_value_int64s) if whole else (replaced_value_float, imputed_value_floats)
    gone = apply("IsNaN", x) if np.isnan(value) else apply("Equal", x, apply.constant(value, x.dtype))
    return apply("Where", gone, apply.constant(new, x.dtype), x)


@ml("OneHotEncoder")
def one_hot(apply, x, *, cats_int64s=(), cats_strings=(), zeros=1):
    """Numbers (...) -> (..., categories): 1 at the category of each, if it has one."""
    _refuse_text(cats_int64s)
    if not zeros:
        raise ValueError("a failure of numbers without a category is not supported: zeros must be 1")
    found = _matches(apply, apply("Cast", x, to="int64"), np.array(cats_int64s))
    if x.dtype.startswith("float"):  # a NaN has no category
        column = apply("Reshape", x, shape=(*x.shape, 1), allowzero=1)
        found = apply("And", found, apply("Not", apply("IsNaN", column)))
    return apply("Cast", found, to="float32")


@ml("LabelEncoder")
def label_encoder(
    apply, x, *, keys_int64s=(), keys_floats=(), keys_tensor=None, values_int64s=(), values_floats=(), values_tensor=None,
    default_int64=-1, default_float=-0.0, default_tensor=None, **text,
):  # fmt: skip
    """The value of the first key that each number equals, else the default."""
    keys = np.array(keys_int64s or keys_floats) if keys_tensor is None else keys_tensor
    values, default = (values_int64s, default_int64) if values_int64s else (_array(values_floats), default_float)
    if values_tensor is not None:
        values, default = values_tensor, default if default_tensor is None else default_tensor
    table = np.append(np.array(values), np.array(default).astype(np.array(values).dtype))
    if len(keys) == 0 or len(table) == 1 or "O" in (keys.dtype.kind, table.dtype.kind):
        _refuse_text(())
    place = apply("Where", _matches(apply, x, keys), *(apply.constant(n, "int64") for n in (np.arange(len(keys)), len(keys))))
    return apply("Gather", apply.constant(table), apply("ReduceMin", place, axes=(-1,), keepdims=0), axis=0)


@ml("FeatureVectorizer")
def vectorizer(apply, *arrays, inputdimensions):
    """Columns of all arrays, each of which has as many as it says, side by side."""
    if [a.shape[-1] for a in arrays] != [*inputdimensions]:
        raise ValueError("columns other than `inputdimensions` are not supported")
    return apply("Concat", *(apply("Cast", a, to="float32") for a in arrays), axis=1)


@ml("ZipMap")
def zip_map(apply, x, **labels):
    raise ValueError('mappings are not supported; convert with options={"zipmap": False}')
