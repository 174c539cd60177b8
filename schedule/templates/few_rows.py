"""Few rows times a matrix: as fast as the matrix comes from memory, where registers do not hold a whole row of results.

Tiles of columns over the whole sum would read a short piece of each row of the matrix at a time, which prefetchers do not follow.
So rows of the matrix far apart are added to the results together, from their begins to their ends. Each part of the matrix is
then one stream, and the results stay in the first-level cache.
"""

from __future__ import annotations

from math import ceil, inf

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from tir.ir import Block

from . import gemm
from .block_analysis import Contraction, epilogue, fuse_epilogue, last_axis, loop_of, size
from .marks import done, share_out

NAME = "few rows and a matrix"
STREAMS = (8, 4)  # numbers of parts of the matrix; on a Zen 4, 576 columns came at 27 GB/s by 8 or 4, 22 by 2, 15 by 1
MAX_VECTORS = 4  # most vectors of columns in a tile; with one to six, the same matrix came equally fast


def matches(block: Block) -> Contraction | None:
    """The block as a product by a matrix whose rows it walks, with one axis of the sum."""
    c = gemm.matches(block)
    return c if c is not None and len(c.reduction) == 1 and last_axis(c.right) == c.vector else None


def suits(c: Contraction, processor: CPU) -> bool:
    """True where results and matrix are large and the rows few: reading the matrix from behind L1 takes longer than products."""
    vectors, rows = ceil(extent(c.columns[-1]) / processor.lanes(c.bits)), size(c.rows)
    large = size((*c.columns, *c.reduction)) * c.bits > 8 * processor.l1
    many = rows * vectors > processor.accumulators(vectors) and _streams(c) > 1
    return large and many and rows * processor.fma_cycles(c.bits) < processor.read_cycles(c.bits, processor.l3 + 1)


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core. Streams are prefetched, so a step of a tile takes its multiply-adds and loads, and moving
    results from L2 where L1 does not hold them. Elements of rows that evict each other come from L2 for each tile. A matrix that
    is constant is packed."""
    if c.right.buffer.name in constants:
        return inf
    rows, columns, streams, width = size(c.rows), extent(c.columns[-1]), _streams(c), _vectors(c, processor)
    step = processor.step_cycles(rows * streams * width, (streams + 2 * rows) * width, rows * streams, waits=False)
    step += processor.entry_cycles(0)
    if rows * columns * c.bits > 8 * processor.l1:
        step += 2 * rows * width * processor.lanes(c.bits) * processor.read_cycles(c.bits, processor.l1 + 1)
    along = last_axis(c.left) == c.reduction[0].var.name
    if along and processor.rows_in_a_set(rows, extent(c.reduction[0]) * c.bits // 8) > processor.l1_ways:
        step += rows * streams * processor.memory.line[0]
    turns = columns / (width * processor.lanes(c.bits)) * ceil(extent(c.reduction[0]) / streams)
    return float(size((*c.batch, *c.columns[:-1])) * turns * step)


def _vectors(c: Contraction, processor: CPU) -> int:
    """The vectors of columns of a tile at the seed: the results of a step fill half of the registers at most."""
    return max(1, min(MAX_VECTORS, processor.registers // (2 * size(c.rows))))


def _streams(c: Contraction) -> int:
    """The number of parts of the matrix that are read together: equal ones, or else the last ones have fewer rows."""
    steps = extent(c.reduction[0])
    return max((n for n in STREAMS if steps % n == 0), default=STREAMS[0] if steps > STREAMS[0] else 1)


def build(s: OpenSchedule, c: Contraction) -> None:
    """Schedule the product, whose loops are still as they were made, with its epilogue.

    Loops, outermost first: batch, other columns and shares (threads); rows of a part; tiles of columns; parts; rows; lanes.
    """
    machine: CPU = s.target.machine
    after, rows = epilogue(s, c.block), [loop_of(it) for it in c.rows]
    tried = (_vectors(c, machine), *range(1, MAX_VECTORS + 1))
    widths = [min(n * machine.lanes(c.bits), extent(c.columns[-1])) for n in tried]
    width = s.choose(f"{c.block} columns", list(dict.fromkeys(widths)), block=c.block)
    tile, lane = s.split(loop_of(c.columns[-1]), [None, width])
    part, step = s.split(loop_of(c.reduction[0]), [_streams(c), None])
    outer, total = [loop_of(it) for it in (*c.batch, *c.columns[:-1])], cycles(c, machine)
    if size((*c.batch, *c.columns[:-1])) % (threads := machine.threads(total)):
        share, tile = s.split(tile, [threads, None])
        outer.append(share)
    s.reorder(*outer, step, tile, part, *rows, lane)
    s.vectorize(lane)
    for loop in (part, *rows):
        s.unroll(loop)
    if outer:
        fuse_epilogue(s, after, outer[-1])
        share_out(s, c.block, outer, c.work, total / c.work)
    done(s, c.block)
