"""Cleanup after a process that may be killed: process groups that it started are killed, and its folders removed.

A process of its own does that, `python guard.py`, which reads from the other what to clean up, and acts when the other is gone:
a worker that hangs in a call which keeps Python's lock cannot see to its own end. It needs nothing but the standard library.
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
    """The guard of this process, started when it first has something to end: the ids of process groups, and paths of folders."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def hold(self, end: int | str) -> None:
        """End this, too, when this process has ended in whatever way."""
        with self._lock:
            self._held.add(end)
            if self._process is not None and self._process.poll() is None:
                self._tell(True, end)
                return
            with suppress(OSError):  # without a guard, workers that are abandoned end by themselves where they can
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
        """Let go of this: it has ended."""
        with self._lock:
            self._held.discard(end)
            self._tell(False, end)

    def _tell(self, *message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed
                self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _forget(self) -> None:
        """A forked process has nothing yet, and must not keep the guard of the other from seeing that end."""
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
    for end in sorted(held, key=lambda end: isinstance(end, str)):  # who writes to the folders ends first
        if isinstance(end, str):
            shutil.rmtree(end, ignore_errors=True)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(end, signal.SIGKILL)


if __name__ == "__main__":
    main()
