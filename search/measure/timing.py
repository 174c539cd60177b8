"""Timing of a kernel's calls in a worker; a kernel for a device keeps the time itself (`clock`)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from codegen.runtime.timing import Timing, seconds_of, without_collector

WARM_UP_SECONDS = 0.02  # seconds of untimed calls of numpy, and of a kernel on a device, in a race
TURN_SECONDS = 0.01  # seconds of untimed calls of a kernel in a turn of a race, and of timed ones
LONG_CALL_SECONDS = 0.5  # seconds; longer calls in a race need no untimed call
SIGN_TEST_RUNS = 7  # samples between two comparisons of a candidate with the best; the test needs at least as many
MAX_DRIFT = 1.1  # ratio of times of the same kernel, earlier and later, up to which a machine counts as steady
SHORT_CALL_SECONDS = 0.02  # seconds; shorter calls have a warm-up, and are timed in groups


@runtime_checkable
class TimesCalls(Protocol):
    """A kernel that times its calls itself."""

    def time(self, *arrays: np.ndarray, seconds: float, runs: int, max_runs: int = ...) -> Timing: ...


@runtime_checkable
class OnDevice(TimesCalls, Protocol):
    """A kernel on a device: its calls copy the arrays there and back, and its clock counts a call without that."""

    def clock(self, *arrays: np.ndarray) -> float: ...


@runtime_checkable
class Prepares(Protocol):
    """A kernel that computes values from constants alone before its calls with the same arrays."""

    preparation: Any

    def bind(self, *arrays: np.ndarray) -> Callable[[], None]: ...


def clock(kernel: Any, arrays: list[np.ndarray]) -> float:
    """Seconds of one call, by the kernel's own clock if it has one."""
    if isinstance(kernel, OnDevice):
        return kernel.clock(*arrays)
    return _once(call_of(kernel, arrays))


def call(kernel: Any, arrays: list[np.ndarray]) -> None:
    """Call a kernel once. An exception that passes through this module counts as the kernel's, not the worker's."""
    kernel(*arrays)


def call_of(kernel: Any, arrays: list[np.ndarray]) -> Callable[[], None]:
    """The call of a kernel with these arrays, after its preparation of constants, which runs here."""
    return kernel.bind(*arrays) if isinstance(kernel, Prepares) else partial(kernel, *arrays)


def samples_of(
    kernel: Any, arrays: list[np.ndarray], first: float, min_seconds: float, min_runs: int, max_runs: int
) -> list[float]:
    """Timings of a kernel whose first call took `first` seconds: until both `min_seconds` and `min_runs` are reached.

    The first call counts if it is long. For short calls it was the warm-up; they are timed in groups, by the kernel itself if it
    can.
    """
    if first >= SHORT_CALL_SECONDS and not isinstance(kernel, OnDevice):
        return _repeat(call_of(kernel, arrays), [first], 1, min_seconds, min_runs, max_runs)
    if isinstance(kernel, TimesCalls):
        return list(kernel.time(*arrays, seconds=min_seconds, runs=min_runs, max_runs=max_runs).samples)
    calls = max(1, int(1e-3 / max(first, 1e-9)))
    return _repeat(call_of(kernel, arrays), [], calls, min_seconds, min_runs, max_runs)


def samples_against(
    best: float, kernel: Any, arrays: list[np.ndarray], first: float, min_seconds: float, min_runs: int, max_runs: int
) -> list[float]:
    """Timings as of `samples_of`, which stop as soon as they are `slower` than `best` seconds."""
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < max_runs and not (slower(samples, best) and len(samples) >= min_runs):
        if len(samples) >= min_runs and time.perf_counter() - start >= min_seconds:
            break
        few = min(SIGN_TEST_RUNS, max_runs - len(samples))
        samples += samples_of(kernel, arrays, first, 0.0, few, few)
    return samples


def slower(samples: Sequence[float], best: float) -> bool:
    """A sign test: True if, with `best` as median, so few samples at or below it are rarer than 2**-SIGN_TEST_RUNS."""
    few = sum(s <= best for s in samples)
    return sum(math.comb(len(samples), k) for k in range(few + 1)) << SIGN_TEST_RUNS <= 1 << len(samples)


def _repeat(
    call: Callable[[], None], samples: list[float], calls: int, min_seconds: float, min_runs: int, max_runs: int
) -> list[float]:
    """`samples` with more, each the mean of `calls` calls, until `min_runs` and `min_seconds` are reached; `max_runs` at most."""
    total = sum(samples)
    with without_collector():
        while (len(samples) < min_runs or total < min_seconds) and len(samples) < max_runs:
            samples.append(seconds_of(call, calls))
            total += samples[-1] * calls
    return samples


def kernel_sample(kernel: Any, arrays: list[np.ndarray], earlier: list[float]) -> float:
    """Seconds a call, as `call_sample`; the kernel times short calls itself if it can, and on a device all calls."""
    if isinstance(kernel, OnDevice):  # calls would copy the arrays to the device and back
        return kernel.time(*arrays, seconds=WARM_UP_SECONDS, runs=3).median
    call = call_of(kernel, arrays)
    expected = _expected(call, earlier)
    if expected < SHORT_CALL_SECONDS and isinstance(kernel, TimesCalls):
        kernel.time(*arrays, seconds=TURN_SECONDS, runs=1)
        return kernel.time(*arrays, seconds=TURN_SECONDS, runs=3).median
    return call_sample(call, TURN_SECONDS, [expected])


def call_sample(call: Callable[[], None], warm: float, earlier: list[float]) -> float:
    """Seconds a call: of a single long one, else the median of at least three groups of about a millisecond. Untimed calls for
    about `warm` seconds go before, because an idle processor, or sleeping threads, are slow at first."""
    expected = _expected(call, earlier)
    if expected >= SHORT_CALL_SECONDS:
        if expected < LONG_CALL_SECONDS:
            call()
        return _once(call)
    calls = max(1, int(1e-3 / expected))
    _repeat(call, [], calls, warm, 1, 10**6)
    return statistics.median(_repeat(call, [], calls, TURN_SECONDS, 3, 10**6))


def _expected(call: Callable[[], None], earlier: list[float]) -> float:
    """The estimated seconds of a call: the least of earlier ones; without any, of a call now, or of two if short."""
    if earlier:
        return max(1e-9, min(earlier))
    first = _once(call)
    return max(1e-9, first if first >= SHORT_CALL_SECONDS else min(first, _once(call)))


def _once(call: Callable[[], None]) -> float:
    return _repeat(call, [], 1, 0.0, 1, 1)[0]
