"""`python -m benchmarks policies`: figures against the plain policy, the page, and that a run goes on."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import policies, runner
from benchmarks.options import Options


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
    monkeypatch.setitem(policies.TABLE, "gemm-61", ("gmm", (61, 67, 13)))
    before = (tmp_path / "policies.json").read_text()
    with pytest.raises(ValueError, match=r"^gemm-61: no run has a candidate; its records in .*records are not of this program$"):
        list(policies.measure("gemm-61", longer))
    assert (tmp_path / "policies.json").read_text() == before
