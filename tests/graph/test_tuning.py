"""Tuning a network: which groups are tasks, what the records then hold, and what the compiled result takes from them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

import tir
from graph import tuning
from graph.onnx import load_onnx
from graph.reference import evaluate, random_inputs
from graph.tuning import PROFILE_RUNS, Progress, TaskProgress, tune_graph
from search.measure import Limits
from search.tuning.events import Finished
from search.tuning.gradient_allocation import Allocation
from search.tuning.task_scheduler import TasksResult
from tests.search.clock import Clock

from .fake_measurer import DEFAULT, WRITTEN, Fake, Once
from .models import model

TARGET = "llvm -num-cores 1"


@pytest.fixture(scope="module")
def graph():
    """Two equal layers, and a softmax."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1, 1, (13, 13)).astype("float32") for name in "ab"}
    return load_onnx(model(nodes, {"x": (TensorProto.FLOAT, [7, 13])}, ["y"], weights))


@pytest.fixture
def network(monkeypatch):
    """What all tasks take in the network, as its functions are asked for in turns: with default schedules, and as tuned."""
    times = [2.0, 1.0]
    turns = itertools.cycle((0, 1))

    def by_key(model, inputs, runs):
        seconds = times[next(turns)]
        return {tuning.key(group.func): seconds for group in model.groups}

    monkeypatch.setattr(tuning, "_by_key", by_key)
    monkeypatch.setattr(tuning, "SECONDS", 0.0)
    return times


def tuned(graph, traces=(None,), trials=64, **options):
    given = {"measurer": Fake, "policy": lambda task: Once(*traces), "allocation": Allocation(epsilon=0.0)}
    return tune_graph(graph, TARGET, trials, **{**given, **options})


def as_written(compiled):
    return all(k.kernel.func.body == g.func.body for k, g in zip(compiled.kernels, compiled.groups, strict=True))


def test_groups_are_tasks_weighted_by_their_calls(graph, network, tmp_path):
    found = tuned(graph, records=tmp_path / "tune.db")
    tasks = {t.func.name: t for t in found.progress.tasks}
    assert {name: t.calls for name, t in tasks.items()} == {"matmul_relu": 2, "softmax": 1}
    for t in tasks.values():
        assert (t.default, t.best, t.trials, t.gain) == (DEFAULT, WRITTEN, 2, 2.0)
    assert found.kept == () and not found.interrupted and found.result.trials == 4
    assert found.progress.seconds == pytest.approx(found.progress.before / 2, rel=0.5)  # copying stays as it was
    seconds = [s for _, s in found.progress.curve]
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] == found.progress.seconds
    inputs = random_inputs(graph)
    for array, exact in zip(found.model(inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(array, exact, rtol=64 * np.finfo("float32").eps)
    assert as_written(found.model)


def test_another_network_takes_what_was_found(graph, network, tmp_path):
    tuned(graph, records=tmp_path / "tune.db")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    weights = {"w": np.eye(13, dtype="float32")}
    other = load_onnx(model(nodes, {"x": (TensorProto.FLOAT, [7, 13])}, ["y"], weights))
    compiled = tir.compile(other, TARGET, records=tmp_path / "tune.db")
    assert as_written(compiled)
    again = []
    tuned(other, records=tmp_path / "tune.db", trials=1, callbacks=[lambda progress, event: again.append((progress, event))])
    progress, event = again[0]
    assert event is None and [(t.default, t.best) for t in progress.tasks] == [(DEFAULT, WRITTEN)]
    assert isinstance(again[-1][1], Finished)


def test_an_interruption_keeps_the_best(graph, network, tmp_path):
    found = tuned(graph, (None, "interrupt"), records=tmp_path / "tune.db")
    assert found.interrupted and found.progress.trials == 2
    assert sorted(t.gain for t in found.progress.tasks) == [1.0, 2.0]
    with tir.Records(tmp_path / "tune.db") as records:
        assert [s.best for s in records.summaries()] == [WRITTEN]


def test_what_is_slower_in_the_network_keeps_its_default(graph, network, tmp_path):
    network[:] = [1.0, 1.5]
    found = tuned(graph, records=tmp_path / "tune.db")
    assert sorted(found.kept) == ["matmul_relu(7x13, 13x13) -> 7x13", "softmax(7x13) -> 7x13"]
    assert [t.gain for t in found.progress.tasks] == [1.0, 1.0]
    for group in found.model.groups:
        best = tir.best_schedule(group.func, TARGET, records=tmp_path / "tune.db")
        assert best.func == tir.default_schedule(group.func, TARGET).func


def test_without_records(graph):
    limits = Limits(min_seconds=0.001, min_runs=1, race=0.05)
    found = tune_graph(graph, TARGET, 2, limits=limits, policy="random", model="none")
    assert found.result.trials == 2 and found.before > 0 < found.after


def test_a_budget_is_needed(graph):
    with pytest.raises(ValueError, match="a budget is needed: trials, seconds or both"):
        tune_graph(graph, TARGET)


@pytest.mark.parametrize(("seconds", "call"), [(50.0, 1e-4), (50.0, 0.05), (50.0, 0.4), (600.0, 2.0)])
def test_seconds_are_those_of_the_whole_run(graph, monkeypatch, seconds, call):
    """Compilations, profiles and final times included; the clock moves as they would."""
    clock = Clock()
    given = []

    def moving(function, by):
        def moved(*args, **options):
            clock.now += by(*args, **options)
            return function(*args, **options)

        return moved

    def untuned(*args):
        progress = Progress("net", TARGET, [TaskProgress(g.func, f"{n}", 1, call / 3) for n, g in enumerate(args[0].groups)], 0.0)
        clock.now += call * (PROFILE_RUNS + 1)
        return progress

    def in_turns(calls, seconds, least, most):
        clock.now += 2 * call + max(seconds, 2 * least * call)
        return [[call], [call]]

    def tune_tasks(functions, target, trials, seconds, **options):
        given.append(seconds)
        clock.now += seconds
        return TasksResult((), 0.0, ())

    for name, value in {
        "time": SimpleNamespace(monotonic=clock, time=clock), "compile": moving(tir.compile, lambda *a, **o: 3.0), "in_turns": in_turns,
        "_untuned_tasks": untuned, "_by_key": moving(lambda *a: {f"{n}": 1.0 for n in range(3)}, lambda m, i, runs: call * (runs + 1)),
        "tune_tasks": tune_tasks,
    }.items():  # fmt: skip
        monkeypatch.setattr(tuning, name, value)
    tune_graph(graph, TARGET, seconds=seconds)
    assert 0.95 * seconds <= clock.now - Clock().now <= 1.01 * seconds and given[0] >= 0.5 * seconds
