"""A bandit over sketches: divides the trials of a batch among them (as in HARL, arXiv 2211.11172)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..space.sketch import Sketch

OPTIMISM = 0.3  # factor of the confidence bonus, a logarithm of time
ORDER_LOSS = 0.01  # the expected loss, as a logarithm, from one sketch to the next in the order of preference
MAX_ORDER_LOSS = 0.2  # bound of the loss by order, that of the last sketches
TRUST = 0.5  # factor of the predicted loss of a sketch without trials
MAX_LOSS = 1.0  # bound of a predicted loss, a logarithm
MAX_FAILURES = 3  # trials after which a sketch without a valid candidate is given up
CONFIDENT_TRIALS = 3  # trials after which half of a measured loss counts: n of n + CONFIDENT_TRIALS


class Bandit:
    """The number of trials and the time of the best candidate of each sketch.

    The next trial goes to the sketch with the largest upper confidence bound on the logarithm of its speed. Trials of the same
    batch count as done. `losses` are the expected logarithmic losses of sketches without trials: a model's prediction, plus a
    term for the place in the order of preference. The measured loss has the weight n / (n + CONFIDENT_TRIALS) after n trials,
    because the best of a few is far from the optimum. Source: UCB1, Auer et al., Machine Learning 2002.
    """

    def __init__(self, count: int):
        self.trials = np.zeros(count, dtype=np.int64)
        self.best = np.full(count, np.inf)
        order = np.minimum(ORDER_LOSS * np.arange(count), MAX_ORDER_LOSS)
        self.losses = order.copy()
        self._order = order

    def meet(self, sketches: Sequence[Sketch]) -> None:
        """Take the sketches to choose among, for a bandit that reads their features."""
        return

    def predict(self, losses: Sequence[float] | np.ndarray) -> None:
        """Take a model's predictions: for each sketch the logarithm of its best time over the best time of all."""
        self.losses = self._order + TRUST * np.clip(losses, 0.0, MAX_LOSS)

    def update(self, sketch: int, seconds: float) -> None:
        """Count a candidate of the sketch that took `seconds`, infinity if it failed."""
        self.trials[sketch] += 1
        self.best[sketch] = min(self.best[sketch], seconds)

    def shares(self, n: int, under_way: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The trials of each sketch among the next `n`; `under_way` counts its trials that are under way."""
        picked = np.zeros(len(self.trials), dtype=np.int64)
        for _ in range(n):
            picked[self.order(under_way + picked, rng)[0]] += 1
        return picked

    def order(self, picked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The sketches in the order in which they should get the next trial; `picked` trials of each are under way."""
        return np.argsort(self.expected() - self.bonus(self.trials + picked), kind="stable")

    def expected(self) -> np.ndarray:
        """The expected slowdown of each sketch against the best, a logarithm; infinite for one given up."""
        tried = np.isfinite(self.best)
        fastest = np.min(self.best, initial=np.inf)
        loss = self.losses.copy()
        if math.isfinite(fastest):
            loss[tried] = np.log(self.best[tried] / fastest) * (self.trials / (self.trials + CONFIDENT_TRIALS))[tried]
        loss[~tried & (self.trials >= MAX_FAILURES)] = np.inf
        return loss

    def bonus(self, trials: np.ndarray) -> np.ndarray:
        """The confidence bonus of each sketch, a logarithm, which falls with its number of `trials`."""
        return OPTIMISM * np.sqrt(math.log(2 + trials.sum()) / (trials + 0.5))


class Uniform(Bandit):
    """The same number of trials for all sketches."""

    def order(self, picked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.argsort(self.trials + picked, kind="stable")
