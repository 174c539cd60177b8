"""GPU kernels of a lowered function, and the names that the passes for GPUs share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from tir.arith.bounds import extent_range, ranges_of
from tir.arith.intervals import Interval
from tir.ir import Const, Expr, For, Kind, PrimFunc, Stmt, Var, annotation, nest
from tir.memory import WARP_SCOPE
from tir.traverse import map_statements, walk_stmts

from .free_variables import accessed_buffers

AXES = ("x", "y", "z")
TOGETHER = "together"  # an annotation of the loops around a kernel whose threads run together, and wait at barriers
GRID_LIMITS = {"x": 2**31 - 1, "y": 65535, "z": 65535}  # most blocks along an axis of a grid, on every architecture
RESIDENT = "resident_blocks"  # an annotation of a loop bound to blocks or threads: blocks for which an SM's registers suffice


class GPUError(Exception):
    """A program that cannot become GPU kernels, with the reason and what to try."""


@dataclass(frozen=True)
class GPUKernel:
    """One kernel. `indices` has its block and thread variables by CUDA axis; an unused one has a name that no program can have.
    `ranges` covers these variables and the host loops around the kernel."""

    name: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    indices: dict[str, Var]
    ranges: dict[str, Interval]
    body: Stmt
    resident: int  # blocks that an SM holds at once

    @property
    def threads(self) -> dict[str, int]:
        """The threads of a block by axis."""
        return dict(zip(axes_of("threadIdx"), self.block, strict=True))


def is_thread(s: Stmt, kind: str) -> TypeGuard[For]:
    """True where `s` is a loop bound to an axis of `kind`: blockIdx, threadIdx or vthread."""
    return isinstance(s, For) and s.kind is Kind.THREAD and s.thread.split(".")[0] == kind


def is_bound(s: Stmt) -> TypeGuard[For]:
    """True for a loop that is bound to blocks or threads."""
    return isinstance(s, For) and s.kind is Kind.THREAD


def map_kernels(func: PrimFunc, change: Callable[[GPUKernel], Stmt], whole: bool = False) -> PrimFunc:
    """`func` with the bodies of the kernels that `unify_thread_binding` made changed; if `whole`, with their outer loops."""
    numbers = itertools.count()

    def visit(s: Stmt, ranges: dict[str, Interval]) -> Stmt:
        match s:
            case For() if is_thread(s, "blockIdx"):
                loops, kernel = _kernel(f"{func.name}_kernel{next(numbers)}", s, ranges)
                return change(kernel) if whole else nest(loops, change(kernel))
            case _:
                return map_statements(s, lambda c: visit(c, ranges_of([s], ranges)))

    return func.with_(body=visit(func.body, {}))


def _kernel(name: str, s: For, around: dict[str, Interval]) -> tuple[list[For], GPUKernel]:
    """The outer loops of a kernel, over blocks and at last over threads, and the kernel."""
    loops: list[For] = []
    body: Stmt = s
    while isinstance(body, For) and (is_thread(body, "blockIdx") or annotation(body.annotations, TOGETHER)):
        loops.append(body)
        body = body.body
    known = {x.thread: x for x in walk_stmts(body) if isinstance(x, For) and x.kind is Kind.THREAD} | {x.thread: x for x in loops}
    axes = {axis: known[axis].var if axis in known else Var(axis) for kind in ("blockIdx", "threadIdx") for axis in axes_of(kind)}
    grid = tuple(known[axis].extent if axis in known else Const(1) for axis in axes_of("blockIdx"))
    threads = threads_in(s)
    block = tuple(threads.values())
    ranges = around | {axes[f"blockIdx.{a}"].name: _blocks(n, GRID_LIMITS[a]) for a, n in zip(AXES, grid, strict=True)}
    ranges |= {axes[axis].name: (0, n - 1) for axis, n in threads.items()}
    resident = annotation(s.annotations, RESIDENT, 1)
    return loops, GPUKernel(name, grid, block, axes, ranges, body, resident)  # type: ignore[arg-type]


def _blocks(count: Expr, most: int) -> Interval:
    """The interval of a block index; a launch refuses more than `most` blocks."""
    low, high = extent_range(count)
    return low, most - 1 if high is None else min(high, most - 1)


def threads_in(s: Stmt) -> dict[str, int]:
    """The number of threads by axis that the loops in `s` bind."""
    threads = dict.fromkeys(axes_of("threadIdx"), 1)
    for x in walk_stmts(s):
        if is_thread(x, "threadIdx") and isinstance(x.extent, Const):
            threads[x.thread] = max(threads[x.thread], int(x.extent.value))
    return threads


def axes_of(kind: str) -> tuple[str, ...]:
    """The CUDA names of the axes of blockIdx or threadIdx, x first."""
    return tuple(f"{kind}.{a}" for a in AXES)


def uses_warp_memory(s: Stmt) -> bool:
    """True where a statement accesses a buffer in scope `warp`."""
    return any(b.scope == WARP_SCOPE for b in accessed_buffers(s).values())
