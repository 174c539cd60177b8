"""Judging the judges: how well the scores of a model order what is then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel import CostModel

MEMORY = 0.8  # how much of the past counts when a new batch was measured
NOISE = 0.02  # times closer than this are the same
LEAST = 0.02  # trust that a model keeps that was always wrong, so that it is listened to again when it has learned


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

    def review(self, batch: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Count the pairs among candidates of one sketch and batch, given as the scores of a sketch's candidates and the seconds
        they took; times within NOISE of each other, and two that failed, count for nothing."""
        self.right *= MEMORY
        self.wrong *= MEMORY
        for scores, seconds in batch:
            first, second = np.triu_indices(len(scores), 1)
            a, b = seconds[first], seconds[second]
            slower = np.where(a > (1 + NOISE) * b, 1, np.where(b > (1 + NOISE) * a, -1, 0))
            lower = np.sign(scores[second] - scores[first])
            self.right += float(np.sum(slower * lower > 0))
            self.wrong += float(np.sum(slower * lower < 0))
