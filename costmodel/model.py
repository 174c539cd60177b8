"""What the search asks of a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .geometry import Nest


class CostModel(Protocol):
    """Judges populations. `rows` is an (n, columns) integer matrix; higher scores are better, and only their order counts."""

    def score(self, nests: Sequence[Nest], rows: np.ndarray) -> np.ndarray:
        """A float64 vector, one score a row, comparable between the sketches of one task."""
        ...

    def update(self, nests: Sequence[Nest], rows: np.ndarray, seconds: np.ndarray) -> None:
        """Learn from measured rows; `seconds` is infinite where a candidate failed."""
        ...


class RandomModel:
    """Scores at random: search without a model, for comparison."""

    def __init__(self, rng: np.random.Generator):
        self._rng = rng

    def score(self, nests: Sequence[Nest], rows: np.ndarray) -> np.ndarray:
        return self._rng.random(len(rows))

    def update(self, nests: Sequence[Nest], rows: np.ndarray, seconds: np.ndarray) -> None:
        return None
