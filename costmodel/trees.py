"""Ensembles of regression trees in flat arrays: their growth and their fast evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from .compiled import compiled

TINY = 1e-30  # below any weight, so that an empty side divides by no zero


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


def grow(
    matrix: np.ndarray, targets: np.ndarray, weights: np.ndarray, depth: int, leaf: int, share: float, rng: np.random.Generator
) -> Forest:
    """An extremely randomised tree (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006) as a forest of one.

    It predicts the weighted targets of the columns of a (features, n) float32 matrix. A node tries the share `share` of the
    features, each at one random threshold, and takes the one with the least squared error. Features that are constant in the
    node are tried last. Both sides get at least `leaf` columns; if that is impossible, all go left.
    """
    nodes, tried = 2**depth - 1, max(1, int(share * len(matrix)))
    features, thresholds = np.zeros(nodes, dtype=np.int32), np.full(nodes, np.inf, dtype=np.float32)
    sums = np.stack([np.ones(len(weights)), weights, weights * targets])
    node = np.zeros(len(weights), dtype=np.int64)  # of each column
    for _ in range(depth):
        order = np.argsort(node, kind="stable")
        matrix, sums, node = matrix[:, order], sums[:, order], node[order]
        present, starts, group = np.unique(node, return_index=True, return_inverse=True)
        lowest, highest = (extreme.reduceat(matrix, starts, axis=1) for extreme in (np.minimum, np.maximum))
        draw = np.where(lowest < highest, rng.random(lowest.shape), 1.0)  # constant features come last
        picked = np.argpartition(draw, tried - 1, axis=0)[:tried]
        low, high = (np.take_along_axis(ends, picked, axis=0) for ends in (lowest, highest))
        seen = matrix[picked[:, group], np.arange(len(group))]
        at = (low + rng.random(low.shape) * (high - low)).astype(np.float32)
        left = seen <= at[:, group]
        below = np.add.reduceat(np.where(left, sums[:, None], 0.0), starts, axis=2)  # (sums, tried, present)
        above = np.add.reduceat(sums, starts, axis=1)[:, None] - below
        allowed = np.minimum(below[0], above[0]) >= leaf
        explained = sum(total**2 / np.maximum(weight, TINY) for _, weight, total in (below, above))
        best, each = np.argmax(np.where(allowed, explained, -1.0), axis=0), np.arange(len(present))
        split = allowed[best, each]
        features[present[split]], thresholds[present[split]] = picked[best, each][split], at[best, each][split]
        node = 2 * node + 1 + (split[group] & ~left[best[group], np.arange(len(group))])
    _, weight, total = (np.bincount(node - nodes, weights=s, minlength=nodes + 1) for s in sums)
    return Forest(features[None], thresholds[None], (total / np.maximum(weight, TINY)).astype(np.float32)[None])


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
