"""Loops bound to blocks and threads brought to one form, and thread loops lowered to conditions on the thread's number."""

from __future__ import annotations

import itertools
from math import prod

from schedule.annotation_values import value_of
from schedule.machine import MAX_THREADS
from tir.analysis.context import accesses
from tir.ir import Const, Evaluate, Expr, For, If, Kind, PrimFunc, Seq, Stmt, Store, Var, nest, seq
from tir.memory import SHARED, WARP_SCOPE
from tir.traverse import fresh, loads, map_statements, names, stores, substitute, variables, walk_stmts

from .free_variables import accessed_buffers
from .gpu_kernels import (
    AXES,
    GRID_LIMITS,
    RESIDENT,
    TOGETHER,
    GPUError,
    GPUKernel,
    axes_of,
    is_bound,
    is_thread,
    map_kernels,
    uses_warp_memory,
)

MAX_THREADS_Z = 64  # threads of a block along axis z (CUDA C++ programming guide, technical specifications, as the next)


def unify_thread_binding(func: PrimFunc, target) -> PrimFunc:
    """Bring kernels to one form: the loops over blocks outside, all loops of one axis with one variable.

    Each outermost nest of loops bound to blocks or threads is a kernel; the loops around it run on the host. A statement in no
    bound loop is a kernel of one thread.
    """
    taken = names(func)
    axes = {axis: Var(fresh(taken, f"{kind[0]}{axis[-1]}")) for kind in ("blockIdx", "threadIdx") for axis in axes_of(kind)}
    owners: dict[str, str] = {}  # the kernel of each temporary
    numbers = itertools.count()

    def kernel(s: Stmt) -> Stmt:
        name = f"{func.name}_kernel{next(numbers)}"
        _need_memory(s, name, owners)
        return _unified(name, s, axes)

    def binds(s: Stmt) -> bool:
        return any(map(is_bound, walk_stmts(s)))

    def visit(s: Stmt) -> Stmt:
        if not binds(s):
            return kernel(s)
        match s:
            case For() if s.kind is not Kind.THREAD and not loads(s.extent):
                return s.with_(body=visit(s.body), kind=Kind.SERIAL, annotations=())
            case If(condition) if not loads(condition):
                return s.with_(then=visit(s.then), orelse=None if s.orelse is None else visit(s.orelse))
            case Seq(stmts):
                groups: list[list[Stmt]] = []
                for x in stmts:  # neighbours without threads share a kernel
                    if not groups or binds(x) or binds(groups[-1][0]):
                        groups.append([x])
                    else:
                        groups[-1].append(x)
                return seq(*(visit(seq(*g)) for g in groups))
            case _:
                return kernel(s)

    return func.with_(body=visit(func.body))


def _need_memory(s: Stmt, name: str, owners: dict[str, str]) -> None:
    """Refuse temporaries in a memory scope that GPUs lack, and those that two kernels share."""
    for b in accessed_buffers(s).values():
        if b.scope not in (*SHARED, "local", WARP_SCOPE, "global"):
            raise GPUError(f"`{b.name}`: memory scope `{b.scope}` is not supported on a GPU; use shared or local")
        if b.scope != "global" and owners.setdefault(b.name, name) != name:
            raise GPUError(f"`{b.name}` in {b.scope} memory is used by two kernels, {owners[b.name]} and {name}; keep it in "
                           "global memory, or move its producer into the loops of its consumer (compute_at)")  # fmt: skip


def _unified(name: str, s: Stmt, axes: dict[str, Var]) -> Stmt:
    extents: dict[str, list[Expr]] = {}
    resident = [1]

    def visit(s: Stmt, around: dict[str, For]) -> Stmt:
        if isinstance(s, For) and s.kind is Kind.THREAD and not is_thread(s, "vthread"):
            axis = s.thread
            if axis in around and around[axis].name in variables(s.body):
                raise GPUError(
                    f"`{s.name}` and `{around[axis].name}` around it are both bound to {axis}, and statements below use both; "
                    "fuse the two and bind the result"
                )
            if axis.startswith("blockIdx") and axis in extents:
                raise GPUError(f"{axis} is bound twice in one kernel, again by `{s.name}`; bind one loop outside of both")
            extents.setdefault(axis, []).append(s.extent)
            resident.append(value_of(s, RESIDENT, 1))
            # The inner loop of an axis hides the outer one, whose variable the body does not use.
            body = substitute(visit(s.body, {**around, axis: s}), {s.var: axes[axis]})
            return body if axis.startswith("blockIdx") else s.with_(var=axes[axis], body=body, annotations=())
        return map_statements(s, lambda c: visit(c, around))

    body = visit(s, {})
    _need_all_blocks(s, {axis for axis in extents if axis.startswith("blockIdx")}, name)
    grid = {axis: extents.get(axis, [Const(1)])[0] for axis in axes_of("blockIdx")}
    _need_valid_block(name, extents)
    for axis, blocks in list(grid.items())[1:]:
        if isinstance(blocks, Const) and blocks.value > (most := GRID_LIMITS[axis[-1]]):
            raise GPUError(f"{name}: {blocks.value} blocks of axis {axis[-1]} are more than {most}; "
                           "bind a smaller loop, or blockIdx.x")  # fmt: skip
    body = substitute(body, {axes[axis]: Const(0) for axis, blocks in grid.items() if blocks.is_one})
    attrs = ((RESIDENT, max(resident)),) if max(resident) > 1 else ()
    loops = [For(axes[axis], blocks, body, Kind.THREAD, thread=axis) for axis, blocks in grid.items()]
    loops = [loops[0].with_(annotations=attrs), *(x for x in loops[1:] if not x.extent.is_one)]
    return nest(loops, body)


def _need_valid_block(name: str, extents: dict[str, list[Expr]]) -> None:
    """Refuse extents of thread loops, by axis, that no block of threads can have."""
    block = []
    for a in AXES:
        given = extents.get(f"threadIdx.{a}", [Const(1)])
        known = [int(e.value) for e in given if isinstance(e, Const)]
        if len(known) < len(given):
            raise GPUError(
                f"{name}: the extent of a loop bound to threadIdx.{a} must be a constant; split it by a constant first"
            )
        block.append(max(known))
    if prod(block) > MAX_THREADS:
        raise GPUError(f"{name}: {' x '.join(map(str, block))} threads a block are more than {MAX_THREADS}; bind smaller loops")
    if block[2] > MAX_THREADS_Z:
        raise GPUError(f"{name}: {block[2]} threads of axis z are more than {MAX_THREADS_Z}; bind a smaller loop, or threadIdx.x")


def _need_all_blocks(s: Stmt, axes: set[str], name: str) -> None:
    """Refuse stores to global memory outside of a block loop of the kernel, which no one block owns."""

    for x, around in accesses(s):
        missing = ", ".join(sorted(axes - {loop.thread for loop in around.loops}))
        if isinstance(x, Store) and x.buffer.scope == "global" and missing:
            raise GPUError(
                f"{name}: `{x.buffer.name}` in global memory is written outside of the loop bound to {missing}; move the "
                "statement into that loop (compute_at, reverse_compute_at), or bind a loop around both"
            )


def lower_thread_binding(func: PrimFunc, target) -> PrimFunc:
    """Move thread loops outside of each kernel; conditions `t < n` stay where a loop has fewer iterations than the block threads.
    The first thread of an axis, or the first warp, does the stores to shared and global memory outside of the axis's loops."""

    def change(kernel: GPUKernel) -> Stmt:
        threads = kernel.threads
        body = _without_threads(kernel)
        body = substitute(body, {kernel.indices[axis]: Const(0) for axis, n in threads.items() if n == 1})
        marks = ((TOGETHER, True),)
        loops = [For(kernel.indices[axis], Const(n), body, Kind.THREAD, marks, axis) for axis, n in threads.items() if n > 1]
        return nest(loops, body)

    return map_kernels(func, change)


def _without_threads(kernel: GPUKernel) -> Stmt:
    threads = kernel.threads

    def visit(s: Stmt, inside: frozenset[str]) -> Stmt:
        if is_thread(s, "threadIdx"):
            assert isinstance(s.extent, Const)
            inner = visit(s.body, inside | {s.thread})
            return inner if s.extent.value == threads[s.thread] else If(kernel.indices[s.thread] < s.extent, inner)
        missing = [axis for axis, n in threads.items() if n > 1 and axis not in inside]
        written = {x.buffer.scope for x in stores(s)}
        bound = any(is_thread(x, "threadIdx") or isinstance(x, Evaluate) for x in walk_stmts(s))  # barriers are for all
        if uses_warp_memory(s):  # all lanes join, each for its own elements
            missing = [axis for axis in missing if axis != "threadIdx.x"]
            bound = bound or not isinstance(s, Store)
        if missing and not bound and written and not written & {"local", WARP_SCOPE}:
            for axis in missing:
                s = If(kernel.indices[axis].equal(Const(0)), s)
            return s
        return map_statements(s, lambda c: visit(c, inside))

    return visit(kernel.body, frozenset())
