"""The tuning loop: budgets, what counts as a trial, what is remembered, and what becomes of an interruption."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from search.measure import Candidate, Limits, LocalMeasurer
from search.measure.reference import NamedWorkload
from search.records import Records, best_schedule
from search.tuning.autotune import NothingFound, autotune
from search.tuning.events import Finished, Measured, NewBest, Prepared, RaceStarted, RoundEnded, Started
from tir import te, workloads

SHAPE = (7, 13, 109)
FUNC = workloads.make("gmm", SHAPE).func
QUICK = Limits(build=5.0, run=5.0, min_seconds=0.0, min_runs=1, race=0.2)


class Wishes:
    """A search that proposes given wishes in order, at most `batch` at once, and remembers what it was told."""

    def __init__(self, wishes, batch=1000):
        self.left = [Candidate("fake", (n,), wish) for n, wish in enumerate(wishes)]
        self.batch, self.told = batch, []

    def propose(self, n, rng):
        n = min(n, self.batch)
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        self.told.append([(m.candidate.row[0], m.outcome) for m in measurements])


def tune(search, builder, target="llvm -num-cores 1", **options):
    options = {"workload": NamedWorkload("gmm", SHAPE), "limits": QUICK, "workers": 1, "builder": builder, "first": ()} | options
    return autotune(FUNC, target, policy=search, **options)


def test_the_fastest_valid_candidate_wins(fake_builder):
    search = Wishes([{"sleep": 0.05}, {"sleep": 0.01, "fault": "wrong"}, {"sleep": 0.02}, {"sleep": 0.04}], batch=3)
    result = tune(search, fake_builder)
    assert result.trace == {"sleep": 0.02}
    assert 0.02 <= result.seconds < 0.05 < result.baseline
    assert {k: n for k, n in result.outcomes.items() if n} == {"ok": 3, "wrong_result": 1}
    assert result.trials == len(result.measurements) == 4
    assert result.max_error <= result.tolerance
    assert result.numpy > 0 and result.peak > 1e8 and not result.interrupted
    assert search.told == [[(0, "ok"), (1, "wrong_result"), (2, "ok")], [(3, "ok")]]


def test_events_come_in_order(fake_builder):
    seen = []
    result = tune(Wishes([{"sleep": 0.05}, {"sleep": 0.02}, {"sleep": 0.03}], batch=2), fake_builder, callbacks=[seen.append])
    assert [type(e) for e in seen] == [
        Started, Prepared, Measured, NewBest, Measured, NewBest, RoundEnded, Measured, RoundEnded, RaceStarted, Finished,
    ]  # fmt: skip
    assert [e.trials for e in seen if isinstance(e, Measured)] == [1, 2, 3]
    assert seen[-1].result is result
    assert seen[-2].contenders[0].candidate.trace == {"sleep": 0.02}


def test_trials_are_a_limit_and_copies_are_not_counted(fake_builder):
    copies = [{"sleep": 0.03}] * 5 + [{"sleep": 0.02}] * 5 + [{"sleep": 0.01}] * 5 + [{"sleep": 0.005}]
    result = tune(Wishes(copies, batch=4), fake_builder, trials=3)
    assert result.trials == 3 and result.trace == {"sleep": 0.01}


def test_a_search_that_repeats_itself_for_ever_is_ended(fake_builder):
    class Stuck(Wishes):
        def propose(self, n, rng):
            return [Candidate("fake", (0,), {"sleep": 0.02})] * n

    result = tune(Stuck([]), fake_builder, trials=10)
    assert result.trials == 1


def test_seconds_are_a_limit(fake_builder):
    class Endless(Wishes):
        def propose(self, n, rng):
            return [Candidate("fake", (0,), {"sleep": 0.05 + 0.01 * rng.random()}) for _ in range(n)]

    start = time.monotonic()
    result = tune(Endless([]), fake_builder, trials=None, seconds=2.0)
    assert 1.0 < result.elapsed < 15.0 and result.elapsed <= time.monotonic() - start
    assert result.trials >= 1


def test_the_same_seed_proposes_the_same(fake_builder):
    class Drawn(Wishes):
        def propose(self, n, rng):
            return [Candidate("fake", (0,), {"sleep": float(s)}) for s in rng.uniform(0.001, 0.01, min(n, 2))]

    traces = [[m.candidate.trace for m in tune(Drawn([]), fake_builder, trials=4, seed=s).measurements] for s in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]


def test_nothing_valid_says_what_happened(fake_builder):
    seen, wishes = [], [{"fault": "illegal"}, {"fault": "segfault"}, {"fault": "segfault", "n": 2}, {"fault": "wrong"}]
    with pytest.raises(NothingFound) as error:
        tune(Wishes(wishes), fake_builder, callbacks=[seen.append])
    assert not any(isinstance(event, NewBest) for event in seen)
    assert str(error.value).splitlines()[:3] == [
        "no valid candidate for gmm: 1 illegal, 2 crash, 1 wrong_result",
        "  illegal: ScheduleError: split: the factor is 0",
        "  crash: SIGSEGV",
    ]
    with pytest.raises(NothingFound, match="no candidate was proposed"):
        tune(Wishes([]), fake_builder)


def test_an_interruption_returns_the_best_so_far(fake_builder):
    def interrupt(event):
        if isinstance(event, Measured) and event.trials == 2:
            raise KeyboardInterrupt

    result = tune(Wishes([{"sleep": 0.03}, {"sleep": 0.02}, {"sleep": 0.01}]), fake_builder, callbacks=[interrupt])
    assert result.interrupted and result.trials == 2 and result.trace in ({"sleep": 0.03}, {"sleep": 0.02})


def test_an_interruption_before_the_first_candidate_returns_the_program_as_written(fake_builder):
    def interrupt(event):
        if isinstance(event, Prepared):
            raise KeyboardInterrupt

    result = tune(Wishes([{"sleep": 0.03}]), fake_builder, callbacks=[interrupt])
    assert result.interrupted and result.trials == 0 and result.trace is None and result.seconds == result.baseline


def test_an_interruption_does_not_wait_for_the_making_of_the_search(fake_builder):
    over, ended = threading.Event(), threading.Event()

    class Measurer(LocalMeasurer):
        def prepare(self):
            raise KeyboardInterrupt

    def slow(task):
        ended.set() if over.wait(30) else None
        return Wishes([])

    quick = lambda task: Measurer(task, workers=1, builder=fake_builder)  # noqa: E731
    with pytest.raises(KeyboardInterrupt, match="before anything was found"):
        autotune(FUNC, "llvm -num-cores 1", policy=slow, first=(), measurer=quick)
    assert not ended.is_set()
    over.set()


def test_a_program_that_never_ran_was_not_stopped(fake_builder):
    """As those for GPUs, which as written have one thread: a processor makes the reference."""
    result = tune(Wishes([{"sleep": 0.01}]), fake_builder, target="cuda", workload=None)
    assert result.trace == {"sleep": 0.01} and result.baseline is result.baseline_stopped is None
    assert result.max_error <= result.tolerance


@pytest.mark.parametrize(
    ("search", "got"), [(lambda task: Proposing([3]), r"\[3\]"), (lambda task: Proposing(None), "None")], ids=["numbers", "none"]
)
def test_a_search_that_proposes_something_else_is_told_so(fake_builder, search, got):
    with pytest.raises(TypeError, match=f"a policy proposes a list of search.Candidate, empty where it has no more; got {got}"):
        tune(search, fake_builder)


class Proposing:
    """Proposes the same thing again and again."""

    def __init__(self, what):
        self.what = what

    def propose(self, n, rng):
        return self.what

    def update(self, measurements):
        pass


def test_the_program_as_written_races_where_it_is_about_as_fast(fake_builder):
    races = []
    for wish in ({"sleep": 0.098}, {"sleep": 0.05}):
        result = tune(Wishes([wish]), fake_builder, callbacks=[lambda e: races.append(e) if isinstance(e, RaceStarted) else None])
        assert result.outcomes["ok"] == 1
    assert [[m.candidate.trace for m in race.contenders] for race in races] == [[{"sleep": 0.098}, None], [{"sleep": 0.05}]]


def test_where_nothing_is_left_to_search_the_program_as_written_is_checked_and_recorded(tmp_path):
    v = te.placeholder((), name="V")
    func = te.create_prim_func([v, te.compute((), lambda: v() + 1, name="S")])
    for earlier in (0, 1):
        result = autotune(func, "llvm -num-cores 1", 2, limits=QUICK, workers=1, records=tmp_path / "tune.db")
        assert (result.trace, result.trials, result.earlier) == (None, 0, earlier)
        assert result.max_error == result.tolerance == 0.0
    with Records(tmp_path / "tune.db") as records:
        assert len(records) == 1
    assert best_schedule(func, "llvm -num-cores 1", records=tmp_path / "tune.db").func == func


def test_workers_that_cannot_be_started_again_do_not_lose_the_best(fake_builder, monkeypatch):
    from search.measure import WorkerError
    from search.measure.process import WorkerProcess

    def refuse(self):
        raise WorkerError("no more processes")

    def break_restarts(event):
        if isinstance(event, NewBest):
            monkeypatch.setattr(WorkerProcess, "restart", refuse)

    wishes = [{"sleep": 0.03}, {"fault": "segfault"}, {"sleep": 0.01}]
    result = tune(Wishes(wishes, batch=1), fake_builder, callbacks=[break_restarts])
    assert result.trace == {"sleep": 0.03} and result.problem == "no more processes" and not result.interrupted


def test_a_function_without_a_known_workload_is_checked_against_itself(fake_builder):
    result = tune(Wishes([{"sleep": 0.03}, {"fault": "wrong"}]), fake_builder, workload=None)
    assert result.trace == {"sleep": 0.03} and result.numpy is None and result.outcomes["wrong_result"] == 1


@pytest.mark.parametrize(("options", "message"), [
    ({"trials": None}, "a budget is needed"),
    ({"trials": 0}, "trials must be at least 1, got 0"),
    ({"seconds": -1.0}, "seconds must be positive, got -1.0"),
    ({"target": "lvm"}, "the first word must be one of"),
])  # fmt: skip
def test_bad_budgets_and_targets_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        autotune(FUNC, **options)


# --- the tiers ---------------------------------------------------------------------------------------------------------


def test_the_first_candidates_come_before_those_of_the_search(fake_builder):
    first = [Candidate("mine", (n,), {"sleep": s}) for n, s in enumerate((0.04, 0.03, 0.02))]
    search = Wishes([{"sleep": 0.05}])
    result = tune(search, fake_builder, first=first, trials=4)
    assert [m.candidate.sketch for m in result.measurements] == ["mine", "mine", "mine", "fake"]
    assert result.trace == {"sleep": 0.02} and [len(told) for told in search.told] == [3, 1]
    result = tune(Wishes([{"sleep": 0.01}]), fake_builder, first=first, trials=2)
    assert [m.candidate.row for m in result.measurements] == [(0,), (1,)]  # they count


def test_time_is_accounted_for(fake_builder):
    result = tune(Wishes([{"sleep": 0.05}, {"sleep": 0.06}]), fake_builder)
    assert set(result.phases) == {"prepare", "propose", "build", "run", "race"}
    assert 0.15 < result.phases["run"] <= sum(result.phases.values()) <= result.elapsed
    assert 0.0 < result.measuring < 1.0
    ended = [m.ended for m in result.measurements]
    assert ended == sorted(ended) and 0.0 < ended[0] <= ended[1] <= result.elapsed


def test_a_search_says_how_its_model_does(fake_builder):
    rounds = []

    class Scored(Wishes):
        def propose(self, n, rng):
            return [replace(c, score=-c.trace["sleep"]) for c in super().propose(n, rng)]

    def watch(event):
        if isinstance(event, RoundEnded):
            rounds.append((event.correlation, event.scored_per_second))

    wishes = [{"sleep": s} for s in (0.01, 0.02, 0.03, 0.04)]
    search = Scored(wishes)
    search.scored_per_second, search.scored = 1e5, {"symbolic": 7, "concrete": 2}
    result = tune(search, fake_builder, callbacks=[watch])
    assert rounds == [(pytest.approx(1.0), 1e5)] and result.scored_per_second == 1e5
    assert result.scored == {"symbolic": 7, "concrete": 2}
    assert [m.candidate.score for m in result.measurements] == [-0.01, -0.02, -0.03, -0.04]


def test_another_measurer_can_be_given(fake_builder):
    made = []

    class Counting(LocalMeasurer):
        def submit(self, candidates):
            self.asked = [c.row for c in candidates]
            super().submit(candidates)

    def measurer(task):
        made.append(Counting(task, builder=fake_builder, limits=QUICK, workers=1))
        return made[-1]

    result = autotune(FUNC, "llvm -num-cores 1", policy=Wishes([{"sleep": 0.02}]), first=(), measurer=measurer)
    assert result.trace == {"sleep": 0.02} and made[0].asked == [(0,)]
    with pytest.raises(ValueError, match="another measurer brings its own"):
        autotune(FUNC, measurer=measurer, limits=QUICK)
    with pytest.raises(ValueError, match=r"measurer takes what makes a search\.Measurer of a task, got 3"):
        autotune(FUNC, measurer=3)
    with pytest.raises(ValueError, match="of a task; it made None"):
        autotune(FUNC, measurer=lambda task: None)
    with pytest.raises(ValueError, match=r"model takes a name, or an object with score and update .*, got 3"):
        autotune(FUNC, model=3)


def test_a_candidate_is_submitted_before_the_next_is_chosen(fake_builder):
    events = []

    class Streaming(Wishes):
        def proposals(self, n, rng):
            for candidate in self.propose(n, rng):
                events.append("chosen")
                yield candidate

    class Watched(LocalMeasurer):
        def submit(self, candidates):
            events.append("submitted")
            super().submit(candidates)

    def measurer(task):
        made = Watched(task, builder=fake_builder, limits=QUICK, workers=1)
        made.spare = 0
        return made

    result = autotune(
        FUNC, "llvm -num-cores 1", policy=Streaming([{"sleep": 0.01}, {"sleep": 0.02}]), first=(), measurer=measurer
    )
    assert events == ["chosen", "submitted"] * 2 and result.trials == 2


def test_a_candidate_is_chosen_while_others_run_on_another_core(fake_builder):
    measured, chosen_in = threading.Event(), []

    class Waiting(Wishes):
        def proposals(self, n, rng):
            first, second = self.propose(n, rng)
            yield first
            chosen_in.append((measured.wait(60), threading.current_thread() is threading.main_thread()))
            yield second

    def measurer(task):
        made = LocalMeasurer(task, builder=fake_builder, limits=QUICK, workers=2)
        made.spare = 1
        return made

    policy = Waiting([{"sleep": 0.01}, {"sleep": 0.02}])
    seen = [lambda event: measured.set() if isinstance(event, Measured) else None]
    autotune(FUNC, "llvm -num-cores 1", 2, policy=policy, first=(), measurer=measurer, callbacks=seen)
    assert chosen_in == [(True, False)] and policy.told == [[(0, "ok"), (1, "ok")]]


def test_an_error_of_a_policy_in_another_thread_ends_the_run(fake_builder):
    class Failing(Wishes):
        def proposals(self, n, rng):
            yield self.propose(1, rng)[0]
            raise ZeroDivisionError

    def measurer(task):
        made = LocalMeasurer(task, builder=fake_builder, limits=QUICK, workers=2)
        made.spare = 1
        return made

    with pytest.raises(ZeroDivisionError):
        autotune(FUNC, "llvm -num-cores 1", 2, policy=Failing([{"sleep": 0.01}]), first=(), measurer=measurer)


def test_options_of_the_named_searches_are_refused_with_another(fake_builder):
    for option in ({"model": "gbdt"}, {"space": "full"}):
        with pytest.raises(ValueError, match="a policy of your own brings its own"):
            tune(Wishes([]), fake_builder, **option)


# --- with the real compiler --------------------------------------------------------------------------------------------


class Tiles:
    """Three hand-made schedules of a matrix product, and one that is illegal."""

    def __init__(self, task):
        from schedule import Schedule

        self.left = []
        for factor in (4, 5, 16):
            s = Schedule(task.func)
            i, j, k = s.get_loops("C")
            jo, ji = s.split(j, [None, factor])
            s.reorder(i, jo, k, ji)
            s.vectorize(ji)
            s.parallel(i)
            self.left.append(Candidate("tiles", (factor,), s.trace.as_json()))
        step = {"name": "split", "args": {"loop": "nowhere", "factors": [None, 4]}, "results": []}
        self.left.append(Candidate("tiles", (0,), {"version": 1, "steps": [step]}))

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass


def test_real_schedules_are_built_checked_and_returned():
    result = autotune(FUNC, "llvm -num-cores 2", policy=Tiles, workers=1, first=())
    assert result.outcomes["illegal"] == 1 and result.outcomes["ok"] == 3, [m.message for m in result.measurements]
    instance = workloads.make("gmm", SHAPE)
    inputs = instance.inputs(np.random.default_rng(1))
    outputs = instance.outputs()
    result.kernel(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok
    if result.trace is not None:
        assert result.schedule.trace.as_json() == result.trace
