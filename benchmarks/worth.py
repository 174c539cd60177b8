"""What a cost model is worth: `python -m benchmarks.worth FILE ...`, on recorded candidates, so that nothing is measured.

Each file is a data set of one workload, as `python -m benchmarks.dataset --workloads NAME --out FILE` makes. Of each task with at
least MIN_POOL valid candidates TRIALS are "measured", BATCH at a time: those that a model scores highest, and one at random.
Speeds are relative to the fastest candidate of the task. `oracle` knows all times, so that nothing can do better; `random` knows
nothing. `shipped` are trees that have learned from the other files, as `costmodel.pretrained` does; with `+ trees` the task's own
candidates are learned from, too. `first` is the speed of the first candidate, `batch` that of the best of the first BATCH, and
`least` the least of these of any task; means over tasks and seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from codegen.target import Target
from costmodel import Boosting, GBDTModel, Loss, ThroughputSum, TimeSum
from costmodel.dataset import FORMULA, Dataset
from costmodel.pretrained import train
from costmodel.trees import Forest
from tir.display import aligned_columns

BATCH, TRIALS, SEEDS, MIN_POOL = 8, 24, 2, 48
MACHINE = Target("llvm", num_cores=1).machine

Judge = Callable[[Dataset, np.ndarray, Forest, np.random.Generator], np.ndarray]  # a score for each candidate, some of them known


def trees(loss: Loss, shipped: bool = False) -> Judge:
    """Scores of trees that learn from the known candidates; of a formula, or the shipped trees, while there are none."""

    def judge(pool: Dataset, known: np.ndarray, others: Forest, rng: np.random.Generator) -> np.ndarray:
        if not len(known) and not shipped:
            return by_formula(pool)
        model = GBDTModel(MACHINE, boosting=Boosting(loss=loss), base=others if shipped else None)
        if len(known):
            model.data = pool.subset(known)
            model.fit()
        columns = np.ascontiguousarray(pool.matrix.T)
        parts = model.loss.parts(model.predict(columns) + model.start(columns))
        return model.loss.scores(np.bincount(pool.program, weights=parts, minlength=len(pool)))

    return judge


def by_formula(pool: Dataset) -> np.ndarray:
    found = np.zeros(len(pool))
    found[pool.program] = pool.matrix[:, FORMULA]
    return found


MODELS: dict[str, Judge] = {
    "random": lambda pool, known, others, rng: rng.random(len(pool)),
    "formula": lambda pool, known, others, rng: by_formula(pool),
    "throughputs": trees(ThroughputSum()),
    "trees": trees(TimeSum()),
    "shipped": lambda pool, known, others, rng: trees(TimeSum(), True)(pool, known[:0], others, rng),
    "shipped + trees": trees(TimeSum(), True),
    "oracle": lambda pool, known, others, rng: -pool.seconds,
}


def curve(pool: Dataset, judge: Judge, others: Forest, rng: np.random.Generator) -> np.ndarray:
    """The speed of the best after each trial."""
    known: list[int] = []
    while len(known) < TRIALS:
        scores = judge(pool, np.array(known, dtype=np.int64), others, rng)
        scores[known] = -np.inf
        order = np.lexsort((rng.random(len(scores)), -scores))[: len(scores) - len(known)]
        known += [*order[: BATCH - 1].tolist(), int(rng.choice(order[BATCH - 1 :]))]
    return np.min(pool.seconds) / np.minimum.accumulate(pool.seconds[known])


def main(files: Sequence[str]) -> None:
    data = {name: Dataset.load(name) for name in files}
    curves: dict[str, list[np.ndarray]] = {name: [] for name in MODELS}
    for name, own in data.items():
        others = train(Dataset.joined([d for n, d in data.items() if n != name]), MACHINE)
        for task in range(len(own.tasks)):
            pool = own.subset(np.flatnonzero(own.task == task))
            if np.isfinite(pool.seconds).sum() >= MIN_POOL:
                for model, judge in MODELS.items():
                    runs = [curve(pool, judge, others, np.random.default_rng(seed)) for seed in range(SEEDS)]
                    curves[model].append(np.mean(runs, axis=0))
    lines = [("model", "first", "batch", "least", f"best of {TRIALS}", "area")]
    for model, found in curves.items():
        c = np.array(found)
        figures = c[:, 0].mean(), c[:, BATCH - 1].mean(), c[:, BATCH - 1].min(), c[:, -1].mean(), c.mean()
        lines.append((model, *(f"{x:.3f}" for x in figures)))
    print(f"{len(curves['oracle'])} tasks\n{aligned_columns(lines)}")


if __name__ == "__main__":
    main(sys.argv[1:])
