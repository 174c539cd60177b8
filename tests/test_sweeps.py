"""Cases of swept families: which run without `--all`, and that with it all do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests import sweeps

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")

def pytest_configure(config):
    sweeps.register(config)
"""
TESTS = """
import pytest
from tests.sweeps import one_in, quick

@one_in(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "extent"), [("a", 7), ("b", 13)])
def test_product(name, extent, seed):
    pass

@quick(lambda seed: seed == 17)
@one_in(10)
@pytest.mark.parametrize("seed", range(20))
def test_seeds(seed):
    pass

def test_always():
    pass
"""
QUICK = ["product[a-7-0]", "product[a-7-2]", "product[b-13-1]", "seeds[0]", "seeds[10]", "seeds[17]", "always"]
LEFT_OUT = 20


@pytest.fixture
def run(tmp_path):
    """Runs pytest on the tests above; gives the names of those that ran, and the line that sums them up."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_x.py").write_text(TESTS)

    def call(*arguments: str) -> tuple[list[str], str]:
        command = [sys.executable, "-m", "pytest", "-v", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run([*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout
        ran = [word for line in done.stdout.splitlines() if "PASSED" in line for word in line.split() if "::" in word]
        return [name.partition("::test_")[2] for name in ran], done.stdout.splitlines()[-1]

    return call


def test_a_part_runs_and_the_rest_is_counted(run, tmp_path):
    ran, summary = run(str(tmp_path))
    assert sorted(ran) == sorted(QUICK) and f"7 passed, {LEFT_OUT} deselected in" in summary


def test_workers_count_what_they_leave_out(run, tmp_path):
    ran, summary = run("-p", "xdist", "-n", "2", str(tmp_path))
    assert sorted(ran) == sorted(QUICK) and f"7 passed, {LEFT_OUT} deselected in" in summary


def test_with_all_every_case_runs(run, tmp_path):
    ran, summary = run("--all", str(tmp_path))
    assert len(set(ran)) == len(QUICK) + LEFT_OUT and set(QUICK) < set(ran) and "27 passed in" in summary


def test_a_case_named_by_its_id_runs(run, tmp_path):
    assert run(f"{tmp_path}/test_x.py::test_seeds[3]")[0] == ["seeds[3]"]


def test_a_test_without_cases_is_refused(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_x.py").write_text("from tests.sweeps import one_in\n\n@one_in(2)\ndef test_alone():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "test_x.py::test_alone has a mark of tests.sweeps, and no cases to choose from" in done.stderr


def test_every_family_has_a_case_that_always_runs(request):
    counts = request.config.pluginmanager.getplugin("sweeps").counts
    assert [name for name, (always, _) in counts.items() if not always] == []


def test_ci_runs_every_case():
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make test")]
    assert commands and all("--all" in line for line in commands)
