"""What is said of the end of a pytest-xdist worker."""

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

def test_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_exits():
    os._exit(3)

def test_passes():
    pass
"""


def test_the_end_of_a_worker_is_said(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_ends.py").write_text(TESTS)
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "3 failed, 1 passed in" in done.stdout.splitlines()[-1]
    lost = done.stdout.partition("workers that were lost")[2]

    def end(test: str) -> str:
        return lost.partition(f" in test_ends.py::{test}: Not properly terminated; ")[2].partition("\ngw")[0]

    assert end("test_killed") == "ended by SIGKILL" and end("test_exits").startswith("ended with exit status 3")
    crashed = end("test_crashes")
    assert crashed.startswith("ended by SIGSEGV\n    Fatal Python error: Segmentation fault\n") and "in test_crashes\n" in crashed
