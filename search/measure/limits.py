"""Limits of a candidate: how long it may be built and run, and how much memory it may take."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

MIN_BUILDS = 8  # builds after which their median time limits the next ones
MAX_BUILD_RATIO = 10.0  # time of a build, relative to the median, after which it is stopped


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on how long and how often things may run. Times in seconds.

    A build may take `build`, and once it is known how long builds take, ten times as long as usual (but always `build_floor`). A
    call may take `run`, and no more than `run_factor` times the best so far (but always `run_floor`); one slower than `cutoff`
    times the best is not repeated. Others are repeated until they add up to `min_seconds` and `min_runs`, short ones only until a
    sign test says that they are slower than the best. The final race of the leaders takes about `race`. `memory` is what a
    worker, its children and what they start may come to hold, in bytes, and what the address space of each may grow by (None:
    half of the machine's memory; with a GPU, whose driver takes a large part of the address space, that may grow).
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
        """The time limit of one build, given what earlier ones took."""
        if len(seconds) < MIN_BUILDS:
            return self.build
        return min(self.build, max(self.build_floor, MAX_BUILD_RATIO * statistics.median(seconds)))
