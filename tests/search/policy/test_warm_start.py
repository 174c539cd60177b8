"""Warm starts: what records of other tasks hand to a cost model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from codegen.target import Target
from search.measure import Candidate, Limits, Measurement
from search.policy import warm_start
from search.policy.evolution import Evolution
from search.policy.warm_start import examples
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.records import Records
from search.task import Task
from search.tuning.autotune import autotune
from tests.search.once import generate
from tir import workloads

TARGET = Target("llvm -num-cores 1")
OTHER, OWN = (Task.of(workloads.make("gmm", shape).func, TARGET) for shape in ((7, 13, 109), (37, 13, 61)))
SKETCHES = generate(OTHER.func, TARGET)


def measured(sketch, row, seconds: float = 0.1) -> Measurement:
    candidate = Candidate(sketch.name, tuple(row), sketch.trace(row).as_json())
    outcome = "ok" if seconds < math.inf else "crash"
    return Measurement(candidate, outcome, (seconds,) if outcome == "ok" else (), max_error=0.0)


@pytest.fixture
def records(tmp_path):
    with Records(tmp_path / "tune.db") as opened:
        yield opened


def test_candidates_of_other_tasks_come_as_rows_of_their_sketches(records):
    first, second = SKETCHES[:2]
    rows = {s.name: sample(s, TARGET, 3, np.random.default_rng(0)).tolist() for s in (first, second)}
    run = records.start(OTHER)
    for seconds, row in zip((0.3, 0.2, math.inf), rows[first.name], strict=True):
        records.add(run, measured(first, row, seconds))
    records.add(run, measured(second, rows[second.name][0]))
    found = {sketch.name: (sketch_programs(sketch).task, r.tolist(), s.tolist()) for sketch, r, s in examples(records, OWN)}
    assert found == {
        first.name: (sketch_programs(first).task, rows[first.name], [0.3, 0.2, math.inf]),
        second.name: (sketch_programs(second).task, rows[second.name][:1], [0.1]),
    }


def test_a_function_that_cannot_be_read_any_more_is_left_out(records, tmp_path):
    records.add(records.start(OTHER), measured(SKETCHES[0], sample(SKETCHES[0], TARGET, 1, np.random.default_rng(0))[0].tolist()))
    lines = [line.replace("T.grid(", "T.lattice(") for line in records.export()]
    with Records(tmp_path / "older.db") as older:
        older.import_(lines)
        assert len(list(examples(records, OWN))) == 1 and list(examples(older, OWN)) == []


def test_what_does_not_fit_is_left_out(records):
    sketch = SKETCHES[0]
    row, another = sample(sketch, TARGET, 2, np.random.default_rng(0)).tolist()
    own, elsewhere, run = records.start(OWN), records.start(Task.of(OTHER.func, "llvm -num-cores 2")), records.start(OTHER)
    good = measured(sketch, row)
    records.add(own, good)  # of this very task: the search is told of it, not the model alone
    records.add(elsewhere, good)
    records.add(run, good)
    for candidate in (
        Candidate("no such sketch", good.candidate.row, good.candidate.trace),
        Candidate(sketch.name, (*row, 1), good.candidate.trace),
        Candidate(sketch.name, tuple(another), good.candidate.trace),
        Candidate(sketch.name, (10**6,) * len(row), good.candidate.trace),
        Candidate(sketch.name, good.candidate.row, None),
    ):
        records.add(run, Measurement(candidate, "ok", (0.1,), max_error=0.0))
    assert [(s.name, r.tolist()) for s, r, _ in examples(records, OWN)] == [(sketch.name, [row])]


def test_a_resumed_search_is_told_of_its_own_sketches_only(records):
    """Sketches of other spaces have the same names, and may have as many columns."""
    sketch = SKETCHES[0]
    row, another = sample(sketch, TARGET, 2, np.random.default_rng(0)).tolist()
    run = records.start(OTHER)
    mixed_up = Candidate(sketch.name, tuple(another), sketch.trace(row).as_json())
    elsewhere = Candidate("elsewhere", (1,), sketch.trace(row).as_json())
    for m in (measured(sketch, row), *(Measurement(c, "ok", (0.2,), max_error=0.0) for c in (mixed_up, elsewhere))):
        records.add(run, m)
    told = []

    class Exhausted:
        sketches = SKETCHES

        def propose(self, n, rng):
            return []

        def update(self, measurements):
            told.extend((m.candidate.sketch, m.candidate.row) for m in measurements)

    quick = Limits(min_seconds=0.0, min_runs=1, race=0.05)
    result = autotune(OTHER.func, TARGET, policy=Exhausted(), first=(), records=records, limits=quick, workers=1)
    assert told == [(sketch.name, tuple(row)), ("elsewhere", (1,))] and result.earlier == 3


def test_the_search_passes_them_to_its_models(records):
    told = []

    class Model:
        def score(self, sketch, rows):
            return np.zeros(len(rows))

        def update(self, sketch, rows, seconds):
            told.append((sketch.name, rows.shape, seconds.tolist()))

    sketch = SKETCHES[0]
    (row,) = sample(sketch, TARGET, 1, np.random.default_rng(0)).tolist()
    records.add(records.start(OTHER), measured(sketch, row))
    search = Evolution(generate(OWN.func, TARGET), TARGET, Model())
    search.warm_start(examples(records, OWN))
    assert told == [(sketch.name, (1, sketch.columns), [0.1])]


def test_similar_tasks_come_first_and_say_how_far_models_are_trusted(records):
    """Two tasks: a model is taught by the other one before it scores the one most like this, and by that at last."""
    softmax = Task.of(workloads.make("softmax", (7, 13)).func, TARGET)
    alike, (other, *_) = SKETCHES[0], generate(softmax.func, TARGET)
    for task, sketch, n in ((OTHER, alike, 4), (softmax, other, 2)):  # the latest is not like this one
        run = records.start(task)
        for k, row in enumerate(sample(sketch, TARGET, n, np.random.default_rng(0)).tolist()):
            records.add(run, measured(sketch, row, 0.1 * (k + 1)))
    asked = []

    class Model:
        def score(self, sketch, rows):
            asked.append(("score", sketch.task, len(rows)))
            return -np.arange(len(rows), dtype=float)

        def update(self, sketch, rows, seconds):
            asked.append(("update", sketch.task, len(rows)))

    search = Evolution(generate(OWN.func, TARGET), TARGET, Model())
    search.warm_start(examples(records, OWN))
    assert asked == [("update", softmax.key, 2), ("score", OTHER.key, 4), ("update", OTHER.key, 4)]
    (trusted,) = search._models
    assert trusted.wrong == 0 and trusted.trust == 1


def test_what_lost_a_race_keeps_its_own_time(records):
    """That it does not count as faster than the winner is nothing that a model should learn."""
    sketch = SKETCHES[0]
    first, second = sample(sketch, TARGET, 2, np.random.default_rng(0)).tolist()
    run = records.start(OTHER)
    winner, loser = (records.add(run, measured(sketch, row, s)) for row, s in ((first, 0.2), (second, 0.1)))
    records.race(run, {winner: measured(sketch, first, 0.2)}, winner)
    assert [r.seconds > 0.2 for r in records.of(OTHER.key) if r.id == loser] == [True]
    ((_, _, seconds),) = examples(records, OWN)
    assert seconds.tolist() == [0.2, 0.1]


def test_patience_is_bounded(records, monkeypatch):
    for n in (5, 6, 7):
        task = Task.of(workloads.make("gmm", (n, 13, 9)).func, TARGET)
        sketch = generate(task.func, TARGET)[0]
        records.add(records.start(task), measured(sketch, sample(sketch, TARGET, 1, np.random.default_rng(0))[0].tolist()))
    assert len(list(examples(records, OWN))) == 3
    monkeypatch.setattr(warm_start, "MAX_SECONDS", 0.0)
    assert len(list(examples(records, OWN))) <= 1


def test_a_model_that_was_taught_gets_examples_of_like_tasks_alone(records):
    softmax = Task.of(workloads.make("softmax", (7, 13)).func, TARGET)
    like = Task.of(workloads.make("gmm", (5, 13, 9)).func, TARGET)
    for task in (OTHER, softmax, like):
        sketch = generate(task.func, TARGET)[0]
        records.add(records.start(task), measured(sketch, sample(sketch, TARGET, 1, np.random.default_rng(0))[0].tolist()))
    assert {sketch_programs(s).task for s, _, _ in examples(records, OWN)} == {OTHER.key, softmax.key, like.key}
    assert [sketch_programs(s).task for s, _, _ in examples(records, OWN, {OTHER.key})] == [like.key]
