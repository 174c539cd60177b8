"""`python -m benchmarks policies`: figures against the plain policy, the page, and that a run goes on."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import policies, runner, searches
from benchmarks.options import Options
from search.names import POLICIES


def test_when_a_policy_has_the_plain_quality():
    result = {"speeds": [[0.2, 0.6, 1.0], [0.4, 0.8, 0.8]], "ended_s": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]}
    assert policies.reached(result, 0.7) == {"to_plain": 2, "to_plain_s": 3.0}
    assert policies.reached(result, 0.95) == {"to_plain": None, "to_plain_s": None}


def test_the_best_in_the_time_of_the_plain_policy():
    ours = {"speeds": [[0.2, 0.6, 1.0], [0.4, 0.8, 0.8]], "ended_s": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]}
    plain = {"speeds": [[0.1, 0.1, 0.1]] * 2, "ended_s": [[1.0, 2.0, 2.5], [1.0, 2.0, 3.0]]}
    assert policies.in_time(ours, plain, 1.0) == 0.5  # 0.6 after 2.5 s, 0.4 after 3 s
    assert policies.in_time(ours, plain, 0.5) == 0.1  # 0.2 after 1.25 s, nothing after 1.5 s


def test_the_chance_of_a_difference():
    assert policies.chance([1.0] * 5, [0.5] * 5) is None  # too few
    assert policies.chance([1.0 + 0.01 * n for n in range(8)], [0.5] * 8) == pytest.approx(2 / 2**8)  # all of one sign
    assert policies.chance([1.0] * 8, [1.0] * 8) is None


def test_bests_after_some_trials_and_beside_published_figures():
    def result(name, speeds, seconds):
        runs = {"speeds": [speeds], "ended_s": [[float(n) for n in range(1, len(speeds) + 1)]], "trials": len(speeds)}
        return {"configuration": name, "best": speeds[-1], "to_plain_s": seconds, **runs}

    slow, fast = [0.25] * 47 + [0.5] * 17, [0.5] * 15 + [0.75] * 32 + [1.0] * 17
    rows = {"gemm-512": [result("ansor", slow, 48.0), result("pruner", fast, 12.0)]}
    columns, lines = policies.checkpoints(rows)
    assert columns == ("policy", "at 16", "at 48", "at 64")
    assert lines == [("ansor", "0.250", "0.500", "0.500"), ("pruner", "0.750", "1.000", "1.000")]
    found = {work: (theirs, *ours) for work, theirs, *ours in policies.published(rows)}
    assert found["Pruner, ASPLOS 2025"][1:] == ("pruner", "4.0 (1/1)", "2.00")
    assert found["TLP, ASPLOS 2023"][1:] == ("tlp", "-", "-")


def test_some_policies_are_compared_with_the_plain_one():
    assert list(policies.chosen(Options(policies="lfbo"))) == [policies.PLAIN, "lfbo"]
    assert policies.chosen(Options()) == policies.CONFIGURATIONS
    with pytest.raises(ValueError, match=r"^no policy is named 'lbfo'; did you mean lfbo\? there are: ansor, evolution, "):
        policies.chosen(Options(policies="lbfo"))


def test_every_policy_over_rows_is_compared():
    assert {*POLICIES} - {"plan"} <= {parts.get("policy", "evolution") for parts in policies.CONFIGURATIONS.values()}
    assert len(policies.DEFAULT) >= 11 and len(policies.ROWS) == len(policies.DEFAULT) + 5


def test_it_goes_on_and_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = import_module("benchmarks.ablation")
    kept = {name: policies.CONFIGURATIONS[name] for name in ("random", "ansor")}
    monkeypatch.setattr(policies, "CONFIGURATIONS", kept)
    monkeypatch.setattr(ablation, "RACE", 0.01)
    monkeypatch.setattr(ablation.Roof, "measure", lambda *_: runner.Roof(1e9, 1e9))
    options = Options(threads=1, seeds=1, trials=2, save=str(tmp_path))
    for trials in (2, 3):
        longer = replace(options, trials=trials)
        policies.prepare(["gemm-61"], replace(longer, minutes=0.0))  # there is no time for a run
        assert list(policies.measure("gemm-61", longer)) == []
        policies.prepare(["gemm-61"], longer)
        results = list(policies.measure("gemm-61", longer))
        assert [len(r["ended_s"][0]) for r in results] == [trials] * 2
    assert list(policies.measure("gemm-61", replace(longer, seeds=2))) == []
    assert [r["seeds"] for r in policies.measure("gemm-61", replace(longer, seeds=2, race=True))] == [1, 1]
    plain = next(r for r in results if r["configuration"] == policies.PLAIN)
    assert plain["to_plain"] is not None and plain["ended_s"][0] == sorted(plain["ended_s"][0])
    page = (tmp_path / "policies.md").read_text()
    assert "| policy | best | area | to plain | to plain, s | equal time | half | p |" in page and "### gemm-61" in page
    assert searches.write(tmp_path, tmp_path / "all.jsonl.gz") == 2
    runs = {run["policy"]: run for run in searches.read(tmp_path / "all.jsonl.gz")}
    assert {*runs} == {"random", "ansor"} and runs["ansor"]["shape"] == [61, 67, 109]
    for r in results:
        trials = runs[r["configuration"]]["trials"]
        assert len(trials) == 3 and [t[4] for t in trials] == sorted(t[4] for t in trials)
        assert searches.best(runs[r["configuration"]], 3) == min(t[2] for t in trials if t[2] is not None)
    monkeypatch.setitem(policies.TABLE, "gemm-61", ("gmm", (61, 67, 13)))
    before = (tmp_path / "policies.json").read_text()
    with pytest.raises(ValueError, match=r"^gemm-61: no run has a candidate; its records in .*records are not of this program$"):
        list(policies.measure("gemm-61", longer))
    assert (tmp_path / "policies.json").read_text() == before
