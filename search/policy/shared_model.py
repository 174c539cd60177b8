"""One cost model for all tasks of a run, which learns from the measurements of each (Ansor, section 5.2)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from costmodel import CostModel, Explains, SketchPrograms, WarmUp

from .ranking import is_ready, model_name


class SharedModel:
    """A cost model that several policies use at the same time, each for a task of its own.

    It learns a row once, from the search that measured it or from another that read it from records. `right` and `wrong` count
    the pairs of candidates that it ordered right and wrong while their task was new. They set its initial trust in the next new
    task.
    """

    def __init__(self, model: CostModel):
        self.model = model
        self.right = self.wrong = 0.0
        self._learned: dict[str, set[tuple[str, str, tuple[int, ...]]]] = {}  # by task: sketches, devices and rows

    @property
    def name(self) -> str:
        """The name of the model."""
        return model_name(self.model)

    @property
    def ready(self) -> bool:
        """True if the model itself scores, not a formula."""
        return is_ready(self.model)

    @property
    def tasks(self) -> Collection[str]:
        """The keys of the learned tasks."""
        return self._learned.keys()

    def count(self, right: float, wrong: float) -> None:
        """Count pairs of candidates of a new task."""
        self.right += right
        self.wrong += wrong

    def warm_up(self) -> None:
        if isinstance(self.model, WarmUp):
            self.model.warm_up()

    def explanation(self, sketch: SketchPrograms, row: np.ndarray) -> dict[str, float]:
        return self.model.explanation(sketch, row) if isinstance(self.model, Explains) else {}

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        return self.model.score(sketch, rows)

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        learned = self._learned.setdefault(sketch.task, set())
        keys = [(sketch.name, sketch.device, tuple(row)) for row in rows.tolist()]
        new = [n for n, key in enumerate(keys) if key not in learned]
        learned.update(keys)
        if new:
            self.model.update(sketch, rows[new], seconds[new])
