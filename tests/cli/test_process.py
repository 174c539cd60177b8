"""What all command lines do when they begin."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
@pytest.mark.parametrize("door", ["tir.tune", "tir.run", "tir.explore", "tir.worker", "costmodel.dataset"])
def test_ctrl_c_while_a_command_is_imported(door):
    command = [sys.executable, "-c", INTERRUPTED, f"cli.{door.rpartition('.')[2]}", door]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
