"""Sketches of softmax(Q·Kᵀ)·V, the longest chain of reductions: its sums are reordered around `exp`, so that the numbers differ
from those of the program as written, by rounding alone."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import replay
from search.population.sample import sample
from tests.programs import attention
from tests.search.once import generate
from tests.sweeps import one_in

HEADS, POSITIONS, DEPTH = 2, 19, 13


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, (HEADS, POSITIONS, DEPTH)).astype("float32") for _ in range(3)]


def reference(inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The result in float64, and a bound on the error of float32: with m the largest sum of the absolute values of the terms of a
    score, a score is off by (DEPTH + 2) m u, and its difference from the largest by 2 m u more, twice as `exp` occurs in numerator
    and sum; `exp` adds 4 u to each, and the two sums over the positions (2 POSITIONS + 1) u."""
    q, k, v = (x.astype("float64") for x in inputs)
    scores = q @ k.transpose(0, 2, 1)
    power = np.exp(scores - scores.max(axis=2, keepdims=True))
    share = power / power.sum(axis=2, keepdims=True)
    largest = float((abs(q) @ abs(k).transpose(0, 2, 1)).max())
    u = 0.5 * np.finfo("float32").eps
    return share @ v, u * (2 * ((DEPTH + 4) * largest + 4) + 2 * POSITIONS + 1) * (share @ abs(v))


@one_in(3)
@pytest.mark.parametrize("part", range(3))
def test_random_rows_of_every_sketch(inputs, part):
    func, target, rng = attention(HEADS, POSITIONS, DEPTH), tir.Target("llvm", num_cores=2), np.random.default_rng(0)
    expected, bound = reference(inputs)
    sketches = generate(func, target)
    assert any("O: attention" in s.rules for s in sketches)
    for sketch in sketches[part::3]:
        for row in sample(sketch, target, 1, rng):
            result = np.full_like(inputs[0], np.nan)
            tir.build(replay(func, sketch.trace(row)).func, target)(*inputs, result)
            assert np.all(abs(result - expected) <= bound), f"{sketch.name}, row {row.tolist()}"
