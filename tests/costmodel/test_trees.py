"""Trees that grow from data, and their evaluation in flat arrays."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.trees import Forest, grow


def walked(forest: Forest, column: np.ndarray) -> float:
    """The sum of the trees' values for one column, node by node."""
    total = 0.0
    for features, thresholds, values in zip(forest.features, forest.thresholds, forest.values, strict=True):
        node = 0
        while node < len(features):
            node = 2 * node + (1 if column[features[node]] <= thresholds[node] else 2)
        total += float(values[node - len(features)])
    return total


def reached(tree: Forest, matrix: np.ndarray) -> np.ndarray:
    """The number of the leaf of each column."""
    numbers = np.arange(tree.values.shape[1], dtype=np.float32)[None]
    return Forest(tree.features, tree.thresholds, numbers).predict(matrix).astype(int)


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("n", [1, 7, 109, 1000])
def test_a_forest_is_the_sum_of_its_trees(depth, n):
    rng = np.random.default_rng(depth * n)
    matrix = rng.integers(0, 9, (13, n)).astype(np.float32)
    forest = Forest.empty(depth)
    for _ in range(5):
        forest += grow(matrix, rng.random(n), np.ones(n), depth, 1, 0.5, rng)
    expected = np.array([walked(forest, column) for column in matrix.T])
    # Five float32 additions, each of half an ulp of a sum below 5.
    assert len(forest) == 5 and np.abs(forest.predict(matrix) - expected).max() <= 5 * 2**-24 * 5
    assert np.array_equal((forest + Forest.empty(depth)).predict(matrix), forest.predict(matrix))


@pytest.mark.parametrize("leaf", [1, 7])
def test_a_leaf_predicts_the_weighted_mean_of_its_columns(leaf):
    rng = np.random.default_rng(leaf)
    matrix, targets, weights = rng.random((13, 109), dtype=np.float32), rng.standard_normal(109), rng.random(109)
    tree = grow(matrix, targets, weights, 4, leaf, 0.5, rng)
    leaves = reached(tree, matrix)
    assert len(set(leaves.tolist())) > 5
    for number in set(leaves.tolist()):
        own = leaves == number
        assert own.sum() >= leaf
        mean = np.average(targets[own], weights=weights[own])
        assert abs(tree.values[0, number] - mean) <= 2**-23 * np.abs(targets[own]).max()


def test_the_split_explains_most():
    """Of all features, the one that the target depends on is taken; with thresholds at random, in most trees at the top."""
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 2, (13, 300)).astype(np.float32)
    trees = [grow(matrix, 3.0 * matrix[7], np.ones(300), 2, 1, 1.0, rng) for _ in range(9)]
    assert {int(t.features[0, 0]) for t in trees} == {7}
    assert all(np.array_equal(t.predict(matrix), 3.0 * matrix[7]) for t in trees)


def test_heavy_columns_decide():
    rng = np.random.default_rng(0)
    matrix = np.stack([np.arange(40) % 2, np.arange(40) // 2 % 2]).astype(np.float32)
    weights = np.where(np.arange(40) % 4 < 2, 1.0, 1e-6)
    targets = np.where(np.arange(40) % 4 < 2, matrix[0], 9 * matrix[1])
    assert grow(matrix, targets, weights, 1, 1, 1.0, rng).features[0, 0] == 0
    assert grow(matrix, targets, np.ones(40), 1, 1, 1.0, rng).features[0, 0] == 1


def test_a_node_that_cannot_be_split_keeps_its_columns_on_the_left():
    rng = np.random.default_rng(0)
    for matrix, leaf in ((np.ones((3, 20)), 1), (rng.random((3, 20)), 11), (rng.random((3, 1)), 1)):
        n = matrix.shape[1]
        tree = grow(matrix.astype(np.float32), np.arange(n), np.ones(n), 3, leaf, 1.0, rng)
        assert set(reached(tree, matrix.astype(np.float32)).tolist()) == {0}
        assert tree.values[0, 0] == (n - 1) / 2


def test_a_value_on_the_threshold_goes_left():
    above = np.nextafter(np.float32(1.0), np.float32(2.0))
    forest = Forest(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32), np.array([[7.0, 13.0]], np.float32))
    assert forest.predict(np.array([[1.0, above, 0.5]], dtype=np.float32)).tolist() == [7.0, 13.0, 7.0]


def test_nothing_to_learn_and_nothing_that_predicts():
    assert Forest.empty(4).predict(np.ones((3, 7), dtype=np.float32)).tolist() == [0.0] * 7
    assert Forest.empty(4).depth == 4
    none = grow(np.empty((3, 0), np.float32), np.empty(0), np.empty(0), 2, 1, 0.5, np.random.default_rng(0))
    assert none.predict(np.ones((3, 7), dtype=np.float32)).tolist() == [0.0] * 7
