"""The cases of the paper, their peers, and the benchmark of what a search finds. Nothing here asserts a time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import tir
from benchmarks import cases, cpu, peers, programs, quality
from benchmarks.options import Options
from benchmarks.runner import Timing
from search.measure import BASELINE, Candidate, Measurement
from search.records import Records
from search.task import Task
from tir import te, workloads

SMALL = {
    "conv1d": [(2, 13, 3, 5, 3, 2, 1)],
    "conv2d_nhwc": [(2, 7, 13, 3, 5, 3, 2, 1), (1, 9, 7, 4, 6, 3, 1, 0, 2), (1, 7, 5, 6, 9, 3, 1, 1, 1, 3)],
    "conv3d": [(2, 3, 5, 7, 2, 3, 3, 1, 1)],
    "conv_bn_relu": [(2, 7, 5, 3, 5, 3, 2, 1)],
    "depthwise_nhwc": [(2, 7, 13, 5, 3, 2, 1)],
    "conv2d_transpose": [(2, 3, 5, 7, 2, 4, 2, 1)],
    "capsule": [(2, 3, 5, 2, 3, 3, 2, 1)],
    "norm": [(3, 7, 109)],
    "attention_weights": [(2, 7, 3, 13)],
}

# --- the cases -----------------------------------------------------------------------------------------------------------


def test_each_case_is_a_workload_at_a_valid_shape() -> None:
    assert len(cases.CASES) == 96 and Counter(c.operator for c in cases.CASES.values()) == dict.fromkeys(cases.OPERATORS, 8)
    assert len({(c.program, c.shape) for c in cases.CASES.values()}) == 96
    for case in cases.CASES.values():
        assert workloads.get(case.program).sizes(case.shape) == case.shape


@pytest.mark.parametrize(
    ("name", "mflop"),
    [
        # The published figures: images of 109 by 109 pixels where the kernel is dilated, 16 images.
        ("c1d-1", 6.3), ("c2d-1", 236.0), ("c3d-2", 411.0), ("gmm-2", 16.8), ("grp-1", 28.9), ("dil-1", 223.6), ("dep-2", 3.6),
        ("t2d-4", 25.2), ("cap-3", 9.4), ("nrm-4", 8.4), ("c2d-3-b16", 16 * 231.211),
    ],
)  # fmt: skip
def test_cases_take_as_many_operations_as_published(name: str, mflop: float) -> None:
    case = cases.CASES[name]
    assert workloads.get(case.program).flop(*case.shape) / 1e6 == pytest.approx(mflop, abs=0.06)


def test_ten_operators_are_drawn_none_more_than_twice() -> None:
    for seed in range(20):
        drawn = cases.draw(seed)
        assert len(set(drawn)) == 10 and drawn == cases.draw(seed)
        operators = Counter(cases.CASES[name].operator for name in drawn)
        assert max(operators.values()) <= 2 and not operators.keys() & set(cases.SUBGRAPHS)
        assert all(workloads.get(c.program).flop(*c.shape) <= cases.FLOP for c in (cases.CASES[name] for name in drawn))
    assert len({cases.draw(seed) for seed in range(20)}) == 20
    assert cases.draw(cases.SEED) == quality.DRAWN and set(quality.DRAWN) <= set(quality.DEFAULT) <= set(quality.ROWS)


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SMALL.items() for shape in shapes])
def test_torch_agrees_with_the_reference(name: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip("torch")
    instance = programs.instance(name, shape)
    inputs = instance.inputs(np.random.default_rng(7))
    call = peers.torch_call(instance, inputs, 1)
    assert call is not None
    for _ in range(2):
        assert instance.check((np.asarray(call()),), inputs).ok


def test_every_case_has_a_peer() -> None:
    assert {c.program for c in cases.CASES.values()} == {*SMALL, "gmm"}


# --- the benchmark -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, short_races: None) -> Options:
    """The row nrm-1, small; and short timings."""
    monkeypatch.setitem(cases.CASES, "nrm-1", cases.Case("nrm", "norm", (3, 7, 109)))
    monkeypatch.setattr(quality, "TIMED", 0.05)
    return Options(seconds=300.0, trials=2)


def test_a_row_goes_on_where_it_ended(small: Options, tmp_path: Path) -> None:
    for trials, seconds in ((2, 300.0), (2, 300.0), (3, 300.0), (9, 0.01)):
        options = replace(small, trials=trials, seconds=seconds, save=str(tmp_path))
        (result,) = quality.measure("nrm-1", options)
        assert result["trials"] == min(trials, 3) and result["searched_s"] > 0
        assert {"tuned", "default", "numpy"} <= set(result["contenders"]) and set(result["ratios"]) >= {"default", "numpy"}
        with Records(tmp_path / "quality.db") as records:
            assert len(records) == min(trials, 3)
        json.dumps(result, allow_nan=False)
    page = (tmp_path / "quality.md").read_text()
    assert page.count("\n## 1 thread\n") == page.count("| nrm-1 | 3,7,109 | 1 | 3 |") == 1 and "geometric mean" in page
    assert (tmp_path / "quality-1.svg").read_text().startswith("<?xml")
    shown = rendered([{"row": "nrm-1", **result}, {"row": "mlp", "threads": 1, "error": "it failed"}])
    assert "drawn with seed 0" in shown and "3,7,109" in shown and "geometric mean" in shown and "failed" in shown


def test_a_row_keeps_to_its_minutes(small: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = []
    monkeypatch.setattr(quality.tir, "autotune", lambda func, target, trials, seconds, **_: budgets.append(seconds))
    instance = programs.instance("norm", (3, 7, 109))
    task = Task.of(instance.func, "llvm -num-cores 1")
    with Records(tmp_path / "quality.db") as records:
        for minutes in (None, 10.0, 1.0, 0.0):
            quality.search(task, records, replace(small, minutes=minutes))
    assert budgets == [300.0, 300.0, 60.0 - quality.APART, quality.WORTH]


def test_a_wrong_schedule_is_not_timed(small: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    squares, root = workloads.make("norm", (3, 7, 109)).func.body.stmts
    wrong = workloads.make("norm", (3, 7, 109)).func.with_(
        body=root.with_(body=root.body.with_(predicate=te.const(False, "bool")))
    )
    monkeypatch.setattr(quality.tir, "default_schedule", lambda *_: tir.Schedule(wrong))
    (result,) = quality.measure("nrm-1", small)
    assert result["error"].startswith("default: off by inf of its scale; the tolerance is ")
    assert squares and "contenders" not in result


def test_a_search_that_finds_nothing_is_said(small: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality.tir, "autotune", lambda *_, **__: None)
    (result,) = quality.measure("nrm-1", small)
    assert result["error"] == "the search found no valid candidate" and result["trials"] == 0


def test_figures() -> None:
    def timing(seconds: float) -> Timing:
        return Timing(seconds, (seconds, seconds), 1, (seconds,) * 3)

    found = quality.summary({"tuned": timing(0.5), "default": timing(1.0), "numpy": timing(0.25)}, 10**9)
    assert found["contenders"]["tuned"]["gflops"] == 2.0
    assert {name: r["ratio"] for name, r in found["ratios"].items()} == {"default": 2.0, "numpy": 0.5}
    means = quality.geometric_means([found, {"ratios": {"default": {"ratio": 8.0}}}, {"error": "none"}])
    assert means["default"] == pytest.approx(4.0) and means["numpy"] == 0.5 and np.isnan(means["torch"])
    assert quality.geometric_means([{"error": "none"}]) == {}


def test_goals_are_met_or_not() -> None:
    assert set(quality.GOALS) == set(cpu.ROWS)
    base = {"row": "mlp", "threads": 2, "trials": 9, "searched_s": 1.0, "sketch": "s", "shape": [7], "contenders": {}}
    base["shares"] = {"arithmetic": 0.5, "copying": 0.25}
    for row, ratio, sketch, text in (
        ("mlp", 1.01, "s", "1.00 x numpy +"),
        ("mlp", 0.99, "s", "1.00 x numpy -"),
        ("softmax", 0.99, "s", "1.00 x default -"),
        ("softmax", 0.99, "default", "1.00 x default +"),
    ):
        peer = quality.GOALS[row][0]
        result = base | {"row": row, "sketch": sketch, "ratios": {peer: {"ratio": ratio}}}
        result["contenders"] = {"tuned": {"median_s": 1.0, "gflops": 1.0}}
        assert text in rendered([result])


def rendered(results: list[dict]) -> str:
    console = Console(width=200, file=StringIO())
    console.print(quality.table(results))
    return console.file.getvalue()


def test_the_trials_that_beat_the_default_schedule_are_counted() -> None:
    def trial(sketch: str, seconds: float | None) -> Measurement:
        return Measurement(
            Candidate(sketch, (), None), "crash" if seconds is None else "ok", () if seconds is None else (seconds,)
        )

    measured = [Measurement(BASELINE, "ok", (0.001,)), trial("default", 0.02), trial("a", 0.01), trial("a", None)]
    assert quality.faster([*measured, trial("b", 0.03), trial("b", 0.02)]) == 1 / 4
    assert quality.faster([trial("a", 0.01)]) is quality.faster([trial("default", None), trial("a", 0.01)]) is None
