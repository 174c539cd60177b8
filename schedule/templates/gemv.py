"""Matrix times vector: as fast as the matrix comes from memory.

Where the sum runs along the rows of the matrix, some rows that lie far apart are read at once: each is a stream of its own, which
the processor fetches ahead. Where it runs across them, some rows are added to the result at a time, from its start to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.machine import CPU
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir.ir import Block, Const
from tir.traverse import stores

from .structure import Contraction, extent, is_plain, last_axis, loop_of, merged, pairing, size


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rows of the matrix that are read at once, and vectors of each."""

    rows: int
    vectors: int


def matches(block: Block) -> Contraction | None:
    """The block as the product of a matrix, its `right` factor, and a vector, if it is one."""
    c = pairing(block)
    if c is None or not c.by_columns or not is_plain(c.right) or c.batch or c.rows or len(c.columns) != 1 or len(c.sums) != 1:
        return None
    return c


def without_units(s: Schedule, block: str) -> None:
    """Take axes of one iteration from a product of a matrix and a vector, as where the vector is a matrix of one column."""
    c = pairing(find_block(s.func, block))
    if c is None or not is_plain(c.left) or not is_plain(c.right) or size(c.batch) > 1 or min(size(c.rows), size(c.columns)) > 1:
        return
    axes = [it.var.name for it in find_block(s.func, block).iters]
    kept = [it.var.name for it in find_block(s.func, block).iters if extent(it) > 1]
    if kept != axes and len(kept) > len(c.sums) and all(extent(it) > 1 for it in c.sums):
        s.transform_block_layout(block, f"lambda {', '.join(axes)}: ({', '.join(kept)},)")


def along_rows(c: Contraction) -> bool:
    """Whether the sum runs along the memory of the matrix."""
    return last_axis(c.right) == c.sums[0].var.name


def tiles(c: Contraction, processor: CPU) -> Tiles:
    """Good sizes: 16 vectors in flight, in two rows if their number and the threads' shares of it are even.

    Two streams of eight lines each come faster than one, or than four of four: of some sixty patterns of loads from memory alone,
    with software prefetches and without, none was faster by more than a few per cent.
    """
    if not along_rows(c):
        return Tiles(rows=8, vectors=16)
    threads = _threads(c, processor)
    lanes, length = processor.lanes(c.bits), extent(c.sums[0])
    rows = next(r for r in (2, 3, 1) if extent(c.columns[0]) % (r * threads) == 0 or r == 1)
    vectors = next((v for v in (8, 4, 2) if length % (v * lanes) == 0), 1)
    return Tiles(rows, vectors)


def _threads(c: Contraction, processor: CPU) -> int:
    return processor.threads(extent(c.columns[0]) * extent(c.sums[0]) * processor.reading(c.bits))


def apply(s: Schedule, c: Contraction, processor: CPU, sizes: Tiles | None = None) -> None:
    """Schedule the product of a matrix and a vector, whose loops are still as they were made. ScheduleError where a step is
    refused."""
    t = tiles(c, processor) if sizes is None else sizes
    if along_rows(c):
        _dot(s, c, processor, t)
    else:
        _add_rows(s, c, processor, t)


def _dot(s: Schedule, c: Contraction, processor: CPU, t: Tiles) -> None:
    """Loops: rows of a thread, next to each other; steps along the rows; rows far apart; lanes."""
    rows, length, threads = extent(c.columns[0]), extent(c.sums[0]), _threads(c, processor)
    width = t.vectors * processor.lanes(c.bits)
    i, k = loop_of(c.columns[0]), loop_of(c.sums[0])
    if length < 2 * width:
        if threads > 1:
            s.parallel(i)
        return
    shared = threads > 1 and rows % (threads * t.rows) == 0 and rows > threads * t.rows
    together = t.rows if rows % t.rows == 0 and rows > t.rows else 1
    outer = []
    if shared:
        thread, i = s.split(i, [threads, None])
        outer = [thread]
    if together > 1:
        far, i = s.split(i, [together, None])
    _, lane = s.split(k, [None, width])
    if together > 1:
        s.reorder(*outer, i, far)
    partial = s.rfactor(lane, -1)
    if together > 1:
        # Rows that are read together lie together in the partial sums too, which then shrink to registers.
        each = rows // together // (threads if shared else 1)
        place = f"i % {each}, i // {each} % {together}, v"
        if shared:
            place = f"i // {each * together}, {place}"
        sums = stores(find_block(s.func, partial).body)[0].buffer
        *dims, _ = ["i" if n != Const(1, n.dtype) else f"d{x}" for x, n in enumerate(sums.shape)]
        s.transform_layout(partial, sums.name, f"lambda {', '.join(dims)}, v: ({place})")
        *_, far, k0, k1 = s.get_loops(partial)
        s.reorder(k0, far, k1)
        s.unroll(far)
        s.unroll(s.get_loops(c.block)[-2])
    s.vectorize(s.get_loops(partial)[-1])
    s.annotate(s.get_loops(c.block)[-1], "combine_lanes", True)
    around = merged(s, partial, c.block, 1 + shared)
    if threads > 1:
        s.parallel(around[0])


def _add_rows(s: Schedule, c: Contraction, processor: CPU, t: Tiles) -> None:
    """Loops: columns of a thread; groups of rows; tiles of columns; rows of a group; lanes."""
    columns, threads = extent(c.columns[0]), _threads(c, processor)
    lanes = processor.lanes(c.bits)
    width = min(t.vectors * lanes, columns)
    j, k = loop_of(c.columns[0]), loop_of(c.sums[0])
    each = -(-columns // (width * threads))  # tiles of a thread
    j0, j1, j2 = s.split(j, [None, each, width], preserve_unit_iters=False)
    k0, k1 = s.split(k, [None, min(t.rows, extent(c.sums[0]))], preserve_unit_iters=False)
    s.reorder(j0, k0, j1, k1, j2)
    s.vectorize(j2)
    if threads > 1:
        s.parallel(j0)
