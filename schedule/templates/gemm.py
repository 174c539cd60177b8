"""Matrix products: register tiles over packed operands, in the loop order of GotoBLAS.

Rows are tiled by MR and columns by NR, so that a tile of the result stays in registers while all of the sum runs (Goto and van de
Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008; Van Zee and van de Geijn, BLIS, ACM TOMS 41(3),
2015). Operands are packed where that pays: copied in the order in which tiles walk them, and filled up with zeros. Partial tiles
then run the same inner loop as whole ones, and only their stores check bounds.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import prod

from schedule.machine import CPU, PAGE_BYTES
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from schedule.product_blocks import GemmTile, Operand, Product, fastest
from schedule.register_tiles import product_tile
from tir import dtypes
from tir.ir import Block, Const, Iter, Load, Var
from tir.traverse import loads

from .block_analysis import Contraction, at_axes, divisible, epilogue, last_axis, loop_of, pairing, size, store_last
from .division import shares_are_equal
from .lanes import in_lanes
from .marks import UNROLLED_STATEMENTS
from .pack_branches import AS_IT_IS

NAME = "packing"
MAX_SUM_PART = 512  # least steps of a sum that is tried in parts; dot products in lanes have about so many instructions in a part
ADD_LANES_CYCLES = 16.0  # cycles to add up the lanes of an inner product: 16 lanes are halved four times; an estimate
MIN_GAIN_OF_DOTS = 1.06  # least estimated speed-up of a product for which its last columns become inner products
# Vectors of columns in a panel that products of several numbers of rows read. Tiles of up to 14 rows (6 with 16 registers) then
# read it once, and two panels at a time hide the latency of additions for one row.
SHARED_VECTORS = 2
MIN_ROWS_TO_TRANSPOSE = 4  # least rows for which transposing a right operand pays, whose last axis is the sum; an estimate


def matches(block: Block) -> Contraction | None:
    """The block as a matrix product, if it is one: a reduction of pairs of elements whose indices are axes, with rows and
    columns. Products of converted factors, squared distances and shortest paths have the same form."""
    c = pairing(block)
    if c is None or not c.by_columns or not at_axes(c.left) or not at_axes(c.right) or not c.rows:
        return None
    return c


def suits(c: Contraction, processor: CPU) -> bool:
    """True for enough rows to reuse the columns, and to transpose them where that is needed. One row, the product of a matrix and
    a vector, suits in a batch alone."""
    if last_axis(c.right) != c.vector:
        min_rows = MIN_ROWS_TO_TRANSPOSE
    else:
        min_rows = 1 if size(c.batch) > 1 else 2
    return extent(c.rows[-1]) >= min_rows and extent(c.columns[-1]) > 1


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, with packing."""
    few = dot_columns(c, processor, constants)
    others = columns_before(c, few)
    dots = _dot_cycles(c, few, processor) if few else 0.0
    return _tiled_cycles(others, processor) + _pack_cycles(others, processor, constants) + dots


def _pack_cycles(c: Contraction, processor: CPU, constants: frozenset[str]) -> float:
    """Cycles to pack the operands that are packed at each call."""
    t, total = tiles(c, processor, constants), 0.0
    for x, packed, axes in ((c.left, t.left, c.rows), (c.right, t.right, c.columns)):
        if packed and x.buffer.name not in constants:
            elements = size((*c.batch, *axes, *c.reduction))
            across = x is c.right and last_axis(x) != c.columns[-1].var.name
            total += elements * (processor.transpose_cycles if across else processor.pack_cycles)(c.bits, elements * c.bits // 8)
    return total


def _tiled_cycles(c: Contraction, processor: CPU) -> float:
    tile = product_tile(extent(c.rows[-1]), extent(c.columns[-1]), size(c.reduction), processor.lanes(c.bits), processor)
    return size((*c.batch, *c.rows[:-1], *c.columns[:-1])) * tile.cycles


def _dot_cycles(c: Contraction, columns: int, processor: CPU) -> float:
    """Cycles of the last `columns` as inner products. Their rows come from L2, where the other columns left them."""
    step = processor.read_cycles(c.bits) + (columns - 1) * processor.loaded_fma_cycles(c.bits)
    return size((*c.batch, *c.rows, *c.columns[:-1])) * (size(c.reduction) * step + columns * ADD_LANES_CYCLES)


def dot_columns(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> int:
    """The number of last columns, too few for a vector, that are faster as inner products, whose lanes are steps of the sum."""
    few = extent(c.columns[-1]) % processor.lanes(c.bits)
    if few in (0, extent(c.columns[-1])) or len(c.reduction) != 1 or last_axis(c.left) != c.reduction[0].var.name:
        return 0
    others = columns_before(c, few)
    t = tiles(others, processor, constants, again=True)
    if t.left:
        return 0
    apart = _tiled_cycles(others, processor) + _dot_cycles(c, few, processor)
    return few if MIN_GAIN_OF_DOTS * apart < _tiled_cycles(c, processor) else 0


def columns_before(c: Contraction, last: int) -> Contraction:
    """The product without its last columns."""
    *first, it = c.columns
    return replace(c, columns=(*first, replace(it, extent=Const(extent(it) - last))))


def shared_columns(c: Contraction, processor: CPU) -> int:
    """The columns in a panel of a constant that products of several numbers of rows read."""
    return min(SHARED_VECTORS * processor.lanes(c.bits), extent(c.columns[-1]))


def tiles(
    c: Contraction, processor: CPU, constants: frozenset[str] = frozenset(), by_rows: bool | None = None,
    again: bool = False, shared: frozenset[str] = frozenset(),
) -> GemmTile:  # fmt: skip
    """The sizes of a product with the fewest cycles. Threads share rows if `by_rows`, by default if that is faster. With `again`,
    inner products read the rows once more. Panels of `shared` constants are equal for all numbers of rows."""
    M, N, K = extent(c.rows[-1]), extent(c.columns[-1]), size(c.reduction)
    alike = c.right.buffer.name in shared
    tile = product_tile(M, N, K, processor.lanes(c.bits), processor, columns=shared_columns(c, processor) if alike else 0)
    more, transposed = N >= 2 * tile.columns and M > 1, last_axis(c.left) != c.reduction[-1].var.name
    across = last_axis(c.right) != c.columns[-1].var.name
    left, right = (
        Operand(
            dtypes.nbytes(x.buffer.dtype), c.bits // 8 if _is_converted(x, c) else dtypes.nbytes(x.buffer.dtype), row,
            (True,) if must or x.buffer.name in constants else ways, x.buffer.name in constants, turned, _is_converted(x, c),
        )
        for x, row, ways, must, turned in (
            (c.left, K * c.bits // 8, (False, True)[: 1 + more], more and (transposed or _is_converted(c.left, c)), False),
            (c.right, _row_bytes(c), (False, True)[: 2 - across], across and M >= MIN_ROWS_TO_TRANSPOSE, across),
        )
    )  # fmt: skip
    product = Product(
        M, N, K, c.bits, left, right, size((*c.batch, *c.rows[:-1], *c.columns[:-1])),
        extent(c.reduction[-1]) if len(c.reduction) == 1 else 0,
        size(c.rows[:-1]) == 1 and not right.constant, again, alike,
    )  # fmt: skip
    return fastest(product, tile, processor, c.threads(processor), by_rows)[0]


def _is_converted(factor: Load, c: Contraction) -> bool:
    """True for a factor of 16-bit floats that are converted, as they are packed or at each use."""
    return dtypes.is_half(factor.buffer.dtype) and not dtypes.is_half(c.store.buffer.dtype)


def _row_bytes(c: Contraction) -> int:
    """Bytes between two steps of the sum in the right operand; a page where its dimensions are open."""
    place = next(n for n, i in enumerate(c.right.indices) if isinstance(i, Var) and i.name == c.reduction[-1].var.name)
    inner = [dim.value for dim in c.right.buffer.shape[place + 1 :] if isinstance(dim, Const)]
    known = place + 1 + len(inner) == len(c.right.buffer.shape)
    return prod(inner) * dtypes.nbytes(c.right.buffer.dtype) if known else PAGE_BYTES


class Sum(StrEnum):
    """A way to run the sum of a product, and to share it among threads."""

    WHOLE = ""
    IN_PARTS = ", the sum in parts"
    BY_COLUMNS = ", the sum in parts, threads share columns"
    BY_ROWS = ", row by row"  # of an image


def variants(c: Contraction, machine: CPU) -> list[Sum]:
    """The ways to run a sum that are worth a sketch, the seed's first: whole, or in parts if it is long."""
    found = [Sum.WHOLE, *([Sum.IN_PARTS] if extent(c.reduction[-1]) >= MAX_SUM_PART else [])]
    return sorted({*found, _seed(c, machine)[1]}, key=lambda v: (v != _seed(c, machine)[1], list(Sum).index(v)))


def _seed(
    c: Contraction,
    machine: CPU,
    constants: frozenset[str] = frozenset(),
    again: bool = False,
    shared: frozenset[str] = frozenset(),
) -> tuple[GemmTile, Sum]:
    t = tiles(c, machine, constants, None, again, shared)
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
    """Tile a matrix product, whose loops are still as they were made, with its epilogue, if it has one: `after`, or the one
    found.

    Loops, outermost first: batch, other columns and rows; blocks of rows; parts of the sum; blocks of columns; tiles of rows;
    tiles of columns; the sum; rows of a tile, unrolled; columns of a tile, a vector. Blocks of columns that threads share come
    before the parts, those that are packed at their use also before blocks of rows. The epilogue is computed for each tile, or,
    where the sum runs in parts, for each block. Annotation chooses the operands to pack, and the loops that threads share. Rows
    are tiled as those of `like`, if given; `sizes` are other seeds than those of `tiles`. ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    after = after or epilogue(s, c.block, rows=True)
    own_sizes = sizes is None and like is None
    alone = own_sizes and (after is not None or not s.get_consumers(c.block)) and c.right.buffer.name not in s.shared
    few = dot_columns(c, machine, s.constants) if alone and divisible(s.block(c.block)) else 0
    others = columns_before(c, few)
    t, usual = _seed(others, machine, s.constants, bool(few), s.shared)
    variant = usual if variant is None else variant
    if variant is Sum.IN_PARTS and not t.by_rows:  # else one thread may have the only block of rows
        t = tiles(others, machine, s.constants, True, bool(few), s.shared)
    t = sizes or t
    products = (*c.batch, *c.columns[:-1])  # each has columns of its own to pack
    outer = [loop_of(it) for it in (*products, *c.rows[:-1])]
    r0, r1, r2 = _split(s, c, c.rows[-1], (t.mc, t.mr), like)
    last = ""
    if few:
        c, last = _split_last_columns(s, c, few, [*outer, r0], after)
    c0, c1, c2 = _split(s, c, c.columns[-1], (t.nc, t.nr))
    k0, k1 = _split(s, c, c.reduction[-1], (t.kc,)) if variant is not Sum.WHOLE else ("", loop_of(c.reduction[-1]))
    reduce_loops = [*(loop_of(it) for it in c.reduction[:-1]), k1]
    # A block of columns that all blocks of rows use is packed there. Rows that other stages make stay outermost, to be made block
    # by block.
    given = {c.left.buffer.name, c.right.buffer.name} <= s.given
    used_once = t.columns_first and given and own_sizes and not few
    by_columns, parts = used_once or (not few and variant is Sum.BY_COLUMNS), [k0] if k0 else []
    if used_once:
        first = [[*outer, c0], parts, [r0]]
    else:
        first = [[*outer, r0, c0], parts, []] if by_columns else [[*outer, r0], parts, [c0]]
    levels = [*first, [r1], [c1], reduce_loops, [r2], [c2]]
    s.reorder(*(loop for level in levels[1 if last else 0 :] for loop in level))
    if last:
        first[1] = _build_dots(s, c, last, first[0], first[1])
        levels[1] = first[1]
    elif after is not None:
        s.reverse_compute_at(after, c1 if variant is Sum.WHOLE else first[0][-1], preserve_unit_loops=True)
    if after is not None:
        s.scheduled[after] = Stage.FUSED
    depth, threads = len(first[0]), c.threads(machine)
    panels = t.right and size(products) > 1 and shares_are_equal(size(products), threads)
    by_blocks = bool(few) or by_columns or variant is not Sum.WHOLE
    shared = len(products) if panels else depth if by_blocks or t.by_rows else depth + 1
    by_sum = last_axis(c.left) == c.reduction[-1].var.name and c.left.buffer.name not in s.constants
    packing = (
        (c.left.buffer.name, ("by rows" if by_sum else "by tiles") if t.left else AS_IT_IS),
        (c.right.buffer.name, ("at its panels" if panels or used_once else "in front") if t.right else AS_IT_IS),
    )
    s.scheduled[c.block] = Tiled(
        tuple(map(tuple, levels)),
        tile=2,
        depths=(depth,) if by_blocks else (depth, depth + 1),
        shared=shared if threads > 1 else 0,
        pragma=k1,
        statements=UNROLLED_STATEMENTS,
        operands=Operands(by_blocks=True, in_front=by_columns, seed=packing),
    )


def _split_last_columns(
    s: OpenSchedule, c: Contraction, few: int, around: list[str], after: str | None
) -> tuple[Contraction, str]:
    """Split the last columns off into a block of their own, below the loops `around`. So is the epilogue `after`. Returns the
    product of the others, and the name of that block."""
    column = loop_of(c.columns[-1])
    s.reorder(*around, column, *(loop for loop in s.get_loops(c.block) if loop not in (*around, column)))
    if after is not None:
        s.reverse_compute_at(after, around[-1], preserve_unit_loops=True)
    others, last = s.loop_partition(column, [None, few])
    block, made = c.block, columns_before(c, few)
    it = replace(made.columns[-1], binding=Var(others))
    s.rename_tiled(block, f"{block}_{others}")
    return replace(made, block=f"{block}_{others}", columns=(*made.columns[:-1], it)), f"{block}_{last}"


def _build_dots(s: OpenSchedule, c: Contraction, block: str, around: list[str], parts: list[str]) -> list[str]:
    """Compute the block of the last columns as inner products, after each part of the sum of the others. Both are in the same
    loops `around` and `parts`; returns the latter."""
    it, column, r1, r2, k = c.reduction[-1], *s.get_loops(block)[len(around) :]
    s.reorder(r1, column, r2, k)
    load, copy = next(x for x in loads(s.block(block).body) if x.buffer == c.right.buffer), ""
    if last_axis(load) != it.var.name:
        copy = s.cache_read(block, load.buffer.name, "global", [block])
        store_last(s, copy, load.indices, it.var.name)
    partial = in_lanes(s, block, s.target.lanes(c.bits))
    r1, column, r2, k, _ = s.get_loops(partial)[len(around) :]
    place, shared = around[-1], []
    if parts:
        (steps,) = s.lengths[c.block, it.var.name]
        place, k = s.split(k, [-(-extent(it) // steps), None])
        shared = [place]
    s.reorder(*shared, r1, column, k, r2)
    s.unroll(r2)
    s.unroll(s.get_loops(block)[-2])
    if copy:
        s.compute_at(copy, place, preserve_unit_loops=True)
    merged = [s.merge(*pair) for pair in zip(parts, shared, strict=True)]
    for name in (copy, partial, block):
        if name:
            s.scheduled[name] = Stage.DONE
    return merged


def _split(s: OpenSchedule, c: Contraction, it: Iter, seed: tuple[int, ...], like: str | None = None) -> list[str]:
    rows = None if like is None else next(key for key in s.lengths if key[0] == like)  # those of its rows come first
    about = {"extent": extent(it), "vector": it == c.columns[-1], "bits": c.bits}
    sizes = s.sizes(c.block, it.var.name, len(seed), seed=seed, like=rows, **about)
    return s.split(loop_of(it), [None, *sizes])
