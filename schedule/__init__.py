"""Schedules: primitives that rewrite a function and keep its meaning, and the trace of those applied."""

from . import (  # noqa: F401  (register)
    add_guard,
    add_unit_loop,
    annotate,
    bind,
    blockize,
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    decompose_reduction,
    fuse,
    hoist_predicate,
    loop_partition,
    merge,
    parallel,
    peel,
    reorder,
    reorder_block_iter_var,
    reverse_compute_at,
    reverse_compute_inline,
    rfactor,
    sample,
    set_scope,
    split,
    tile,
    trim,
    unroll,
    vectorize,
)
from .error import ScheduleError
from .primitive import REGISTRY, Primitive, primitive
from .schedule import Schedule
from .trace import Step, Trace, replay

__all__ = ["REGISTRY", "Primitive", "Schedule", "ScheduleError", "Step", "Trace", "primitive", "replay"]
