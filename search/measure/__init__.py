"""Measurement: candidates are built, timed and checked in worker processes, and each ends in one typed outcome."""

from .local import BASELINE, Baseline, Comparison, Limits, LocalMeasurer
from .outcome import OUTCOMES, Candidate, Measurement, Outcome, count
from .process import WorkerError
from .protocol import Measurer

__all__ = [
    "BASELINE", "OUTCOMES", "Baseline", "Candidate", "Comparison", "Limits", "LocalMeasurer", "Measurement", "Measurer",
    "Outcome", "WorkerError", "count",
]  # fmt: skip
