"""docs/experiments.md: ten experiments, each a file of at most twenty lines that runs by itself."""

from __future__ import annotations

import re

import pytest

from schedule import REGISTRY, Schedule
from tests.test_readme import ROOT, blocks

PAGE = ROOT / "docs" / "experiments.md"
EXPERIMENTS = [(line, code) for line, _, code in blocks(PAGE.read_text())]


def test_there_are_ten_short_ones():
    assert len(EXPERIMENTS) == 10
    assert [line for line, code in EXPERIMENTS if sum(map(bool, map(str.strip, code.splitlines()))) > 20] == []


def test_they_import_what_is_installed():
    """Not the packages of the repository beside it, which a copied experiment would lack."""
    imported = {name for _, code in EXPERIMENTS for name in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)}
    assert imported >= {"tir", "search"} and not imported & {"benchmarks", "docs", "examples", "tests"}


@pytest.mark.usefixtures("short_races")
@pytest.mark.parametrize(("line", "code"), EXPERIMENTS, ids=range(1, 11))
def test_it_runs_by_itself(line, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = set(REGISTRY)
    try:
        exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), {"__name__": "experiment"})
    finally:
        for name in set(REGISTRY) - known:
            del REGISTRY[name]
    assert not hasattr(Schedule, "tile_for_cache")
