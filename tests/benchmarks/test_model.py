"""The benchmark of the cost model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import model
from benchmarks.options import Options
from search.records import Records


def test_what_was_measured_is_kept_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model.TABLE, "softmax", ("softmax", (61, 109)))
    monkeypatch.setattr(model, "TAUGHT", (4, 64))
    options = Options(trials=8, save=str(tmp_path))
    alone = list(model.measure("gemm-61", options))
    assert [(r["taught"], r["loss"]) for r in alone] == [
        ("a formula", "-"),
        ("4", "times"),
        ("4", "throughputs"),
    ]  # too few for 64
    for row in ("softmax", "softmax"):
        results = list(model.measure(row, options))
        with Records(tmp_path / f"{row}.db") as records:
            (key,) = {s.workload for s in records.summaries()}
            found = [r.measurement.candidate.sketch for r in records.of(key)]
            assert len([s for s in found if s != "unscheduled"]) == 8  # which is recorded where it is the fastest
    assert [r["taught"] for r in results] == ["a formula", "4", "4", "other rows", "other rows"]
    for result in (*alone, *results):
        assert all(0 <= result[name] <= 1 for name in ("pairs", "of_a_sketch", "top_5%", "best_of_8"))
        json.dumps(result, allow_nan=False)


def test_candidates_are_counted_through_all_sketches() -> None:
    known = [model.Known(name, np.arange(n)[:, None], np.arange(n) + 10.0 * n) for name, n in (("a", 3), ("b", 0), ("c", 2))]
    found = model.chosen(known, np.array([4, 0, 2]))
    assert [(k.programs, k.rows.ravel().tolist(), k.seconds.tolist()) for k in found] == [
        ("a", [0, 2], [30.0, 32.0]),
        ("c", [1], [21.0]),
    ]


def test_order_is_judged_inside_of_sketches_and_over_all() -> None:
    """Two sketches, each ordered rightly, of which the faster one scores lower; times within 2 per cent are equal."""
    slow = np.array([2.0, 1.0]), np.array([5.0, 6.0])
    fast = np.array([0.5, 0.2, 0.1]), np.array([1.0, 1.01, 2.0])
    found = model.figures([slow, fast])
    assert found["of_a_sketch"] == 1.0 and found["pairs"] == pytest.approx(3 / 9)
    assert found["top_5%"] == 0.0 and found["best_of_8"] == 1.0
    assert model.figures([(np.zeros(2), np.array([1.0, 2.0]))])["pairs"] == 0.5
