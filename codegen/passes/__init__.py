"""Lowering: the lists of passes from a scheduled function to one that a backend can emit."""

from __future__ import annotations

from collections.abc import Callable

from tir.arith.statements import simplify_tree
from tir.ir import Const, For, Kind, PrimFunc, Stmt
from tir.traverse import map_statements, substitute

from .bound_exponents import bound_exponents
from .combine_lanes import combine_lanes
from .compact_buffers import compact_buffers
from .compact_gpu_buffers import compact_local_buffers, compact_shared_buffers, compact_strides, zero_unit_indices
from .cross_thread_reduction import lower_cross_thread_reduction
from .guards import clip_loops, version_guards
from .interleave_functions import interleave_functions
from .lower_blocks import lower_blocks
from .multiply_by_reciprocals import multiply_by_reciprocals, share_reciprocals
from .order_unrolled import order_unrolled
from .promote_registers import promote_registers
from .promote_temporaries import promote_temporaries
from .separate_lives import separate_lives
from .slide_windows import slide_windows
from .software_pipeline import inject_software_pipeline, lower_async_copies
from .split_vectors import split_vectors
from .swizzle import swizzle_shared
from .thread_binding import lower_thread_binding, unify_thread_binding
from .thread_storage_sync import thread_storage_sync
from .thread_temporaries import thread_temporaries
from .unroll import unroll
from .unroll_steps import unroll_steps
from .unswitch import unswitch
from .virtual_threads import distribute_threads, inject_virtual_thread
from .warp_memory import lower_warp_memory

Pass = Callable[[PrimFunc, object], PrimFunc]


def simplify_all(func: PrimFunc, target) -> PrimFunc:
    """Simplify every expression, and remove loops of one iteration."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.extent.is_one and s.kind is not Kind.THREAD:
            return visit(substitute(s.body, {s.var: Const(0, s.var.dtype)}))
        return map_statements(s, visit)

    return simplify_tree(func.with_(body=visit(func.body)))  # type: ignore[return-value]


# In order. Each takes and returns a whole function; `lower(..., after=name)` stops after that pass.
CPU_PASSES: tuple[Pass, ...] = (
    lower_blocks,
    simplify_all,
    bound_exponents,
    combine_lanes,
    separate_lives,
    compact_buffers,
    multiply_by_reciprocals,
    unswitch,
    clip_loops,
    version_guards,
    split_vectors,
    unroll,
    promote_registers,
    promote_temporaries,
    slide_windows,
    order_unrolled,
    interleave_functions,
    simplify_all,
    unroll_steps,
)

GPU_PASSES: tuple[Pass, ...] = (
    lower_cross_thread_reduction,
    lower_blocks,
    separate_lives,
    thread_temporaries,
    simplify_all,
    unify_thread_binding,
    inject_virtual_thread,
    distribute_threads,
    zero_unit_indices,
    compact_shared_buffers,
    inject_software_pipeline,
    thread_storage_sync,
    lower_async_copies,
    lower_thread_binding,
    compact_local_buffers,
    lower_warp_memory,
    swizzle_shared,
    share_reciprocals,
    simplify_all,
    compact_strides,
    unroll,
)
