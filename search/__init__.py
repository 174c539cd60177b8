"""The search for fast schedules: tasks, sketches, candidates, measurement and the loop that ties them together.

A function, or *task*, becomes *sketches* (`space`), and a sketch a *population* of candidates (`population`). A *policy*
(`policy`) proposes some of them; the default is the evolution. Worker processes build, run and check these (`measure`); `records`
keeps the results. A *session* of `tuning` repeats this until a budget is used up, and `report` makes a page of it with `drawing`.
`experiments` has policies of other systems, and studies. `backends` has the properties of each kind of target.

Names are imported when first used, so that a worker process starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
    from .measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer
    from .measure.distributed.measurer import DaskMeasurer
    from .measure.reference import NamedWorkload
    from .policy.default_schedule import default_schedule
    from .policy.evolution import Evolution
    from .policy.protocol import Policy
    from .policy.random_search import RandomSearch
    from .records import NearHit, NoRecord, Record, Records, RecordsError, best_schedule
    from .space.generation import generate
    from .space.sketch import Sketch
    from .task import Task
    from .tuning.autotune import NothingFound, Result, autotune
    from .tuning.task_scheduler import TasksResult, WeightedFunction, tune_tasks

__all__ = [
    "Candidate", "DaskMeasurer", "Evolution", "Limits", "LocalMeasurer", "Measurement", "Measurer", "NamedWorkload", "NearHit",
    "NoRecord", "NothingFound", "Policy", "RandomSearch", "Record", "Records", "RecordsError", "Result", "Sketch", "Task",
    "TasksResult", "WeightedFunction", "autotune", "best_schedule", "default_schedule", "generate", "tune_tasks",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
