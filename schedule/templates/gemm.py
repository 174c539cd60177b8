"""Matrix products: register tiles over packed operands, in the loop order of GotoBLAS.

Rows are tiled by MR and columns by NR, so that a tile of the result stays in registers while all of the sum runs (Goto and van de
Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008; Van Zee and van de Geijn, BLIS, ACM TOMS 41(3),
2015). Both operands are copied into the order in which the tiles walk them, filled up with zeros to whole tiles: partial tiles
then run the same inner loop as whole ones, and only their stores look at the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf

from schedule.machine import CACHE_LINE_BYTES, CPU, PAGE_BYTES
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from tir.ir import Block, Iter

from .block_analysis import Contraction, at_axes, epilogue, last_axis, loop_of, pairing, size
from .division import balanced
from .packs import AS_IT_IS

NAME = "packing"
MAX_WHOLE_SUM = 1024  # steps of a sum that runs at once: one element of packed rows and columns each, which the L1 holds
MAX_SUM_PART = 512  # steps of a part (KC) of a longer sum
# The least uses for which it pays to pack columns: cycles of the multiply-adds with an element, in those of packing it.
MIN_USES_IN_L2, MIN_USES_OUTSIDE = 12, 2  # if multiply-adds do not hide the reads: of columns that L2 holds, and of others
# If they do, of columns that L2 does not hold:
MIN_USES_ALIASED = 15  # whose rows fall into the same set of L1
MIN_USES_ACROSS_LINES, MANY_L2S = 2, 6  # whose rows do not begin at lines, and which are so many times as large as L2
MIN_USES_TIMES_L2S = 120  # others: uses, times how often the columns fill L2
MAX_TILE_VECTORS = 8  # of a tile of all columns, beside which registers have room for two rows
MIN_ROWS_TO_TRANSPOSE = 4  # rows for which it pays to transpose a right operand whose memory the sum walks


@dataclass(frozen=True, slots=True)
class GemmTile:
    """Sizes of a packed product: a register tile of `mr` rows by `nr` columns; `kc` steps of the sum; `mc` register tiles of rows
    and `nc` of columns in a block (MC and NC of GotoBLAS in units of MR and NR); whether `left` and `right` are packed, and
    whether threads share rows (or rows and columns)."""

    mr: int
    nr: int
    kc: int
    mc: int
    nc: int
    left: bool
    right: bool
    by_rows: bool


def matches(block: Block) -> Contraction | None:
    """The block as a matrix product, if it is one: a reduction of pairs of elements whose indices are axes, with rows and
    columns. Products of converted factors, squared distances and shortest paths have the same form."""
    c = pairing(block)
    if c is None or not c.by_columns or not at_axes(c.left) or not at_axes(c.right) or not c.rows:
        return None
    return c


def suits(c: Contraction, processor: CPU) -> bool:
    """Whether rows reuse columns, and there are enough of them to transpose the columns where that is needed."""
    min_rows = 2 if last_axis(c.right) == c.vector else MIN_ROWS_TO_TRANSPOSE
    return extent(c.rows[-1]) >= min_rows and extent(c.columns[-1]) > 1


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """About how many cycles it takes on one core, without copies; infinite for one row of columns that would be transposed for it
    at each call, as a dot product for each column reads them where they are."""
    if extent(c.rows[-1]) == 1 and last_axis(c.right) == c.reduction[-1].var.name and c.right.buffer.name not in constants:
        return inf
    lanes, (rows, columns) = processor.lanes(c.bits), (extent(c.rows[-1]), extent(c.columns[-1]))
    mr, nr = register_tile(rows, columns, size(c.reduction), lanes, processor)
    count = size((*c.batch, *c.rows[:-1], *c.columns[:-1])) * ceil(rows / mr) * ceil(columns / nr)
    return count * processor.tile_cycles(mr, ceil(nr / lanes), size(c.reduction))


def tiles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> GemmTile:
    """Good sizes for a product, computed from its extents and the processor."""
    lanes = processor.lanes(c.bits)
    M, N, K = extent(c.rows[-1]), extent(c.columns[-1]), size(c.reduction)
    outer = size(c.batch) * size(c.rows[:-1]) * size(c.columns[:-1])
    mr, nr = register_tile(M, N, K, lanes, processor)
    chunks = ceil(K / MAX_SUM_PART) if len(c.reduction) == 1 and K > MAX_WHOLE_SUM else 1
    kc = ceil(extent(c.reduction[-1]) / chunks) if len(c.reduction) == 1 else extent(c.reduction[-1])

    element = c.bits // 8
    row_tiles, column_tiles = ceil(M / mr), ceil(N / nr)
    threads = c.threads(processor)
    enough_rows = outer >= 2 * threads or threads == 1
    line = ceil(K / chunks) * element
    constant, pays = c.right.buffer.name in constants, _pays(M, N, K, mr, c.bits, processor)
    # Threads that share columns read theirs alone, where they are packed at once or not at all; else everything is read.
    at_once = M * line <= processor.product_block_bytes(False, chunks > 1)[0] if pays else N >= M
    spare = (0.2 if at_once and not constant else -0.05) if pays or constant else (0.02 if at_once else -0.02)
    # `spare` is the part of threads that may wait, rather than that they share columns; or, where negative, rows.
    by_rows = enough_rows or _shared(M, mr, threads) > _shared(N, nr, threads) + spare
    rows, columns = processor.product_block_bytes(by_rows, chunks > 1)
    mc = balanced(row_tiles, max(1, rows // (mr * line)), 1 if enough_rows or not by_rows else threads)
    nc = balanced(column_tiles, max(1, columns // (nr * line)), 1 if by_rows else threads)
    transposed = last_axis(c.left) is None or last_axis(c.left) != c.reduction[-1].var.name
    left = transposed or chunks > 1 or processor.rows_in_a_set(mr, K * element) >= processor.l1_ways
    return GemmTile(
        mr,
        nr,
        kc,
        mc,
        nc,
        left=(left and N >= 2 * nr and M > 1) or c.left.buffer.name in constants,
        right=pays or constant or (last_axis(c.right) != c.columns[-1].var.name and M >= MIN_ROWS_TO_TRANSPOSE),
        by_rows=by_rows,
    )


def _pays(M: int, N: int, K: int, mr: int, bits: int, processor: CPU) -> bool:
    """Whether it pays to pack columns whose memory a vector walks: each of their elements is used for M rows."""
    row, nbytes = N * bits // 8, N * K * bits // 8
    uses = M * processor.fma_cycles(bits) / processor.pack_cycles(bits, nbytes)
    from_l3 = processor.read_cycles(bits) + processor.read_cycles(bits, processor.l2 + 1)  # of an element, on its way to L1
    if mr * processor.fma_cycles(bits) < from_l3:
        return nbytes > processor.l1 and uses >= (MIN_USES_IN_L2 if nbytes <= processor.l2 else MIN_USES_OUTSIDE)
    if row % PAGE_BYTES == 0:
        return nbytes > processor.l2 and uses >= MIN_USES_ALIASED
    if row % CACHE_LINE_BYTES and nbytes > MANY_L2S * processor.l2:
        return uses >= MIN_USES_ACROSS_LINES
    return nbytes > processor.l2 and uses * nbytes >= MIN_USES_TIMES_L2S * processor.l2


def register_tile(
    M: int, N: int, K: int, lanes: int, processor: CPU, dividing: bool = False, padded: bool = True
) -> tuple[int, int]:
    """Rows and columns of a tile of the result in registers, such that the fewest cycles are spent on the whole of it; with
    `dividing`, columns that divide N, a multiple of the lanes. Where rows are not `padded`, the last tile has only those left.
    """
    best: tuple[float, int, int] | None = None
    # A tile as wide as the matrix may end in a part of a vector, of more than one lane. In other tiles such a vector takes twice
    # as long where columns are so few that they are not packed: it is read and written under a mask in each step.
    vectors, few = ceil(N / lanes), N * K * processor.vector_bits // (8 * lanes) <= processor.l1
    whole = vectors if vectors <= MAX_TILE_VECTORS and N % lanes > 1 else 0
    for v in (*range(1, 5), *range(5, whole + 1)[-1:]):
        if (v > 1 and v * lanes > N and v != whole) or (dividing and N % (v * lanes)):
            continue
        tiles_of_columns = ceil(vectors / v) + (few and whole not in (0, v)) / v
        for m in range(1, M + 1):
            # The fewer of rows and vectors stay in registers for the others; more than four vectors do.
            if m * v > processor.accumulators(min(m, v) if v <= 4 else v):
                break
            cost = rows_cycles(M, m, v, K, processor, padded) * tiles_of_columns
            if best is None or cost < best[0] * 0.995:
                best = (cost, m, v)
    assert best is not None
    _, m, v = best
    return m, min(v * lanes, N)


def rows_cycles(M: int, m: int, vectors: int, K: int, processor: CPU, padded: bool) -> float:
    """Cycles of all tiles of `m` rows for one panel of columns; the last one is a whole one if rows are `padded`."""
    whole, left = divmod(M, m)
    last = processor.tile_cycles(m if padded else left, vectors, K) if left else 0.0
    return whole * processor.tile_cycles(m, vectors, K) + last


def _shared(length: int, tile: int, threads: int) -> float:
    """How busy threads are that share the tiles of a length: 1 where all have as much of it."""
    return length / (ceil(ceil(length / tile) / threads) * tile * threads)


class Sum(StrEnum):
    """How the sum of a product runs, and what threads share."""

    WHOLE = ""
    IN_PARTS = ", the sum in parts"
    BY_COLUMNS = ", the sum in parts, threads share columns"


def variants(c: Contraction, machine: CPU) -> list[Sum]:
    """The ways to run a sum that are worth a sketch, the one of the seed first: the whole at once, or in parts if it is long."""
    found = [Sum.WHOLE, *([Sum.IN_PARTS] if extent(c.reduction[-1]) >= MAX_SUM_PART else [])]
    return sorted({*found, _seed(c, machine)[1]}, key=lambda v: (v != _seed(c, machine)[1], list(Sum).index(v)))


def _seed(c: Contraction, machine: CPU, constants: frozenset[str] = frozenset()) -> tuple[GemmTile, Sum]:
    t = tiles(c, machine, constants)
    if t.kc >= extent(c.reduction[-1]):
        return t, Sum.WHOLE
    return t, Sum.IN_PARTS if t.by_rows else Sum.BY_COLUMNS


def build(
    s: OpenSchedule,
    c: Contraction,
    variant: Sum | None = None,
    like: str | None = None,
    sizes: GemmTile | None = None,
    after: str | None = None,
) -> None:
    """Tile a matrix product, whose loops are still as they were made, with its elementwise consumer, if it has one: `after`, or
    what is found.

    Loops, outermost first: batch, other columns and rows; blocks of rows; parts of the sum; blocks of columns (blocks of columns
    before the others where threads share them, or they are packed where they are used); tiles of rows; tiles of columns; the
    sum; rows of a tile, unrolled; columns of a tile, a vector. The elementwise consumer is computed for each tile, or for each
    block of rows where the sum runs in parts. Which operands are packed, and what threads share, is left to annotation. Rows
    are tiled as those of the product `like`, where it is given; `sizes` are other seeds than those of `tiles`.
    ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    t, usual = _seed(c, machine, s.constants)
    t, variant = sizes or t, usual if variant is None else variant
    after = after or epilogue(s, c.block, rows=True)
    products = (*c.batch, *c.columns[:-1])  # each has columns of its own to pack
    outer = [loop_of(it) for it in (*products, *c.rows[:-1])]
    r0, r1, r2 = _split(s, c, c.rows[-1], (t.mc, t.mr), like)
    c0, c1, c2 = _split(s, c, c.columns[-1], (t.nc, t.nr))
    k0, k1 = _split(s, c, c.reduction[-1], (t.kc,)) if variant is not Sum.WHOLE else ("", loop_of(c.reduction[-1]))
    reduce_loops = [*(loop_of(it) for it in c.reduction[:-1]), k1]
    # Where all rows follow on a block of columns, it is packed where it is used; rows that other stages make stay outermost,
    # that they may be made block by block.
    given = c.right.buffer in s.func.params and (c.left.buffer in s.func.params or c.left.buffer.name in s.constants)
    rows_follow = size(c.rows[:-1]) == 1 and (t.mc * t.mr >= extent(c.rows[-1]) or _rows_stay(c, variant, machine))
    used_once = t.right and given and c.right.buffer.name not in s.constants and rows_follow and sizes is None and like is None
    by_columns, parts = used_once or variant is Sum.BY_COLUMNS, [k0] if k0 else []
    if used_once:
        first = [[*outer, c0], parts, [r0]]
    else:
        first = [[*outer, r0, c0], parts, []] if by_columns else [[*outer, r0], parts, [c0]]
    levels = [*first, [r1], [c1], reduce_loops, [r2], [c2]]
    s.reorder(*(loop for level in levels for loop in level))
    if after is not None:
        s.reverse_compute_at(after, c1 if variant is Sum.WHOLE else first[0][-1], preserve_unit_loops=True)
        s.scheduled[after] = Stage.FUSED
    depth, threads = len(first[0]), c.threads(machine)
    panels = t.right and size(products) > 1 and (size(products) % threads == 0 or size(products) >= 4 * threads)
    shared = len(products) if panels else depth if by_columns or t.by_rows or variant is not Sum.WHOLE else depth + 1
    by_sum = last_axis(c.left) == c.reduction[-1].var.name and c.left.buffer.name not in s.constants
    packing = (
        (c.left.buffer.name, ("by rows" if by_sum else "by tiles") if t.left else AS_IT_IS),
        (c.right.buffer.name, ("at its panels" if panels or used_once else "in front") if t.right else AS_IT_IS),
    )
    s.scheduled[c.block] = Tiled(
        tuple(map(tuple, levels)),
        tile=2,
        depths=(depth, depth + 1) if variant is Sum.WHOLE and not by_columns else (depth,),
        shared=shared if threads > 1 else 0,
        operands=Operands(by_blocks=True, in_front=by_columns, seed=packing),
    )


def _rows_stay(c: Contraction, variant: Sum, machine: CPU) -> bool:
    """Whether one thread reads all rows again for each block of columns from the third-level cache: blocks of columns then pass
    through it once, where packed ones would be written there, and be read again for each block of rows."""
    nbytes = size((*c.rows, *c.reduction)) * c.bits // 8
    return variant is Sum.WHOLE and c.threads(machine) == 1 and nbytes <= machine.l3 // 2


def _split(s: OpenSchedule, c: Contraction, it: Iter, seed: tuple[int, ...], like: str | None = None) -> list[str]:
    rows = None if like is None else next(key for key in s.lengths if key[0] == like)  # those of its rows come first
    sizes = s.sizes(c.block, it.var.name, len(seed), seed=seed, like=rows, vector=it == c.columns[-1], bits=c.bits)
    return s.split(loop_of(it), [None, *sizes])
