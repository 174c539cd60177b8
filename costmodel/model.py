"""Interfaces of cost models to the search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import numpy as np

from .sketch_programs import SketchPrograms, TiledNest


@runtime_checkable
class CostModel(Protocol):
    """Scores populations. `rows` is an (n, columns) integer matrix; higher scores are better, and only their order counts."""

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        """A float64 vector, one score a row, comparable between the sketches of one task."""
        ...

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        """Learn from measured rows; `seconds` is infinite where a candidate failed."""
        ...


@runtime_checkable
class WarmUp(Protocol):
    """A model, or a search, that can be warmed up."""

    def warm_up(self) -> None:
        """Load and compile the code for scoring and learning, while the program as written runs."""
        ...


@runtime_checkable
class Learns(Protocol):
    """A model that learns, and scores by itself when it is ready; until then a formula scores in its place."""

    ready: bool


@runtime_checkable
class Explains(Protocol):
    """A model that explains its predictions."""

    def explanation(self, sketch: SketchPrograms, row: np.ndarray) -> dict[str, float]:
        """The e-folds by which each feature, by its name, moves the prediction of a row's time; empty where unknown."""
        ...


class Formula(ABC):
    """Scores a row by minus the logarithm of the estimated cycles of its tiled nests, summed."""

    name = "formula"

    @abstractmethod
    def cycles(self, nest: TiledNest, rows: np.ndarray) -> np.ndarray:
        """Estimated cycles of one nest, a float64 vector with one entry a row."""

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        total = sum((self.cycles(nest, rows) for nest in sketch.nests), start=np.zeros(len(rows)))
        return -np.log(np.maximum(total, 1.0))

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        """A formula has nothing to learn."""
        return None


class RandomModel:
    """Scores at random: search without a model, for comparison."""

    name = "random"

    def __init__(self, rng: np.random.Generator):
        self._rng = rng

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        return self._rng.random(len(rows))

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        return None
