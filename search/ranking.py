"""Judging the judges: how well the scores of a model order what is then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel import CostModel

MEMORY = 0.8  # how much of the past counts when a new batch was measured
NOISE = 0.02  # times closer than this are the same
START = 8.0  # pairs that a judge is believed to have ordered before it has ordered any
LEAST = 0.02  # trust that a model keeps that was always wrong, so that it is listened to again when it has learned

Batch = Sequence[tuple[np.ndarray, np.ndarray]]  # for each sketch the scores of candidates and the seconds they took


@dataclass
class Judge:
    """A model, and of the pairs of candidates measured so far how many it had in the right and in the wrong order; the numbers to
    start with say how far it is trusted at first."""

    model: CostModel
    right: float
    wrong: float

    @property
    def trust(self) -> float:
        """From nothing for a model no better than chance to one for a perfect one; squared, so that the better one decides."""
        return max(LEAST, (self.right - self.wrong) / (self.right + self.wrong)) ** 2

    def begin(self, batch: Batch) -> None:
        """Start from how it orders the candidates of another task, of which it was not taught."""
        right, wrong = _pairs(batch)
        if right + wrong:
            self.right, self.wrong = START * right / (right + wrong), START * wrong / (right + wrong)

    def review(self, batch: Batch) -> None:
        """Count what was measured since."""
        right, wrong = _pairs(batch)
        self.right = MEMORY * self.right + right
        self.wrong = MEMORY * self.wrong + wrong


def _pairs(batch: Batch) -> tuple[float, float]:
    """How many pairs of candidates of one sketch the scores have in the right and in the wrong order; times within NOISE of each
    other, and two that failed, count for nothing."""
    right = wrong = 0.0
    for scores, seconds in batch:
        first, second = np.triu_indices(len(scores), 1)
        a, b = seconds[first], seconds[second]
        slower = np.where(a > (1 + NOISE) * b, 1, np.where(b > (1 + NOISE) * a, -1, 0))
        lower = np.sign(scores[second] - scores[first])
        right += float(np.sum(slower * lower > 0))
        wrong += float(np.sum(slower * lower < 0))
    return right, wrong
