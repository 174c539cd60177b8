"""Measures of ranking, against their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.model import best_of_top, top_recall
from costmodel.metrics import pair_accuracy, rank_correlation, ranks

INF = float("inf")


@pytest.mark.parametrize("n", [2, 7, 13])
def test_pair_accuracy_counts_pairs(n):
    rng = np.random.default_rng(n)
    scores, seconds = rng.integers(0, 5, n).astype(float), rng.integers(1, 6, n).astype(float)
    for apart in (0.0, 0.5):
        right, pairs = 0.0, 0
        for i, j in itertools.permutations(range(n), 2):
            if (1 + apart) * seconds[i] < seconds[j]:
                pairs += 1
                right += 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
        assert pair_accuracy(scores, seconds, apart) == pytest.approx(right / pairs, rel=1e-12)


def test_perfect_and_reversed_and_constant():
    seconds = np.array([3.0, 1.0, INF, 2.0])
    assert pair_accuracy(-seconds, seconds) == 1 and pair_accuracy(seconds, seconds) == 0
    assert pair_accuracy(np.zeros(4), seconds) == 0.5
    assert rank_correlation(-seconds, seconds) == pytest.approx(1) and rank_correlation(seconds, seconds) == pytest.approx(-1)
    assert math.isnan(pair_accuracy(np.zeros(3), np.ones(3))) and rank_correlation(np.zeros(4), seconds) is None


def test_recall_of_the_top():
    seconds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    scores = np.array([9.0, 1.0, 8.0, 7.0, 2.0, 3.0, 0.0])
    assert top_recall(scores, seconds, 3) == 2 / 3 and top_recall(scores, seconds, 1) == 1
    assert top_recall(scores, seconds, 50) == 1 and math.isnan(top_recall(scores[:0], seconds[:0], 3))


def test_best_of_the_top():
    seconds = np.array([2.0, 1.0, 4.0, INF])
    assert best_of_top(np.array([1.0, 0.0, 2.0, 3.0]), seconds, 2) == 1 / 4
    assert best_of_top(np.array([1.0, 0.0, 2.0, 3.0]), seconds, 1) == 0
    assert best_of_top(np.array([1.0, 0.0, 2.0, 3.0]), seconds, 4) == 1


@pytest.mark.parametrize("n", [3, 7, 109])
def test_rank_correlation_is_spearmans(n):
    rng = np.random.default_rng(n)
    scores, seconds = rng.integers(0, 9, n).astype(float), rng.integers(1, 9, n).astype(float)
    assert rank_correlation(scores, seconds) == pytest.approx(spearmanr(scores, -seconds).statistic, abs=1e-9)


def test_equal_values_share_their_mean_rank():
    assert ranks(np.array([3.0, 1.0, 2.0, 1.0])).tolist() == [3.0, 0.5, 2.0, 0.5]
    assert ranks(np.zeros(0)).tolist() == []
    assert rank_correlation(np.zeros(0), np.zeros(0)) is None
