"""Schedules: primitives that rewrite a function and keep its meaning, and the trace of those applied."""

from . import reindex, sample, transform_block_layout, transform_layout  # noqa: F401  (register; all others are methods by themselves)
from .error import ScheduleError
from .open_schedule import OpenSchedule
from .open_trace import OpenTrace
from .primitive import REGISTRY, Primitive, primitive
from .schedule import Schedule
from .tensor_intrin import TensorIntrin
from .trace import Step, Trace, replay

__all__ = [
    "REGISTRY",
    "OpenSchedule",
    "OpenTrace",
    "Primitive",
    "Schedule",
    "ScheduleError",
    "Step",
    "TensorIntrin",
    "Trace",
    "primitive",
    "replay",
]
