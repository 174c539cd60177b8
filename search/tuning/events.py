"""Events of a tuning run for its callbacks, in order: Started, Prepared, then Measured, NewBest and RoundEnded as it goes,
RaceStarted, and Finished.

A callback is any function of one event:

    def show(event):
        match event:
            case NewBest(measurement, trials):
                print(f"after {trials} trials: {measurement.seconds:.6f} s")

    tir.autotune(func, callbacks=[show])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..measure import Measurement
from ..task import Task
from .result import Result


@dataclass(frozen=True, slots=True)
class Started:
    """The run has begun; `trials` and `seconds` are its budget, None where unlimited."""

    task: Task
    trials: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The data are ready. `baseline` is the program as written; `numpy` is in seconds a call, None without a numpy version.
    `peak` is the measured peak of the machine, floating-point operations a second. `earlier` counts the candidates of earlier
    runs."""

    baseline: Measurement
    numpy: float | None
    peak: float | None
    sketches: int | None
    earlier: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate has ended as number `trials`; `outcomes` counts all so far, `best` is in seconds, None before a valid one."""

    measurement: Measurement
    trials: int
    outcomes: dict[str, int]
    best: float | None


@dataclass(frozen=True, slots=True)
class NewBest:
    """A candidate is the fastest so far, and its results are right."""

    measurement: Measurement
    trials: int


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A batch was measured: the rank `correlation` of its scores, and the rate `scored_per_second`; None where unknown."""

    trials: int
    outcomes: dict[str, int]
    best: float | None
    elapsed: float
    correlation: float | None = None
    scored_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class RaceStarted:
    """The final race begins: the leading candidates are timed in turns."""

    contenders: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The run has ended."""

    result: Result


Event = Started | Prepared | Measured | NewBest | RoundEnded | RaceStarted | Finished
Callback = Callable[[Event], None]
