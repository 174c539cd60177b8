"""Metrics of a model's ranking: the order of candidates counts, above all at the top, not the size of errors.

`scores` are a model's, higher is better; `seconds` are measured, infinite where a candidate failed.
"""

from __future__ import annotations

import numpy as np


def count_pairs(scores: np.ndarray, seconds: np.ndarray, apart: float = 0.0) -> tuple[int, int, int]:
    """The numbers of pairs ordered right, wrong, and tied, among those whose times differ by more than the share `apart`."""
    faster = (1 + apart) * seconds[:, None] < seconds[None, :]
    right = int(np.count_nonzero(faster & (scores[:, None] > scores[None, :])))
    wrong = int(np.count_nonzero(faster & (scores[:, None] < scores[None, :])))
    return right, wrong, int(np.count_nonzero(faster)) - right - wrong


def pair_accuracy(scores: np.ndarray, seconds: np.ndarray, apart: float = 0.0) -> float:
    """The share of pairs that the scores order rightly; ties count half (Ansor, OSDI 2020, section 7.4).

    Pairs are those of `count_pairs`. 0.5 is guessing; NaN without a pair.
    """
    right, wrong, tied = count_pairs(scores, seconds, apart)
    return (right + tied / 2) / (right + wrong + tied) if right + wrong + tied else float("nan")


def rank_correlation(scores: np.ndarray, seconds: np.ndarray) -> float | None:
    """Spearman's coefficient of scores and speed: 1 if the order is the same; None where either is constant."""
    a, b = ranks(scores), ranks(-seconds)
    if not len(a) or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value, 0 the lowest; equal ones share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[inverse.ravel()]
