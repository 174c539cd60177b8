"""What no rule has bound: a thread an element, or a few."""

from __future__ import annotations

from math import prod

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, extent, is_spatial
from schedule.open_trace import Role
from schedule.templates.structure import epilogue
from tir import dtypes
from tir.ir import Axis, Const, Store, Var
from tir.traverse import blocks, loads, stores, variables

from ..rules.rule import Verdict
from .tiling import unroll_upto

THREADS = (128, 32, 64, 256, 512, 1024)
WIDEST = 16  # bytes that a thread moves at once
UNROLL = (16, 0, 64)


class InlineElements:
    """Ansor's inlining on a GPU: whatever computes element by element, padding and costly functions too, is computed where it is
    used, unless it is a result, or ends a reduction for consumers that are not elementwise."""

    name = "inline"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        if b.is_reduction or state.is_output(block) or block in state.scheduled:
            return Verdict.SKIP
        ends = any(state.block(p).is_reduction and epilogue(state, p) == block for p in state.get_producers(block))
        if ends and epilogue(state, block) is None:
            return Verdict.SKIP
        try:
            state.copy().compute_inline(block)
        except ScheduleError:
            return Verdict.SKIP
        return Verdict.ONLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        new = state.fired(self.name, block)
        new.compute_inline(block)
        return [new]


def bind_rest(state: OpenSchedule) -> None:
    """Bind every nest that has no threads yet: its spatial loops, fused, to blocks of an open number of threads; what a thread
    sums up stays in a register, and an elementwise consumer follows at once."""
    for name in [b.name for b in blocks(state.func)]:
        if any(b.name == name for b in blocks(state.func)) and not _bound(state, name):
            trial = state.copy()
            try:
                _bind(trial, name)
            except ScheduleError:
                continue
            state.take(trial)


def _bound(state: OpenSchedule, name: str) -> bool:
    return any(state.loop(x).thread for x in state.get_loops(name))


def _bind(state: OpenSchedule, name: str) -> None:
    s = state
    reducing = state.block(name).is_reduction and state.block(name).init is not None
    result = name
    if reducing:
        after = _taker(state, name)
        if after is not None:
            s.set_scope(name, 0, "local")
            result = after
        elif len(stores(state.block(name).body)) == 1:
            result = s.cache_write(name, 0, "local")
    b = state.block(result)
    loops = s.get_loops(result)
    placing = {v for it in b.iters if it.axis is Axis.SPATIAL for v in variables(it.binding)}
    spatial = [x for x in loops if x in placing] or [s.add_unit_loop(loops[0] if loops else result)]
    lanes = _lanes(state, name) if not b.is_reduction and not reducing else (1,)
    vector = []
    if len(lanes) > 1:
        spatial[-1], *vector = state.split(spatial[-1], [None, state.choose(f"{name} vector", lanes, block=name)])
    fused = s.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    outer, inner = s.split(fused, [None, s.choose(f"{name} threads", THREADS, block=name, role=Role.PARALLEL)])
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    for loop in vector:
        s.vectorize(loop)
    if result != name:
        s.compute_at(name, inner)
    if reducing or b.is_reduction:
        unroll_upto(state, name, inner, UNROLL)


def _taker(state: OpenSchedule, name: str) -> str | None:
    """The only consumer of a block's one result that no thread runs yet, if it reads each of its elements once."""
    consumers, made = state.get_consumers(name), stores(state.block(name).body)
    if len(consumers) != 1 or len(made) != 1 or state.is_output(name) or _bound(state, consumers[0]):
        return None
    b = state.block(consumers[0])
    read = [x for x in loads(b.body) if x.buffer.name == made[0].buffer.name]
    elements = prod(extent(it) for it in state.block(name).iters if is_spatial(it))
    once = len(set(read)) == 1 and prod(extent(it) for it in b.iters) == elements
    return b.name if once and not b.is_reduction and isinstance(b.body, Store) else None


def _lanes(state: OpenSchedule, name: str) -> tuple[int, ...]:
    """How many elements a thread may move at once: what follows one another in memory and divides the rows."""
    b = state.block(name)
    if not isinstance(b.body, Store) or not b.body.indices or not isinstance(b.body.indices[-1], Var):
        return (1,)
    width = b.body.buffer.shape[-1]
    if not isinstance(width, Const):
        return (1,)
    widest = max(dtypes.nbytes(x.dtype) for x in (b.body.buffer, *(x.buffer for x in loads(b.body.value))))
    most = min(WIDEST // widest, *(extent(it) for it in b.iters[-1:]))
    return tuple(n for n in (1, 2, 4, 8, 16) if n <= most and int(width.value) % n == 0)
