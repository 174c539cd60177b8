"""Fixtures of several test files."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import fields

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Processes that tests start share a cache of bytecode also where none is to be written beside the sources: a third of a second
    for each of some hundred."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="tir-bytecode-")
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that don't say how long the final race of the leaders takes race for a moment: who wins is no matter of tests."""
    from search.measure import Limits

    defaults = tuple(0.1 if f.name == "race" else f.default for f in fields(Limits))
    monkeypatch.setattr(Limits.__init__, "__defaults__", defaults)
