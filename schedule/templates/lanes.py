"""Reductions with partial results in the lanes of vector registers, which are combined in pairs at the end."""

from __future__ import annotations

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule

from .division import tried


def in_lanes(s: OpenSchedule, block: str, width: int) -> str:
    """Split the innermost loop of a reduction so that `width` lanes have partial results; returns the block of these."""
    _, lane = s.split(s.get_loops(block)[-1], [None, width])
    partial = s.rfactor(lane, -1)
    s.vectorize(s.get_loops(partial)[-1])
    s.annotate(s.get_loops(block)[-1], "combine_lanes", True)
    return partial


def partial_results(s: OpenSchedule, block: str, length: int, lanes: int) -> int:
    """The number of partial results of a reduction of `length` steps, two vectors or more: an open choice."""
    seed = partial_width(length, lanes, summing_registers(s.target.machine))
    return s.choose(f"{block} lanes", tried(seed // lanes, length // (2 * lanes), lanes), block=block)


def summing_registers(machine: CPU) -> int:
    """The registers of sums, at most half of all, that hide the latency of an addition behind loads."""
    return min(int(machine.core.latency * machine.loads), machine.registers // 2)


def partial_width(length: int, lanes: int, registers: int) -> int:
    """The number of partial results that suits a reduction of `length` steps: the most vectors that divide it into two rounds or
    more. If none do, it is the most that fill two rounds; a last one is partial."""
    for count in range(registers, 1, -1):
        if length % (count * lanes) == 0 and length >= 2 * count * lanes:
            return count * lanes
    return max(1, min(registers, length // (2 * lanes))) * lanes
