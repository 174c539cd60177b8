"""Schedules: primitives that rewrite a function and keep its meaning, and the trace of those applied."""

from . import add_unit_loop, annotate, fuse, parallel, reorder, split, tile, unroll, vectorize  # noqa: F401  (register)
from .error import ScheduleError
from .primitive import REGISTRY, Primitive, primitive
from .schedule import Schedule
from .trace import Step, Trace, replay

__all__ = ["REGISTRY", "Primitive", "Schedule", "ScheduleError", "Step", "Trace", "primitive", "replay"]
