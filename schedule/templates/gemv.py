"""Matrix times vector: as fast as the matrix comes from memory.

Where the sum runs along the rows of the matrix, some rows far apart are read at once, each a stream that the processor
prefetches. Where it runs across them, some rows are added to the result at a time, from its start to its end. A constant matrix
is packed into panels of a few vectors of columns then: each is one stream, and its sums stay in registers.
"""

from __future__ import annotations

from functools import partial as having
from math import ceil, gcd

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.primitive import find_block
from schedule.rewriting.index_map import IndexMap
from schedule.schedule import Schedule
from tir.ir import Block
from tir.traverse import stores

from .block_analysis import Contraction, at_axes, counted, epilogue, fuse_epilogue, last_axis, loop_of, merged, pairing, size
from .division import doubled, tried
from .gemm import shared_columns
from .lanes import in_lanes
from .marks import done, one_of, share, teams
from .reduction import ROWS_PER_PASS

NAME = "matrix and vector"
SHARED_STREAMS = 2  # panels of `gemm` that are read at a time: with SHARED_VECTORS each, sums enough to hide their latency


def matches(block: Block) -> Contraction | None:
    """The block as the product of a matrix, its `right` factor, and a vector, if it is one."""
    c = pairing(block)
    if c is None or not c.by_columns or not at_axes(c.right) or c.batch or c.rows or len(c.columns) != 1 or len(c.reduction) != 1:
        return None
    return c


def suits(c: Contraction, processor: CPU) -> bool:
    """True for each product of a matrix and a vector."""
    return True


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core: those of reading the matrix once."""
    return c.work * processor.read_cycles(c.bits, c.work * c.bits // 8)


def without_units(s: Schedule, block: str) -> None:
    """Drop axes of one iteration from a product of a matrix and a vector, as where the vector is a matrix of one column."""
    c = pairing(find_block(s.func, block))
    if c is None or not at_axes(c.left) or not at_axes(c.right) or size(c.batch) > 1 or min(size(c.rows), size(c.columns)) > 1:
        return
    axes = find_block(s.func, block).iters
    kept = [it for it in axes if extent(it) > 1]
    if len(c.reduction) < len(kept) < len(axes) and all(extent(it) > 1 for it in c.reduction):
        s.transform_block_layout(block, counted(axes, kept))


def build(s: OpenSchedule, c: Contraction) -> None:
    """Schedule the product of a matrix and a vector, in loops as they were made. ScheduleError where a step is refused."""
    machine, work = s.target.machine, extent(c.columns[0]) * extent(c.reduction[0])
    constant = c.right.buffer.name in s.constants
    way = _build_dot if last_axis(c.right) == c.reduction[0].var.name else _build_panels if constant else _add_rows
    # Since the last call, other kernels have pushed a matrix that is constant out of the second-level cache.
    nbytes = machine.l2 + 1 if constant else work * c.bits // 8
    seed = machine.threads(work * machine.read_cycles(c.bits, nbytes))
    teams(s, c.block, seed, work, lambda new, threads: way(new, c, threads))
    done(s, c.block)


def _build_dot(s: OpenSchedule, c: Contraction, threads: int) -> None:
    """Loops: rows of a thread, next to each other; steps along the rows; rows far apart; lanes.

    At the seed half of the registers have sums, of as many rows as memory has streams. The number of rows, and the threads'
    shares, must be divisible so. Of some sixty patterns of loads from memory of a Zen 5, with software prefetches and without,
    none was faster by more than a few per cent; on a Zen 3 software prefetches read less.
    """
    machine, rows, length = s.target.machine, extent(c.columns[0]), extent(c.reduction[0])
    lanes = machine.lanes(c.bits)
    if length < 2 * lanes:
        if threads > 1:
            share(s, c.block, [loop_of(c.columns[0])])
        return
    numbers = [n for n in range(machine.memory.streams, 0, -1) if n == 1 or (rows % (n * threads) == 0 and rows > n)]
    together = numbers[0]
    fitting = [n * lanes for n in doubled(min(machine.registers // 2, length // (2 * lanes)))]
    most = max(1, machine.registers // (2 * together)) * lanes
    seed = max((n for n in fitting if n <= most and length % n == 0), default=lanes)
    width = s.choose(f"{c.block} lanes", fitting, seed=seed, block=c.block)
    ways = {f"{n} at once": having(_read_rows, c=c, threads=threads, together=n, width=width) for n in numbers}
    one_of(s, f"rows of {c.block}", ways, seed=f"{together} at once", block=c.block)


def _read_rows(s: OpenSchedule, c: Contraction, threads: int, together: int, width: int) -> None:
    """Read `together` rows at once, vectors of `width` elements of each."""
    rows, i = extent(c.columns[0]), loop_of(c.columns[0])
    shared = threads > 1 and rows % (threads * together) == 0 and rows > threads * together
    outer = []
    if shared:
        thread, i = s.split(i, [threads, None])
        outer = [thread]
    if together > 1:
        far, i = s.split(i, [together, None])
        s.reorder(*outer, i, far)
    partial = in_lanes(s, c.block, width)
    if together > 1:
        # Rows that are read together lie together in the partial sums too, which then shrink to registers.
        each = rows // together // (threads if shared else 1)
        partial_sums = stores(s.block(partial).body)[0].buffer
        *dims, _ = partial_sums.shape
        (row,) = [n for n, dim in enumerate(dims) if not dim.is_one]
        tiles = IndexMap.identity(len(dims) + 1).tile(row, together, each)  # in the place of a row: its thread, tile, place there
        s.transform_layout(partial, partial_sums.name, tiles.permute(*[row] * shared, row + 2, row + 1, len(dims) + 2))
        *_, far, k0, k1 = s.get_loops(partial)
        s.reorder(k0, far, k1)
        s.unroll(far)
        s.unroll(s.get_loops(c.block)[-2])
    around = merged(s, partial, c.block, 1 + shared)
    if threads > 1:
        share(s, partial, around[:1])


def _add_rows(s: OpenSchedule, c: Contraction, threads: int) -> None:
    """Loops: columns of a thread; groups of rows; tiles of columns; rows of a group; lanes.

    At the seed a tile fills at most half of the registers, and the tiles are as equal as can be.
    """
    machine = s.target.machine
    rows, columns, lanes = extent(c.reduction[0]), extent(c.columns[0]), machine.lanes(c.bits)
    vectors = ceil(columns / (lanes * threads))
    wide = ceil(vectors / ceil(2 * vectors / machine.registers))
    width = s.choose(f"{c.block} columns", tried(wide, machine.registers, lanes, columns), block=c.block)
    count = s.choose(f"{c.block} rows", tried(ROWS_PER_PASS, 4 * ROWS_PER_PASS, limit=rows), block=c.block)
    each = -(-columns // (width * threads))  # tiles of a thread
    j0, j1, j2 = s.split(loop_of(c.columns[0]), [None, each, width], preserve_unit_iters=False)
    k0, k1 = s.split(loop_of(c.reduction[0]), [None, count], preserve_unit_iters=False)
    s.reorder(j0, k0, j1, k1, j2)
    s.vectorize(j2)
    if threads > 1:
        share(s, c.block, [j0])


def _build_panels(s: OpenSchedule, c: Contraction, threads: int) -> None:
    """Loops: panels of columns (threads); rows; lanes. Elementwise stages after the product are computed with each panel.

    At the seed, a panel has so many vectors that their additions hide each other's latency, the panels as equal as can be. Of
    panels that products of more rows read, too, SHARED_STREAMS are read at a time, where their number divides.
    """
    machine, columns = s.target.machine, extent(c.columns[0])
    lanes = machine.lanes(c.bits)
    vectors, most = ceil(columns / lanes), ceil(machine.fmas * machine.core.latency)
    panels = ceil(ceil(vectors / most) / threads) * threads
    widths = tried(ceil(vectors / panels), machine.registers, lanes, vectors * lanes)
    together: list[int] = []
    if c.right.buffer.name in s.shared:
        widths.insert(0, shared_columns(c, machine))
        together = [gcd(SHARED_STREAMS, ceil(columns / widths[0]))]
    width = s.choose(f"{c.block} columns", list(dict.fromkeys(widths)), block=c.block)
    after = epilogue(s, c.block, anywhere=True)
    panel, *streams, j = s.split(loop_of(c.columns[0]), [None, *together, width])
    s.reorder(panel, *streams, loop_of(c.reduction[0]), j)
    s.vectorize(j)
    copy = s.pack(c.block, c.right.buffer.name, preserve_unit_loops=True)
    s.reorder(loop_of(c.reduction[0]), *streams)
    for stream in streams:
        s.unroll(stream)
    s.vectorize(s.get_loops(copy)[-1])
    done(s, copy)
    fuse_epilogue(s, after, panel)
    if threads > 1:
        share(s, c.block, [panel])
