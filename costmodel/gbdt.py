"""A model that learns: gradient-boosted trees over the features of statements.

As in Ansor (OSDI 2020, section 5.2), a program is the sum of its statements, and a measured program weighs by its throughput
relative to the best of its task, so that what is fast is predicted best. What differs from the original:

- What adds up are times, not throughputs: a program takes sum(exp(f(s))) over its statements s. The trees f start from a rough
  estimate and correct its logarithm; a correction concerns a statement by its share of the time. So predictions are absolute,
  and comparable between tasks, and don't depend on which time is the best so far.
- Slow programs and failures keep a weight, so that the model learns to avoid them; a failure counts as twice the slowest time.
- Training takes bounded time: trees are added for new data, and all are built anew only when the data has grown by a third.
- A formula judges until there is enough to learn from, and stays a feature afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import kept
from .family import Family
from .features import NAMES, Describer
from .geometry import Machine
from .gpu_model import GPUModel
from .loopnest import Statement
from .recording import allocator, interpreter
from .tile_model import TileModel
from .trees import Forest

FORMULA = len(NAMES)  # the number of the feature that the tile model is
ESTIMATE = NAMES.index("estimate")
LN2 = float(np.log(2.0))


@dataclass(frozen=True, slots=True)
class Boosting:
    """How trees are grown. `least` is how many programs there must be before the trees are asked, `most` how many they are fitted
    to: the fastest half of these, and others at random."""

    trees: int = 80
    added: int = 16  # trees for new data
    depth: int = 5
    rate: float = 0.1
    leaf: int = 6  # statements at least
    share: float = 0.25  # of the features tried at each node
    sample: float = 0.8  # of the programs that each tree sees
    least: int = 12
    most: int = 3000
    weight: float = 0.15  # of the slowest program, and of one that failed; the fastest has 1
    growth: float = 1 / 3


class GBDTModel:
    """Scores a row by minus the logarithm of the nanoseconds that boosted trees predict.

    `seed` decides which features and programs each tree sees. Measured rows of any task teach it; `save` and `load` keep what it
    was taught, so that a later run, of the same or another task on the same kind of machine, starts from there.
    """

    def __init__(self, machine: Machine, seed: int = 0, boosting: Boosting | None = None):
        self.machine = machine
        self.boosting = boosting or Boosting()
        self._formula = GPUModel(machine) if machine.is_gpu else TileModel(machine)
        self._describer = Describer(machine)
        self._rng = np.random.default_rng(seed)
        self.forest = Forest.empty(self.boosting.depth)
        self._matrix = np.empty((0, FORMULA + 1), dtype=np.float32)  # a row a statement
        self._program = np.empty(0, dtype=np.int64)  # of which program it is one
        self._task = np.empty(0, dtype=np.int64)  # of each program
        self._seconds = np.empty(0)
        self._tasks: list[str] = []
        self._fitted = 0  # programs at the last fit, and at the last one from scratch
        self._rebuilt = 0

    @property
    def programs(self) -> int:
        """How many measured programs the model has been told of."""
        return len(self._seconds)

    def warm_up(self) -> None:
        """Load the libraries and compile the loops that scoring and learning need, which takes some seconds the first time."""
        import sklearn.tree  # noqa: F401

        Forest.empty(self.boosting.depth).predict(np.zeros((FORMULA + 1, 1), dtype=np.float32))
        interpreter(), allocator()

    # --- judging ---

    def score(self, family: Family, rows: np.ndarray) -> np.ndarray:
        if self.programs < self.boosting.least:
            return self._formula.score(family, rows)
        self._fit()
        formula = self._formula.score(family, rows).astype(np.float32)
        total = np.zeros(len(rows), dtype=np.float32)
        for statement, members in self._statements(family, rows):
            whole = len(members) == len(rows)
            self._add(statement, rows if whole else rows[members], formula if whole else formula[members], members, total)
        return np.where(total > 0, -np.log(np.maximum(total, 1e-30)), -np.inf).astype(np.float64)

    def _statements(self, family: Family, rows: np.ndarray) -> Iterator[tuple[Statement, np.ndarray]]:
        """The statements of all programs, each once with the numbers of the rows that have it: variants share most of them."""
        found: dict[int, tuple[Statement, list[np.ndarray]]] = {}
        for members, program in family.programs(rows):
            for statement in program.statements:
                found.setdefault(id(statement), (statement, []))[1].append(members)
        for statement, parts in found.values():
            yield statement, np.concatenate(parts)

    def _add(self, statement: Statement, rows: np.ndarray, formula: np.ndarray, members: np.ndarray, total: np.ndarray) -> None:
        """Add the predicted nanoseconds of a statement to those of the rows that have it."""
        for start, matrix in self._describer.chunks(statement, rows, extra=1):
            stop = start + matrix.shape[1]
            matrix[FORMULA] = formula[start:stop]
            total[members[start:stop]] += np.exp(self.forest.predict(matrix) + LN2 * matrix[ESTIMATE])

    # --- learning ---

    def update(self, family: Family, rows: np.ndarray, seconds: np.ndarray) -> None:
        if family.task not in self._tasks:
            self._tasks.append(family.task)
        task = self._tasks.index(family.task)
        formula = self._formula.score(family, rows).astype(np.float32)
        for members, program in family.programs(rows):
            block = self._describer.features(program, rows[members])  # (statements, n, features)
            statements, n, _ = block.shape
            column = np.broadcast_to(formula[members][None, :, None], (statements, n, 1))
            block = np.concatenate([block, column], axis=2)
            self._matrix = np.concatenate([self._matrix, block.reshape(statements * n, block.shape[2])])
            numbers = np.tile(np.arange(self.programs, self.programs + n), statements)
            self._program = np.concatenate([self._program, numbers])
            self._task = np.concatenate([self._task, np.full(n, task)])
            self._seconds = np.concatenate([self._seconds, seconds[members]])

    def throughputs(self) -> np.ndarray:
        """Of each measured program, relative to the best of its task; 0 where it failed."""
        best = np.full(len(self._tasks), np.inf)
        np.minimum.at(best, self._task, self._seconds)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self._seconds), best[self._task] / self._seconds, 0.0)

    def _fit(self) -> None:
        """Fit the trees to what is new."""
        if self._fitted == self.programs:
            return
        options = self.boosting
        anew = self.programs >= (1 + options.growth) * self._rebuilt or len(self.forest) + options.added > 2 * options.trees
        chosen = self._chosen()
        place = np.full(self.programs, -1)
        place[chosen] = np.arange(len(chosen))
        mine = place[self._program] >= 0
        matrix, program = self._matrix[mine], place[self._program[mine]]
        forest = Forest.empty(options.depth) if anew else self.forest
        predicted = forest.predict(np.ascontiguousarray(matrix.T)) + LN2 * matrix[:, ESTIMATE]
        weight = np.maximum(self.throughputs()[chosen], options.weight)
        trees = options.trees if anew else options.added
        self.forest = forest + self._boosted(matrix, program, predicted, self._targets()[chosen], weight, trees)
        self._fitted = self.programs
        if anew:
            self._rebuilt = self.programs

    def _chosen(self) -> np.ndarray:
        """The programs to fit to: all, or where these are too many, the fastest half and others at random."""
        most = self.boosting.most
        if self.programs <= most:
            return np.arange(self.programs)
        order = np.argsort(-self.throughputs(), kind="stable")
        others = self._rng.choice(order[most // 2 :], size=most - most // 2, replace=False)
        return np.sort(np.concatenate([order[: most // 2], others]))

    def _targets(self) -> np.ndarray:
        """The logarithm of each program's time in nanoseconds; for one that failed, of twice the slowest of its task."""
        slowest = np.zeros(len(self._tasks))
        finite = np.isfinite(self._seconds)
        np.maximum.at(slowest, self._task[finite], self._seconds[finite])
        slowest[slowest == 0] = slowest.max(initial=0.0) or 1.0
        return np.log(1e9 * np.where(finite, self._seconds, 2.0 * slowest[self._task]))

    def _boosted(
        self, matrix: np.ndarray, program: np.ndarray, predicted: np.ndarray, target: np.ndarray, weight: np.ndarray, count: int
    ) -> Forest:
        """`count` trees that correct what is `predicted` of statements towards the `target` of their programs.

        Where all statements of a program are off by the same, so is the logarithm of their sum; so each is asked for what the
        program is off by, with the program's weight by its share of the program's time.
        """
        from sklearn import config_context
        from sklearn.tree import ExtraTreeRegressor

        options = self.boosting
        columns = np.flatnonzero(np.ptp(matrix, axis=0) > 0)
        if not len(columns):
            columns = np.zeros(1, dtype=np.int64)
        seen = np.ascontiguousarray(matrix[:, columns])
        trees = []
        predicted = predicted.astype(np.float64)
        for _ in range(count):
            times = np.exp(predicted)
            total = np.bincount(program, weights=times, minlength=len(target))
            picked = (self._rng.random(len(target)) < options.sample)[program]
            tree = ExtraTreeRegressor(
                max_depth=options.depth,
                min_samples_leaf=options.leaf,
                max_features=options.share,
                random_state=int(self._rng.integers(2**31)),
            )
            share = weight[program] * times / total[program]
            missing = (target - np.log(total))[program]
            with config_context(skip_parameter_validation=True):  # which takes as long as growing a small tree
                tree.fit(seen[picked], missing[picked], sample_weight=share[picked] + 1e-9, check_input=False)
            predicted = predicted + options.rate * tree.predict(seen, check_input=False)
            trees.append(tree)
        return Forest.of(trees, options.depth, columns, options.rate)

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write what the model was taught, and its trees, to a `.npz` file."""
        arrays: dict[str, np.ndarray] = {
            "matrix": self._matrix,
            "program": self._program,
            "task": self._task,
            "seconds": self._seconds,
            "tasks": np.array(self._tasks, dtype=np.str_),
            "features": self.forest.features,
            "thresholds": self.forest.thresholds,
            "values": self.forest.values,
            "counts": np.array([self._fitted, self._rebuilt], dtype=np.int64),
        }
        kept.write(path, arrays, self.machine.is_gpu)

    @staticmethod
    def load(path: str | Path, machine: Machine, seed: int = 0, boosting: Boosting | None = None) -> GBDTModel:
        """The model that `save` wrote, for a machine of the same kind. Nothing in the file is run, and all of it is checked:
        FileNotFoundError if there is none; ValueError, with the reason, if it is something else, damaged, or of a version with
        other features."""
        model = GBDTModel(machine, seed, boosting)
        data = kept.read(path, machine.is_gpu)
        model._matrix, model._program = data["matrix"], data["program"]
        model._task, model._seconds = data["task"], data["seconds"]
        model._tasks = data["tasks"].tolist()
        forest = Forest(data["features"], data["thresholds"], data["values"])
        if forest.depth == model.boosting.depth:
            model.forest = forest
            model._fitted, model._rebuilt = data["counts"].tolist()
        return model
