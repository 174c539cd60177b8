"""What is timed of a kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen
from search.measure import timing
from tests.codegen.matmul import packed_product


@pytest.mark.parametrize(
    "time", [timing.clock, lambda k, a: timing.samples_of(k, a, 1.0, 0.0, 3, 3), lambda k, a: timing.kernel_sample(k, a, [])]
)
def test_constants_are_prepared_before_the_clock_starts(time, monkeypatch):
    kernel = codegen.build(packed_product(), "llvm -num-cores 1")
    calls = []
    monkeypatch.setattr(type(kernel), "__call__", lambda *_: pytest.fail("a call prepares, too"))
    monkeypatch.setattr(kernel, "prepare", lambda *constants: calls.append("prepare") or type(kernel).prepare(kernel, *constants))
    a, b, c = np.ones((13, 30), "f"), np.ones((30, 70), "f"), np.zeros((13, 70), "f")
    assert time(kernel, [a, b, c])
    assert "prepare" in calls and (c == 30).all()


@pytest.mark.parametrize(
    ("no_slower", "count", "expected"),
    [(0, 6, False), (0, 7, True), (1, 7, False), (1, 14, True), (2, 14, True), (3, 14, False), (7, 14, False)],
)
def test_a_sign_test_says_who_is_slower(no_slower, count, expected):
    """Were the best the median, there would be so few that are no slower with a probability of at most 2**-7."""
    chance = sum(sum(flips) <= no_slower for flips in itertools.product((0, 1), repeat=count)) / 2**count
    assert timing.slower([0.9] * no_slower + [1.1] * (count - no_slower), 1.0) is (chance <= 2**-7) is expected


@pytest.mark.parametrize(("groups", "taken"), [([[2.0] * 7], 7), ([[0.5] + [2.0] * 6, [2.0] * 7], 14), ([[0.5] * 7] * 5, 30)])
def test_a_candidate_is_timed_until_it_is_known_to_be_slower(groups, taken, monkeypatch):
    """All samples count; one that is as fast as the best is timed as often as any."""
    left = iter(groups)
    monkeypatch.setattr(timing, "samples_of", lambda kernel, arrays, first, seconds, runs, most: next(left)[:most])
    found = timing.samples_against(1.0, None, [], 0.001, 1e9, 3, 30)
    assert found == [s for group in groups for s in group][:taken]
