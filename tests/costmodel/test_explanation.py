"""Explanations of predictions by trees."""

from __future__ import annotations

import numpy as np
from sklearn.tree import ExtraTreeRegressor

from costmodel.explanation import contributions
from costmodel.trees import Forest


def test_contributions_add_up_to_the_prediction():
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 5, (60, 4)).astype(np.float32)
    target = seen[:, 1] - 2 * seen[:, 3]
    trees = [ExtraTreeRegressor(max_depth=3, random_state=n).fit(seen, target) for n in range(5)]
    forest = Forest.of(trees, 3, np.arange(4), 0.1)
    found = contributions(forest, seen, seen[:9].T)
    mean = forest.predict(np.ascontiguousarray(seen.T)).mean()
    size = np.abs(found).sum(axis=0) + abs(mean)
    assert found.shape == (4, 9)
    assert np.all(np.abs(found.sum(axis=0) + mean - forest.predict(np.ascontiguousarray(seen[:9].T))) <= 64 * 2**-23 * size)
    assert np.abs(found[[1, 3]]).sum() > 4 * np.abs(found[[0, 2]]).sum()  # the two on which the target depends


def test_trees_that_have_seen_nothing_explain_nothing():
    assert contributions(Forest.empty(3), np.empty((0, 4), np.float32), np.ones((4, 2), np.float32)).tolist() == [[0.0] * 2] * 4
