"""A cost model that reads the steps of a schedule (TLP: Zhai et al., ASPLOS 2023, sections 4.1 and 4.2).

A schedule is its sequence of primitives, and each primitive a row of numbers: its kind, its sizes, and its names as numbers in
the order of their first use. The sequence is cut or filled to STEPS x WIDTH. So nothing is lowered, and no feature of a loop
nest is computed, to score a schedule. As in the paper, the search is that of Ansor.

Differences: the paper trains a transformer on millions of recorded programs beforehand, with a loss of ranks; here a forest of
random trees learns the measured candidates of the task, as throughputs relative to the best. Until WARM_UP candidates are
measured, scores are random, as in `ansor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from costmodel.recording import Recorder, Recording, Value
from schedule import REGISTRY
from schedule.open_trace import Hole
from schedule.random_variables import leaves
from schedule.trace import Step
from tir.arith.symbolic import SymbolicInt

from ..policy.rows import Point
from ..space.sketch import Sketch
from .ansor import WARM_UP, Ansor
from .pruner import Pruner

STEPS = 40  # steps of a sequence; the paper has 25 for processors
WIDTH = 10  # numbers of a step; the paper has 22, most of which tell kinds of primitives apart
TREES = 50  # trees of the forest


class TraceModel(Ansor):
    """The evolution of Ansor with scores by the steps of schedules."""

    probabilities = Pruner.probabilities

    def __init__(self, *args: Any, **parts: Any):
        super().__init__(*args, **parts)
        self._forest: Any = None

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        if len(self.measured) >= WARM_UP:
            from sklearn.ensemble import ExtraTreesRegressor

            known = list(self.measured)
            seconds = np.array([self.measured[p] for p in known])
            speeds = np.where(np.isfinite(seconds), seconds.min() / seconds, 0.0)
            x = np.concatenate([sequences(self.sketches[k], np.array([row], dtype=np.int64)) for k, row in known])
            self._forest = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=int(rng.integers(1 << 31)))
            self._forest.fit(x, speeds)
        return super().search(n, rng)

    def scores(self, number: int, rows: np.ndarray) -> np.ndarray:
        """The throughputs that the forest predicts, relative to the best."""
        self.scored["symbolic"] += len(rows)
        return self._forest.predict(sequences(self.sketches[number], rows)) if len(rows) else np.zeros(0)


def sequences(sketch: Sketch, rows: np.ndarray) -> np.ndarray:
    """The steps of the traces of rows as numbers: an (n, STEPS * WIDTH) float32 matrix of log2(1 + number)."""
    result = np.zeros((STEPS * WIDTH, len(rows)), dtype=np.float32)
    variants = sketch.variants(rows)
    for variant in np.unique(variants, axis=0):
        own = np.flatnonzero((variants == variant).all(axis=1))
        found = np.zeros((STEPS * WIDTH, len(own)), dtype=np.float32)
        _recorded(sketch, tuple(variant.tolist())).run(rows[own], found)
        result[:, own] = found
    return np.log2(1.0 + np.maximum(result.T, 0.0))


@lru_cache(maxsize=512)
def _recorded(sketch: Sketch, variant: tuple[int, ...]) -> Recording:
    """The program that computes the sequence of a variant."""
    recorder = Recorder()
    names: dict[str, int] = {}
    kinds = {name: n for n, name in enumerate(REGISTRY, 1)}
    numbers: dict[int, Value] = {}
    for at, step in enumerate(sketch.picked(variant)[:STEPS]):
        values = [float(kinds[step.name]), *_numbers(step, recorder, names)]
        numbers |= {at * WIDTH + k: value for k, value in enumerate(values[:WIDTH])}
    return recorder.compiled(numbers)


def _numbers(step: Step, recorder: Recorder, names: dict[str, int]) -> Iterator[Value]:
    """The arguments of a step as numbers."""
    for value in leaves([argument for _, argument in step.args]):
        if isinstance(value, Hole):
            yield recorder.number(SymbolicInt(0, value.formula))
        elif isinstance(value, str):
            yield float(names.setdefault(value, len(names) + 1))
        elif isinstance(value, (int, float)):
            yield float(value)
