"""Blocks that compute each element once: vectors along the memory they write, rows among the threads."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from schedule.guards import Bound, bound_on
from schedule.machine import CPU
from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.dtypes import nbytes
from tir.ir import Block, Const, Expr, Iter, PrimFunc, Store, Var, const_shape
from tir.traverse import loads, variables, walk

from .gemm import walk_columns
from .structure import extent, is_elementwise, loop_of, stored

VECTORS = 8  # in a step of a one-dimensional loop
PIECES = 5  # of a loop that is cut where conditions change
CHUNK = 1 << 14  # elements of a one-dimensional loop that a thread takes at a time


def matches(block: Block) -> bool:
    """Whether a block computes each element of its output once, at axes with constant extents, each with a loop of its own."""
    return is_elementwise(block) and all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in block.iters)


def apply(s: Schedule, block: str, processor: CPU) -> None:
    """Schedule an elementwise block that has its loops to itself: the axis that walks its output innermost, in vectors.

    A single loop is cut into pieces for the threads. ScheduleError where a step is refused.
    """
    b = find_block(s.func, block)
    assert isinstance(b.body, Store)
    axes = {it.var.name: it for it in b.iters}
    order: list[Iter] = [axes[i.name] for i in b.body.indices if isinstance(i, Var)]
    if not order:
        return
    elements = prod(extent(it) for it in order)
    loops = [loop_of(it) for it in order]
    if [x.name for x in loops_of(s.func, block)] != loops:
        s.reorder(*loops)
    bits = max(32, dtypes.bits(b.body.buffer.dtype))
    threads, lanes = processor.threads(elements * processor.copying(bits)) > 1, processor.lanes(bits)
    if (column := _across(b, order, lanes)) is not None:
        loops = shared = _squares(s, block, loops, loop_of(column), max(lanes, processor.lanes(32)))
    else:
        if len(loops) == 1:
            loops = s.split(loops[0], [None, VECTORS * lanes]) if elements > VECTORS * lanes else loops
            if threads:
                outer, inner = s.split(loops[0], [None, max(1, CHUNK // (VECTORS * lanes))])
                loops = [outer, inner, loops[1]]
        for piece in _pieces(s, b, order, loops):
            s.vectorize(piece)
        shared = loops[:1] if len(order) == 1 else loops[:-1]
    if threads and shared and len(loops) > 1:
        loops = [s.fuse(*shared)]
        s.parallel(loops[0])
    stream(s, b, loops[0], processor)


def _pieces(s: Schedule, block: Block, order: list[Iter], loops: list[str]) -> list[str]:
    """Cut the last loop of a block, which is not its only one, where conditions on it in what is computed change, as between the
    parts of a concatenation; returns its pieces."""
    name, cuts = order[-1].var.name, set()
    for c in walk(stored(block).value):
        if isinstance(c, Expr) and variables(c) == {name}:
            match bound_on(c, name):
                case Bound(1, Const(first)):
                    cuts.add(-int(first))
                case Bound(-1, Const(last)):
                    cuts.add(int(last) + 1)
    inside = [0, *sorted(c for c in cuts if 0 < c < extent(order[-1])), extent(order[-1])]
    if len(order) == 1 or not 2 < len(inside) <= PIECES + 1:
        return loops[-1:]
    return s.loop_partition(loops[-1], [b - a for a, b in pairwise(inside)])


def _across(block: Block, order: list[Iter], lanes: int) -> Iter | None:
    """The axis along the memory of an operand that lies across, so that the last axis of `order` walks rows of it that are far
    apart, if there is one and both have `lanes` elements or more."""
    axes = {it.var.name: it for it in order[:-1]}
    for load in loads(block.body):
        last = load.indices[-1] if load.indices else None
        if isinstance(last, Var) and last.name in axes and any(i == order[-1].var for i in load.indices[:-1]):
            return axes[last.name] if min(extent(axes[last.name]), extent(order[-1])) >= lanes else None
    return None


def _squares(s: Schedule, block: str, loops: list[str], column: str, side: int) -> list[str]:
    """Walk `column` and the last of some loops in squares, which are turned round in registers, of `side` elements a side: those
    of a block of 4 by 16 one after the other, so that they are on the same pages. Returns the loops around the blocks."""
    *outer, row = loops
    c0, c1 = s.split(column, [None, 4 * side], preserve_unit_iters=False)
    r0, r1 = s.split(row, [None, 16 * side], preserve_unit_iters=False)
    around = [*(loop for loop in outer if loop != column), c0, r0]
    s.reorder(*around, c1, r1)
    walk_columns(s, c1, r1, side)
    s.vectorize(s.get_loops(block)[-1])
    return around


def stream(s: Schedule, block: Block, loop: str, processor: CPU) -> None:
    """Have a block below a loop write a parameter past the caches, if what it reads and writes is too large to stay in them: else
    each line would be read from memory before it is overwritten."""
    if 2 * traffic(s.func, block) > processor.l3:
        s.annotate(loop, "non_temporal", stored(block).buffer.name)


def traffic(func: PrimFunc, block: Block) -> int:
    """The bytes of the parameters that a block reads and writes, if it writes one; 0 if not, or where a length is symbolic."""
    names = {stored(block).buffer.name, *(x.buffer.name for x in loads(block.body))}
    touched = [p for p in func.buffers if p.name in names]
    if not any(p.name == stored(block).buffer.name for p in touched) or not all(
        isinstance(n, Const) for p in touched for n in p.shape
    ):
        return 0
    return sum(prod(const_shape(p)) * nbytes(p.dtype) for p in touched)
