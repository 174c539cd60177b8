"""Loops that numba compiles once: what decides which code is found, and that the results are the loop's."""

from __future__ import annotations

import numpy as np
import pytest

from codegen import cache
from costmodel import compiled as module
from costmodel.compiled import compiled

TIMES = 3


def scaled(n, x, y):
    for i in range(n):
        y[i] = TIMES * x[i]


def results() -> tuple[list[float], list[int]]:
    """What the compiled loop makes of floats, and of integers."""
    floats, integers = np.arange(4, dtype=np.float32) / 2, np.arange(3, dtype=np.int32)
    found = np.empty_like(floats), np.empty_like(integers)
    compiled(scaled, "int64", "float32*", "float32*")(4, floats, found[0])
    compiled(scaled, "int64", "int32*", "int32*")(3, integers, found[1])
    return found[0].tolist(), found[1].tolist()


@pytest.fixture
def made(monkeypatch, tmp_path) -> list[tuple[str, ...]]:
    """The parameters of each loop that numba compiles, with a cache of their own."""
    found: list[tuple[str, ...]] = []
    original = module._module
    monkeypatch.setattr(module, "users_cache", lambda: cache.ObjectCache(tmp_path))
    monkeypatch.setattr(module, "_module", lambda f, parameters: found.append(parameters) or original(f, parameters))
    return found


def test_code_is_compiled_once_for_parameters_and_constants(made, monkeypatch):
    for _ in range(2):
        assert results() == ([0.0, 1.5, 3.0, 4.5], [0, 3, 6])
        assert [p[1] for p in made] == ["float32*", "int32*"]
    monkeypatch.setitem(globals(), "TIMES", 5)
    assert results() == ([0.0, 2.5, 5.0, 7.5], [0, 5, 10]) and len(made) == 4


def test_without_a_cache_each_call_compiles(made, monkeypatch):
    monkeypatch.setattr(module, "users_cache", lambda: None)
    assert results() == results() and len(made) == 4


def test_loops_are_for_this_processor_whatever_the_default_of_targets_is(made, monkeypatch):
    expected = results()
    monkeypatch.setenv("TIR_MCPU", "graniterapids")
    assert results() == expected and len(made) == 2


def test_arrays_of_another_dtype_are_refused():
    with pytest.raises(AssertionError):
        compiled(scaled, "int64", "int32*", "int32*")(1, np.zeros(1), np.zeros(1))
