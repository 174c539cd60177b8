"""Tuning several functions under one budget: who gets the rounds, what is made small, and that the run ends well."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from search.measure import BASELINE, Baseline, Candidate, Comparison, Limits, Measurement, Measurer, WorkerError
from search.records import Records
from search.task import flop
from search.tuning.budget import Budget
from search.tuning.events import Finished, Measured, RaceStarted, Started
from search.tuning.gradient_allocation import Allocation, TaskHistory, choose, expel, gradients, group
from search.tuning.task_scheduler import WeightedFunction, geometric_mean_speedup, latency_requirements, tune_tasks
from tests.programs import argmax, matmul
from tests.search.clock import Clock
from tir import workloads

TARGET = "llvm -num-cores 1"
SMALL, LARGE, ODD = matmul(7, 13, 109), matmul(40, 13, 109), matmul(13, 7, 40)
GREEDY = Allocation(epsilon=0.0)


class Curve:
    """A search whose n-th candidate takes the n-th of the given seconds; the measurer reads it off the trace."""

    def __init__(self, seconds):
        self.left = [Candidate("curve", (n,), s) for n, s in enumerate(seconds)]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass


class Scripted(Measurer):
    submit = results = None  # it measures in rounds
    running: list = []  # noqa: RUF012 (what is not paused, over all measurers of a test)

    def __init__(self, task):
        self.task = task

    def __exit__(self, *error):
        self.pause()

    def pause(self):
        if self in self.running:
            self.running.remove(self)

    def prepare(self):
        return Baseline(Measurement(BASELINE, "ok", (1000.0,), max_error=0.0, digest="written"), 1e-6)

    def measure(self, candidates):
        if self not in self.running:
            self.running.append(self)
        assert self.running == [self]  # one task at a time has processes
        for c in candidates:
            if c.trace == "interrupt":
                raise KeyboardInterrupt
            if c.trace == "broken":
                raise WorkerError("no worker starts")
            if c.trace == "crash":
                yield Measurement(c, "crash", digest=f"{c.row}")
            else:
                yield Measurement(c, "ok", (c.trace,), max_error=0.0, digest=f"{c.row}")

    def compare(self, candidates, *, numpy=False, rounds=20, seconds=2.0):
        return Comparison(tuple(Measurement(c, "ok", (c.trace or 1000.0,), max_error=0.0) for c in candidates))


def tune(curves, trials, *, subjects=None, **options):
    """Tune one function for each curve; returns the result and the trials of each task."""
    Scripted.running = []
    functions = [SMALL, LARGE, ODD][: len(curves)]
    of = dict(zip([f.script() for f in functions], curves, strict=True))
    options = {
        "allocation": GREEDY,
        "measurer": Scripted,
        "first": lambda task: (),
        "policy": lambda task: Curve(of[task.func.script()]),
    } | options
    result = tune_tasks(subjects or functions, TARGET, trials, **options)
    each = [sum(r.trials for r in result.rounds if r.task == n) for n in range(len(curves))]
    return result, each


def falling(start, factor, n=200):
    return [start * factor**k for k in range(n)]


def test_the_task_that_still_gains_gets_the_trials():
    result, (flat, steep) = tune([[10.0] * 400, [10.0 - 0.02 * n for n in range(400)]], 320)
    assert flat + steep == 320 == result.trials and steep > 2 * flat > 0
    assert [r.seconds for r in result.results] == [10.0, pytest.approx(10.0 - 0.02 * (steep - 1))]
    assert result.objective == pytest.approx(sum(r.seconds for r in result.results))


def test_weights_count():
    light = tune(
        [falling(1.0, 0.99), falling(1.0, 0.99)], 96, subjects=[WeightedFunction(SMALL, 1.0), WeightedFunction(LARGE, 9.0)]
    )[1]
    assert light[1] > 2 * light[0]


def test_known_seconds_stand_for_a_first_round():
    subjects = [WeightedFunction(f, seconds=s) for f, s in ((SMALL, 1e-6), (LARGE, 9.0), (ODD, 1.0))]
    result, each = tune([[1e-6] * 99, falling(9.0, 0.99), [1.0] * 99], 64, subjects=subjects)
    assert result.rounds[0].task == 1 and each[0] == 0 and each[1] > 2 * each[2]
    assert result.results[0] is None and result.problems[0] == "it got no round"
    assert result.objective == pytest.approx(1e-6 + sum(r.seconds for r in result.results if r))
    assert result.rounds[0].objective == pytest.approx(result.rounds[0].seconds + 1.0 + 1e-6)
    alone, trials = tune([["crash"] * 9], 9, subjects=[WeightedFunction(SMALL, seconds=5.0)])
    assert trials == [9] and alone.results[0] is None and alone.objective == 5.0


class WithDefault(Curve):
    """A curve whose first candidate is the default schedule."""

    def __init__(self, seconds):
        super().__init__(seconds)
        self.left[0] = replace(self.left[0], sketch="default")


def test_times_of_two_clocks_do_not_meet():
    """In a network, with cold caches, tasks take five times as long as alone: measuring one again is no gain."""
    subjects = [WeightedFunction(f, seconds=s) for f, s in ((SMALL, 5.0), (LARGE, 4.9))]
    curves = [[1.0] * 200, falling(0.98, 0.99)]
    of = dict(zip([SMALL.script(), LARGE.script()], curves, strict=True))
    result, (flat, steep) = tune(curves, 96, subjects=subjects, policy=lambda task: WithDefault(of[task.func.script()]))
    first = next(r for r in result.rounds if r.task == 0)
    assert first.seconds == 5.0 and steep > 2 * flat > 0
    assert result.objective == pytest.approx(5.0 + 5 * result.results[1].seconds)


def test_records_begin_on_the_clock_of_known_seconds(tmp_path):
    with Records(tmp_path / "tune.db") as records:
        for _ in range(2):
            result, _ = tune(
                [[2.0, 1.0]], 2, records=records, subjects=[WeightedFunction(SMALL, seconds=10.0)],
                policy=lambda task: WithDefault([2.0, 1.0]),
            )  # fmt: skip
            assert result.objective == 5.0


def test_rounds_in_turn():
    result, each = tune([[1.0] * 200, falling(1.0, 0.97)], 96, strategy="round-robin")
    assert [r.task for r in result.rounds][:7] == [0, 1] * 3 + [0] and sum(each) == 96


def test_an_exhausted_task_gets_no_more():
    _, each = tune([falling(1.0, 0.5, 5), [1.0] * 200], 64)
    assert each == [5, 59]


def test_a_run_ends_when_all_spaces_are_used_up():
    result, each = tune([[1.0] * 3, [2.0] * 4], 1000)
    assert each == [3, 4] and result.objective == 3.0


def test_without_progress_a_task_is_given_up():
    _, each = tune([[1.0] * 200, [50.0] * 200], 96, allocation=Allocation(epsilon=0.0, patience=2))
    assert each[1] <= 3 * 12 and each[0] <= 3 * 12  # three rounds of twelve each


def test_a_failing_task_does_not_end_the_others():
    result, each = tune([["crash"] * 200, falling(1.0, 0.99)], 96)
    assert each[0] <= 3 * 12 and result.results[1].seconds < 1.0
    assert result.results[0] is None and result.objective == math.inf
    result, each = tune([["broken"], falling(1.0, 0.99)], 64)
    assert each[0] == 0 and result.results[1].seconds < 1.0


def test_equal_functions_are_tuned_once():
    result, (trials,) = tune([falling(1.0, 0.9, 20)], 40, subjects=[WeightedFunction(SMALL), WeightedFunction(SMALL, 2.0)])
    assert trials == 20 and result.results[0] is result.results[1]
    assert result.objective == pytest.approx(3 * result.results[0].seconds)


def test_an_interruption_returns_the_best():
    result, _ = tune([[*falling(1.0, 0.9, 5), "interrupt"], [1.0] * 100], 64)
    assert result.interrupted and result.results[0].seconds == pytest.approx(0.9**4)


def test_an_interrupted_race_loses_nothing():
    def interrupt(task, event):
        if isinstance(event, RaceStarted) and task.func is LARGE:
            raise KeyboardInterrupt

    result, _ = tune([falling(1.0, 0.9, 5), [2.0] * 5, [3.0] * 5], 15, callbacks=[interrupt])
    assert result.interrupted and [r.seconds for r in result.results] == [pytest.approx(0.9**4), 2.0, 3.0]


def test_workers_that_are_lost_lose_no_result():
    result, _ = tune([[2.0, 1.0, "broken"], ["broken"], ["crash"] * 9], 64)
    assert [r and (r.seconds, r.problem) for r in result.results] == [(1.0, "no worker starts"), None, None]
    assert result.problems[:2] == ("", "no worker starts")
    assert result.problems[2].startswith("no valid candidate for main: 9 crash")


def test_seconds_are_a_limit_within_a_round_too(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(Budget.__init__, "__defaults__", (*Budget.__init__.__defaults__[:-1], clock))

    def pass_time(task, event):
        clock.now += 1.0 if isinstance(event, Measured) else 0.0

    result, each = tune([falling(1e-3, 0.99), falling(1e-3, 0.99)], None, seconds=20.0, callbacks=[pass_time])
    assert each == [16, 1] and result.elapsed == 17.0  # 3 s are kept for the two races
    assert [r.trials for r in result.results] == [16, 1]


def test_tasks_race_while_there_is_time(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(Budget.__init__, "__defaults__", (*Budget.__init__.__defaults__[:-1], clock))
    raced = []

    def pass_time(task, event):
        if isinstance(event, RaceStarted):
            raced.append(task.func)
        clock.now += {Measured: 1.0, RaceStarted: 4.0}.get(type(event), 0.0)

    result, _ = tune([falling(0.1, 0.9, 5), [0.2] * 5, [0.3] * 5], None, seconds=20.0, callbacks=[pass_time])
    assert raced == [SMALL, LARGE] and result.elapsed == 22.0
    assert [r.seconds for r in result.results] == [pytest.approx(0.1 * 0.9**4), 0.2, 0.3]


def test_a_search_for_all_tasks_is_refused():
    with pytest.raises(ValueError, match="several tasks need a policy each"):
        tune([[1.0], [1.0]], 4, policy=Curve([1.0]))


def test_callbacks_get_the_task():
    seen = []
    tune([[1.0] * 8, [2.0] * 8], 16, callbacks=[lambda task, event: seen.append((task.func, type(event)))])
    for func in (SMALL, LARGE):
        kinds = [kind for f, kind in seen if f is func]
        assert kinds[0] is Started and kinds[-1] is Finished and kinds.count(Measured) == 8


def test_what_is_recorded_is_gone_on_from(tmp_path):
    with Records(tmp_path / "tune.db") as records:
        tune([[2.0, 1.0], [3.0, 2.5]], 4, records=records)
        assert sorted(s.best for s in records.summaries()) == [1.0, 2.5]
        result, _ = tune([[5.0], [5.0]], 2, records=records)
    assert [r.seconds for r in result.results] == [1.0, 2.5]


def test_real_candidates(tmp_path):
    limits = Limits(min_seconds=0.001, min_runs=1, race=0.1)
    softmax = workloads.make("softmax", (7, 13)).func
    result = tune_tasks([SMALL, softmax], TARGET, 6, limits=limits, policy="random", model="none")
    assert result.trials == 6 and all(r.seconds > 0 for r in result.results) and not result.interrupted
    assert result.objective == pytest.approx(sum(r.seconds for r in result.results))


@pytest.mark.parametrize(("options", "message"), [
    ({"tasks": []}, "tasks is empty: expected at least one"),
    ({}, "a budget is needed: trials, seconds or both"),
    ({"trials": 1}, "2 tasks need at least one trial each, got trials=1"),
    ({"seconds": 0.0}, "seconds must be positive, got 0.0"),
    ({"trials": 9, "strategy": "fair"}, "strategy 'fair' is not supported; expected one of gradient, round-robin"),
    ({"trials": 9, "tasks": [WeightedFunction(SMALL, 0.0), LARGE]}, "the weight of a task must be positive, got 0.0"),
    ({"trials": 9, "tasks": [WeightedFunction(SMALL, seconds=0.0)]}, "the known seconds of a task must be positive, got 0.0"),
])  # fmt: skip
def test_bad_requests_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tune_tasks(**{"tasks": [SMALL, LARGE], "target": TARGET} | options)


# --- objectives -----------------------------------------------------------------------------------------------------------


def test_an_objective_of_ones_own_decides():
    result, (first, second) = tune([falling(1.0, 0.99), falling(1.0, 0.99)], 96, objective=lambda seconds: seconds[1] ** 2)
    assert second > 2 * first and result.objective == result.results[1].seconds ** 2


def test_geometric_mean():
    assert geometric_mean_speedup([4.0, 9.0])([1.0, 1.0]) == pytest.approx(-6.0)


def test_nothing_is_gained_below_a_required_latency():
    objective = latency_requirements([[(0, 2.0), (1, 1.0)], [(1, 1.0)]], [5.0, 3.0])
    assert objective([1.0, 1.0]) == 5.0 + 3.0
    assert objective([2.0, 4.0]) == 8.0 + 4.0
    _, (first, second) = tune(
        [falling(1.0, 0.97), falling(9.0, 0.99)], 96, objective=latency_requirements([[(0, 1.0)], [(1, 1.0)]], [2.0, 1.0])
    )
    assert second > 2 * first


# --- the gradient ---------------------------------------------------------------------------------------------------------


def test_gradient_by_hand():
    """alpha g_backward + (1 - alpha) g_forward, times the weight of the task in the objective."""
    allocation = Allocation(alpha=0.25, gamma=0.5, window=2, epsilon=0.0)
    bests = ([9.0, 8.0, 6.0, 5.0], [4.0], [math.inf], [9.0], [3.0, 3.0, 3.0])
    histories = [TaskHistory(100, name, best) for name, best in zip("abcde", bests, strict=True)]
    histories[3].dead = True
    expected = [3 * (0.25 * (5.0 - 8.0) / 2 - 0.75 * 5 / 4), -0.75 * 4.0, 0.0, 0.0, -0.75 * 0.5**2 * 3.0 / 3]
    assert gradients(histories, lambda s: 3 * s[0] + s[1] + s[3] + s[4], allocation) == pytest.approx(expected, rel=1e-6)


def test_a_similar_task_raises_hopes():
    """At half the speed of a similar task, beta 1 hopes for all of it; beta 2 for nothing more."""
    histories = [TaskHistory(100, "a", [*range(21, 1, -1)]), TaskHistory(100, "a", [1.0] * 20)]
    for beta, hoped in ((1.0, -1.0), (2.0, -0.1)):
        slow, _ = gradients(histories, sum, Allocation(alpha=0.0, beta=beta))
        assert slow == pytest.approx(hoped)
    histories[0].expelled = True
    assert gradients(histories, sum, Allocation(alpha=0.0, beta=1.0))[0] == pytest.approx(-0.1)


def test_a_task_that_stays_slow_is_expelled():
    slow, fast = TaskHistory(100, "a", [5.0] * 8), TaskHistory(100, "a", [1.0])
    expel([slow, fast], Allocation(beta=2.0))
    assert slow.expelled and not fast.expelled
    patient = TaskHistory(100, "a", [5.0] * 6)  # not more than five rounds ahead
    expel([patient, TaskHistory(100, "a", [1.0])], Allocation(beta=2.0))
    assert not patient.expelled


def test_choice_is_greedy_except_for_epsilon():
    histories = [TaskHistory(1, "a", [1.0]), TaskHistory(1, "b", [5.0]), TaskHistory(1, "c", [2.0])]
    rng = np.random.default_rng(0)
    assert {choose(histories, sum, Allocation(epsilon=0.0), rng) for _ in range(20)} == {1}
    drawn = [choose(histories, sum, Allocation(epsilon=0.6), rng) for _ in range(400)]
    assert 0.5 < drawn.count(1) / 400 < 0.7 and {0, 2} <= set(drawn)
    histories[1].dead = True
    assert choose(histories, sum, Allocation(epsilon=0.0), rng) == 2
    assert choose([histories[1]], sum, Allocation(), rng) is None


def test_what_is_under_way_counts_as_rounds_without_gain():
    """So that each task gets some of the devices before anything is measured, and none all of them after."""
    rng = np.random.default_rng(0)
    histories = [TaskHistory(1, "a"), TaskHistory(1, "b")]
    order = []
    for _ in range(2):
        order.append(choose(histories, sum, GREEDY, rng))
        histories[order[-1]].under_way += 1
    assert order == [0, 1]
    assert {choose(histories, sum, GREEDY, rng) for _ in range(20)} == {0, 1}
    histories = [TaskHistory(1, "a", [5.0]), TaskHistory(1, "b", [2.0])]
    assert choose(histories, sum, GREEDY, rng) == 0
    histories[0].under_way = 2  # 5 * 0.5 ** 2 < 2
    assert choose(histories, sum, GREEDY, rng) == 1


def test_structure_sees_through_names_and_extents():
    def of(func):
        return group(func, flop(func))

    renamed = replace(matmul(7, 13, 109), name="another")
    assert of(matmul(7, 13, 109)) == of(renamed) == of(matmul(13, 7, 109))
    assert of(matmul(7, 13, 109)) != of(matmul(70, 130, 1090))  # a thousand times the work
    kinds = [
        matmul(7, 13, 109),
        argmax(),
        *(workloads.make(w, None).func for w in ("softmax", "layernorm", "conv2d", "depthwise")),
    ]
    assert len({group(f, 1000) for f in kinds}) == len(kinds)
    assert group(matmul(7, 13, 109, dtype="float64"), 1000) != group(matmul(7, 13, 109), 1000)
