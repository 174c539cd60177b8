"""Timings of calls: how they are sampled, summed up and shown."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median and quartiles over `runs` samples, each the mean of `calls` calls in a row."""

    median: float
    quartiles: tuple[float, float]
    runs: int
    calls: int = 1
    samples: tuple[float, ...] = ()

    def __str__(self) -> str:
        median, low, high = (duration(s, 3) for s in (self.median, *self.quartiles))
        return f"{median} (quartiles {low} .. {high}, {self.runs} runs of {self.calls})"


def duration(seconds: float, digits: int = 4) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.{digits}g} {unit}"
    return f"{seconds * 1e9:.{digits}g} ns"


def sampled(sample: Callable[[], float], calls: int, seconds: float, runs: int, max_runs: int) -> Timing:
    """At least `runs` samples, each the seconds of one of `calls` calls, and at least `seconds` of them if `max_runs` do."""
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < runs or (time.perf_counter() - begin < seconds and len(samples) < max_runs):
        samples.append(sample())
    low, median, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return Timing(float(median), (float(low), float(high)), len(samples), calls, tuple(samples))


@contextmanager
def without_collector() -> Iterator[None]:
    """Python's garbage collector does not run meanwhile: it would count as a part of whatever is timed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
