"""Measurement: candidates are built, timed and checked in worker processes, and each ends in one typed outcome."""

from .limits import Limits
from .local import LocalMeasurer
from .outcome import BASELINE, BROKEN, NO_BASELINE, OUTCOMES, Baseline, Candidate, Comparison, Measurement, Outcome, count
from .process import WorkerError
from .protocol import Measurer

__all__ = [
    "BASELINE", "BROKEN", "NO_BASELINE", "OUTCOMES", "Baseline", "Candidate", "Comparison", "Limits", "LocalMeasurer",
    "Measurement", "Measurer", "Outcome", "WorkerError", "count",
]  # fmt: skip
