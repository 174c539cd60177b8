"""A few random networks, and that a wrong one is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from . import fuzz
from .fuzz import checked, difference
from .random_graphs import drawn


@pytest.mark.parametrize("compiled", [True, False])
def test_random_networks(compiled):
    seeds = range(8) if compiled else range(8, 40)
    assert [f for n in seeds if (f := checked(n, compiled)) is not None] == []


def test_a_fault_is_found_and_made_small(monkeypatch):
    monkeypatch.setattr(fuzz, "optimize", subtracting)
    failure = next(f for n in range(20) if (f := checked(n, compiled=False)) is not None)
    assert failure.stage == "passes" and len(drawn(np.random.default_rng(failure.seed)).nodes) > 1
    assert [n.op_type for n in failure.case.nodes] == ["Add"] and "wrong, at" in str(failure)


def subtracting(graph):
    return graph.with_(calls=tuple(replace(c, operator="Sub") if c.operator == "Add" else c for c in graph.calls))


def test_differences():
    a, b = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    assert difference([a], [a], 0) == "" and difference([a], [b], 0.5) == ""
    assert difference([a], [b], 0.4) == "output 0: 1 of 2 wrong, at (1,) wanted 2.0, found 2.5, bound 0.4"
    assert difference([a], [a.reshape(1, 2)], 1) == "output 0: wanted float64[2], found float64[1, 2]"
    assert difference([a], [np.array([1.0, np.nan])], 1) != ""
