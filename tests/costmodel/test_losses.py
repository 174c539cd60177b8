"""The losses of models that learn: what each statement should be corrected by is the gradient."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel import PairRank, ThroughputSum, TimeSum
from costmodel.dataset import FORMULA, Dataset
from costmodel.losses import DAMPING, ESTIMATE, LN2, SHARPNESS

PROGRAM = np.array([0, 0, 0, 1, 2, 2])


def sums(values: np.ndarray) -> np.ndarray:
    return np.bincount(PROGRAM, weights=values)


def gradient(loss, f: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(len(f))
    return np.array([(loss(f + step) - loss(f - step)) / 2e-6 for step in steps])


@pytest.mark.parametrize(
    ("loss", "objective"),
    [
        # Ansor's, halved: y * (sum(f) - y) ** 2 / 2
        (ThroughputSum(), lambda f, y, w: np.sum(w * (sums(f) - y) ** 2) / 2),
        (TimeSum(), lambda f, y, w: np.sum(w * (np.log(sums(np.exp(f))) - y) ** 2) / 2),
    ],
)
def test_weighted_residuals_are_the_gradient(loss, objective):
    rng = np.random.default_rng(0)
    f, y, w = rng.standard_normal(6), rng.random(3), rng.random(3)
    missing, weight = loss.residuals(f, PROGRAM, y, w)
    assert -missing * weight == pytest.approx(gradient(lambda g: objective(g, y, w), f), abs=1e-6)


def test_pairs_pull_by_the_gradient_of_their_logistic_loss():
    """Two programs of one task, believed to take about the same; the third is of another task, and has no pair."""
    f = 0.1 * np.random.default_rng(1).standard_normal(6) + np.log([1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    targets = np.array([[0.0, 0, 1.0], [1.0, 0, 0.25], [9.0, 1, 1.0]])

    def objective(g: np.ndarray) -> float:
        fast, slow, _ = np.log(sums(np.exp(g)))
        return 0.75 * np.log1p(np.exp(SHARPNESS * (fast - slow)))

    missing, weight = PairRank().residuals(f, PROGRAM, targets, np.ones(3))
    assert weight[4:].tolist() == [0.0, 0.0]
    assert -missing * weight * (1 + DAMPING) == pytest.approx(gradient(objective, f), abs=1e-6)


def test_what_is_fitted_is_scored():
    f = np.array([0.1, 0.2, 0.05, 0.5, 0.3, 0.6])
    times, throughputs = TimeSum(), ThroughputSum()
    assert throughputs.scores(sums(throughputs.parts(f))) == pytest.approx([0.35, 0.5, 0.9])
    assert times.scores(sums(times.parts(f))) == pytest.approx(-np.log(sums(np.exp(f))))


def test_targets():
    data = Dataset()
    data.add("one", np.zeros((2, 3, FORMULA + 1), dtype=np.float32), np.array([1.0, 4.0, np.inf]))
    data.add("two", np.zeros((1, 1, FORMULA + 1), dtype=np.float32), np.array([100.0]))
    assert (data.program.tolist(), data.task.tolist()) == ([0, 1, 2, 0, 1, 2, 3], [0, 0, 0, 1])
    y, w = ThroughputSum().targets(data, 0.15)
    assert y.tolist() == w.tolist() == [1.0, 0.25, 0.0, 1.0]
    y, w = TimeSum().targets(data, 0.5)
    assert np.exp(y) == pytest.approx([1e9, 4e9, 8e9, 1e11]) and w.tolist() == [1.0, 0.5, 0.5, 1.0]


def test_where_predictions_start():
    features = np.zeros((FORMULA + 1, 2), dtype=np.float32)
    features[ESTIMATE] = [3.0, 5.0]
    assert TimeSum().start(features) == pytest.approx(LN2 * np.array([3.0, 5.0]))
    assert ThroughputSum().start(features).tolist() == [0.0, 0.0]
