"""Studies: runs over policies, models and seeds, kept in a file, shown as curves with bands."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from math import inf
from typing import Any

import numpy as np
import pytest

import tir
from search.drawing.svg import Scale
from search.experiments import study as studies
from search.measure import Candidate, Limits, Measurement
from search.names import POLICIES
from search.space.rules import Inline, rule
from tests.codegen.matmul import matmul

ONE = "llvm -num-cores 1"


@pytest.fixture
def searched(monkeypatch) -> list[tuple[Any, ...]]:
    """The searches that were asked for; each takes 3 trials: the seconds are by seed and trial, and the second one fails."""
    asked: list[tuple[Any, ...]] = []

    class Found:
        interrupted = False

        def __init__(self, seed: int):
            times = [4.0 + seed, None, 2.0 + seed]
            self.measurements = [
                Measurement(Candidate("s", (n,), None), "crash" if t is None else "ok", () if t is None else (t,), max_error=0.0)
                for n, t in enumerate(times)
            ]

    def autotune(func, target, trials, *, seed, policy, model, **options):
        if seed == 9:
            raise KeyboardInterrupt
        asked.append((policy, model, seed, trials))
        return Found(seed)

    monkeypatch.setattr(studies, "autotune", autotune)
    return asked


def test_curves(searched) -> None:
    found = tir.study(matmul(7, 13, 5), ONE, policies=("evolution", "random"), models=("none",), seeds=2, trials=3)
    assert searched == [
        ("evolution", "none", 0, 3),
        ("random", "none", 0, 3),
        ("evolution", "none", 1, 3),
        ("random", "none", 1, 3),
    ]
    assert list(found.curves) == ["evolution, none", "random, none"]
    assert np.array_equal(found.curves["random, none"], [[4, 4, 2], [5, 5, 3]])
    text = str(found).splitlines()
    assert text[0].startswith(f"{matmul(7, 13, 5).name} for llvm") and text[1].split() == [
        "seeds",
        "after",
        "half",
        "at",
        "the",
        "end",
        "fastest",
        "slowest",
    ]
    assert text[2].split() == ["evolution,", "none", "2", "4.5", "s", "2.5", "s", "2", "s", "3", "s"]
    html = found._repr_mimebundle_()["text/html"]
    assert html.count('band"') == len(re.findall(r'<path class="\w+ line"', html)) == 2 and ".chart .band" in html


def test_it_goes_on_where_it_was_stopped(searched, tmp_path) -> None:
    file, func = tmp_path / "study.jsonl", matmul(7, 13, 5)
    assert len(tir.study(func, ONE, seeds=[0, 9, 1], trials=3, file=file).runs) == 1
    with file.open("a") as lines:
        lines.write('{"of": "cut')
    lines_before = file.read_text().splitlines()
    assert json.loads(lines_before[0])["best"] == [4.0, 4.0, 2.0]
    for _ in range(2):  # what comes behind a line that was cut off is kept
        assert len(tir.study(func, ONE, seeds=[0, 1], trials=3, file=file).runs) == 2
    assert [seed for *_, seed, _ in searched] == [0, 1]
    tir.study(func, ONE, seeds=[0], trials=4, file=file)  # of other runs
    assert len(searched) == 3 and len(file.read_text().splitlines()) == 4


def test_runs_with_other_options_are_of_another_study(searched, tmp_path, monkeypatch) -> None:
    file, func = tmp_path / "study.jsonl", matmul(7, 13, 5)

    def runs(**options) -> int:
        before = len(searched)
        tir.study(func, ONE, seeds=1, trials=3, file=file, **options)
        return len(searched) - before

    def mine(s):
        pass

    def other(s):
        pass

    same = [{}, {"space": "ansor"}, {"space": mine}, {"space": other}, {"limits": Limits(run=1.0)}, {"limits": Limits(run=2.0)}]
    same += [
        {"inputs": {"A": np.zeros(3)}},
        {"inputs": {"A": np.ones(3)}},
        {"rules": (Inline(), rule("mine", mine)(mine))},
        {"callbacks": [print]},
    ]
    assert [runs(**options) for options in same] == [1] * len(same)
    assert [runs(**options) for options in same] == [0] * len(same)
    monkeypatch.setattr(studies, "versions", lambda: {"tir": "another"})
    assert runs() == 1


def test_a_run_of_your_own_parts(searched) -> None:
    mine = object()
    found = tir.study(matmul(7, 13, 5), ONE, policies={"mine": lambda task: mine}, seeds=1, trials=3)
    assert callable(searched[0][0]) and searched[0][1] is None and list(found.curves) == ["mine"]


def test_a_policy_of_your_own_runs_once_beside_models(searched) -> None:
    """For it brings its own model."""
    policies = {"evolution": "evolution", "mine": lambda task: object()}
    found = tir.study(matmul(7, 13, 5), ONE, policies=policies, models=("none", "gbdt"), seeds=1, trials=3)
    assert [r.label for r in found.runs] == ["evolution, none", "evolution, gbdt", "mine"]
    assert [(isinstance(policy, str), model) for policy, model, *_ in searched] == [(True, "none"), (True, "gbdt"), (False, None)]


def test_options_that_exclude_each_other_are_refused_before_any_run(searched) -> None:
    with pytest.raises(ValueError, match="a policy of your own brings its own"):
        tir.study(
            matmul(7, 13, 5), ONE, policies={"evolution": "evolution", "mine": lambda task: object()}, space="ansor", trials=3
        )
    assert searched == []


def test_the_frame(searched) -> None:
    found = tir.study(matmul(7, 13, 5), ONE, seeds=2, trials=3)
    if find_spec("pandas") is None:
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            found.frame()
        return
    frame = found.frame()
    assert list(frame.columns) == ["policy", "model", "seed", "trial", "best"] and len(frame) == 6
    assert frame[frame.seed == 1].best.tolist() == [5.0, 5.0, 3.0]


def test_a_narrow_logarithmic_scale_has_ticks_and_a_legend_its_colours(searched) -> None:
    scale = Scale((2.1e-6, 2.9e-6), 0.0, 100.0, log=True)
    assert len(scale.ticks()) >= 3 and all(2.1e-6 <= t <= 2.9e-6 for t in scale.ticks())
    assert Scale((1e-6, 1e-2), 0.0, 100.0, log=True).ticks() == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    html = tir.study(matmul(7, 13, 5), ONE, policies=("evolution", "random"), seeds=1, trials=3)._repr_mimebundle_()["text/html"]
    assert 'class="blue">evolution</text>' in html and 'class="orange">random</text>' in html


def test_the_page(searched, tmp_path) -> None:
    found = tir.study(matmul(7, 13, 5), ONE, seeds=1, trials=3)
    found.write(tmp_path / "study.html")
    text = (tmp_path / "study.html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "<svg" in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_nothing_found_has_no_curve() -> None:
    run = studies.SearchRun("random", "", 0, ())
    found = studies.Study("f", ONE, (run, studies.SearchRun("evolution", "", 0, (inf, 1.0))))
    assert np.array_equal(found.curves["random"], [[inf, inf]])
    html = found._repr_mimebundle_()["text/html"]
    assert "nothing" in str(found) and html.count('band"') == 1 and ">random</text>" in html and ">evolution</text>" in html


@pytest.mark.parametrize(("options", "message"), [
    ({"policies": ("bogus",)}, f"no policy is named 'bogus'; there are: {', '.join(POLICIES)}"),
    ({"records": "tune.db"}, "a study takes no records: each of its runs would learn from those before it; file= keeps the runs"),
    ({"seeds": 0}, "a study needs a policy, a model, seeds of at least 0, and at least one trial a run"),
])  # fmt: skip
def test_refusals(options, message) -> None:
    with pytest.raises(ValueError) as caught:
        tir.study(matmul(7, 13, 5), ONE, **options)
    assert str(caught.value) == message
