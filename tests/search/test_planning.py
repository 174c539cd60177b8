"""Plans that are measured as a function is compiled, and kept."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tir
from search import planning
from search.records import Records
from search.tuning import autotune
from tests.graph.models import model
from tests.programs import matmul

FUNC = matmul(37, 64, 109)
ONE = "llvm -num-cores 1"


@pytest.fixture
def hurried(monkeypatch, tmp_path):
    """Plans of three candidates, in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(planning, "TRIALS", 3)
    monkeypatch.setattr(planning, "SECONDS", None)


def test_a_plan_is_measured_once_and_kept(hurried, monkeypatch):
    a, b = np.ones((37, 64), np.float32), np.ones((64, 109), np.float32)
    assert (tir.compile(FUNC, ONE, plan="measure")(a, b) == 64).all()
    with Records(planning.users_plans(), create=False) as records:
        (summary,) = records.summaries()
        assert summary.records == 3  # the default schedule and others
    monkeypatch.setattr(autotune, "sessions", None)  # nothing more is measured
    kernel = tir.compile(FUNC, ONE, plan="measure", cache=None)
    assert (kernel(a, b) == 64).all()


def test_records_of_ones_own_get_the_plan(hurried, tmp_path):
    path = tmp_path / "mine.db"
    tir.compile(FUNC, ONE, plan="measure", records=path)
    assert not planning.users_plans().exists()
    assert tir.best_schedule(FUNC, ONE, records=path).trace


def test_the_command_line_keeps_its_plan_there(hurried):
    from tir import tune

    assert tune.main(["gmm", "--shape", "37,64,109", "--threads", "1", "--quick", "--quiet", "--json"]) == 0
    with Records(planning.users_plans(), create=False) as records:
        (summary,) = records.summaries()
    assert summary.records == 3


def test_kernels_of_a_network_are_measured(hurried):
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((5, 24), (24, 40)))
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = tir.load_onnx(model([node], {"x": x}, ["y"], {"w": w}))
    (found,) = tir.compile(graph, ONE, plan="measure")(x)
    np.testing.assert_allclose(found, x @ w, rtol=1e-4, atol=1e-5)
    with Records(planning.users_plans(), create=False) as records:
        assert len(records.summaries()) == 1


@pytest.mark.parametrize(("options", "message"), [
    ({"plan": "patient"}, "plan is 'estimate' or 'measure', got 'patient'"),
    ({"plan": "measure", "target": "llvm -mtriple aarch64-linux-gnu -mcpu cortex-a76"}, "plan is 'measure', but kernels for"),
])  # fmt: skip
def test_what_cannot_be_planned_is_refused(hurried, options, message):
    with pytest.raises(ValueError, match=message):
        tir.compile(FUNC, **options)


def test_without_workers_the_default_schedule_stays(hurried, monkeypatch):
    from search.measure import WorkerError

    def refuse(*args, **options):
        raise WorkerError("no process can be started")

    monkeypatch.setattr(autotune, "sessions", refuse)
    said = "is not measured, its default schedule is used: no process can be started"
    with pytest.warns(UserWarning, match=said), pytest.warns(UserWarning, match="not tuned, a default schedule is used"):
        kernel = tir.compile(FUNC, ONE, plan="measure", cache=None)
    assert kernel.func.script() == tir.build(tir.default_schedule(FUNC, ONE), ONE).func.script()
