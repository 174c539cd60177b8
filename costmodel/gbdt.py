"""A model that learns: gradient-boosted trees over the features of statements.

As in Ansor (OSDI 2020, section 5.2), a program is the sum of its statements. A measured program weighs by its throughput relative
to the best of its task, so that fast programs are predicted best. Differences from the original:

- Times are summed, not throughputs: a program takes sum(exp(f(s))) over its statements s. The trees f start from a rough estimate
  and correct its logarithm; a correction concerns a statement by its share of the time. So predictions are absolute, comparable
  between tasks, and independent of the best time so far.
- Slow programs and failures keep a weight, so that the model learns to avoid them; a failure counts as twice the slowest time.
- Training takes bounded time: trees are added for new data, and all are built anew only when the data has grown by a third.
- A formula scores until `min_programs` are measured, and stays a feature afterwards.

The original loss is an option (`Boosting.loss`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from schedule.machine import GPU, Machine

from . import model_file
from .dataset import COLUMNS, FORMULA, Dataset
from .explanation import contributions
from .features import features
from .learned import MIN_PROGRAMS, MIN_WEIGHT, LearnedModel
from .losses import Loss, TimeSum
from .sketch_programs import SketchPrograms
from .trees import Forest


@dataclass(frozen=True, slots=True)
class Boosting:
    """The parameters of growing trees. The trees score when at least `min_programs` programs were measured. They are fitted to at
    most `max_programs`: half of that number are the fastest, the others random."""

    trees: int = 80
    added: int = 16  # trees for new data
    depth: int = 5
    rate: float = 0.1
    leaf: int = 6  # statements at least
    share: float = 0.25  # of the features tried at each node
    sample: float = 0.8  # of the programs that each tree sees
    min_programs: int = MIN_PROGRAMS
    max_programs: int = 3000
    weight: float = MIN_WEIGHT  # of the slowest program, and of one that failed; the fastest has 1
    growth: float = 1 / 3
    loss: Loss = field(default_factory=TimeSum)


class GBDTModel(LearnedModel):
    """Scores a row by minus the logarithm of the nanoseconds that boosted trees predict (or as another loss says).

    `seed` draws the features and programs that each tree sees. `base` are trees grown before, on other tasks: they score until
    `min_programs` are measured, and then the own trees correct them. `save` and `load` keep data and trees for a later run, of
    the same or another task on the same kind of machine.
    """

    learned = "trees"

    def __init__(self, machine: Machine, seed: int = 0, boosting: Boosting | None = None, base: Forest | None = None):
        self.boosting = boosting or Boosting()
        self.base = base
        super().__init__(machine, self.boosting.loss, self.boosting.min_programs)
        self.forest = Forest.empty(self.boosting.depth)
        self._rng = np.random.default_rng(seed)
        self._rebuilt = 0  # programs at the last fit from scratch

    def warm_up(self) -> None:
        """Load the libraries and compile the loops that scoring and learning need, which takes some seconds the first time."""
        import sklearn.tree  # noqa: F401

        self.predict(np.zeros((FORMULA + 1, 1), dtype=np.float32))
        super().warm_up()

    @property
    def ready(self) -> bool:
        return self.base is not None or super().ready

    def predict(self, features: np.ndarray) -> np.ndarray:
        return self.forest.predict(features)

    def start(self, features: np.ndarray) -> np.ndarray:
        start = super().start(features)
        return start if self.base is None else start + self.base.predict(np.ascontiguousarray(features))

    def explanation(self, sketch: SketchPrograms, row: np.ndarray) -> dict[str, float]:
        """The e-folds by which each feature moves the trees' correction of a row's estimated time, from its mean over the data.
        Empty before the trees have learned, and for a loss that does not sum times."""
        result = np.zeros(FORMULA + 1)
        if not len(self.forest) or not isinstance(self.loss, TimeSum):
            return {}
        formula = self._formula.score(sketch, row[None]).astype(np.float32)
        for _, program in sketch.programs(row[None]):
            own = features(program, row[None], self.machine)[:, 0]
            matrix = np.concatenate([own, np.broadcast_to(formula, (len(own), 1))], axis=1).T
            times = np.exp(self.predict(matrix) + self.start(matrix))
            result += contributions(self.forest, self.data.matrix, matrix) @ (times / times.sum())
        return dict(zip(COLUMNS, result.tolist(), strict=True))

    def fit(self) -> None:
        """Add trees for new data, or build all anew where the data has grown or the trees are too many."""
        options = self.boosting
        anew = self.programs >= (1 + options.growth) * self._rebuilt or len(self.forest) + options.added > 2 * options.trees
        if anew:
            self.forest, self._rebuilt = Forest.empty(options.depth), self.programs
        chosen = self._chosen()
        matrix, program = self.data.statements(chosen)
        features = np.ascontiguousarray(matrix.T)
        predicted = (self.predict(features) + self.start(features)).astype(np.float64)
        targets, weights = (values[chosen] for values in self.loss.targets(self.data, options.weight))
        self.forest += self._boosted(matrix, program, predicted, targets, weights, options.trees if anew else options.added)

    def _chosen(self) -> np.ndarray:
        """The programs to fit to: all, or `max_programs` of them, half the fastest and half random."""
        most = self.boosting.max_programs
        if self.programs <= most:
            return np.arange(self.programs)
        order = np.argsort(-self.throughputs(), kind="stable")
        others = self._rng.choice(order[most // 2 :], size=most - most // 2, replace=False)
        return np.sort(np.concatenate([order[: most // 2], others]))

    def _boosted(
        self, matrix: np.ndarray, program: np.ndarray, predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray, count: int
    ) -> Forest:
        """`count` trees that correct the predictions of statements towards the targets of their programs."""
        from sklearn import config_context
        from sklearn.tree import ExtraTreeRegressor

        options = self.boosting
        columns = np.flatnonzero(np.ptp(matrix, axis=0) > 0)
        if not len(columns):
            columns = np.zeros(1, dtype=np.int64)
        seen = np.ascontiguousarray(matrix[:, columns])
        trees = []
        for _ in range(count):
            picked = (self._rng.random(len(targets)) < options.sample)[program]
            tree = ExtraTreeRegressor(
                max_depth=options.depth,
                min_samples_leaf=options.leaf,
                max_features=options.share,
                random_state=int(self._rng.integers(2**31)),
            )
            missing, weight = self.loss.residuals(predicted, program, targets, weights)
            with config_context(skip_parameter_validation=True):  # which takes as long as growing a small tree
                tree.fit(seen[picked], missing[picked], sample_weight=weight[picked] + 1e-9, check_input=False)
            predicted = predicted + options.rate * tree.predict(seen, check_input=False)
            trees.append(tree)
        return Forest.of(trees, options.depth, columns, options.rate)

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write the model's data and trees to a `.npz` file. Trees of another loss than the default, and trees that correct a
        `base`, are left out: they are grown anew after loading."""
        forest = self.forest if self.loss == TimeSum() and self.base is None else Forest.empty(self.boosting.depth)
        counts = (self._fitted, self._rebuilt) if len(forest) else (0, 0)
        own = {"counts": np.array(counts, dtype=np.int64), "tasks": np.array(self.data.tasks, dtype=np.str_)}
        model_file.write(path, vars(forest) | vars(self.data) | own, isinstance(self.machine, GPU))

    @staticmethod
    def load(path: str | Path, machine: Machine, seed: int = 0, boosting: Boosting | None = None) -> GBDTModel:
        """The model that `save` wrote, for a machine of the same kind. Nothing in the file is run, and all of it is checked.
        FileNotFoundError without a file; ValueError, with the reason, for another kind of file, a damaged one, or one of a
        version with other features."""
        model = GBDTModel(machine, seed, boosting)
        data = model_file.read(path, isinstance(machine, GPU))
        model.data = Dataset(data["matrix"], data["program"], data["task"], data["seconds"], data["tasks"].tolist())
        forest = Forest(data["features"], data["thresholds"], data["values"])
        if forest.depth == model.boosting.depth and model.loss == TimeSum():
            model.forest = forest
            model._fitted, model._rebuilt = data["counts"].tolist()
        return model
