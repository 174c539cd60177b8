"""What models say of rows, and judging the judges: how well the scores of a model order what is then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel import CostModel, Family
from costmodel.metrics import rank_correlation

from .measure import Measurement

MEMORY = 0.8  # how much of the past counts when a new batch was measured
NOISE = 0.02  # times closer than this are the same
START = 8.0  # pairs that a judge is believed to have ordered before it has ordered any
LEAST = 0.02  # trust that a model keeps that was always wrong, so that it is listened to again when it has learned

Batch = Sequence[tuple[np.ndarray, np.ndarray]]  # for each sketch the scores of candidates and the seconds they took


def score_rows(model: CostModel, family: Family, rows: np.ndarray) -> np.ndarray:
    """What a model says of rows: an (n,) float64 vector, higher is better, -inf where it says NaN. TypeError if it says anything
    else, which is a mistake of a model of one's own."""
    said = np.asarray(model.score(family, rows))
    if said.shape != (len(rows),) or said.dtype.kind not in "fiu":
        raise TypeError(f"a model scores {len(rows)} rows as {len(rows)} numbers; got {said.dtype} of the shape {said.shape}")
    return np.where(np.isnan(said), -np.inf, said.astype("float64"))


def correlation(measurements: Sequence[Measurement]) -> float | None:
    """The rank correlation of the scores of measured candidates with their speed, each program once; None where fewer than three
    have scores, or all are alike."""
    scored = [m for m in measurements if m.candidate.score is not None and m.outcome == "ok" and not m.duplicate]
    if len(scored) < 3:
        return None
    return rank_correlation(np.array([m.candidate.score for m in scored]), np.array([m.seconds for m in scored]))


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
    for said, seconds in batch:
        first, second = np.triu_indices(len(said), 1)
        a, b = seconds[first], seconds[second]
        slower = np.where(a > (1 + NOISE) * b, 1, np.where(b > (1 + NOISE) * a, -1, 0))
        lower = np.where(said[second] > said[first], 1, np.where(said[second] < said[first], -1, 0))
        right += float(np.sum(slower * lower > 0))
        wrong += float(np.sum(slower * lower < 0))
    return right, wrong
