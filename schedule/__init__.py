"""Schedules: primitives, which rewrite a function and keep its meaning, and traces of their applications."""

from .error import ScheduleError
from .intrinsics.tensor_intrin import TensorIntrin
from .open_schedule import OpenSchedule
from .open_trace import OpenTrace
from .primitive import REGISTRY, Primitive, primitive
from .rewriting.index_map import IndexMap
from .schedule import Schedule, replay, replay_json
from .trace import Step, Trace

__all__ = [
    "REGISTRY", "IndexMap", "OpenSchedule", "OpenTrace", "Primitive", "Schedule", "ScheduleError", "Step", "TensorIntrin",
    "Trace", "primitive", "replay", "replay_json",
]  # fmt: skip
