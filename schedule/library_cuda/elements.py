"""One thread an element of the result, for what has no better pattern: neighbours in memory are neighbours in a warp."""

from __future__ import annotations

from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Axis, Const, Store, Var
from tir.traverse import loads, stores, variables

from ..templates.structure import is_elementwise, iterations
from .launch import follower

THREADS = 256
WIDEST = 16  # bytes that a thread loads or stores at once


def apply(s: Schedule, block: str, done: set[str]) -> None:
    """Bind the elements that a block computes to threads, in blocks of THREADS. A reduction runs in the thread of its element, in
    a register if it has one result, and what uses that element by element follows at once."""
    for p in s.get_producers(block):  # padding and the like is computed where it is read
        if p not in done and is_elementwise(find_block(s.func, p)) and s.get_consumers(p) == [block]:
            s.compute_inline(p)
    computed = find_block(s.func, block)
    reducing = any(it.axis is Axis.REDUCE for it in computed.iters)
    result, after = block, follower(s, block)
    if reducing and after is not None:
        s.set_scope(block, 0, "local")
        result = after
    elif reducing and len(stores(computed.body)) == 1:
        result = s.cache_write(block, 0, "local")
    placing = {v for it in find_block(s.func, result).iters if it.axis is Axis.SPATIAL for v in variables(it.binding)}
    around = s.get_loops(result)
    loops = [x for x in around if x in placing] or [s.add_unit_loop(around[0] if around else result)]
    fused = s.fuse(*loops)
    lanes = 1 if reducing else _lanes(s, block, fused)
    n = iterations(s, fused) or THREADS * lanes
    threads = min(THREADS, -(-n // lanes))
    outer, inner, *rest = s.split(fused, [None, threads, lanes] if lanes > 1 else [None, threads])
    for lane in rest:
        s.vectorize(lane)
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    if result != block:
        s.compute_at(block, inner)
        done.add(result)


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
