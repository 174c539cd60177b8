"""A function as GPU kernels, and the loops bound to blocks and threads in one form.

Below, a *unit* is a statement that no barrier can divide: a nest of thread loops, or a statement in no thread loop.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeGuard

from tir.analysis.around import accesses
from tir.arith.bounds import extent_range
from tir.arith.intervals import Interval
from tir.ir import (
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    annotation,
    nest,
    seq,
)
from tir.memory import SHARED
from tir.traverse import fresh, loads, map_statements, names, stores, substitute, variables, walk_stmts

from .free import used

AXES = ("x", "y", "z")
TOGETHER = "together"  # an annotation of the loops around a kernel whose threads run together, and wait at barriers
WARP_SCOPE = "warp"  # registers that the 32 threads of a warp, threadIdx.x, hold together
MAX_THREADS = 1024
MAX_DEPTH = 64  # threads of axis z
MAX_ROWS = 65535  # blocks of axes y and z
RESIDENT = "resident_blocks"  # an annotation of a loop bound to blocks or threads: registers leave room for so many blocks
MAX_RESIDENT = 32


class GPUError(Exception):
    """A program that has no meaning as GPU kernels, with the reason and what to try."""


@dataclass(frozen=True)
class Nest:
    """One kernel: its blocks and threads are the variables in `indices`, by name of the CUDA axis (one that is not used has a
    name that no program can have); `ranges` are those of these variables and of the loops of the host around the kernel."""

    name: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    indices: dict[str, Var]
    ranges: dict[str, Interval]
    body: Stmt
    resident: int  # blocks that a multiprocessor shall hold at once

    @property
    def threads(self) -> dict[str, int]:
        """The threads of a block by axis."""
        return dict(zip(_axes("threadIdx"), self.block, strict=True))


def compute_capability(target) -> int:
    """The number of the target's architecture: 90 of sm_90a."""
    return int(re.findall(r"\d+", target.arch)[0])


def is_thread(s: Stmt, kind: str) -> TypeGuard[For]:
    """Whether `s` is a loop bound to an axis of `kind`: blockIdx, threadIdx or vthread."""
    return isinstance(s, For) and s.kind is Kind.THREAD and s.thread.split(".")[0] == kind


def _is_bound(s: Stmt) -> bool:
    """Whether a loop in `s` is bound to blocks or threads."""
    return any(isinstance(x, For) and x.kind is Kind.THREAD for x in walk_stmts(s))


def map_kernels(func: PrimFunc, change: Callable[[Nest], Stmt], whole: bool = False) -> PrimFunc:
    """`func`, of which `unify_thread_binding` made kernels, with their bodies changed; `whole` kernels with their outer loops."""
    numbers = itertools.count()

    def visit(s: Stmt, ranges: dict[str, Interval]) -> Stmt:
        match s:
            case For() if is_thread(s, "blockIdx"):
                loops, kernel = _kernel(f"{func.name}_kernel{next(numbers)}", s, ranges)
                return change(kernel) if whole else nest(loops, change(kernel))
            case For(var, extent, body):
                return s.with_(body=visit(body, {**ranges, var.name: extent_range(extent, ranges)}))
            case _:
                return map_statements(s, lambda c: visit(c, ranges))

    return func.with_(body=visit(func.body, {}))


def _kernel(name: str, s: For, around: dict[str, Interval]) -> tuple[list[For], Nest]:
    """The outer loops of a kernel, over blocks and in the end over threads, and what they say."""
    loops: list[For] = []
    body: Stmt = s
    while isinstance(body, For) and (is_thread(body, "blockIdx") or annotation(body.annotations, TOGETHER)):
        loops.append(body)
        body = body.body
    known = {x.thread: x for x in walk_stmts(body) if isinstance(x, For) and x.kind is Kind.THREAD} | {x.thread: x for x in loops}
    axes = {axis: known[axis].var if axis in known else Var(axis) for kind in ("blockIdx", "threadIdx") for axis in _axes(kind)}
    grid = tuple(known[axis].extent if axis in known else Const(1) for axis in _axes("blockIdx"))
    threads = threads_in(s)
    block = tuple(threads.values())
    ranges = around | {axes[axis].name: extent_range(n) for axis, n in zip(_axes("blockIdx"), grid, strict=True)}
    ranges |= {axes[axis].name: (0, n - 1) for axis, n in threads.items()}
    resident = annotation(s.annotations, RESIDENT, 1)
    return loops, Nest(name, grid, block, axes, ranges, body, resident)  # type: ignore[arg-type]


def threads_in(s: Stmt) -> dict[str, int]:
    """The threads of each axis that the loops in `s` bind."""
    threads = dict.fromkeys(_axes("threadIdx"), 1)
    for x in walk_stmts(s):
        if is_thread(x, "threadIdx") and isinstance(x.extent, Const):
            threads[x.thread] = max(threads[x.thread], int(x.extent.value))
    return threads


def _axes(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}.{a}" for a in AXES)


def unify_thread_binding(func: PrimFunc, target) -> PrimFunc:
    """Bring kernels to one form: the loops over blocks outside, all loops of one axis with one variable.

    Each outermost nest of loops bound to blocks or threads is a kernel; the loops around it run on the host. What stands in no
    bound loop is a kernel of one thread.
    """
    taken = names(func)
    axes = {axis: Var(fresh(taken, f"{kind[0]}{axis[-1]}")) for kind in ("blockIdx", "threadIdx") for axis in _axes(kind)}
    owners: dict[str, str] = {}  # of temporaries: the kernel
    numbers = itertools.count()

    def kernel(s: Stmt) -> Stmt:
        name = f"{func.name}_kernel{next(numbers)}"
        _need_memory(s, name, owners)
        return _unified(name, s, axes)

    def visit(s: Stmt) -> Stmt:
        if not _is_bound(s):
            return kernel(s)
        match s:
            case For() if s.kind is not Kind.THREAD and not loads(s.extent):
                return s.with_(body=visit(s.body), kind=Kind.SERIAL, annotations=())
            case If(condition) if not loads(condition):
                return s.with_(then=visit(s.then), orelse=None if s.orelse is None else visit(s.orelse))
            case Seq(stmts):
                groups: list[list[Stmt]] = []
                for x in stmts:  # neighbours without threads share a kernel
                    if not groups or _is_bound(x) or _is_bound(groups[-1][0]):
                        groups.append([x])
                    else:
                        groups[-1].append(x)
                return seq(*(visit(seq(*g)) for g in groups))
            case _:
                return kernel(s)

    return func.with_(body=visit(func.body))


def _need_memory(s: Stmt, name: str, owners: dict[str, str]) -> None:
    """Refuse temporaries in memory that a GPU has not, or that is not the kernel's alone."""
    for b in used(s).values():
        if b.scope not in (*SHARED, "local", WARP_SCOPE, "global"):
            raise GPUError(f"`{b.name}` is in memory `{b.scope}`, which a GPU has not; use shared or local")
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
            resident.append(_resident(s))
            # The inner loop of an axis hides the outer one, whose variable the body does not use.
            body = substitute(visit(s.body, {**around, axis: s}), {s.var: axes[axis]})
            return body if axis.startswith("blockIdx") else s.with_(var=axes[axis], body=body, annotations=())
        return map_statements(s, lambda c: visit(c, around))

    body = visit(s, {})
    _need_all_blocks(s, {axis for axis in extents if axis.startswith("blockIdx")}, name)
    grid = {axis: extents.get(axis, [Const(1)])[0] for axis in _axes("blockIdx")}
    block = []
    for a in AXES:
        given = extents.get(f"threadIdx.{a}", [Const(1)])
        if not all(isinstance(e, Const) for e in given):
            raise GPUError(
                f"{name}: the extent of a loop bound to threadIdx.{a} must be a constant; split it by a constant first"
            )
        block.append(max(int(e.value) for e in given))  # type: ignore[attr-defined]
    if prod(block) > MAX_THREADS:
        raise GPUError(f"{name}: {' x '.join(map(str, block))} threads a block are more than {MAX_THREADS}; bind smaller loops")
    if block[2] > MAX_DEPTH:
        raise GPUError(f"{name}: {block[2]} threads of axis z are more than {MAX_DEPTH}; bind a smaller loop, or threadIdx.x")
    for axis, blocks in list(grid.items())[1:]:
        if isinstance(blocks, Const) and blocks.value > MAX_ROWS:
            raise GPUError(
                f"{name}: {blocks.value} blocks of axis {axis[-1]} are more than {MAX_ROWS}; bind a smaller loop, or blockIdx.x"
            )
    body = substitute(body, {axes[axis]: Const(0) for axis, blocks in grid.items() if blocks == Const(1, blocks.dtype)})  # type: ignore[assignment]
    attrs = ((RESIDENT, max(resident)),) if max(resident) > 1 else ()
    loops = [For(axes[axis], blocks, body, Kind.THREAD, thread=axis) for axis, blocks in grid.items()]
    loops = [loops[0].with_(annotations=attrs), *(x for x in loops[1:] if x.extent != Const(1, x.extent.dtype))]
    return nest(loops, body)


def _resident(s: For) -> int:
    n = annotation(s.annotations, RESIDENT, 1)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_RESIDENT:
        raise GPUError(f"loop `{s.name}`: the annotation {RESIDENT} must be an integer from 1 to {MAX_RESIDENT}, got {n!r}")
    return n


def _need_all_blocks(s: Stmt, axes: set[str], name: str) -> None:
    """Refuse stores to global memory outside of a loop bound to blocks that the kernel has: which block would do it?"""

    for x, around in accesses(s):
        missing = ", ".join(sorted(axes - {loop.thread for loop in around.loops}))
        if isinstance(x, Store) and x.buffer.scope == "global" and missing:
            raise GPUError(
                f"{name}: `{x.buffer.name}` in global memory is written outside of the loop bound to {missing}; move the "
                "statement into that loop (compute_at, reverse_compute_at), or bind a loop around both"
            )


# --- virtual threads and nested threads ---------------------------------------------------------------------------------


def inject_virtual_thread(func: PrimFunc, target) -> PrimFunc:
    """Virtual threads take turns at each statement:   for v in vthread: for k: S; T   =>   for k: for v: S; for v: T

    so that they share barriers, and what does not depend on `v` happens once. A loop stays where it is if its iterations
    would overwrite each other's temporaries: those whose elements do not depend on `v`, but whose values do.
    """

    def visit(s: Stmt) -> Stmt:
        if not is_thread(s, "vthread"):
            return map_statements(s, visit)
        body = visit(s.body)
        loop = s.with_(kind=Kind.UNROLLED, thread="", body=body)
        return loop if _overwrites(body, s.name) else _push(loop, body, lambda x: s.name not in variables(x))

    return func.with_(body=visit(func.body))


def _overwrites(body: Stmt, name: str) -> bool:
    """Whether iterations of `name` keep different values in the same elements of a temporary."""
    varying: set[str] = set()
    grown = True
    while grown:
        grown = False
        for s, around in accesses(body):
            if not isinstance(s, Store) or s.buffer.name in varying:
                continue
            decided = (*around.conditions, *around.otherwise, *(x.extent for x in around.loops), *(x.value for x in around.lets))
            depends = [s.value, *s.indices, *decided]
            if any(name in variables(e) or any(x.buffer.name in varying for x in loads(e)) for e in depends):
                varying.add(s.buffer.name)
                grown = True
    return any(
        s.buffer.name in varying and s.buffer.scope != "global" and not any(name in variables(i) for i in s.indices)
        for s in stores(body)
    )


def _push(loop: For, body: Stmt, uniform) -> Stmt:
    """`loop` around each part of `body`, as deep inside as serial loops, sequences and conditions without its variable allow."""
    if uniform(body):
        return body
    match body:
        case Seq(stmts):
            return seq(*(_push(loop, x, uniform) for x in stmts))
        case For(kind=Kind.VECTORIZED):
            return loop.with_(body=body)
        case For(_, extent) if loop.name not in variables(extent):
            return body.with_(body=_push(loop, body.body, uniform))
        case If(condition, then, orelse) if loop.name not in variables(condition) and not loads(condition):
            return body.with_(then=_push(loop, then, uniform), orelse=None if orelse is None else _push(loop, orelse, uniform))
        case _:
            return loop.with_(body=body)


def distribute_threads(func: PrimFunc, target) -> PrimFunc:
    """Thread loops that hold steps of the whole block are divided between them:

    for t in threads: for k: (all load a tile into shared memory); use it   =>   for k: load; for t in threads: use

    where the step does not depend on `t`: each iteration of the loop would do the same, and the block does it once. So are those
    that hold several thread loops of other axes, one after another, so that barriers can stand between these.
    """

    def visit(s: Stmt) -> Stmt:
        s = map_statements(s, visit)
        if not is_thread(s, "threadIdx"):
            return s
        return _push(s, s.body, partial(_uniform, s)) if any(_step(x, s) for x in walk_stmts(s.body)) else s

    return func.with_(body=visit(func.body))


def _uniform(loop: For, x: Stmt) -> bool:
    """Whether a statement in a thread loop does the same in all its iterations, or holds a loop of the same axis."""
    inside = any(isinstance(y, For) and y.thread == loop.thread for y in walk_stmts(x))
    whole = all(y.buffer.scope in SHARED for y in stores(x)) and bool(stores(x))
    # Inside of another loop of this axis the variable is that loop's.
    return (inside and isinstance(x, For) and _bound_inside(x, loop.thread)) or (whole and loop.name not in variables(x))


def _step(x: Stmt, loop: For) -> bool:
    """Whether a statement in a thread loop is one of the whole block."""
    match x:
        case Store(buffer):
            return buffer.scope in SHARED and loop.name not in variables(x)
        case For():
            return x.thread == loop.thread
        case Seq(stmts):
            return sum(any(is_thread(y, "threadIdx") for y in walk_stmts(c)) for c in stmts) > 1
        case _:
            return False


def _bound_inside(s: Stmt, axis: str) -> bool:
    """Whether a perfect nest down from `s` binds `axis`, and loops alone stand above."""
    while isinstance(s, For):
        if s.thread == axis:
            return True
        s = s.body
    return False


def lower_thread_binding(func: PrimFunc, target) -> PrimFunc:
    """Thread loops move outside of each kernel, where all threads run together, and leave conditions: `t < n` where a loop has
    fewer iterations than the block threads. What stands in no loop of an axis and writes shared or global memory is left to the
    first thread of that axis, or to its first warp."""

    def change(kernel: Nest) -> Stmt:
        threads = kernel.threads
        body = _without_threads(kernel)
        body = substitute(body, {kernel.indices[axis]: Const(0) for axis, n in threads.items() if n == 1})  # type: ignore[assignment]
        marks = ((TOGETHER, True),)
        loops = [For(kernel.indices[axis], Const(n), body, Kind.THREAD, marks, axis) for axis, n in threads.items() if n > 1]
        return nest(loops, body)

    return map_kernels(func, change)


def _without_threads(kernel: Nest) -> Stmt:
    threads = kernel.threads

    def visit(s: Stmt, inside: frozenset[str]) -> Stmt:
        if is_thread(s, "threadIdx"):
            assert isinstance(s.extent, Const)
            inner = visit(s.body, inside | {s.thread})
            return inner if s.extent.value == threads[s.thread] else If(kernel.indices[s.thread] < s.extent, inner)
        missing = [axis for axis, n in threads.items() if n > 1 and axis not in inside]
        written = {x.buffer.scope for x in stores(s)}
        bound = any(is_thread(x, "threadIdx") or isinstance(x, Evaluate) for x in walk_stmts(s))  # barriers are for all
        if in_warp(s):  # all lanes join, each for its own elements
            missing = [axis for axis in missing if axis != "threadIdx.x"]
            bound = bound or not isinstance(s, Store)
        if missing and not bound and written and not written & {"local", WARP_SCOPE}:
            for axis in missing:
                s = If(kernel.indices[axis].equal(Const(0)), s)
            return s
        return map_statements(s, lambda c: visit(c, inside))

    return visit(kernel.body, frozenset())


def in_warp(s: Stmt) -> bool:
    """Whether a statement touches a buffer that the lanes of a warp hold together."""
    return any(b.scope == WARP_SCOPE for b in used(s).values())
