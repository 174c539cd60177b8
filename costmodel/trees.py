"""Ensembles of regression trees in flat arrays, and their fast evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from .compiled import compiled


@dataclass(frozen=True)
class Forest:
    """Trees of one depth d, filled up to be perfect. The children of node k are 2k+1, for a feature up to the threshold, and
    2k+2. `features` (int32) and `thresholds` (float32) are (trees, 2^d - 1); `values` (float32), the summands of the leaves, are
    (trees, 2^d)."""

    features: np.ndarray
    thresholds: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    @property
    def depth(self) -> int:
        return int(self.values.shape[1]).bit_length() - 1

    @staticmethod
    def empty(depth: int) -> Forest:
        nodes = 2**depth
        return Forest(
            np.empty((0, nodes - 1), dtype=np.int32), np.empty((0, nodes - 1), dtype=np.float32), np.empty((0, nodes), np.float32)
        )

    @staticmethod
    def of(trees: Sequence, depth: int, columns: np.ndarray, scale: float) -> Forest:
        """Fitted trees of scikit-learn, no deeper than `depth`, whose feature n is number `columns[n]`; values are scaled."""
        made = [_perfect(t.tree_, depth, columns, scale) for t in trees]
        return Forest(*(np.stack(parts) for parts in zip(*made, strict=True))) if made else Forest.empty(depth)

    def __add__(self, other: Forest) -> Forest:
        return Forest(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of all trees' values for each column of a (features, n) float32 matrix: a float32 vector of length n."""
        n = matrix.shape[1]
        result = np.zeros(n, dtype=np.float32)
        trees = [np.ascontiguousarray(a) for a in (self.features, self.thresholds, self.values)]
        nodes = np.empty(n, dtype=np.int32)
        _kernel()(np.ascontiguousarray(matrix), n, self.depth, len(self), *trees, nodes, result)
        return result


def _perfect(tree, depth: int, columns: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nodes = 2**depth
    features = np.zeros(nodes - 1, dtype=np.int32)
    thresholds = np.full(nodes - 1, np.inf, dtype=np.float32)
    values = np.zeros(nodes, dtype=np.float32)
    work = [(0, 0)]  # a node of the perfect tree, and its node of scikit-learn's
    while work:
        index, node = work.pop()
        leaf = tree.children_left[node] < 0
        if index >= nodes - 1:
            values[index - (nodes - 1)] = tree.value[node].item() * scale
        elif leaf:
            work += [(2 * index + 1, node), (2 * index + 2, node)]
        else:
            features[index] = columns[tree.feature[node]]
            thresholds[index] = _below(tree.threshold[node])
            work += [(2 * index + 1, tree.children_left[node]), (2 * index + 2, tree.children_right[node])]
    return features, thresholds, values


def _below(threshold: float) -> np.float32:
    """The largest float32 at or below the threshold: x <= threshold is the same for every float32 x."""
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))


@cache
def _kernel() -> Callable[..., None]:
    return compiled(_predict, "float32*", "int64", "int64", "int64", "int32*", "float32*", "float32*", "int32*", "float32*")


def _predict(flat, n, depth, trees, features, thresholds, values, nodes, result):  # compiled
    """Loops over trees, levels and columns; `nodes` has room for the node of each column."""
    inner, columns = np.int32((1 << depth) - 1), np.int32(n)
    for t in range(trees):
        root, leaf = np.int32(t) * inner, np.int32(t) * (inner + np.int32(1)) - inner
        for i in range(n):
            nodes[i] = 0
        for _ in range(depth):
            for i in range(n):
                k = np.uint32(root + nodes[i])
                right = flat[np.uint32(features[k] * columns + np.int32(i))] > thresholds[k]
                nodes[i] = np.int32(2) * nodes[i] + np.int32(1) + np.int32(right)
        for i in range(n):
            result[i] += values[np.uint32(leaf + nodes[i])]
