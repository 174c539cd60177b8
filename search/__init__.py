"""The search for fast schedules: tasks, sketches, candidates, measurement and the loop that ties them together.

A function becomes sketches (`space`), a sketch a population of candidates (`population`), of which a `policy` proposes some, to
be built, run and checked by worker processes (`measure`) and kept in `records`. `tuning` lets all this happen until a budget is
used up, and `report` draws it. `backends` has what differs from one kind of target to another.

Names are imported when first used, so that a worker process starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer
    from .measure.reference import NamedWorkload
    from .policy.construction import default_schedule
    from .policy.evolution import Evolution
    from .policy.protocol import Search
    from .policy.random_search import RandomSearch
    from .records import NearHit, NoRecord, Record, Records, RecordsError, best_schedule
    from .space.generation import generate
    from .space.sketch import Sketch
    from .task import Task
    from .tuning.autotune import NothingFound, Result, autotune
    from .tuning.task_scheduler import TasksResult, WeightedFunction, tune_tasks

_NAMES = {
    name: f"search.{module}"
    for module, names in {
        "measure": ("Candidate", "Limits", "LocalMeasurer", "Measurement", "Measurer"),
        "measure.reference": ("NamedWorkload",),
        "policy.evolution": ("Evolution",),
        "records": ("NearHit", "NoRecord", "Record", "Records", "RecordsError", "best_schedule"),
        "tuning.autotune": ("NothingFound", "Result", "autotune"),
        "policy.random_search": ("RandomSearch",),
        "policy.protocol": ("Search",),
        "space.sketch": ("Sketch",),
        "tuning.task_scheduler": ("WeightedFunction", "TasksResult", "tune_tasks"),
        "task": ("Task",),
        "policy.construction": ("default_schedule",),
        "space.generation": ("generate",),
    }.items()
    for name in names
}

__all__ = [
    "Candidate", "Evolution", "Limits", "LocalMeasurer", "Measurement", "Measurer", "NamedWorkload", "NearHit", "NoRecord",
    "NothingFound", "RandomSearch", "Record", "Records", "RecordsError", "Result", "Search", "Sketch", "Task", "TasksResult",
    "WeightedFunction", "autotune", "best_schedule", "default_schedule", "generate", "tune_tasks",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'search' has no attribute {name!r}")
