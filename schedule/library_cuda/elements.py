"""One thread an element of the result, for what has no better pattern: neighbours in memory are neighbours in a warp."""

from __future__ import annotations

from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Axis, Const, Store, Var
from tir.traverse import loads, variables

from ..library.structure import is_elementwise, iterations

THREADS = 256
WIDEST = 16  # bytes that a thread loads or stores at once


def apply(s: Schedule, block: str, after: str | None, done: set[str]) -> None:
    """Bind the spatial loops of a block, fused, to blocks of THREADS threads; its reduction runs in the thread, in a register,
    and the elementwise block `after` follows at once."""
    b = find_block(s.func, block)
    for p in s.get_producers(block):  # padding and the like is computed where it is read
        if p not in done and is_elementwise(find_block(s.func, p)) and s.get_consumers(p) == [block]:
            s.compute_inline(p)
    b = find_block(s.func, block)
    loops = s.get_loops(block)
    driving: dict[Axis, set[str]] = {it.axis: set() for it in b.iters}
    for it in b.iters:
        driving[it.axis] |= variables(it.binding)
    spatial = [x for x in loops if x in driving.get(Axis.SPATIAL, set())]
    reducing = [x for x in loops if x not in spatial]
    if not spatial:
        spatial = [s.add_unit_loop(loops[0] if loops else block)]
    if reducing:
        s.reorder(*spatial, *reducing)
        if after is not None:
            s.set_scope(block, 0, "local")
            copy = after
        else:
            copy = s.cache_write(block, 0, "local")
        done.add(copy)
    fused = s.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    if reducing:
        s.reverse_compute_at(copy, fused)
    lanes = 1 if reducing else _lanes(s, block, fused)
    n = iterations(s, fused) or THREADS * lanes
    threads = min(THREADS, -(-n // lanes))
    if lanes > 1:
        outer, inner, lane = s.split(fused, [None, threads, lanes])
        s.vectorize(lane)
    else:
        outer, inner = s.split(fused, [None, threads])
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")


def _lanes(s: Schedule, block: str, loop: str) -> int:
    """How many elements a thread may move at once: all that the block touches follows its axes, and the rows divide."""
    b = find_block(s.func, block)
    if not isinstance(b.body, Store) or not b.body.indices:
        return 1
    accesses = [(b.body.buffer, b.body.indices), *((x.buffer, x.indices) for x in loads(b.body.value))]
    last = b.body.indices[-1]
    widest = max(dtypes.nbytes(buffer.dtype) for buffer, _ in accesses)
    lanes = WIDEST // widest
    width = b.body.buffer.shape[-1]
    if not (isinstance(last, Var) and isinstance(width, Const)) or lanes < 2:
        return 1
    while lanes > 1 and int(width.value) % lanes:
        lanes //= 2
    return lanes
