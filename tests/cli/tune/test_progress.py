"""What is shown as a search goes on."""

from __future__ import annotations

import io

from rich.console import Console

from cli.tune.progress import LineProgress, LiveProgress
from search.measure import Candidate, Measurement
from search.task import Task
from search.tuning.events import Measured, Prepared, RoundEnded, Started
from tir import workloads


def test_live_progress_shows_failures_best_share_and_time_left():
    task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm")
    progress = LineProgress(io.StringIO())
    progress(Started(task, 10, None))
    candidate = Candidate("fake", (), None)
    progress(Prepared(Measurement(candidate, "ok", (1.0,)), 0.5, 2 * task.flop / 0.01, 3))
    progress(RoundEnded(0, {}, 0.02, 1.0))  # all copies of what an earlier run measured
    assert progress.status() == f"0/10  failed: none  best {task.flop / 0.02 / 1e9:.1f} GFLOP/s (25% of peak)"
    progress(Measured(Measurement(candidate, "ok", (0.01,)), 5, {"ok": 4, "crash": 1}, 0.01))
    status = progress.status()
    assert status.startswith(f"5/10  failed: 1 crash  best {task.flop / 0.01 / 1e9:.1f} GFLOP/s (50% of peak)")
    assert status.endswith(" s left")


def test_the_live_table_shows_the_search():
    task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm")
    progress = LiveProgress(io.StringIO())
    try:
        progress(Started(task, 10, 100.0))
        candidate = Candidate("fake", (), None)
        progress(Prepared(Measurement(candidate, "ok", (1.0,)), 0.02, 2 * task.flop / 0.01, 3, 7))
        counts = {"ok": 4, "crash": 1}
        progress(Measured(Measurement(candidate, "ok", (0.01,)), 5, counts, 0.01))
        progress(RoundEnded(5, counts, 0.01, 3.0, 0.75, 123456.7))
        shown = io.StringIO()
        Console(file=shown, width=120).print(progress.render())
    finally:
        progress.close()
    rows = [line.split(None, 1) for line in shown.getvalue().splitlines()]
    assert [row[1].strip() for row in rows[:4]] == [
        "searching",
        "5 of 10: 4 valid; failed: 1 crash",
        f"10 ms, {task.flop / 0.01 / 1e9:.1f} GFLOP/s (50% of peak), 2.00 x numpy",
        "rank correlation 0.75, 123,457 scored/s",
    ]
    assert rows[4][0] == "time" and rows[4][1].strip().endswith(" s left")
    progress(RoundEnded(5, counts, 0.01, 3.0, -0.2))
    assert progress.model() == ["rank correlation -0.20 (the model has not learned yet)"]
