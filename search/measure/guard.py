"""Cleanup after a process that may be killed: process groups that it started are killed, and its folders removed.

A guard, `python guard.py`, is told of the process groups and folders, and acts after the other process ends. It is a process of
its own because a worker that hangs with Python's lock cannot end itself. It needs only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any


class Guard:
    """The guard of this process, started at the first `hold`. It holds the ids of process groups and the paths of folders."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def hold(self, end: int | str) -> None:
        """Add `end`, which the guard kills or removes after this process ends in any way."""
        with self._lock:
            self._held.add(end)
            if self._process is not None and self._process.poll() is None:
                self._tell(True, end)
                return
            with suppress(OSError):  # without a guard, abandoned workers end by themselves unless they hang
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                for known in self._held:
                    self._tell(True, known)

    def release(self, end: int | str) -> None:
        """Take `end` from the list: it has been cleaned up."""
        with self._lock:
            self._held.discard(end)
            self._tell(False, end)

    def _tell(self, *message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed
                self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _forget(self) -> None:
        """Start without a guard. A forked process closes its copy of the pipe, whose end tells the parent's guard to act."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        self._lock = threading.Lock()
        self._held: set[int | str] = set()


def main() -> None:
    held: dict[int | str, None] = {}
    for line in sys.stdin.buffer:
        holds, end = json.loads(line)
        if holds:
            held[end] = None
        else:
            held.pop(end, None)
    for end in sorted(held, key=lambda end: isinstance(end, str)):  # processes, which write to the folders, end first
        if isinstance(end, str):
            shutil.rmtree(end, ignore_errors=True)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(end, signal.SIGKILL)


if __name__ == "__main__":
    main()
