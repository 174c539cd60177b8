"""The measurement of a candidate: a typed outcome, with timings if it is valid, and a message if it is not."""

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
# Not caused by the machine: such a candidate is never valid again.
BROKEN: tuple[Outcome, ...] = ("illegal", "wrong_result", "crash")


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a row in a search: the `operator` that made it of `parents`, other rows of its sketch, in a `generation` (an
    evolution begins with number 0) of a `batch` of proposals, counted from 1."""

    operator: str
    batch: int = 1
    generation: int = 0
    parents: tuple[Parent, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Origin:
        """The origin whose `asdict` these data are. KeyError, TypeError or ValueError where they are none."""
        known = data["operator"], data["batch"], data["generation"]
        if [*map(type, known)] != [str, int, int]:
            raise ValueError(f"an origin is of an operator, a batch and a generation, got {known!r}")
        return cls(*known, tuple(Parent.from_json(p) for p in data["parents"]))


@dataclass(frozen=True, slots=True)
class Parent:
    """A row that another was made of, with its own origin where it was not measured."""

    row: tuple[int, ...]
    origin: Origin | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Parent:
        """The parent whose `asdict` these data are."""
        if not all(type(n) is int for n in data["row"]):
            raise ValueError(f"a row has integers, got {data['row']!r}")
        return cls(tuple(data["row"]), None if data["origin"] is None else Origin.from_json(data["origin"]))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the search space: a sketch, its row of numbers, and the trace that these give.

    `trace` is JSON data; None is the original program. `score` is that of the cost model when the candidate was proposed (higher
    is better), None without one; `scores` are those of each model that was asked, by its name, each on a scale of its own;
    `origin` says how the search came to the row. Comparisons ignore all three.
    """

    sketch: str
    row: tuple[int, ...]
    trace: Any
    score: float | None = field(default=None, compare=False)
    scores: Mapping[str, float] | None = field(default=None, compare=False)
    origin: Origin | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The candidate as JSON data."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # of which the trace, large, is data already
        return {**own, "origin": self.origin and asdict(self.origin)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Candidate:
        """The candidate whose `as_json` these data are."""
        origin = data.get("origin")
        return cls(**{**data, "row": tuple(data["row"]), "origin": None if origin is None else Origin.from_json(origin)})


BASELINE = Candidate("unscheduled", (), None)
DRIFTED = "its device drifted"  # how the message of a measurement begins that was taken while the device was not as usual
NO_BASELINE = "the program as written is for one thread; it ran on this processor, and only for its results"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of measuring a candidate.

    `samples` are seconds a call, in the order taken. `cut` says that the candidate was stopped after too few runs to be timed
    well because it was far slower than the best. `digest` identifies the scheduled program, so that two traces that make the
    same program are noticed. `duplicate` says that the numbers were taken from an earlier candidate with the same digest.
    `max_error` is set where the result was compared with the reference. `ended` is when it ended, in seconds after its run began
    (None outside of a run). `provenance` names the device and the versions that measured, as the measurer found them
    where it did (None: this machine's); it plays no part in comparisons. `elsewhere` is the fingerprint of the device that
    measured if that is not the one that counts; then `samples` are what this one would take, as far as can be told.
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

    @property
    def seconds(self) -> float:
        """The median sample; infinity unless the outcome is ok."""
        return statistics.median(self.samples) if self.outcome == "ok" and self.samples else float("inf")

    @property
    def drifted(self) -> bool:
        """True where its device was not as usual: such a measurement is kept, but says nothing of the candidate."""
        return self.message.startswith(DRIFTED)

    @property
    def telling(self) -> bool:
        """A measurement that tells of its candidate: the device did not drift, and the worker's own code did not fail."""
        return not self.drifted and self.outcome != "fault"

    def as_json(self) -> dict[str, Any]:
        """The measurement as JSON data."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "candidate": self.candidate.as_json(), "provenance": self.provenance and asdict(self.provenance)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measurement:
        """The measurement whose `as_json` these data are."""
        origin = data["provenance"]
        own = {"candidate": Candidate.from_json(data["candidate"]), "samples": tuple(data["samples"])}
        return cls(**{**data, **own, "provenance": None if origin is None else Provenance(**origin)})


@dataclass(frozen=True, slots=True)
class Baseline:
    """The program as written: its samples (none if it failed, then `message` says why), and its error where there is a
    reference; `note` says what others are compared with if it is not this program."""

    measurement: Measurement
    tolerance: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Interleaved timings of several candidates, and of numpy: samples in seconds, medians, and errors against the reference."""

    candidates: tuple[Measurement, ...]
    numpy: tuple[float, ...] = ()
    tolerance: float | None = None


def count(measurements: Iterable[Measurement]) -> dict[str, int]:
    """The number of measurements with each outcome, every outcome listed."""
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for m in measurements:
        counts[m.outcome] += 1
    return counts
