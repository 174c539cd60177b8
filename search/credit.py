"""How often each mutation is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

MEMORY = 0.9  # how much of the past counts after a generation
PRIOR_WINS, PRIOR_TRIES = 1.0, 4.0  # of a mutation that was not applied yet


class Credit(Protocol):
    """Assigns probabilities to mutations, which `Evolution` rewards after each generation."""

    def weights(self, names: Sequence[str]) -> np.ndarray:
        """The probabilities of these mutations: a float64 vector that sums to 1."""
        ...

    def reward(self, name: str, wins: int, tries: int) -> None:
        """Of `tries` children that a mutation made, `wins` scored better than their parents."""
        ...


class FixedCredit:
    """Constant probabilities, as in Ansor and MetaSchedule."""

    def __init__(self, probabilities: Mapping[str, float]):
        self.probabilities = dict(probabilities)

    def weights(self, names: Sequence[str]) -> np.ndarray:
        found = np.array([self.probabilities[name] for name in names])
        return found / found.sum()

    def reward(self, name: str, wins: int, tries: int) -> None:
        return None


class AdaptiveCredit(FixedCredit):
    """Initial probabilities, each times the share of the mutation's recent children that were better than their parents."""

    def __init__(self, probabilities: Mapping[str, float]):
        super().__init__(probabilities)
        self._recent = {name: np.zeros(2) for name in self.probabilities}  # wins, tries

    def weights(self, names: Sequence[str]) -> np.ndarray:
        wins, tries = np.array([self._recent[name] for name in names]).T
        found = super().weights(names) * (wins + PRIOR_WINS) / (tries + PRIOR_TRIES)
        return found / found.sum()

    def reward(self, name: str, wins: int, tries: int) -> None:
        self._recent[name] = MEMORY * self._recent[name] + (wins, tries)
