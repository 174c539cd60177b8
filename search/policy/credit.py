"""Credit assignment: how often each mutation is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

DECAY = 0.9  # factor of the counts so far after each generation
PRIOR_TRIES = 4.0  # children that a mutation's initial probability counts for


class FixedCredit:
    """Assigns probabilities to mutations, which `Evolution` rewards after each generation: constant ones, as in Ansor and
    MetaSchedule."""

    def __init__(self, probabilities: Mapping[str, float]):
        self.probabilities = dict(probabilities)

    def weights(self, names: Sequence[str]) -> np.ndarray:
        """The probabilities of these mutations: a float64 vector that sums to 1."""
        found = np.array([self.probabilities[name] for name in names])
        return found / found.sum()

    def reward(self, name: str, wins: int, tries: int) -> None:
        """Of `tries` children that a mutation made, `wins` scored better than their parents."""


class AdaptiveCredit(FixedCredit):
    """Follows the share of a mutation's recent children that are better than their parents; initial probabilities count for a
    few children."""

    def __init__(self, probabilities: Mapping[str, float]):
        super().__init__(probabilities)
        self._recent = {name: np.zeros(2) for name in self.probabilities}  # wins, tries

    def weights(self, names: Sequence[str]) -> np.ndarray:
        wins, tries = np.array([self._recent[name] for name in names]).T
        found = (wins + len(names) * super().weights(names)) / (tries + PRIOR_TRIES)
        return found / found.sum()

    def reward(self, name: str, wins: int, tries: int) -> None:
        self._recent[name] = DECAY * self._recent[name] + (wins, tries)
