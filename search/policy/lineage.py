"""The lineage of an evolution's rows, and samples of populations for reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..measure import Origin, Parent
from ..space.sketch import Sketch

SHOWN_ROWS = 48  # of a generation, evenly over its ranks

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """Some rows of a generation, best first by the models: an (n, columns) matrix. `number` counts within the batch, from 0."""

    sketch: str
    batch: int
    number: int
    rows: np.ndarray

    @classmethod
    def of(cls, sketch: str, batch: int, number: int, ordered: np.ndarray) -> Generation:
        """A generation of rows `ordered` by their scores."""
        shown = np.unique(np.linspace(0, len(ordered) - 1, min(SHOWN_ROWS, len(ordered))).astype(np.int64))
        return cls(sketch, batch, number, ordered[shown])


class Lineage:
    """The rows of an evolution in a batch, each with the operator, the generation and the parents by which it first arose."""

    def __init__(self, batch: int):
        self.batch = batch
        self._made: list[tuple[np.ndarray, str | Sequence[str], int, tuple[np.ndarray, ...]]] = []

    def add(self, rows: np.ndarray, operators: str | Sequence[str], generation: int, *parents: np.ndarray) -> None:
        """Add rows; known ones keep their origin. `parents` are matrices with one parent a row."""
        self._made.append((rows, operators, generation, parents))

    def origin(self, row: Row, measured: Collection[Row]) -> Origin | None:
        """The origin of a row, back to rows that were measured or have no parents; None for a row outside of it."""
        for rows, operators, generation, parents in self._made:
            for n in np.flatnonzero((rows == row).all(axis=1))[:1].tolist():
                back = dict.fromkeys(tuple(p[n].tolist()) for p in parents)
                found = (Parent(p, None if p in measured else self.origin(p, measured)) for p in back)
                return Origin(operators if isinstance(operators, str) else operators[n], self.batch, generation, tuple(found))
        return None


def coordinates(sketch: Sketch, rows: np.ndarray) -> np.ndarray:
    """The rows as points for distances: sizes in doublings, choices by their number."""
    found = np.log2(np.maximum(rows, 1).astype(np.float64))
    for choice in sketch.choices:
        found[:, choice.column] = np.searchsorted(np.sort(choice.options), rows[:, choice.column])
    return found
