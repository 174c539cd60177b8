"""Timings of calls: samples, their statistics and text."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real

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
    """A time as text, in s, ms, us or ns."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.{digits}g} {unit}"
    return f"{seconds * 1e9:.{digits}g} ns"


def sampled(sample: Callable[[], float], calls: int, seconds: float, runs: int, max_runs: int) -> Timing:
    """A timing of samples, each the mean seconds of `calls` calls: at least `runs`, and more for `seconds`, up to `max_runs`."""
    for name, value, kind, least in (("seconds", seconds, Real, 0), ("runs", runs, int, 1), ("max_runs", max_runs, int, 1)):
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"time: {name} is {'an integer' if kind is int else 'a number'}, got {value!r}")
        if not value >= least:  # NaN is not, either
            raise ValueError(f"time: {name} is at least {least}, got {value!r}")
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < runs or (time.perf_counter() - begin < seconds and len(samples) < max_runs):
        samples.append(sample())
    low, median, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return Timing(float(median), (float(low), float(high)), len(samples), calls, tuple(samples))


def in_turns(
    calls: Sequence[Callable[[], object]], seconds: float, least: int, most: int = 1_000_000, sample: float = 0.0
) -> list[list[float]]:
    """Seconds of each of some calls, in rounds in which all have a turn, after one warm-up call of each.

    A turn is the mean of as many calls as fill `sample` seconds. Rounds go on for `seconds`, from `least` to `most` of them.
    """
    for call in calls:
        call()
    repeats = [max(1, min(10_000, int(sample / max(seconds_of(call), 1e-8)))) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    with without_collector():
        while len(samples[0]) < least or (time.perf_counter() < end and len(samples[0]) < most):
            for own, call, count in zip(samples, calls, repeats, strict=True):
                own.append(seconds_of(call, count))
    return samples


def seconds_of(call: Callable[[], object], count: int = 1) -> float:
    """Seconds of a call, the mean of `count` in a row."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's garbage collector, whose runs would count in the times."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
