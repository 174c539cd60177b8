"""A few random networks, and that a wrong one is found."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from . import fuzz
from .fuzz import checked, difference
from .random_graphs import EXTENTS, Drawing, drawn


@pytest.mark.parametrize("compiled", [True, False])
def test_random_networks(compiled):
    seeds = range(2) if compiled else range(8, 24)
    assert [f for n in seeds if (f := checked(n, compiled)) is not None] == []


def test_a_fault_is_found_and_made_small(monkeypatch):
    monkeypatch.setattr(fuzz, "optimize", subtracting)
    failure = next(f for n in range(20) if (f := checked(n, compiled=False)) is not None)
    assert failure.stage == "passes" and len(drawn(np.random.default_rng(failure.seed)).nodes) > 1
    assert len(failure.case.nodes) == 1 and "wrong, at" in str(failure)


def subtracting(graph):
    return graph.with_(calls=tuple(replace(c, operator="Sub") if c.operator == "Add" else c for c in graph.calls))


def test_differences():
    a, b = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    assert difference([a], [a], [0]) == "" and difference([a], [b], [0.5]) == ""
    assert difference([a], [b], [0.4]) == "output 0: 1 of 2 wrong, at (1,) wanted 2.0, found 2.5, bound 0.4"
    assert difference([a], [a.reshape(1, 2)], [1]) == "output 0: wanted float64[2], found float64[1, 2]"
    assert difference([a], [np.array([1.0, np.nan])], [1]) != ""


def test_differences_of_special_values_and_integers():
    special = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert difference([special], [special], [0]) == ""
    for at, other in enumerate([0.0, -np.inf, np.nan, np.inf]):
        found = special.copy()
        found[at] = other
        assert f"1 of 4 wrong, at ({at},)" in difference([special], [found], [100.0])
    bytes_ = np.array([0, 255], "u1")
    assert difference([bytes_], [np.array([1, 254], "u1")], [1]) == ""
    assert "2 of 2 wrong" in difference([bytes_], [np.array([2, 0], "u1")], [1])


def test_what_may_be_off_follows_the_element_type_and_what_is_computed():
    x, w = np.full((2, 3), 0.3), np.full(3, 0.7)
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        d = Drawing(np.random.default_rng(0))
        d.special, d.extents = False, EXTENTS
        d.inputs = {"x": x.astype(dtype)}
        d.values = d.inputs | {"w": w.astype(dtype)}
        moved = d.add("Concat", ["x", "x"], axis=0)
        first = d.add("Mul", [moved, "w"])
        second = d.add("Mul", [first, "w"])
        eps = float(ml_dtypes.finfo(dtype).eps)
        assert d.slack[moved] == 0 and 0 < d.slack[first] < d.slack[second] < 64 * eps
        assert d.values[second].dtype == dtype
