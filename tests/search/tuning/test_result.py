"""What the result of a search shows."""

from __future__ import annotations

import pickle
from dataclasses import replace

from search.measure import Candidate, Measurement
from search.task import Task
from search.tuning.result import Result
from tests.codegen.matmul import matmul

TRIALS = (
    Measurement(Candidate("a", (1,), None), "ok", (4e-6,), max_error=0.0),
    Measurement(Candidate("a", (2,), None), "crash", (), message="it crashed"),
    Measurement(Candidate("a", (3,), None), "ok", (2e-6,), max_error=0.0),
)


def result(**changes) -> Result:
    task = Task.of(matmul(7, 13, 5), "llvm -num-cores 1 -mcpu x86-64-v3")
    fields = {
        "task": task, "trace": None, "seconds": 2e-6, "outcomes": {"ok": 2, "crash": 1, "illegal": 0}, "baseline": 5e-6,
        "baseline_stopped": None, "numpy": None, "max_error": 0.0, "tolerance": 0.0, "peak": None, "elapsed": 1.25,
        "interrupted": False, "problem": "", "measurements": TRIALS,
    }  # fmt: skip
    return Result(**{**fields, **changes})


def test_text() -> None:
    name = matmul(7, 13, 5).name
    assert (
        str(result())
        == f"""\
task        {name}(A[7, 13], B[13, 5], C[7, 5])
target      llvm -num-cores 1 -mcpu x86-64-v3
best        2 us, 0.5 GFLOP/s
as written  5 us, 2.5 × the best
trials      3 in 1.2 s: 2 ok, 1 crash
"""
    )
    assert repr(result()) == f"<Result {name}: 2 us, 3 trials>"
    said = str(result(numpy=3e-6, baseline=None, problem="the disk is full")).splitlines()
    assert said[3:5] == ["as written  not measured", "numpy       3 us, 1.5 × the best"]
    assert said[-1] == "problem     the disk is full"


def test_the_default_has_the_time_of_the_race() -> None:
    """Or that of its trial, at the speed of the machine in the race."""
    tried = Measurement(Candidate("default", (), None), "ok", (3e-6,), max_error=0.0)
    raced = replace(tried, samples=(4e-6,))
    assert result().default is None and result(measurements=(tried,)).default == 3e-6
    assert result(measurements=(tried,), slowdown=2.0).default == 6e-6
    assert result(measurements=(tried,), slowdown=2.0, race=(TRIALS[0], raced)).default == 4e-6


def test_a_notebook_shows_a_table_a_curve_and_the_program() -> None:
    bundle = result()._repr_mimebundle_()
    assert bundle["text/plain"] == str(result()).rstrip("\n")
    html = bundle["text/html"]
    assert html.count("<tr>") == 6 and html.count('band"') == 1 and "for i in 7, j in 5, k in 13" in html
    assert "<svg" not in result(measurements=())._repr_mimebundle_()["text/html"]


def test_results_pickle() -> None:
    found = result()
    assert found.kernel is not None
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found) and again.kernel.code == found.kernel.code and again.measurements == found.measurements
