"""The nightly run: seeds by the week, chunks until a net's time is over, and a failure that is told with its command."""

from __future__ import annotations

import itertools
import re
from datetime import date
from types import SimpleNamespace

import pytest

from tests import nightly
from tests.nightly import CHUNK_SEEDS, NETS, Net, main, week_seed


@pytest.fixture
def case(monkeypatch, tmp_path):
    """A net's module in a folder of its own, which fails at odd chunks."""
    (tmp_path / "nightly_case.py").write_text(
        f"import sys\nprint('case', *sys.argv[1:])\nsys.exit(int(sys.argv[1]) // {CHUNK_SEEDS} % 2)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Net("case", "nightly_case {seed} {last} {count}", 7, 3, 1.0)


def test_weeks_have_seeds_of_their_own():
    assert week_seed(date(2026, 11, 23)) == week_seed(date(2026, 11, 29))
    seeds = [week_seed(date.fromordinal(date(2026, 1, 1).toordinal() + 7 * n)) for n in range(120)]
    assert len(set(seeds)) == 120 and min(b - a for a, b in itertools.pairwise(seeds)) >= 100 * CHUNK_SEEDS


def test_a_sample_is_one_chunk_of_each_and_a_failure_is_told(case, capfd):
    assert main(["--sample", "--seed", "0"], (case,)) == 0
    assert main(["--sample", "--seed", str(CHUNK_SEEDS)], (case, Net("none", "no_such", 1, 0, 1.0))) == 1
    out = capfd.readouterr().out
    assert f"FAILED python -m nightly_case {CHUNK_SEEDS} {CHUNK_SEEDS + 3} 3\ncase {CHUNK_SEEDS} {CHUNK_SEEDS + 3} 3" in out
    assert out.splitlines()[-1] == "0 passed, 1 failed"


def test_a_night_goes_on_with_other_seeds(case, capfd, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(nightly, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert main(["--minutes", "0.05", "--seed", "0"], (case,)) == 1
    out = capfd.readouterr().out
    assert re.findall("FAILED.*", out) == [f"FAILED python -m nightly_case {CHUNK_SEEDS} {CHUNK_SEEDS + 7} 7"]
    assert out.splitlines()[-1] == "2 passed, 1 failed"


def test_a_night_is_all_of_the_time():
    assert sum(net.share for net in NETS) == pytest.approx(1.0)
