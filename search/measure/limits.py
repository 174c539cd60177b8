"""Limits of a candidate: times of its build and its calls, and memory."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

MIN_BUILDS = 8  # builds after which their median time limits the next ones
MAX_BUILD_RATIO = 10.0  # limit of a build, relative to the median time


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of time, in seconds, of repetitions, and of memory, in bytes.

    A build may take `build`, and after some builds MAX_BUILD_RATIO times their median (but always `build_floor`). A call may take
    `run`, and at most `run_factor` times the best so far (but always `run_floor`). A call slower than `cutoff` times the best is
    not repeated. Others are repeated until they add up to `min_seconds` and `min_runs`, short ones only until a sign test finds
    them slower than the best. Preparing data may take `setup`, the program as written `baseline`. The final race takes about
    `race`.

    `memory` limits the memory that a worker and its children come to hold, and the growth of the address space of each. None is
    half of the machine's memory; on a GPU, whose driver reserves much address space, that then has no limit.
    """

    build: float = 20.0
    build_floor: float = 5.0
    run: float = 10.0
    run_factor: float = 10.0
    run_floor: float = 1.0
    cutoff: float = 3.0
    min_seconds: float = 0.1
    min_runs: int = 3
    max_runs: int = 100
    setup: float = 300.0
    baseline: float = 300.0
    race: float = 3.0
    memory: int | None = None

    def run_limit(self, best: float | None) -> float:
        """The time limit of one call, given the best time so far."""
        return self.run if best is None else min(self.run, max(self.run_floor, self.run_factor * best))

    def build_limit(self, seconds: Collection[float]) -> float:
        """The time limit of one build, given the seconds of earlier ones."""
        if len(seconds) < MIN_BUILDS:
            return self.build
        return min(self.build, max(self.build_floor, MAX_BUILD_RATIO * statistics.median(seconds)))
