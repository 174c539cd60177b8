"""The measurement of a candidate: a typed outcome, with timings of a valid one, or the message of a failure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from .provenance import Provenance

Outcome = Literal[
    "ok", "illegal", "build_error", "build_timeout", "crash", "run_timeout", "wrong_result", "memory", "fault"
]  # fmt: skip

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# Failures of the program itself, not of the machine: such a candidate is never valid again.
BROKEN: tuple[Outcome, ...] = ("illegal", "wrong_result", "crash")


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a row: `operator`, `parents` in the sketch, `generation` (from 0), `batch` of proposals (from 1)."""

    operator: str
    batch: int = 1
    generation: int = 0
    parents: tuple[Parent, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Origin:
        """The origin of its `asdict` data. KeyError, TypeError or ValueError for any other data."""
        known = data["operator"], data["batch"], data["generation"]
        if [*map(type, known)] != [str, int, int]:
            raise ValueError(f"an origin is of an operator, a batch and a generation, got {known!r}")
        return cls(*known, tuple(Parent.from_json(p) for p in data["parents"]))


@dataclass(frozen=True, slots=True)
class Parent:
    """A parent row, with its own origin if it was not measured."""

    row: tuple[int, ...]
    origin: Origin | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Parent:
        """The parent of its `asdict` data."""
        if not all(type(n) is int for n in data["row"]):
            raise ValueError(f"a row has integers, got {data['row']!r}")
        return cls(tuple(data["row"]), None if data["origin"] is None else Origin.from_json(data["origin"]))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the search space: a sketch, its row of numbers, and their trace.

    `trace` is JSON data; None is the program as written. `score` is that of the cost model at the proposal (higher is better), or
    None. `scores` are those of each model, by its name, each on a scale of its own. `origin` is that of the row. Comparisons
    ignore all three.
    """

    sketch: str
    row: tuple[int, ...]
    trace: Any
    score: float | None = field(default=None, compare=False)
    scores: Mapping[str, float] | None = field(default=None, compare=False)
    origin: Origin | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The candidate as JSON data."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # the trace, which is large, is JSON data already
        return {**own, "origin": self.origin and asdict(self.origin)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Candidate:
        """The candidate of its `as_json` data."""
        origin = data.get("origin")
        return cls(**{**data, "row": tuple(data["row"]), "origin": None if origin is None else Origin.from_json(origin)})


BASELINE = Candidate("unscheduled", (), None)
DRIFTED = "its device drifted"  # start of the message of a measurement on a device that was slower than usual
NO_BASELINE = "the program as written is for one thread; it ran on this processor, and only for its results"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of measuring a candidate.

    `samples` are seconds a call, in the order taken. `cut` marks a candidate that was stopped early, with few samples, because it
    was far slower than the best. `digest` identifies the scheduled program, so that two traces of one program are noticed.
    `duplicate` marks numbers of an earlier candidate with the same digest. `max_error` is set if the result was compared with the
    reference. `ended` is in seconds after the start of the run, None outside of one. `provenance` has the device and the versions
    that measured (None: this machine's); comparisons ignore it. `elsewhere` is the fingerprint of another device that measured;
    then `samples` are scaled to the primary device. `pace` tells how many times as long a kernel of known work took beside it
    as at its shortest in the run, 1 where that is about the same; `samples` are divided by it, those of a best by that of each
    timing, of which `pace` is the median.
    """

    candidate: Candidate
    outcome: Outcome
    samples: tuple[float, ...] = ()
    message: str = ""
    cut: bool = False
    build_seconds: float = 0.0
    digest: str = ""
    duplicate: bool = False
    max_error: float | None = None
    ended: float | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    elsewhere: str = ""
    pace: float = 1.0

    @property
    def seconds(self) -> float:
        """The median sample; infinity unless the outcome is ok."""
        return statistics.median(self.samples) if self.outcome == "ok" and self.samples else float("inf")

    @property
    def drifted(self) -> bool:
        """True if its device was slower than usual: such a measurement is kept, but does not count."""
        return self.message.startswith(DRIFTED)

    @property
    def conclusive(self) -> bool:
        """True if it depends on the candidate alone: no drift of the device, and no fault of the worker's own code."""
        return not self.drifted and self.outcome != "fault"

    def as_json(self) -> dict[str, Any]:
        """The measurement as JSON data."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "candidate": self.candidate.as_json(), "provenance": self.provenance and asdict(self.provenance)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measurement:
        """The measurement of its `as_json` data."""
        origin = data["provenance"]
        own = {"candidate": Candidate.from_json(data["candidate"]), "samples": tuple(data["samples"])}
        return cls(**{**data, **own, "provenance": None if origin is None else Provenance(**origin)})


@dataclass(frozen=True, slots=True)
class Baseline:
    """The measurement of the program as written, and the tolerance of the reference; `note` names another reference, if any."""

    measurement: Measurement
    tolerance: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Interleaved timings of several candidates, and of numpy in seconds, with the tolerance of the reference."""

    candidates: tuple[Measurement, ...]
    numpy: tuple[float, ...] = ()
    tolerance: float | None = None


def count(measurements: Iterable[Measurement]) -> dict[str, int]:
    """The number of measurements with each outcome, zeros included."""
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for m in measurements:
        counts[m.outcome] += 1
    return counts
