"""The final race: who is in it, who wins it, and what of it is recorded. The measurer here does as it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search.events import ShootOut
from search.measure import BASELINE, Baseline, Candidate, Comparison, Measurement
from search.records import Records
from search.tuner import autotune
from tir import workloads

FUNC = workloads.make("gmm", (7, 13, 109)).func
TARGET = "llvm -num-cores 1"


class Scripted:
    """Measures candidates as their traces say: `{"times": [...]}` when measured, `{"race": [...]}` in the race."""

    build_seconds = run_seconds = 0.0

    def __init__(self, task, written=(1.0,)):
        self.written, self.remembered, self.raced = written, [], []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def remember(self, measurements):
        self.remembered += measurements

    def prepare(self):
        return Baseline(Measurement(BASELINE, "ok", self.written, max_error=0.0, digest="written"), 1e-6)

    def measure(self, candidates):
        for c in candidates:
            yield Measurement(c, "ok", tuple(c.trace["times"]), max_error=c.trace.get("error", 0.0), digest=str(c.trace["times"]))

    def compare(self, candidates, *, numpy=False, rounds=20, seconds=2.0):
        self.raced = [c.sketch if c == BASELINE else c.row[0] for c in candidates]
        found = []
        for c in candidates:
            samples = self.written if c == BASELINE else c.trace.get("race", c.trace["times"])
            wrong = samples is None
            found.append(
                Measurement(c, "wrong_result" if wrong else "ok", () if wrong else tuple(samples), max_error=float(wrong))
            )
        return Comparison(tuple(found))

    def peak(self, dtype="float32"):
        return None


class Given:
    def __init__(self, traces):
        self.left = [Candidate("given", (n,), trace) for n, trace in enumerate(traces)]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def tell(self, measurements):
        pass


def race(*traces, records=None, first=0, **options):
    made = []

    def measurer(task):
        made.append(Scripted(task, **options))
        return made[-1]

    given = Given(traces)
    start = given.left[:first]
    given.left = given.left[first:]
    result = autotune(FUNC, TARGET, search=given, first=start, measurer=measurer, records=records)
    return result, made[0]


def times(*samples, race=..., error=0.0):
    return {"times": list(samples), "error": error} | ({} if race is ... else {"race": race})


def test_the_fastest_four_that_are_close_race():
    result, measurer = race(
        times(0.10), times(0.11), times(0.12), times(0.102), times(0.104), times(0.101, error=None), times(0.106)
    )
    assert measurer.raced == [0, 5, 3, 4] and result.seconds == 0.10  # unchecked ones get their check here
    _, measurer = race(times(0.9), written=(1.0,))
    assert measurer.raced == [0, "unscheduled"]


def test_the_race_decides():
    result, _ = race(times(0.10, race=[0.14, 0.15]), times(0.11, race=[0.12, 0.12]))
    assert result.trace["times"] == [0.11] and result.seconds == 0.12
    result, _ = race(times(0.10, race=None), times(0.11))
    assert result.trace["times"] == [0.11]  # the leader was wrong after all


def test_disturbances_do_not_decide():
    quick = [0.10, 0.10, 0.31, 0.32, 0.33]  # others were at work in three of five rounds
    result, _ = race(times(0.10, race=quick), times(0.11, race=[0.11, 0.11, 0.11, 0.12, 0.12]))
    assert result.trace["times"] == [0.10]


@pytest.mark.parametrize(
    ("challenger", "wins"),
    [
        ([0.101, 0.098, 0.101, 0.098, 0.099], False),  # faster in three rounds of five, as any that is alike
        ([0.098, 0.098, 0.101, 0.098, 0.099], True),
    ],
)
def test_a_first_candidate_gives_way_only_to_one_that_is_faster_for_certain(challenger, wins, tmp_path):
    path = tmp_path / "tune.db"
    result, _ = race(times(0.1, race=[0.1] * 5), times(0.09, race=challenger), first=1, records=path)
    best = times(0.09, race=challenger) if wins else times(0.1, race=[0.1] * 5)
    assert result.trace == best
    with Records(path) as records:
        assert records.best(result.task.key, TARGET).measurement.candidate.trace == best


def test_what_did_not_race_is_not_recorded_as_faster_than_the_winner(tmp_path):
    leaders = [times(0.1, race=[0.2]), times(0.101, race=[0.19]), times(0.102, race=[0.2]), times(0.103, race=[0.2])]
    result, measurer = race(*leaders, times(0.104), records=tmp_path / "tune.db")
    assert measurer.raced == [0, 1, 2, 3]
    with Records(tmp_path / "tune.db") as records:
        best = records.best(result.task.key, TARGET)
    assert best.measurement.candidate.trace == result.trace == leaders[1] and best.seconds == 0.19


def test_a_program_as_written_that_wins_is_found_again(tmp_path):
    result, _ = race(times(0.98, race=[1.2]), written=(1.0,), records=tmp_path / "tune.db")
    assert result.trace is None and result.seconds == 1.0
    with Records(tmp_path / "tune.db") as records:
        best = records.best(result.task.key, TARGET)
    assert best.measurement.candidate == BASELINE and best.seconds == 1.0


@pytest.mark.parametrize(
    ("raced", "seconds"),
    [
        (([0.14], [0.12]), {0: 0.14, 1: 0.12}),
        (([0.5], [0.4]), {0: 0.10, 1: 0.11}),  # the machine was busy
        (([0.5], [0.12]), {0: 0.5, 1: 0.12}),  # only one was: that was no disturbance
        ((None, [0.12]), {0: float("inf"), 1: 0.12}),  # one was wrong
    ],
)
def test_the_race_is_recorded_unless_everything_was_disturbed(raced, seconds, tmp_path):
    result, _ = race(times(0.10, race=raced[0]), times(0.11, race=raced[1]), records=tmp_path / "tune.db")
    with Records(tmp_path / "tune.db") as records:
        found = {r.measurement.candidate.row[0]: r.seconds for r in records.of(result.task.key)}
    assert found == seconds


def test_the_best_recorded_races_again(tmp_path):
    path = tmp_path / "tune.db"
    race(times(0.10), times(0.5), records=path)
    result, measurer = race(records=path)
    assert measurer.raced == [0] and result.trace["times"] == [0.10] and result.trials == 0
    assert sorted(m.seconds for m in measurer.remembered) == [0.10, 0.5]
    result, measurer = race({"times": [0.09], "race": [0.2]}, records=path)
    assert measurer.raced == [0, 0] and result.seconds == 0.10


def test_a_race_is_announced():
    seen = []
    trace = times(0.1)
    autotune(FUNC, TARGET, search=Given([trace]), first=(), measurer=Scripted, callbacks=[seen.append])
    (event,) = [e for e in seen if isinstance(e, ShootOut)]
    assert [replace(m, ended=None).candidate.trace for m in event.contenders] == [trace]
