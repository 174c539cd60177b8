"""Schedules: primitives that rewrite a function and keep its meaning, and the trace of those applied."""

from . import (  # noqa: F401  (register)
    add_unit_loop,
    annotate,
    bind,
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    decompose_reduction,
    fuse,
    loop_partition,
    merge,
    parallel,
    reorder,
    reorder_block_iter_var,
    reverse_compute_at,
    reverse_compute_inline,
    rfactor,
    sample,
    set_scope,
    split,
    tile,
    unroll,
    vectorize,
)
from .error import ScheduleError
from .primitive import REGISTRY, Primitive, primitive
from .schedule import Schedule
from .trace import Step, Trace, replay

__all__ = ["REGISTRY", "Primitive", "Schedule", "ScheduleError", "Step", "Trace", "primitive", "replay"]
