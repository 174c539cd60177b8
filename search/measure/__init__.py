"""Measurement: candidates are built, timed and checked in worker processes, and each ends in one typed outcome."""

from .limits import Limits
from .local import LocalMeasurer
from .outcome import (
    BASELINE,
    BROKEN,
    NO_BASELINE,
    OUTCOMES,
    Baseline,
    Candidate,
    Comparison,
    Measurement,
    Origin,
    Outcome,
    Parent,
    count,
)
from .process import WorkerError
from .protocol import BuildsAhead, Measurer, Pauses, Pipelined

__all__ = [
    "BASELINE", "BROKEN", "NO_BASELINE", "OUTCOMES", "Baseline", "BuildsAhead", "Candidate", "Comparison", "Limits",
    "LocalMeasurer", "Measurement", "Measurer", "Origin", "Outcome", "Parent", "Pauses", "Pipelined", "WorkerError", "count",
]  # fmt: skip
