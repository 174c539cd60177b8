"""One cost model for the tasks of a run: what each search tells it, and what it says to the next."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from costmodel import TileModel
from search.measure import Measurement
from search.policy import named
from search.policy.evolution import Evolution
from search.policy.named import shared_models
from search.policy.ranking import PRIOR_PAIRS
from search.policy.shared_model import SharedModel
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.tuning.task_scheduler import tune_tasks
from tests.graph.fake_measurer import Fake
from tests.programs import matmul
from tests.search.once import generate

TARGET = Target("llvm -num-cores 1")
FUNCS = matmul(7, 13, 109), matmul(37, 13, 61)
SKETCHES = [generate(func, TARGET) for func in FUNCS]


class Recorder:
    """A model that remembers what it is told, and prefers small rows."""

    def __init__(self):
        self.told = []

    def score(self, sketch, rows):
        return -rows.sum(axis=1).astype("float64")

    def update(self, sketch, rows, seconds):
        self.told.append((sketch.task, rows.tolist(), seconds.tolist()))


def test_a_row_is_learned_once():
    inner = Recorder()
    model, sketch = SharedModel(inner), sketch_programs(SKETCHES[0][0])
    rows = sample(SKETCHES[0][0], TARGET, 3, np.random.default_rng(0))
    model.update(sketch, rows[:2], np.array([1.0, 2.0]))
    model.update(sketch, rows, np.array([9.0, 9.0, 3.0]))
    model.update(sketch, rows, np.array([9.0, 9.0, 9.0]))
    assert [(r, s) for _, r, s in inner.told] == [(rows[:2].tolist(), [1.0, 2.0]), (rows[2:].tolist(), [3.0])]
    assert list(model.tasks) == [sketch.task]


def test_the_first_batch_of_a_task_says_how_far_the_next_one_trusts():
    """Its later batches don't: the model has learned from the task by then."""
    shared, prior = shared_models(Recorder(), TARGET)
    assert prior is None

    def search(n):
        return Evolution(SKETCHES[n], TARGET, shared)

    first = search(0)
    for sign in (1.0, -1.0):
        batch = first.propose(8, np.random.default_rng(0))
        scored = [c for c in batch if c.score is not None]
        first.update([Measurement(c, "ok", (1.1 ** (-sign * c.score),)) for c in scored])
    assert shared.right > 0 == shared.wrong
    (trusted,) = search(1)._models
    assert (trusted.right, trusted.wrong) == (PRIOR_PAIRS, 0.0) and trusted.trust == 1.0


@pytest.mark.parametrize("own", [True, False])
def test_a_run_over_several_tasks_has_one_model(own, monkeypatch):
    made = []

    def make(target):
        made.append(Recorder())
        return made[-1], TileModel(target.machine)

    monkeypatch.setitem(named.MODELS, "pretrained", make)
    model = Recorder() if own else None
    tune_tasks(FUNCS, TARGET, 6, measurer=Fake, model=model)
    (used,) = made or [model]
    assert {task for task, _, _ in used.told} == {sketch_programs(s[0]).task for s in SKETCHES}
