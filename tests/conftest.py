"""Fixtures of several test files."""

from __future__ import annotations

import gc
import os
from dataclasses import fields

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Where Python is to write no bytecode beside the sources, pytest's cache has it: half of the time of collecting tests goes to
    what they are compiled to, and a third of a second to that of the sources in each of some hundred processes that they start."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and "PYTHONPYCACHEPREFIX" not in os.environ and hasattr(config, "cache"):
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))


def pytest_collection_finish() -> None:
    """The modules and the tests stay to the end: the garbage collector does not look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 10, 100)


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that don't say how long the final race of the leaders takes race for a moment: who wins is no matter of tests."""
    from search.measure import Limits

    defaults = tuple(0.1 if f.name == "race" else f.default for f in fields(Limits))
    monkeypatch.setattr(Limits.__init__, "__defaults__", defaults)
