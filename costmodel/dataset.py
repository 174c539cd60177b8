"""Measured programs, as models that learn see them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .features import NAMES

FORMULA = len(NAMES)  # the number of the feature that is the score of a formula


@dataclass
class Dataset:
    """Programs of any tasks. `matrix` has a float32 row of features for each statement, `program` the program that it belongs to;
    `task` and `seconds` have an element a program, infinite where it failed; `tasks` are the names of the tasks."""

    matrix: np.ndarray = field(default_factory=lambda: np.empty((0, FORMULA + 1), dtype=np.float32))
    program: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    task: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    seconds: np.ndarray = field(default_factory=lambda: np.empty(0))
    tasks: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seconds)

    def add(self, task: str, block: np.ndarray, seconds: np.ndarray) -> None:
        """Add n programs of one structure: a (statements, n, features) block, and n times."""
        if task not in self.tasks:
            self.tasks.append(task)
        statements, n, width = block.shape
        numbers = np.tile(np.arange(len(self), len(self) + n), statements)
        self.matrix = np.concatenate([self.matrix, block.reshape(statements * n, width)])
        self.program = np.concatenate([self.program, numbers])
        self.task = np.concatenate([self.task, np.full(n, self.tasks.index(task))])
        self.seconds = np.concatenate([self.seconds, seconds])

    def statements(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The features of the statements of some programs, a row each, and the place of its program among these."""
        place = np.full(len(self), -1)
        place[chosen] = np.arange(len(chosen))
        own = place[self.program] >= 0
        return self.matrix[own], place[self.program[own]]

    def throughputs(self) -> np.ndarray:
        """Of each program, relative to the best of its task; 0 where it failed."""
        best = np.full(len(self.tasks), np.inf)
        np.minimum.at(best, self.task, self.seconds)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self.seconds), best[self.task] / self.seconds, 0.0)

    def log_times(self) -> np.ndarray:
        """The logarithm of each program's time in nanoseconds; for one that failed, of twice the slowest of its task."""
        slowest = np.zeros(len(self.tasks))
        finite = np.isfinite(self.seconds)
        np.maximum.at(slowest, self.task[finite], self.seconds[finite])
        slowest[slowest == 0] = slowest.max(initial=0.0) or 1.0
        return np.log(1e9 * np.where(finite, self.seconds, 2.0 * slowest[self.task]))
