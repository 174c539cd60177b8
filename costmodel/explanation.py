"""Explanation of a prediction by trees: the share of each feature in its difference from the average prediction."""

from __future__ import annotations

import numpy as np

from .trees import Forest


def contributions(forest: Forest, seen: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The distance by which each feature moves each column's prediction from the average: a (features, n) float64 matrix.

    `matrix` is (features, n). The average is over the rows of `seen`, (m, features); a column of the result sums to the whole
    distance. The feature of each node on the way gets the difference of the mean predictions, over `seen`, of the chosen child
    and the node (Saabas, 2014).
    """
    result = np.zeros(matrix.shape)
    columns = np.arange(matrix.shape[1])
    for features, thresholds, values in zip(forest.features, forest.thresholds, forest.values, strict=True):
        means = _node_means(features, thresholds, values, seen)
        node = np.zeros(len(columns), dtype=np.int64)
        for _ in range(forest.depth):
            feature = features[node]
            child = 2 * node + 1 + (matrix[feature, columns] > thresholds[node])
            np.add.at(result, (feature, columns), means[child] - means[node])
            node = child
    return result


def _node_means(features: np.ndarray, thresholds: np.ndarray, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The mean prediction of a tree at each node, over the rows of `seen` that reach it; without any, over the leaves below."""
    inner, rows = len(features), np.arange(len(seen))
    node = np.zeros(len(seen), dtype=np.int64)
    while len(node) and node[0] < inner:
        node = 2 * node + 1 + (seen[rows, features[node]] > thresholds[node])
    count = np.concatenate(
        [np.zeros(inner), np.bincount(node - inner, minlength=len(values)) if len(node) else np.zeros(len(values))]
    )
    means = np.concatenate([np.zeros(inner), values.astype(np.float64)])
    for n in range(inner - 1, -1, -1):
        left, right = count[2 * n + 1], count[2 * n + 2]
        count[n] = left + right
        weights = (left, right) if left + right else (1.0, 1.0)
        means[n] = np.average(means[2 * n + 1 : 2 * n + 3], weights=weights)
    return means
