"""The scores of cost models, and their accuracy in ranking measured candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel import CostModel, SketchPrograms
from costmodel.loopnest import ProgramDescription
from costmodel.metrics import count_pairs, rank_correlation
from costmodel.model import Learns

from ..measure import Measurement

DECAY = 0.8  # factor of the counts so far at each new batch
TIME_NOISE = 0.02  # relative difference below which times count as equal
PRIOR_PAIRS = 8.0  # weight of the candidates of another task, in pairs
MIN_TRUST = 0.02  # of a model that was always wrong, so that it counts again when it has learned

Batch = Sequence[tuple[np.ndarray, np.ndarray]]  # for each sketch the scores of candidates and their seconds


class _TooManyPrograms(Exception):
    """A model asks for the programs of more concrete rows than the limit."""


def score_rows(
    model: CostModel, sketch: SketchPrograms, rows: np.ndarray, prior: CostModel | None = None
) -> tuple[np.ndarray, int]:
    """The scores of rows, an (n,) float64 vector, higher is better, -inf in place of NaN; and the number of rows lowered for it.
    The `prior`, if given, scores instead where more rows than the sketch allows would be lowered. TypeError if a user's model
    returns anything else."""
    count = 0

    def programs(asked: np.ndarray) -> Iterable[tuple[np.ndarray, ProgramDescription]]:
        nonlocal count
        count += sketch.count_concrete(asked)
        if prior is not None and count > sketch.max_concrete:
            raise _TooManyPrograms
        return sketch.programs(asked)

    try:
        scores = np.asarray(model.score(replace(sketch, programs=programs), rows))
    except _TooManyPrograms:
        assert prior is not None
        return score_rows(prior, sketch, rows)
    if scores.shape != (len(rows),) or scores.dtype.kind not in "fiu":
        raise TypeError(f"a model scores {len(rows)} rows as {len(rows)} numbers; got {scores.dtype} of the shape {scores.shape}")
    return np.where(np.isnan(scores), -np.inf, scores.astype("float64")), count


def model_name(model: CostModel) -> str:
    """The name of a model beside its scores: its `name`, which may be that of the formula that scores first, or its class."""
    return str(getattr(model, "name", type(model).__name__))


def is_ready(model: CostModel | None) -> bool:
    """True if a model that learns has enough data, of this task or of others, to score by itself: its `ready`."""
    return isinstance(model, Learns) and model.ready


def correlation(measurements: Iterable[Measurement]) -> float | None:
    """The rank correlation of scores with speeds, each program once; None for fewer than three scores, or equal ones."""
    scored = [m for m in measurements if m.candidate.score is not None and m.outcome == "ok" and not m.duplicate]
    if len(scored) < 3:
        return None
    return rank_correlation(np.array([m.candidate.score for m in scored]), np.array([m.seconds for m in scored]))


@dataclass
class TrustedModel:
    """A cost model with its numbers of pairs ordered right and wrong; the initial ones set its initial trust."""

    model: CostModel
    right: float
    wrong: float

    @property
    def trust(self) -> float:
        """The weight of a model: about 0 if no better than chance, 1 if perfect; squared, so that the better decides."""
        return max(MIN_TRUST, (self.right - self.wrong) / (self.right + self.wrong)) ** 2

    def begin(self, right: float, wrong: float) -> None:
        """Start from the pairs of another task, which the model had not learned from; without pairs, keep the initial numbers."""
        if right + wrong:
            self.right, self.wrong = PRIOR_PAIRS * right / (right + wrong), PRIOR_PAIRS * wrong / (right + wrong)

    def review(self, batch: Batch) -> None:
        """Count the pairs of a new batch."""
        right, wrong = ordered_pairs(batch)
        self.right = DECAY * self.right + right
        self.wrong = DECAY * self.wrong + wrong


def ordered_pairs(batch: Batch) -> tuple[float, float]:
    """The numbers of pairs of a sketch that scores order right and wrong, without failures and times within TIME_NOISE."""
    counts = [count_pairs(scores, seconds, TIME_NOISE) for scores, seconds in batch]
    return float(sum(right for right, _, _ in counts)), float(sum(wrong for _, wrong, _ in counts))
