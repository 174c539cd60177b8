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
    decompose_padding,
    decompose_reduction,
    fuse,
    fuse_reduction_epilogue,
    hoist_predicate,
    lift_alloc,
    loop_partition,
    merge,
    pack,
    pad_einsum,
    parallel,
    peel,
    reindex,
    reorder,
    reorder_block_iter_var,
    reverse_compute_at,
    reverse_compute_inline,
    rfactor,
    sample,
    set_scope,
    split,
    stage_mem,
    storage_align,
    tensorize,
    tile,
    transform_block_layout,
    transform_layout,
    trim,
    unroll,
    vectorize,
)
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
