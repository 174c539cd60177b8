"""Fixtures of several test files."""

from __future__ import annotations

from dataclasses import fields

import pytest


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that don't say how long the final race of the leaders takes race for a moment: who wins is no matter of tests."""
    from search.measure import Limits

    defaults = tuple(0.1 if f.name == "race" else f.default for f in fields(Limits))
    monkeypatch.setattr(Limits.__init__, "__defaults__", defaults)
