"""Measurement: worker processes build, time and check candidates, and each ends in one typed outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from .protocol import Measurer

__all__ = [
    "BASELINE", "BROKEN", "NO_BASELINE", "OUTCOMES", "Baseline", "Candidate", "Comparison", "Limits",
    "LocalMeasurer", "Measurement", "Measurer", "Origin", "Outcome", "Parent", "WorkerError", "count",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
