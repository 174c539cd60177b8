"""Reductions that threads share: rows of a softmax or a norm, products with a vector, sums of everything."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from schedule import ScheduleError
from schedule.library_cuda import rows as patterns
from schedule.machine import GPU, STATIC_SHARED
from schedule.open_schedule import OpenSchedule, Stage, extent, is_spatial
from schedule.open_trace import Role
from schedule.templates.structure import reuses_data
from tir import dtypes
from tir.ir import Axis, Block, Call, Store
from tir.traverse import blocks, variables, walk

from ..rules.rfactor import reduce_size, spatial_size
from ..rules.rule import Verdict

KEPT = STATIC_SHARED - 4096  # bytes that rows kept by a block may take; some are left to the reductions across warps
THREADS = (32, 64, 128, 256, 512, 1024)
ROWS = (1, 2, 4, 8)  # that a block works on at a time


class CrossThreadReduction:
    """Ansor's cross-thread reduction, with all stages that work by the same rows: each row, or a few of them, is a block's, and
    its threads reduce together, element after element of memory. What a later stage reads again stays in shared memory; costly
    elementwise stages in between are kept there, or computed again, one sketch each.

    A reduction that reuses data is shared so only if it has fewer results than terms (Ansor's condition).
    """

    name = "cross-thread reduction"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if block in state.scheduled or _group(state, block) is None:
            return Verdict.SKIP
        return Verdict.APPLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        results: list[OpenSchedule] = []
        group = _group(state, block)
        assert group is not None
        costly = [name for name in group.stages if _costly(state, name)]
        for kept in (True, False) if costly else (True,):
            new = state.fired(self.name if kept else f"{self.name}, elements computed again", block)
            try:
                _share(new, group, costly if kept else ())
            except ScheduleError:
                continue
            results.append(new)
        return results


def _group(state: OpenSchedule, block: str) -> patterns.Rows | None:
    """The stages that end with a block and work by its rows, none of which is worth tiling."""
    tiled = {b.name for b in blocks(state.func) if b.is_reduction and _worth_tiling(b, state.target.machine)}
    if block in tiled or state.get_loops(block) != [x for _, x in state.axes(block)]:
        return None
    return patterns.matches(state, block, {*state.scheduled, *tiled})


def _worth_tiling(b: Block, gpu: GPU) -> bool:
    """Whether a reduction reuses data, and has results enough for tiles (Ansor's condition, turned around)."""
    return reuses_data(b) and (spatial_size(b) >= reduce_size(b) or spatial_size(b) > gpu.threads)


def _costly(state: OpenSchedule, name: str) -> bool:
    """Whether an elementwise stage is costly to compute again at each use."""
    b = state.block(name)
    return b.init is None and any(isinstance(n, Call) for n in walk(b.body)) and len(state.get_consumers(name)) > 1


def _share(state: OpenSchedule, group: patterns.Rows, keep: Sequence[str]) -> None:
    s = state
    stages = _inlined(state, group, keep)
    own = s.get_loops(group.last)[: group.rank] or [s.add_unit_loop(s.get_loops(group.last)[0])]
    count = extent(state.block(group.last).iters[len(own) - 1]) if group.rank else 1
    threads = state.choose(f"{group.last} threads", THREADS, block=group.last, role=Role.PARALLEL)
    inner = None
    if count > 1:
        rows = state.choose(f"{group.last} rows", tuple(r for r in ROWS if r <= count), block=group.last, role=Role.PARALLEL)
        *own, inner = [*own[:-1], *state.split(own[-1], [None, rows])]
        state.at_most(state.target.machine.threads, rows, threads)
    row = s.fuse(*own) if len(own) > 1 else own[0]
    inner = inner or row
    for name in reversed(stages):
        s.compute_at(name, inner, preserve_unit_loops=True)
        s.set_scope(name, 0, "shared")
    s.bind(row, "blockIdx.x")
    if inner != row:
        s.bind(inner, "threadIdx.y")
    for name in (*stages, group.last):
        _spread(state, name, inner, threads)
        state.scheduled[name] = Stage.BOUND
        if name in state.pending:
            state.pending.remove(name)


def _inlined(state: OpenSchedule, group: patterns.Rows, keep: Sequence[str]) -> list[str]:
    """The stages that stay when elementwise ones are computed where they are used, but for those to `keep` while they fit."""
    room = KEPT // max(ROWS)
    kept: list[str] = []
    for name in group.stages:
        b = state.block(name)
        size = _row_bytes(b, group.rank)
        if b.init is None and (name not in keep or size > room):
            state.compute_inline(name)
            state.rules.append(f"{name}: inline")
            state.pending.remove(name)
            continue
        room -= size
        kept.append(name)
    return kept


def _row_bytes(b: Block, rank: int) -> int:
    """The bytes that a stage keeps of a row."""
    assert isinstance(b.body, Store)
    return prod(extent(it) for it in [it for it in b.iters if is_spatial(it)][rank:]) * dtypes.nbytes(b.body.buffer.dtype)


def _spread(state: OpenSchedule, name: str, row: str, threads: int) -> None:
    """Bind what a stage does for a row to threads, neighbours in memory to neighbours."""
    s = state
    loops = s.get_loops(name)
    inner = loops[loops.index(row) + 1 :]
    b = state.block(name)
    summing = {v for it in b.iters if it.axis is Axis.REDUCE for v in variables(it.binding)}
    own = [x for x in inner if x in summing] or inner or [s.add_unit_loop(name)]
    others = [x for x in inner if x not in own]
    if b.init is None:
        fused = s.fuse(*own) if len(own) > 1 else own[0]
        _, thread = state.split(fused, [None, threads])
    else:
        outer, thread = state.split(own[-1], [None, threads])
        s.reorder(*others, thread, *own[:-1], outer)
    s.bind(thread, "threadIdx.x")
