"""Large reductions: partial results in the lanes of some registers, and in each thread, combined at the end."""

from __future__ import annotations

from math import ceil, prod

from schedule.machine import CPU
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Axis, Block, Const, Iter, Store, Var
from tir.traverse import loads

from .division import partial_results
from .structure import extent, loop_of, merged, stored

REGISTERS = 4  # of partial results, as the next step can't wait for the last
ROWS = 8  # that are added to many results before the next


def matches(block: Block) -> bool:
    """Whether a block is a reduction at axes with constant extents, each with a loop of its own, that stores at axes."""
    if not block.is_reduction or block.init is None or not isinstance(block.body, Store):
        return False
    plain = all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in block.iters)
    return plain and all(isinstance(i, Var | Const) for i in block.body.indices)


def apply(s: Schedule, block: str, processor: CPU, registers: int = REGISTERS) -> None:
    """Schedule a reduction that has its loops to itself. ScheduleError where a step is refused.

    Where it runs along the memory that it reads, lanes hold partial results, `registers` vectors of them; where it runs across,
    each lane has a result of its own. Threads share the results, or, if there are too few, parts of the reduction.
    """
    b = find_block(s.func, block)
    spatial = [it for it in b.iters if it.axis is Axis.SPATIAL]
    sums = [it for it in b.iters if it.axis is Axis.REDUCE]
    elements = prod(extent(it) for it in b.iters)
    bits = max(32, dtypes.bits(stored(b).buffer.dtype))
    threads, lanes = processor.threads(elements * processor.copying(bits)), processor.lanes(bits)
    along = _along(b, sums)
    if along is None:
        _across(s, block, spatial, sums, threads, registers * lanes)
        return
    kept = [loop_of(it) for it in spatial]
    others = [loop_of(it) for it in sums if it is not along]
    s.reorder(*kept, *others, loop_of(along))
    if threads > 1 and prod(extent(it) for it in spatial) < 4 * threads:
        longest = max(sums, key=extent)
        part, _ = s.split(loop_of(longest), [threads, None], preserve_unit_iters=False)
        length = ceil(extent(longest) / threads) if longest is along else extent(along)
        block = s.rfactor(part, 0)
        kept = [part, *kept]
        s.reorder(*kept, *(loop for loop in s.get_loops(block) if loop not in kept))
    else:
        length = extent(along)
    shared = _lanes(s, block, length, lanes, registers, kept)
    if threads > 1 and shared:
        s.parallel(shared[0])


def _along(block: Block, sums: list[Iter]) -> Iter | None:
    """The axis of the reduction that walks the last dimension of what is read, if one does."""
    for load in loads(block.body):
        if load.buffer.name != stored(block).buffer.name and load.indices:
            found = next((it for it in sums if load.indices[-1] == it.var), None)
            if found is not None:
                return found
    return None


def _lanes(s: Schedule, block: str, length: int, lanes: int, registers: int, kept: list[str]) -> list[str]:
    """Cut the innermost loop of a reduction, of `length` iterations, into lanes; returns the loops that stand for `kept`."""
    width = partial_results(length, lanes, registers)
    if length < 2 * width:
        return kept
    _, lane = s.split(s.get_loops(block)[-1], [None, width])
    partial = s.rfactor(lane, -1)
    s.vectorize(s.get_loops(partial)[-1])
    s.annotate(s.get_loops(block)[-1], "combine_lanes", True)
    return merged(s, partial, block, len(kept))


def _across(s: Schedule, block: str, spatial: list[Iter], sums: list[Iter], threads: int, width: int) -> None:
    """Each lane has a result of its own: the last dimension that is stored in vectors, and all of the reduction for each. Where
    there are many results, some rows are added to all of them before the next, so that memory is read in its order."""
    b = find_block(s.func, block)
    last = stored(b).indices[-1] if stored(b).indices else None
    vector = next((it for it in spatial if it.var == last), None)
    if vector is None:
        return
    columns, rows = extent(vector), extent(sums[-1])
    outer = [loop_of(it) for it in spatial if it is not vector]
    alone = prod(extent(it) for it in spatial if it is not vector) >= 4 * threads
    if columns >= 4 * width and rows >= 4 * ROWS:
        share = ceil(columns / (2 * width * (1 if alone else threads)))
        j0, j1, j2 = s.split(loop_of(vector), [None, share, min(2 * width, columns)], preserve_unit_iters=False)
        k0, k1 = s.split(loop_of(sums[-1]), [None, ROWS])
        s.reorder(*outer, j0, *(loop_of(it) for it in sums[:-1]), k0, j1, k1, j2)
    else:
        j0, j2 = s.split(loop_of(vector), [None, min(width, columns)], preserve_unit_iters=False)
        s.reorder(*outer, j0, *(loop_of(it) for it in sums), j2)
    s.vectorize(j2)
    if threads > 1:
        s.parallel(s.fuse(*outer, j0) if outer else j0)
