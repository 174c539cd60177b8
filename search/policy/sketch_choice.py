"""Alternatives to the bandit of `bandit`: sampling the sketch of the next trial as reinforcement learning (Han et al., 2025)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..space.sketch import Sketch
from .bandit import MAX_FAILURES, Bandit, Uniform

PRIOR_SPREAD = 0.5  # standard deviation of the belief of a sketch without trials, a logarithm of time
DISCOUNT = 0.95  # factor of earlier trials, after each
LEARNING_RATE = 0.3  # of the policy gradient
FEATURES = 10  # of a sketch
TEMPERATURE = 0.2  # of its choice: the weights are those of logarithms of time


class Thompson(Bandit):
    """Thompson sampling: draws the loss of each sketch from its belief, and takes the best (Thompson, Biometrika 1933). The
    belief is normal around the measured loss, or the predicted one; its spread falls with the square root of the trials."""

    def order(self, picked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        loss, trials = self.expected(), self.trials + picked
        return np.argsort(loss + PRIOR_SPREAD / np.sqrt(1.0 + trials) * rng.standard_normal(len(loss)), kind="stable")


class Discounted(Bandit):
    """The upper confidence bound with discounted trials (Garivier and Moulines, ALT 2011), because the gain of a sketch changes
    in the course of a search."""

    def __init__(self, count: int):
        super().__init__(count)
        self._recent = np.zeros(count)

    def update(self, sketch: int, seconds: float) -> None:
        super().update(sketch, seconds)
        self._recent *= DISCOUNT
        self._recent[sketch] += 1

    def order(self, picked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.argsort(self.expected() - self.bonus(self._recent + picked), kind="stable")


class PolicyGradient(Bandit):
    """A softmax choice over a linear function of sketch features, learned by REINFORCE (Williams, Machine Learning 1992). The
    reward is the speed of a candidate, relative to the best. `preferences`, the weights of features, may be shared between the
    bandits of several tasks, so that one starts with the weights of another."""

    def __init__(self, count: int, preferences: np.ndarray | None = None):
        super().__init__(count)
        self.preferences = np.zeros(FEATURES) if preferences is None else preferences
        self._features = np.zeros((count, FEATURES))
        self._mean = 0.0  # of the rewards, the baseline
        self._rewards = 0

    def meet(self, sketches: Sequence[Sketch]) -> None:
        self._features = np.array([sketch_features(s, rank) for rank, s in enumerate(sketches)])

    def update(self, sketch: int, seconds: float) -> None:
        before = self.probabilities()
        super().update(sketch, seconds)
        reward = float(np.min(self.best) / seconds) if np.isfinite(seconds) else 0.0
        self._rewards += 1
        self._mean += (reward - self._mean) / self._rewards
        gradient = self._features[sketch] - before @ self._features
        self.preferences += LEARNING_RATE * (reward - self._mean) * gradient

    def probabilities(self) -> np.ndarray:
        """The probability of each sketch for the next trial."""
        value = self._features @ self.preferences - self.losses
        value[~np.isfinite(self.best) & (self.trials >= MAX_FAILURES)] = -np.inf
        if not np.isfinite(value).any():
            return np.full(len(value), 1 / len(value))
        weights = np.exp((value - value.max()) / TEMPERATURE)
        return weights / weights.sum()

    def order(self, picked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        gumbel = -np.log(-np.log(rng.random(len(self.best))))  # the order of draws without replacement
        with np.errstate(divide="ignore"):
            return np.argsort(-(np.log(self.probabilities()) + gumbel), kind="stable")


def sketch_features(sketch: Sketch, rank: int) -> np.ndarray:
    """FEATURES numbers of a sketch: the counts of columns, tiled axes, reductions, choices, branches, blocks and rules; the rank
    in the order of preference; 1 for a seed; the logarithm of the largest extent."""
    extents = [t.extent for t in sketch.tiles]
    reductions = sum(t.reduce for t in sketch.tiles)
    counts = sketch.columns, len(sketch.tiles), reductions, len(sketch.choices), len(sketch.branches), len(sketch.tiles_by_block)
    logarithms = np.log2(1.0 + np.array([*counts, rank, len(sketch.rules)]))
    return np.array([*logarithms, float(sketch.seed is not None), np.log2(max(extents, default=1)) / 10])


BANDITS: dict[str, Callable[[int], Bandit]] = {
    "confidence": Bandit,
    "uniform": Uniform,
    "thompson": Thompson,
    "discounted": Discounted,
    "gradient": PolicyGradient,
}
