"""How a pytest-xdist worker ended that was lost while it ran a test, whose fault that need not be: others left traces in it."""

from __future__ import annotations

import faulthandler
import signal
import tempfile
from pathlib import Path
from typing import IO, Any

import pytest

LINES = 60  # of the Python stacks of a worker that are shown


def register(config: pytest.Config) -> None:
    """Follow the workers of a run, or in a worker write down the stacks on a fatal signal."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(config.workerinput["last_words"]))
    elif config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Controller())


class _Worker:
    def __init__(self, path: str):
        self._file: IO[str] = open(path, "w", encoding="utf-8")  # noqa: SIM115 (written when the process ends)

    def pytest_sessionstart(self) -> None:
        faulthandler.enable(self._file)


class _Controller:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tir-workers-")
        self._ends: dict[str, str] = {}  # of each lost worker how it ended
        self._tests: dict[str, str] = {}  # of each lost worker the test that it ran

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["last_words"] = str(self._last_words(node.gateway.id))

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._ends[node.gateway.id] = f"{error}; {_end(node.gateway._io.popen)}"

    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        self._tests[report.node.gateway.id] = crashitem

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._ends:
            terminalreporter.section("workers that were lost")
        for worker, end in self._ends.items():
            terminalreporter.write_line(f"{worker} in {self._tests.get(worker, 'no test')}: {end}")
            said = self._last_words(worker)
            for line in said.read_text(encoding="utf-8").splitlines()[:LINES] if said.exists() else ():
                terminalreporter.write_line(f"    {line}")

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()

    def _last_words(self, worker: str) -> Path:
        return Path(self._folder.name) / worker


def _end(process: Any) -> str:
    """How a process ended: by which signal, or with which exit status."""
    try:
        code = process.wait(10)
    except Exception as error:
        return f"the process is still there ({error})"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
