"""Models that learn: a data set of measured programs, and a regressor fitted to the features of their statements."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from schedule.machine import GPU, Machine

from .dataset import FORMULA, Dataset
from .features import NAMES, chunks, features
from .gpu_model import GPUModel
from .loopnest import Statement
from .losses import Loss, TimeSum
from .recording import allocator, interpreter
from .sketch_programs import SketchPrograms
from .tile_model import TileModel

MIN_PROGRAMS = 12  # measured programs below which a formula scores
DEVICE = NAMES.index("device")
DEVICE_NUMBERS = 2**20  # numbers for devices: so many that two hardly get the same, and exact in float32
MIN_WEIGHT = 0.15  # of the slowest program, and of one that failed; the fastest has 1


class LearnedModel(ABC):
    """Scores programs by predictions for their statements, combined by `loss`; analytically until `min_programs` are known."""

    learned = "learned"  # the name of its scores beside those of others

    def __init__(self, machine: Machine, loss: Loss, min_programs: int):
        self.machine = machine
        self.loss = loss
        self.min_programs = min_programs
        self.data = Dataset()
        self._formula = GPUModel(machine) if isinstance(machine, GPU) else TileModel(machine)
        self._fitted = 0  # programs at the last fit

    @abstractmethod
    def fit(self) -> None:
        """Fit to `data`; called when programs were added."""

    @abstractmethod
    def predict(self, features: np.ndarray) -> np.ndarray:
        """The correction to the start of f(s), one a column of a (features, n) float32 matrix."""

    @property
    def ready(self) -> bool:
        """True if the model itself scores, not the formula."""
        return self.programs >= self.min_programs

    @property
    def name(self) -> str:
        """The name of the model that `score` asks: the formula's until it is `ready`, then its own, `learned`."""
        return self.learned if self.ready else self._formula.name

    def start(self, features: np.ndarray) -> np.ndarray:
        """f(s) before learning, one a column of `features`."""
        return self.loss.start(features)

    @property
    def programs(self) -> int:
        """The number of measured programs that the model has learned from."""
        return len(self.data)

    def throughputs(self) -> np.ndarray:
        """The throughput of each measured program, relative to the best of its task; 0 where it failed."""
        return self.data.throughputs()

    def warm_up(self) -> None:
        """Compile the loops that scoring needs, which takes some seconds the first time."""
        allocator(), interpreter("float32"), interpreter("float64")

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        if not self.ready:
            return self._formula.score(sketch, rows)
        if self._fitted < self.programs >= self.min_programs:
            self.fit()
            self._fitted = self.programs
        formula = self._formula.score(sketch, rows).astype(np.float32)
        sums, legal = np.zeros(len(rows), dtype=np.float32), np.zeros(len(rows), dtype=bool)
        for statement, members in _statements(sketch, rows):
            legal[members] = True
            whole = len(members) == len(rows)
            own, of_own = (rows, formula) if whole else (rows[members], formula[members])
            for start, matrix in chunks(statement, own, self.machine, extra=1):
                stop = start + matrix.shape[1]
                matrix[FORMULA] = of_own[start:stop]
                sums[members[start:stop]] += self.loss.parts(self.predict(matrix) + self.start(matrix))
        return np.where(legal, self.loss.scores(sums), -np.inf).astype(np.float64)

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        task = f"{sketch.task} on {sketch.device}" if sketch.device else sketch.task  # times are compared within one device
        formula = self._formula.score(sketch, rows).astype(np.float32)
        for members, program in sketch.programs(rows):
            block = features(program, rows[members], self.machine)  # (statements, n, features)
            if sketch.device:
                block[:, :, DEVICE] = 1 + zlib.crc32(sketch.device.encode()) % DEVICE_NUMBERS
            column = np.broadcast_to(formula[members][None, :, None], (*block.shape[:2], 1))
            self.data.add(task, np.concatenate([block, column], axis=2), seconds[members])


def _statements(sketch: SketchPrograms, rows: np.ndarray) -> Iterator[tuple[Statement, np.ndarray]]:
    """The distinct statements of all programs, each with the numbers of its rows; variants share most of them."""
    found: dict[Statement, list[np.ndarray]] = {}
    for members, program in sketch.programs(rows):
        for statement in program.statements:
            found.setdefault(statement, []).append(members)
    for statement, parts in found.items():
        yield statement, np.concatenate(parts)


class RegressorModel(LearnedModel):
    """Any regressor, fitted anew to all statements after each measurement: to the error of the loss's start.

    It has the methods of scikit-learn's: `fit(X, y, sample_weight)` of an (n, features) float32 matrix, and `predict(X)`.
    """

    def __init__(self, machine: Machine, regressor: Any, loss: Loss | None = None, min_programs: int = MIN_PROGRAMS):
        super().__init__(machine, loss or TimeSum(), min_programs)
        self.regressor = regressor

    def fit(self) -> None:
        start = self.loss.start(self.data.matrix.T).astype(np.float64)
        missing, weights = self.loss.residuals(start, self.data.program, *self.loss.targets(self.data, MIN_WEIGHT))
        self.regressor.fit(self.data.matrix, missing, sample_weight=weights)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return np.asarray(self.regressor.predict(features.T))
