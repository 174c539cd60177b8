"""The scores of cost models, and how well they rank measured candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel import CostModel, SketchPrograms
from costmodel.loopnest import Program
from costmodel.metrics import count_pairs, rank_correlation

from ..measure import Measurement

DECAY = 0.8  # factor of the counts so far when a new batch was measured
TIME_NOISE = 0.02  # relative difference below which times count as equal
PRIOR_PAIRS = 8.0  # pairs that the candidates of another task count for
MIN_TRUST = 0.02  # of a model that was always wrong, so that it counts again when it has learned

Batch = Sequence[tuple[np.ndarray, np.ndarray]]  # for each sketch the scores of candidates and the seconds they took


class TooManyPrograms(Exception):
    """A model is about to lower more rows, to score them, than the sketch allows."""


def score_rows(
    model: CostModel, sketch: SketchPrograms, rows: np.ndarray, prior: CostModel | None = None
) -> tuple[np.ndarray, int]:
    """The scores of rows, an (n,) float64 vector, higher is better, -inf in place of NaN; and how many rows were lowered to be
    scored, none by a formula. Those of the `prior`, if there is one, where that would be more than the sketch allows. TypeError
    if the model returns anything else, which is a mistake of a model of one's own."""
    try:
        return scores_within(np.inf if prior is None else sketch.max_concrete, model, sketch, rows)
    except TooManyPrograms:
        assert prior is not None
        return score_rows(prior, sketch, rows)


def scores_within(limit: float, model: CostModel, sketch: SketchPrograms, rows: np.ndarray) -> tuple[np.ndarray, int]:
    """The same by this model alone; TooManyPrograms where it asks for the programs of rows of which more than `limit` have to be
    lowered."""
    count = 0

    def programs(asked: np.ndarray) -> Iterable[tuple[np.ndarray, Program]]:
        nonlocal count
        count += sketch.count_concrete(asked)
        if count > limit:
            raise TooManyPrograms
        return sketch.programs(asked)

    scores = np.asarray(model.score(replace(sketch, programs=programs), rows))
    if scores.shape != (len(rows),) or scores.dtype.kind not in "fiu":
        raise TypeError(f"a model scores {len(rows)} rows as {len(rows)} numbers; got {scores.dtype} of the shape {scores.shape}")
    return np.where(np.isnan(scores), -np.inf, scores.astype("float64")), count


def model_name(model: CostModel) -> str:
    """The name of a model beside its scores: its `name`, else that of its class. A model that learns has another name while a
    formula speaks for it."""
    return str(getattr(model, "name", type(model).__name__))


def is_ready(model: CostModel | None) -> bool:
    """True where a model that learns has learned enough, of this task or of others, to score by itself: its `ready`."""
    return bool(getattr(model, "ready", False))


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
        """Almost 0 for a model no better than chance, 1 for a perfect one; squared, so that the better one decides."""
        return max(MIN_TRUST, (self.right - self.wrong) / (self.right + self.wrong)) ** 2

    def begin(self, right: float, wrong: float) -> None:
        """Start from how it ordered pairs of candidates of other tasks, from which it had not learned; from the initial numbers
        where there are none."""
        if right + wrong:
            self.right, self.wrong = PRIOR_PAIRS * right / (right + wrong), PRIOR_PAIRS * wrong / (right + wrong)

    def review(self, batch: Batch) -> None:
        """Count the measurements since."""
        right, wrong = ordered_pairs(batch)
        self.right = DECAY * self.right + right
        self.wrong = DECAY * self.wrong + wrong


def ordered_pairs(batch: Batch) -> tuple[float, float]:
    """The numbers of pairs of candidates of one sketch that the scores order correctly, and wrongly; pairs of failures, and pairs
    of times within TIME_NOISE of each other, do not count."""
    counts = [count_pairs(scores, seconds, TIME_NOISE) for scores, seconds in batch]
    return float(sum(right for right, _, _ in counts)), float(sum(wrong for _, wrong, _ in counts))
