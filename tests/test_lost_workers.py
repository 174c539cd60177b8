"""What becomes of the tests of a pytest-xdist worker that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
from tests import lost_workers

def pytest_configure(config):
    lost_workers.register(config)
"""

TESTS = """
import os, signal
from pathlib import Path

def end_the_first(how):
    try:
        Path(__file__).with_suffix("." + how.__name__).touch(exist_ok=False)
    except FileExistsError:
        return
    how()

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_killed_once():
    end_the_first(killed)

def crashed():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_crashes_once():
    end_the_first(crashed)

def test_always_ends():
    os._exit(3)
"""


def test_a_test_is_run_once_more_and_the_end_of_the_worker_is_said(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_ends.py").write_text(TESTS)
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("1 failed, 2 passed, 3 rerun in")
    assert "FAILED" in done.stdout and "::test_always_ends" in done.stdout.partition("FAILED")[2]
    lost = done.stdout.partition("workers that were lost")[2]
    tests = dict(reversed(line.split(" in test_ends.py::")) for line in lost.splitlines() if " in test_ends.py::" in line)
    assert list(map(len, (tests["test_killed_once"], tests["test_crashes_once"]))) == [3, 3]
    first, second = tests["test_always_ends"].split(", then ")

    def end(worker: str) -> str:
        return lost.partition(f"\n{worker}: Not properly terminated; ")[2].partition("\ngw")[0]

    assert end(tests["test_killed_once"]) == "ended by SIGKILL"
    assert end(first) == "ended with exit status 3" and end(second).startswith("ended with exit status 3")
    crashed = end(tests["test_crashes_once"])
    assert crashed.startswith("ended by SIGSEGV\n    Fatal Python error: Segmentation fault\n") and "in crashed\n" in crashed
