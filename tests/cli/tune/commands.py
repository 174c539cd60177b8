"""Command lines that tests run in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tir import tune

ROOT = Path(__file__).resolve().parents[3]
SHAPE = "7,13,109"


def run(*argv: str) -> int:
    """The exit status of the command line in this process."""
    try:
        return tune.main(list(argv))
    except SystemExit as end:
        return end.code


def sleeps(*seconds: float) -> list[dict[str, float]]:
    """The wishes of candidates that take so many seconds."""
    return [{"sleep": s} for s in seconds]


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
