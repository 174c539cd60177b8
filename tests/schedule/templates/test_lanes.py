"""Partial results in lanes: as many vectors as hide the latency of additions, and as divide a row."""

from __future__ import annotations

import pytest

from schedule.open_schedule import OpenSchedule
from schedule.templates.lanes import partial_results, partial_width
from tests import programs
from tests.schedule.templates.patterns import TARGETS, outcome


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("registers", [1, 2, 3, 8])
def test_rows_end_with_whole_vectors_where_they_can(registers, lanes):
    for length in range(1, 6 * registers * lanes + 7):
        vectors = partial_width(length, lanes, registers) // lanes
        whole = [n for n in range(2, registers + 1) if length % (n * lanes) == 0 and length >= 2 * n * lanes]
        assert vectors == (max(whole) if whole else max(1, min(registers, length // (2 * lanes))))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("registers", [8, 32])
def test_sums_hide_the_latency_of_additions_in_half_of_the_registers_at_most(name, registers):
    s = OpenSchedule(programs.reduction(n=1 << 20), TARGETS[name], at_seed=True)
    core = s.target.machine.core
    vectors = partial_results(s, "C", 1 << 20, 8) // 8
    assert vectors == min(core.latency * s.target.machine.loads, s.target.machine.registers // 2)
    assert partial_width(1 << 20, 8, registers // 2) == 8 * (registers // 2)


@pytest.mark.parametrize(("length", "vectors"), [(15, 0), (16, 1), (31, 1), (32, 2)])
def test_two_rounds_at_least(length, vectors):
    """A row of fewer is summed by vectors whose lanes are combined."""
    assert ("Y_rf ..v" in outcome("ik -> i", {"i": 5, "k": length}, "znver2")) == (vectors > 1 or length >= 16)
