"""A command line whose search is a list of wishes, and a folder with a record."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from schedule import Schedule
from search.measure import Candidate, Measurement
from search.measure.reference import NamedWorkload
from search.records import Records
from search.task import Task
from tests.cli.tune.commands import ROOT
from tir import workloads

# A program that runs the command line with the fake builder of tests/search and a given list of wishes as the search. It heeds
# Ctrl-C even where the suite is a background job of a shell, whose processes start with SIGINT ignored.
DRIVER = """
import signal
import sys
sys.path[:0] = [{root!r}, {fakes!r}]
from search.measure import Candidate
from tir.tune import main

class Wishes:
    sketches = ("fake",)
    def __init__(self, task):
        self.left = [Candidate("fake", (n,), wish) for n, wish in enumerate({wishes!r})]
    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen
    def update(self, measurements):
        pass

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:], builder="fake_builder", policy=Wishes, workers={workers}, first=()))
"""


@pytest.fixture(autouse=True)
def _short_races(short_races): ...


@pytest.fixture
def cli(tmp_path):
    """Runs the command line on wishes; `cli.start` returns the process instead of its result."""

    class Cli:
        def start(self, wishes, *args, workers=1):
            driver = tmp_path / "driver.py"
            driver.write_text(DRIVER.format(root=str(ROOT), fakes=str(ROOT / "tests" / "search"), wishes=wishes, workers=workers))
            command = [sys.executable, str(driver), *args]
            pipe = subprocess.PIPE
            environment = {**os.environ, "TMPDIR": str(tmp_path)}
            return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment)

        def __call__(self, wishes, *args):
            process = self.start(wishes, *args)
            out, err = process.communicate(timeout=120)
            return process.returncode, out, err

    return Cli()


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A folder with tune.db, that holds one schedule of gmm for one thread."""
    monkeypatch.chdir(tmp_path)
    func = workloads.make("gmm", (7, 13, 109)).func
    s = Schedule(func)
    s.split("j", [None, 4])
    with Records("tune.db") as records:
        number = records.start(Task.of(func, "llvm -num-cores 1", workload=NamedWorkload("gmm", (7, 13, 109))))
        candidate = Candidate("s0", (4,), s.trace.as_json())
        records.add(number, Measurement(candidate, "ok", (0.5, 0.25, 0.125), max_error=1e-7))
    return tmp_path
