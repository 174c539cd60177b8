"""Lowering: the lists of passes from a scheduled function to one that a backend can write down."""

from __future__ import annotations

from collections.abc import Callable

from tir.arith.statements import simplify_tree
from tir.ir import Const, For, Kind, PrimFunc, Stmt
from tir.traverse import map_statements, substitute

from .compact_buffers import compact_buffers
from .gpu_buffers import first_places, fold_gaps, place_local, place_shared
from .gpu_fragments import lower_warp_memory
from .gpu_kernels import distribute_threads, inject_virtual_thread, lower_thread_binding, unify_thread_binding
from .gpu_pipeline import inject_software_pipeline, lower_async_copies
from .gpu_reduce import lower_cross_thread_reduction
from .gpu_sync import thread_storage_sync
from .guards import clip_loops, version_guards
from .lanes import combine_lanes
from .lower_blocks import lower_blocks
from .order import order_unrolled
from .registers import promote_registers
from .unroll import unroll
from .unswitch import unswitch
from .vectors import split_vectors

Pass = Callable[[PrimFunc, object], PrimFunc]


def simplify_all(func: PrimFunc, target) -> PrimFunc:
    """Simplify every expression; loops of one iteration disappear."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.extent == Const(1, s.extent.dtype) and s.kind is not Kind.THREAD:
            return visit(substitute(s.body, {s.var: Const(0, s.var.dtype)}))  # type: ignore[arg-type]
        return map_statements(s, visit)

    return simplify_tree(func.with_(body=visit(func.body)))  # type: ignore[return-value]


# In order. Each takes and returns a whole function; `lower(..., after=name)` stops behind one of them.
CPU_PASSES: tuple[Pass, ...] = (
    lower_blocks,
    simplify_all,
    combine_lanes,
    compact_buffers,
    unswitch,
    clip_loops,
    version_guards,
    split_vectors,
    unroll,
    promote_registers,
    order_unrolled,
    simplify_all,
)

GPU_PASSES: tuple[Pass, ...] = (
    lower_cross_thread_reduction,
    lower_blocks,
    simplify_all,
    unify_thread_binding,
    inject_virtual_thread,
    distribute_threads,
    first_places,
    place_shared,
    inject_software_pipeline,
    thread_storage_sync,
    lower_async_copies,
    lower_thread_binding,
    place_local,
    lower_warp_memory,
    simplify_all,
    fold_gaps,
    unroll,
)
