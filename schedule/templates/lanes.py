"""Reductions whose partial results are in the lanes of some vector registers, which are combined in pairs at the end."""

from __future__ import annotations

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule

PARTIAL_REGISTERS = 4  # of partial results, where a vector is loaded in a cycle: a sum has a latency of four or less
OTHER_PARTIAL_REGISTERS = (1, 2, 3, 8)  # numbers of registers that are tried as well


def in_lanes(s: OpenSchedule, block: str, width: int) -> str:
    """Cut a reduction's innermost loop so that `width` lanes have partial results; returns the block that computes these."""
    _, lane = s.split(s.get_loops(block)[-1], [None, width])
    partial = s.rfactor(lane, -1)
    s.vectorize(s.get_loops(partial)[-1])
    s.annotate(s.get_loops(block)[-1], "combine_lanes", True)
    return partial


def partial_results(s: OpenSchedule, block: str, length: int, lanes: int) -> int:
    """The number of partial results of a reduction of so many steps, which are two rounds of vectors or more: an open choice."""
    machine: CPU = s.target.machine
    loaded = int(machine.core.latency * machine.loads)  # while a sum waits for the one before
    options = [n * lanes for n in (PARTIAL_REGISTERS, *OTHER_PARTIAL_REGISTERS) if 2 * n * lanes <= length]
    seed = partial_width(length, lanes, max(PARTIAL_REGISTERS, min(loaded, machine.registers // 2)))
    return s.choose(f"{block} lanes", options, seed=seed, block=block)


def partial_width(length: int, lanes: int, registers: int = PARTIAL_REGISTERS) -> int:
    """Partial results that suit a reduction of so many steps: up to `registers` vectors of them, such that they divide it into
    two rounds or more, or so many that the last, partial round does not count, or one vector."""
    for count in range(registers, 1, -1):
        if length % (count * lanes) == 0 and length >= 2 * count * lanes:
            return count * lanes
    return registers * lanes if length >= 4 * registers * lanes else lanes
