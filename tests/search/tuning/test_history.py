"""The table of the trials."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from search.measure import Candidate, Measurement, Origin, Parent
from search.tuning.history import FIELDS, history


def trial(row, origin=None, seconds=None, error=1e-7, scores=None, sketch="s"):
    candidate = Candidate(sketch, row, None, None, scores, origin)
    if seconds is None:
        return Measurement(candidate, "crash", message="SIGSEGV")
    return Measurement(candidate, "ok", (seconds,), max_error=error)


RUN = (
    trial((1,), Origin("sample", 1), 4e-3, scores={"formula": -3.0}),
    trial((2,), None),
    trial((3,), Origin("scale", 2, 1, (Parent((9,), Origin("move", 2, 0, (Parent((1,)),))),)), 2e-3, scores={"trees": 0.5, "formula": -2.0}),
    trial((4,), Origin("crossover", 3, 2, (Parent((1,)), Parent((3,)))), 1e-3, error=None),
    trial((4,), Origin("neighbour", 4, 0, (Parent((1,)),)), 3e-3, sketch="another"),
)  # fmt: skip


def test_rows():
    rows = history(RUN, 8_000_000)
    assert [*rows[0]] == [*FIELDS, "score formula", "score trees", "message"]
    assert [[r[name] for name in ("trial", "operator", "batch", "generation", "parents")] for r in rows] == [
        [1, "sample", 1, 0, ()],
        [2, None, None, None, ()],
        [3, "scale", 2, 1, (1,)],  # what was between was not measured
        [4, "crossover", 3, 2, (1, 3)],
        [5, "neighbour", 4, 0, ()],  # rows of other sketches are no parents
    ]
    assert [(r["seconds"], r["best"], r["gflops"]) for r in rows] == [
        (4e-3, 4e-3, 2.0), (None, 4e-3, None), (2e-3, 2e-3, 4.0), (1e-3, 2e-3, 8.0), (3e-3, 2e-3, 8 / 3),
    ]  # fmt: skip
    assert [(r["score formula"], r["score trees"]) for r in rows[:3]] == [(-3.0, None), (None, None), (-2.0, 0.5)]
    assert rows[1]["message"] == "SIGSEGV" and history((), 1) == []


def test_the_frame_is_one_of_pandas():
    if find_spec("pandas") is None:
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            history(RUN, 1).frame()
    else:
        frame = history(RUN, 8_000_000).frame()
        assert frame.loc[3, "operator"] == "scale" and frame.loc[4, "gflops"] == 8.0
        assert len(history((), 1).frame()) == 0
