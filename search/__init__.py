"""The search for fast schedules: tasks, sketches, candidates, measurement and the loop that ties them together.

A function becomes sketches (`space`, by the rules in `rules`), a sketch a population of candidates (`sample`), of which the
search (`evolution`) proposes some, to be built, run and checked by worker processes (`measure`). A `session` is the tuning of one
function: its rounds, its `journal`, the `race` at its end. `tuner.autotune` lets one have the whole `budget`; the
`task_scheduler` shares one out among several.

Names are imported when first used, so that a worker process starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .default import default_schedule
    from .evolution import Evolution
    from .measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer
    from .protocol import Search
    from .records import NearHit, NoRecord, Record, Records, RecordsError, best_schedule
    from .sampler import Sampler
    from .sketch import Sketch
    from .space import generate
    from .task import Task
    from .task_scheduler import Subject, TasksResult, tune_tasks
    from .tuner import NothingFound, Result, autotune

_NAMES = {
    name: f"search.{module}"
    for module, names in {
        "measure": ("Candidate", "Limits", "LocalMeasurer", "Measurement", "Measurer"),
        "evolution": ("Evolution",),
        "records": ("NearHit", "NoRecord", "Record", "Records", "RecordsError", "best_schedule"),
        "tuner": ("NothingFound", "Result", "autotune"),
        "sampler": ("Sampler",),
        "protocol": ("Search",),
        "sketch": ("Sketch",),
        "task_scheduler": ("Subject", "TasksResult", "tune_tasks"),
        "task": ("Task",),
        "default": ("default_schedule",),
        "space": ("generate",),
    }.items()
    for name in names
}

__all__ = [
    "Candidate", "Evolution", "Limits", "LocalMeasurer", "Measurement", "Measurer", "NearHit", "NoRecord", "NothingFound",
    "Record", "Records", "RecordsError", "Result", "Sampler", "Search", "Sketch", "Subject", "Task", "TasksResult", "autotune",
    "best_schedule", "default_schedule", "generate", "tune_tasks",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'search' has no attribute {name!r}")
