"""Data sets of measured programs for models that learn; `python -m benchmarks.dataset` measures some and writes a file."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np

from tir.nearest import near_file

from ..features import NAMES
from ..model_file import write_arrays

FORMULA = len(NAMES)  # the number of the feature `formula`, the score of a formula
COLUMNS = (*NAMES, "formula")  # of a matrix of features


@dataclass
class Dataset:
    """Measured programs of any tasks. `matrix` has a float32 row of features for each statement, `program` the number of its
    program. `task` and `seconds` have an element a program; the seconds of a failure are infinite. `tasks` are the names of the
    tasks."""

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
        """The features of the statements of some programs, a row each, and the place of each program among the chosen."""
        position = np.full(len(self), -1)
        position[chosen] = np.arange(len(chosen))
        own = position[self.program] >= 0
        return self.matrix[own], position[self.program[own]]

    def subset(self, chosen: np.ndarray) -> Dataset:
        """Some of the programs."""
        return Dataset(*self.statements(chosen), self.task[chosen], self.seconds[chosen], self.tasks)

    @staticmethod
    def joined(sets: Sequence[Dataset]) -> Dataset:
        """All programs of several sets with disjoint tasks."""
        programs, tasks = ([0, *accumulate(len(x) for x in parts)] for parts in (sets, [s.tasks for s in sets]))
        return Dataset(
            np.concatenate([s.matrix for s in sets]),
            np.concatenate([s.program + n for s, n in zip(sets, programs, strict=False)]),
            np.concatenate([s.task + n for s, n in zip(sets, tasks, strict=False)]),
            np.concatenate([s.seconds for s in sets]),
            [t for s in sets for t in s.tasks],
        )

    def throughputs(self) -> np.ndarray:
        """The throughput of each program, relative to the best of its task; 0 where it failed."""
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

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write the programs to a `.npz` file, with the names of their features."""
        write_arrays(path, **vars(self) | {"names": COLUMNS, "tasks": np.array(self.tasks, dtype=np.str_)})

    @staticmethod
    def load(path: str | Path) -> Dataset:
        """The programs of a file that `save` wrote, perhaps in another version. A missing feature is 0, an unknown one is left
        out. FileNotFoundError without a file; ValueError for any other file."""
        if not Path(path).exists():
            hint = near_file(path) or f"; python -m benchmarks.dataset --out {path} measures one"
            raise FileNotFoundError(f"data set {path} does not exist{hint}")
        try:
            with np.load(path, allow_pickle=False) as data:
                found = {name: data[name] for name in ("matrix", "program", "task", "seconds", "tasks", "names")}
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no data set that Dataset.save wrote, or is damaged: {error}") from None
        column = {name: n for n, name in enumerate(found["names"].tolist())}
        if found["matrix"].ndim != 2 or found["matrix"].shape != (len(found["program"]), len(column)):
            raise ValueError(f"{path} is no data set that Dataset.save wrote: `matrix` has the shape {found['matrix'].shape}")
        matrix = np.zeros((len(found["matrix"]), FORMULA + 1), dtype=np.float32)
        for n, name in enumerate(COLUMNS):
            if name in column:
                matrix[:, n] = found["matrix"][:, column[name]]
        return Dataset(matrix, found["program"], found["task"], found["seconds"], found["tasks"].tolist())
