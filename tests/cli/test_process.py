"""What all command lines do when they begin."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cli import process
from cli.tune.arguments import parser, searching
from tests.search.clock import Clock

# A command that gets Ctrl-C as it looks for what it is to run. It heeds Ctrl-C even where the suite ignores it.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
runpy.run_module(sys.argv[2], run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
@pytest.mark.parametrize("door", ["tir.tune", "tir.run", "tir.explore", "tir.worker", "tir.puzzles"])
def test_ctrl_c_while_a_command_is_imported(door):
    command = [sys.executable, "-c", INTERRUPTED, f"cli.{door.rpartition('.')[2]}", door]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(("used", "left"), [(None, 50.0), (8.0, 42.0), (49.0, 5.0)])
def test_the_seconds_of_a_search_are_those_of_the_process(monkeypatch, used, left):
    """Imports and the reading of a network included; at least a tenth is left."""
    clock = Clock()
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(process, "_started", None if used is None else clock.now - used)
    with searching(parser().parse_args(["gmm", "--seconds", "50", "--quiet"]), {}, lambda *_: None) as options:
        assert options["seconds"] == left and options["trials"] is None
