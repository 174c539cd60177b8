"""The scores of cost models, and how well they order what is then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel import CostModel, SketchPrograms
from costmodel.metrics import count_pairs, rank_correlation

from ..measure import Measurement

MEMORY = 0.8  # how much of the past counts when a new batch was measured
NOISE = 0.02  # times closer than this are the same
START = 8.0  # pairs that other tasks count for
LEAST = 0.02  # trust that a model keeps that was always wrong, so that it counts again when it has learned

Batch = Sequence[tuple[np.ndarray, np.ndarray]]  # for each sketch the scores of candidates and the seconds they took


def score_rows(model: CostModel, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
    """The scores of rows: an (n,) float64 vector, higher is better, -inf in place of NaN. TypeError if the model returns anything
    else, which is a mistake of a model of one's own."""
    scores = np.asarray(model.score(sketch, rows))
    if scores.shape != (len(rows),) or scores.dtype.kind not in "fiu":
        raise TypeError(f"a model scores {len(rows)} rows as {len(rows)} numbers; got {scores.dtype} of the shape {scores.shape}")
    return np.where(np.isnan(scores), -np.inf, scores.astype("float64"))


def correlation(measurements: Sequence[Measurement]) -> float | None:
    """The rank correlation of the scores of measured candidates with their speed, each program once; None where fewer than three
    have scores, or all are alike."""
    scored = [m for m in measurements if m.candidate.score is not None and m.outcome == "ok" and not m.duplicate]
    if len(scored) < 3:
        return None
    return rank_correlation(np.array([m.candidate.score for m in scored]), np.array([m.seconds for m in scored]))


@dataclass
class TrustedModel:
    """A cost model with the numbers of pairs of measured candidates that it had in the right and in the wrong order. The initial
    numbers decide how far it is trusted at first."""

    model: CostModel
    right: float
    wrong: float

    @property
    def trust(self) -> float:
        """From nothing for a model no better than chance to one for a perfect one; squared, so that the better one decides."""
        return max(LEAST, (self.right - self.wrong) / (self.right + self.wrong)) ** 2

    def begin(self, batch: Batch) -> None:
        """Start from how it orders the candidates of another task, from which it has not learned."""
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
    counts = [count_pairs(scores, seconds, NOISE) for scores, seconds in batch]
    return float(sum(right for right, _, _ in counts)), float(sum(wrong for _, wrong, _ in counts))
