"""The search for fast schedules: tasks, sketches, candidates, measurement and the loop that ties them together.

Names are imported when first used, so that a worker process starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .default import default_schedule
    from .measure import Candidate, Limits, LocalMeasurer, Measurement
    from .task import Task
    from .tuner import NothingFound, Result, autotune

_NAMES = {
    "Candidate": "search.measure",
    "Limits": "search.measure",
    "LocalMeasurer": "search.measure",
    "Measurement": "search.measure",
    "NothingFound": "search.tuner",
    "Result": "search.tuner",
    "Task": "search.task",
    "autotune": "search.tuner",
    "default_schedule": "search.default",
}

__all__ = ["Candidate", "Limits", "LocalMeasurer", "Measurement", "NothingFound", "Result", "Task", "autotune", "default_schedule"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'search' has no attribute {name!r}")
