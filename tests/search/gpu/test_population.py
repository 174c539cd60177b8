"""Populations for GPUs: rows within the limits of the device, whoever made them."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from search.gpu.device import device
from search.gpu.population import RESERVED, _tiled
from search.mutate import crossover, operators
from search.sample import fit, sample
from search.space import generate
from tir import workloads

TARGET = Target("cuda")
CASES = [
    ("gmm", (1000, 109, 1013)), ("gmm", (7, 13, 109)), ("gmm", (1024, 1024, 1024)), ("conv2d", (1, 57, 56, 64, 61, 3, 3, 1, 1)),
    ("depthwise", (1, 13, 9, 5, 3, 3, 1, 1)), ("conv3d", (1, 5, 3, 5, 3, 5, 3, 1, 1)), ("softmax", (7, 109)),
]  # fmt: skip


def within(sketch, rows, target=TARGET):
    """Which rows keep all limits."""
    limits = device(target)
    ok = np.ones(len(rows), dtype=bool)
    for t in _tiled(sketch):
        threads = np.prod(rows[:, t.threads], axis=1)
        elements = np.prod(rows[:, t.virtual + t.elements], axis=1)
        ok &= (threads <= 1024) & (np.prod(rows[:, t.virtual], axis=1) <= limits.virtual)
        ok &= (elements + RESERVED) * np.maximum(threads, 32) <= np.maximum(limits.register_file, (4 + RESERVED) * threads)
        ok &= t.shared(rows) <= limits.shared
    for limit in sketch.limits:
        ok &= np.prod(rows[:, limit.columns], axis=1) <= limit.most
    return ok


@pytest.mark.parametrize("name, shape", CASES)
def test_rows_are_within_the_limits_and_stay_so(name, shape):
    rng = np.random.default_rng(0)
    for sketch in generate(workloads.make(name, shape).func, TARGET):
        rows = sample(sketch, TARGET, 500, rng)
        assert within(sketch, rows).all()
        assert (fit(sketch, TARGET, rows) == rows).all()
        for operate in operators(sketch).values():
            children = operate(sketch, TARGET, rows, rng)
            assert within(sketch, children).all() and (fit(sketch, TARGET, children) == children).all()
        mixed = crossover(sketch, TARGET, rows, rows[::-1], rng)
        assert within(sketch, mixed).all()


def test_wild_rows_are_brought_within():
    rng = np.random.default_rng(1)
    sketch = generate(workloads.make("gmm", (1000, 1000, 1000)).func, TARGET)[0]
    wild = sketch.stand_ins() + 0 * np.zeros((300, sketch.columns), dtype=np.int64)
    for t in sketch.tiles:
        wild[:, t.columns] = 2 ** rng.integers(0, 9, size=(len(wild), len(t.columns)))
    assert not within(sketch, wild).all()
    assert within(sketch, fit(sketch, TARGET, wild)).all()


def test_older_devices_have_less_shared_memory():
    sketch = generate(workloads.make("gmm", (1024, 1024, 1024)).func, TARGET)[0]
    old = Target("cuda", arch="sm_75")
    rows = sample(sketch, TARGET, 2000, np.random.default_rng(0))
    assert not within(sketch, rows, old).all()
    assert within(sketch, fit(sketch, old, rows), old).all()


def test_blocks_fill_warps_where_the_function_is_large_enough():
    for name, shape in (("gmm", (1000, 1000, 1000)), ("conv2d", (1, 57, 56, 64, 61, 3, 3, 1, 1))):
        sketch = generate(workloads.make(name, shape).func, TARGET)[0]
        rows = sample(sketch, TARGET, 500, np.random.default_rng(0))
        (tiled,) = _tiled(sketch)
        assert (np.prod(rows[:, tiled.threads], axis=1) >= 32).all()
        assert len(np.unique(rows, axis=0)) > 450
