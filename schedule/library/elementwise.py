"""Blocks that compute each element once: vectors along the memory they write, rows among the threads."""

from __future__ import annotations

from math import prod

from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.dtypes import nbytes
from tir.ir import Block, Const, Iter, Store, Var, const_shape
from tir.traverse import loads

from .processor import Processor
from .structure import extent, is_elementwise, loop_of

VECTORS = 8  # in a step of a one-dimensional loop
WORTH_THREADS = 1 << 17  # elements below which a second thread costs more than it saves
CHUNK = 1 << 14  # elements of a one-dimensional loop that a thread takes at a time


def matches(block: Block) -> bool:
    """Whether a block computes each element of its output once, at axes with constant extents, each with a loop of its own."""
    return is_elementwise(block) and all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in block.iters)


def apply(s: Schedule, block: str, processor: Processor) -> None:
    """Schedule an elementwise block that has its loops to itself: the axis that walks its output innermost, in vectors.

    A single loop is cut into pieces for the threads. ScheduleError where a step is refused.
    """
    b = find_block(s.func, block)
    if not b.iters:
        return
    assert isinstance(b.body, Store)
    axes = {it.var.name: it for it in b.iters}
    order: list[Iter] = [axes[i.name] for i in b.body.indices if isinstance(i, Var)]
    elements = prod(extent(it) for it in order)
    loops = [loop_of(it) for it in order]
    if [x.name for x in loops_of(s.func, block)] != loops:
        s.reorder(*loops)
    threads = processor.cores > 1 and elements >= WORTH_THREADS
    lanes = processor.lanes(max(32, dtypes.bits(b.body.buffer.dtype)))
    if len(loops) == 1:
        loops = s.split(loops[0], [None, VECTORS * lanes]) if elements > VECTORS * lanes else loops
        if threads:
            outer, inner = s.split(loops[0], [None, max(1, CHUNK // (VECTORS * lanes))])
            loops = [outer, inner, loops[1]]
    s.vectorize(loops[-1])
    stream(s, block, loops[0], processor)
    if threads and len(loops) > 1:
        shared = loops[:1] if len(order) == 1 else loops[:-1]
        s.parallel(s.fuse(*shared) if len(shared) > 1 else shared[0])


def stream(s: Schedule, block: str, loop: str, processor: Processor) -> None:
    """Have a block below a loop write a parameter past the caches, if what it reads and writes is too large to stay in them: else
    each line would be read from memory before it is overwritten."""
    b = find_block(s.func, block)
    assert isinstance(b.body, Store)
    parameters = {p.name: p for p in s.func.buffers}
    touched = {b.body.buffer.name, *(x.buffer.name for x in loads(b.body))} & set(parameters)
    shapes = [(parameters[name], parameters[name].shape) for name in touched]
    if b.body.buffer.name not in touched or not all(isinstance(n, Const) for _, shape in shapes for n in shape):
        return
    if sum(prod(const_shape(p)) * nbytes(p.dtype) for p, _ in shapes) > processor.l3 // 2:
        s.annotate(loop, "non_temporal", b.body.buffer.name)
