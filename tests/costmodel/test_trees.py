"""Forests in flat arrays predict what the trees of scikit-learn do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from costmodel.trees import Forest


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("n", [1, 7, 109, 1000])
def test_a_forest_is_the_scaled_sum_of_its_trees(depth, n):
    rng = np.random.default_rng(depth * n)
    x = rng.integers(0, 9, (n, 13)).astype(np.float32)
    trees = [DecisionTreeRegressor(max_depth=depth, random_state=k).fit(x, rng.random(n)) for k in range(5)]
    columns = rng.permutation(40)[:13]
    wide = np.full((40, n), np.nan, dtype=np.float32)  # what no tree asks for may be anything
    wide[columns] = x.T
    expected = 0.3 * sum(t.predict(x) for t in trees)
    forest = Forest.of(trees, depth, columns, 0.3)
    # Five float32 additions, each of half an ulp of a sum below 5 * 0.3 * 1.
    assert np.abs(forest.predict(wide) - expected).max() <= 10 * 2**-24 * 1.5
    assert np.array_equal((forest + Forest.empty(depth)).predict(wide), forest.predict(wide))
    both = (forest + forest).predict(wide)
    assert len(forest + forest) == 10 and np.abs(both - 2 * expected).max() <= 20 * 2**-24 * 3


def test_a_value_on_the_threshold_goes_left():
    """Also where the threshold is no float32, and rounds up to the next value."""
    above = np.nextafter(np.float32(1.0), np.float32(2.0))
    tree = SimpleNamespace(
        children_left=[1, -1, -1],
        children_right=[2, -1, -1],
        feature=[0, -2, -2],
        threshold=[1.0 + 0.75 * 2**-23, -2, -2],
        value=np.array([[[0.0]], [[7.0]], [[13.0]]]),
    )
    assert np.float32(tree.threshold[0]) == above
    forest = Forest.of([SimpleNamespace(tree_=tree)], 1, np.array([0]), 1.0)
    assert forest.predict(np.array([[1.0, above, 0.5]], dtype=np.float32)).tolist() == [7.0, 13.0, 7.0]


def test_no_trees_predict_nothing():
    assert Forest.empty(4).predict(np.ones((3, 7), dtype=np.float32)).tolist() == [0.0] * 7
    assert Forest.empty(4).depth == 4 and len(Forest.of([], 4, np.arange(3), 1.0)) == 0
