"""Whatever a candidate does, the run ends, with the right best and every outcome recorded; and so does a run that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from search.measure import Candidate, Limits
from search.measure.reference import NamedWorkload
from search.records import Records
from search.tuning.autotune import autotune
from search.tuning.events import RaceStarted
from tests.search import faults
from tests.search.faults import SHAPE, tiled
from tir import workloads

FUNC = workloads.make("gmm", SHAPE).func
TARGET = "llvm -num-cores 1"
QUICK = Limits(build=3.0, run=1.0, run_floor=0.4, min_seconds=0.01, race=0.2, memory=1 << 30)


def step(name: str, **args) -> dict:
    return {"version": 1, "steps": [{"name": name, "args": args, "results": []}]}


GOOD = [tiled(factor) for factor in (4, 5, 16)]
FAULTS = {  # what a trace does, and what is to become of it
    "segfault": ({"fault": "segfault"}, "crash"),
    "loop": ({"fault": "loop"}, "run_timeout"),
    "fork_and_loop": ({"fault": "fork_and_loop"}, "run_timeout"),
    "allocate": ({"fault": "allocate"}, "memory"),
    "wrong": ({"fault": "wrong", "of": GOOD[2].trace}, "wrong_result"),
    "compiler_hangs": ({"fault": "compiler_hangs"}, "build_timeout"),
    "no such loop": (step("split", loop="nowhere", factors=[None, 4]), "illegal"),
    "no such primitive": (step("make_it_fast"), "illegal"),
    "races": (step("parallel", loop="k"), "illegal"),
    "another version": ({"version": 7, "steps": []}, "build_error"),
    "no trace at all": (["a", "list"], "build_error"),
    "steps that are none": ({"version": 1, "steps": 7}, "build_error"),
}


class Listed:
    """Proposes what it is given, `batch` at a time."""

    def __init__(self, candidates, batch=5):
        self.left, self.batch, self.told = list(candidates), batch, []

    def propose(self, n, rng):
        n = min(n, self.batch)
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        self.told += measurements


@pytest.fixture
def faulty_builder(monkeypatch) -> str:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    return "faulty_builder"


def tune(candidates, builder, **options):
    search = Listed(candidates)
    result = autotune(
        FUNC,
        TARGET,
        policy=search,
        first=(),
        builder=builder,
        limits=QUICK,
        workload=NamedWorkload("gmm", SHAPE),
        workers=2,
        **options,
    )
    return result, search


def test_a_run_full_of_faults_ends_with_the_best_of_the_rest(faulty_builder, tmp_path):
    bad = [Candidate(name, (), trace) for name, (trace, _) in FAULTS.items()]
    order = np.random.default_rng(0).permutation(len(bad) + len(GOOD))
    result, search = tune([[*bad, *GOOD][n] for n in order], faulty_builder, records=tmp_path / "tune.db")
    expected = {name: outcome for name, (_, outcome) in FAULTS.items()}
    found = {m.candidate.sketch: m.outcome for m in result.measurements if m.candidate.sketch != "tiles"}
    assert found == expected, {m.candidate.sketch: (m.outcome, m.message) for m in result.measurements}
    assert result.trace in [None, *(c.trace for c in GOOD)] and result.max_error <= result.tolerance
    assert result.outcomes["ok"] == len(GOOD) and result.trials == len(order) == len(search.told)

    with Records(tmp_path / "tune.db") as records:
        recorded = {r.measurement.candidate.sketch: r.measurement.outcome for r in records.of(result.task.key, TARGET)}
        assert recorded == expected | {"tiles": "ok"}
        best = records.best(result.task.key, TARGET)
    assert best.measurement.candidate.trace == result.trace and best.seconds == result.seconds
    instance = workloads.make("gmm", SHAPE)
    inputs, outputs = instance.inputs(np.random.default_rng(1)), instance.outputs()
    result.kernel(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok


@pytest.mark.parametrize("margin", [0.0, 1e9])  # it races alone, or beside the program as written
def test_a_candidate_that_dies_in_the_final_race_loses_it_alone(faulty_builder, tmp_path, monkeypatch, margin):
    monkeypatch.setattr("search.tuning.race.LEADER_MARGIN", margin)
    races = []
    late = Candidate("late", (), {"fault": "dies_in_the_race", "directory": str(tmp_path)})

    def begin(event):
        if isinstance(event, RaceStarted):
            races.append([m.candidate.sketch for m in event.contenders])
            (tmp_path / "race").touch()

    slow = Limits(build=10.0, run=10.0, run_floor=0.4, min_seconds=0.01, race=0.2)
    result = autotune(
        FUNC, TARGET, policy=Listed([late]), first=(), builder=faulty_builder, limits=slow, workload=NamedWorkload("gmm", SHAPE),
        workers=1, callbacks=[begin], records=tmp_path / "tune.db",
    )  # fmt: skip
    assert races == ([["late"], ["unscheduled"]] if margin == 0 else [["late", "unscheduled"]])
    assert result.trace is None and result.seconds == result.baseline  # late is the program as written, through Python
    with Records(tmp_path / "tune.db") as records:
        assert records.best(result.task.key, TARGET).measurement.candidate.sketch == "unscheduled"


def test_a_disk_that_fills_up_does_not_lose_the_search(faulty_builder, tmp_path, monkeypatch):
    from search.records import RecordsError

    def full(self, run, measurement):
        raise RecordsError("the records file cannot be used: database or disk is full")

    monkeypatch.setattr(Records, "add", full)
    result, _ = tune(GOOD, faulty_builder, records=tmp_path / "tune.db")
    assert result.outcomes["ok"] == len(GOOD)
    assert result.problem == "not all was recorded: the records file cannot be used: database or disk is full"


# --- resuming ----------------------------------------------------------------------------------------------------------


def test_a_run_goes_on_where_the_last_one_ended(faulty_builder, tmp_path):
    path = tmp_path / "tune.db"
    bad = Candidate("wrong", (), FAULTS["wrong"][0])
    first, _ = tune([bad, *GOOD], faulty_builder, records=path)
    new = tiled(7)
    second, search = tune([*GOOD, new, bad], faulty_builder, records=path)
    assert first.earlier == 0 and second.earlier == 4
    known = [m.candidate.sketch for m in search.told[:4]]
    assert known == ["wrong", "tiles", "tiles", "tiles"] or sorted(known) == ["tiles", "tiles", "tiles", "wrong"]
    assert [m.candidate.row for m in second.measurements] == [(7,)]  # what was measured before costs nothing
    with Records(path) as records:
        assert len(records) == 5
        assert records.best(second.task.key, TARGET).seconds == second.seconds
    again, _ = tune([], faulty_builder, records=path)  # nothing new: the best recorded one, checked and timed again
    assert again.trials == 0 and again.earlier == 5 and again.trace in [None, *(c.trace for c in [*GOOD, new])]


def test_failures_under_other_versions_are_tried_again(faulty_builder, tmp_path):
    path = tmp_path / "tune.db"
    bad = Candidate("wrong", (), FAULTS["wrong"][0])
    tune([bad, GOOD[0]], faulty_builder, records=path)
    with Records(path) as records:
        lines = [json.loads(line) for line in records.export()]
    for line in lines:
        if line["kind"] == "run":
            line["versions"]["llvm"] = "1.0"
    with Records(tmp_path / "older.db") as older:
        older.import_([json.dumps(line) for line in lines])
    result, search = tune([bad, GOOD[0]], faulty_builder, records=tmp_path / "older.db")
    told = [m.candidate.sketch for m in search.told if m.candidate.sketch != "unscheduled"]  # which may have won, and is recorded
    assert told == ["tiles", "wrong", "tiles"]
    assert result.trials == 2


def test_nothing_is_lost_and_the_right_one_wins_whatever_happens_to_runs(tmp_path):
    """As `python -m tests.search.faults` does with more of all: faulty candidates, SIGKILL, a row that is spoilt, a full disk."""
    summary = faults.faulty_runs(tmp_path, kills=1, seed=0)
    assert summary.killed == summary.spoilt == 1 and summary.recorded >= summary.logged and summary.unrecorded > 0
