"""The final race: who is in it, who wins it, and what of it is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search.measure import BASELINE, Baseline, Candidate, Comparison, Measurement, Measurer
from search.records import Records
from search.tuning.autotune import autotune
from search.tuning.events import RaceStarted
from search.tuning.race import FIRST_MARGIN, LEADER_MARGIN, disturbed, leaders, slowdown, tied, winner
from tir import workloads

FUNC = workloads.make("gmm", (7, 13, 109)).func
TARGET = "llvm -num-cores 1"


# --- who races, and who wins: pure functions of measurements ---------------------------------------------------------------


def at(name, *samples, digest=None, **fields):
    """A measurement of the candidate of that name."""
    outcome = fields.pop("outcome", "ok")
    return Measurement(Candidate(name, (), None), outcome, samples, digest=name if digest is None else digest, **fields)


def names(found):
    return [m.candidate.sketch for m in found]


WRITTEN = Measurement(BASELINE, "ok", (1.05,), digest="written")


def test_what_the_race_cannot_tell_from_the_winner():
    """As fast in one of four rounds."""
    won = at("won", *[1.0] * 8)
    others = [at("slow", *[1.1] * 8), at("close", *[0.99, 1.02] * 4), at("luck", 0.5, *[1.1] * 7)]
    raced = [(m, m) for m in (won, *others)]
    assert names(tied(raced, raced[0])) == ["close"]


def test_how_much_slower_the_machine_became():
    trials, later = [at("a", 1.0), at("b", 2.0), at("c", 1.0)], [at("a", 1.3), at("b", 2.8), at("c", 1.1)]
    assert slowdown(list(zip(trials, later, strict=True))) == pytest.approx(1.3) and slowdown([]) is None


@pytest.mark.parametrize(("others", "expected"), [
    ([], ["best"]),
    ([at("c", 1.1), at("a", 1.01), at("far", 1.2), at("b", 1.02)], ["best", "a", "b", "c"]),
    ([at(n, 1.0 + k / 100) for k, n in enumerate("abcdef")], ["best", "a", "b", "c"]),
    ([at("cut", 1.01, cut=True), at("bad", 1.0, outcome="crash"), at("unchecked", 1.0)], ["best", "unchecked"]),
    ([at("a", 1.1, digest="same"), at("b", 1.05, digest="same")], ["best", "b"]),
    ([at("copy", 1.0, digest="best")], ["best"]),
    ([at("a", 1.01, digest=""), at("b", 1.02, digest="")], ["best", "a", "b"]),  # of unknown programs
])  # fmt: skip
def test_the_leaders_are_the_fastest_of_different_programs(others, expected):
    best = at("best", 1.0)
    assert names(leaders(best, [*others, best], (), None)) == expected


def test_first_candidates_race_although_they_looked_slow():
    best, slow, slower = at("best", 1.0), at("default", 0.99 * FIRST_MARGIN), at("other", 1.01 * FIRST_MARGIN)
    close = [at(n, 1.01) for n in "abc"]
    assert names(leaders(best, [slow, slower, *close], [slow.candidate, slower.candidate], None)) == [
        "best", "a", "b", "c", "default",
    ]  # fmt: skip
    assert names(leaders(best, [slow, *close], (), None)) == ["best", "a", "b", "c"]


def test_the_program_as_written_races_once_where_it_is_close():
    best = at("best", 1.0)
    assert names(leaders(best, [], (), WRITTEN)) == ["best", "unscheduled"]
    assert names(leaders(best, [], (), replace(WRITTEN, samples=(1.01 * LEADER_MARGIN,)))) == ["best"]
    earlier = replace(WRITTEN, samples=(1.02,))
    assert leaders(best, [earlier], (), WRITTEN) == [best, earlier]
    assert leaders(None, [], (), WRITTEN) == [WRITTEN] and leaders(None, [at("a", 1.0)], (), None) == []


def test_the_winner_is_the_fastest_while_nothing_disturbs():
    a, b = at("a", 1.0, 1.0, 1.3, 1.4), at("b", 1.1, 1.1, 1.1, 1.1)
    assert winner([(b, b), (a, a)], ()) == (a, a)
    first = [b.candidate]
    assert winner([(b, b), (a, a)], first) == (b, b)  # faster in two of four rounds
    sure = at("a", 1.0, 1.0, 1.0, 1.4)
    assert winner([(b, b), (sure, sure)], first) == (sure, sure)


@pytest.mark.parametrize(
    ("times", "busy"), [([(1.0, 2.1), (2.0, 4.1)], True), ([(1.0, 2.1), (2.0, 3.9)], False), ([(1.0, 1.0)], False), ([], False)]
)
def test_what_slows_down_everything_is_the_machine(times, busy):
    assert disturbed([(at("a", before), at("a", after)) for before, after in times]) is busy


# --- whole races -----------------------------------------------------------------------------------------------------------


class Scripted(Measurer):
    """Measures candidates as their traces say: `{"times": [...]}` when measured, `{"race": [...]}` in the race."""

    submit = results = None  # it measures in rounds

    def __init__(self, task, written=(1.0,)):
        self.written, self.remembered, self.raced = written, [], []

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


class Given:
    def __init__(self, traces):
        self.left = [Candidate("given", (n,), trace) for n, trace in enumerate(traces)]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass


def race(*traces, records=None, first=0, **options):
    made = []

    def measurer(task):
        made.append(Scripted(task, **options))
        return made[-1]

    given = Given(traces)
    start = given.left[:first]
    given.left = given.left[first:]
    result = autotune(FUNC, TARGET, policy=given, first=start, measurer=measurer, records=records)
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


@pytest.mark.parametrize(("challenger", "wins"), [
    ([0.101, 0.098, 0.101, 0.098, 0.099], False),  # faster in three rounds of five, as any that is alike
    ([0.098, 0.098, 0.101, 0.098, 0.099], True),
])  # fmt: skip
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


@pytest.mark.parametrize(("raced", "seconds"), [
    (([0.14], [0.12]), {0: 0.14, 1: 0.12}),
    (([0.5], [0.4]), {0: 0.10, 1: 0.11}),  # the machine was busy
    (([0.5], [0.12]), {0: 0.5, 1: 0.12}),  # only one was: that was no disturbance
    ((None, [0.12]), {0: float("inf"), 1: 0.12}),  # one was wrong
])  # fmt: skip
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
    autotune(FUNC, TARGET, policy=Given([trace]), first=(), measurer=Scripted, callbacks=[seen.append])
    (event,) = [e for e in seen if isinstance(e, RaceStarted)]
    assert [replace(m, ended=None).candidate.trace for m in event.contenders] == [trace]


def test_the_winner_is_no_slower_than_the_default_in_its_median():
    """Faster in seven rounds of eight and in its best quarter, but slower in its median."""
    default, other = at("default", *[5.0] * 5, *[9.0] * 3), at("other", 20.0, *[4.9] * 4, *[8.9] * 3)
    raced = [(m, m) for m in (default, other)]
    assert winner(raced, [default.candidate]) == raced[0] and winner(raced, ()) == raced[1]
    steady = at("other", 5.1, *[4.9] * 4, *[8.9] * 3)
    assert winner([raced[0], (steady, steady)], [default.candidate])[1] is steady


def test_what_did_not_race_is_shown_at_the_speed_of_the_race():
    """The machine is half as fast in the race: the program as written took 0.15 s before, and is not faster than the best."""
    result, _ = race(times(0.1, race=[0.2] * 5), written=(0.15,))
    assert (result.slowdown, result.seconds, result.baseline) == pytest.approx((2.0, 0.2, 0.3))
