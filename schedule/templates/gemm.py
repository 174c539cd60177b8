"""Matrix products: register tiles over packed operands, in the loop order of GotoBLAS.

Rows are tiled by MR and columns by NR, so that a tile of the result stays in registers while all of the sum runs (Goto and van de
Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008; Van Zee and van de Geijn, BLIS, ACM TOMS 41(3),
2015). Operands are packed where that pays: copied in the order in which tiles walk them, and filled up with zeros. Partial tiles
then run the same inner loop as whole ones, and only their stores check bounds.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import ceil, prod
from typing import NamedTuple

from schedule.machine import CACHE_LINE_BYTES, CPU, PAGE_BYTES
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from schedule.product_blocks import GemmTile, Operand, Product, busiest, fastest
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
# Vectors of columns in a panel that products of several numbers of rows read. Tiles of up to 14 rows (6 with 16 registers) then
# read it once, and two panels at a time hide the latency of additions for one row.
SHARED_VECTORS = 2
# Alignment of what malloc gives, and so of numpy's arrays. Networks, whose functions have constants, align theirs to lines.
ARRAY_BYTES = 16


class Plan(NamedTuple):
    """The sizes of a product, its last columns that become inner products, and the cycles of the busiest core times the cores."""

    tile: GemmTile
    dots: int
    cycles: float


def matches(block: Block) -> Contraction | None:
    """The block as a matrix product, if it is one: a reduction of pairs of elements whose indices are axes, with rows and
    columns. Products of converted factors, squared distances and shortest paths have the same form."""
    c = pairing(block)
    if c is None or not c.by_columns or not at_axes(c.left) or not at_axes(c.right) or not c.rows:
        return None
    return c


def suits(c: Contraction, processor: CPU) -> bool:
    """True for enough rows to reuse the columns. One row, the product of a matrix and a vector, suits in a batch alone, where its
    columns need not be transposed."""
    min_rows = 1 if size(c.batch) > 1 and last_axis(c.right) == c.vector else 2
    return extent(c.rows[-1]) >= min_rows and extent(c.columns[-1]) > 1


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset(), columns_first: bool = True) -> float:
    """The estimated cycles of the busiest core times the cores, with packing. Operands are taken as given by default."""
    return plan(c, processor, constants, columns_first=columns_first).cycles


def plan(
    c: Contraction, processor: CPU, constants: frozenset[str] = frozenset(), by_rows: bool | None = None,
    shared: frozenset[str] = frozenset(), dots: bool = True, columns_first: bool = False,
) -> Plan:  # fmt: skip
    """The sizes of a product with the fewest cycles. Threads share rows if `by_rows`, by default if that is faster. With `dots`
    its last columns, too few for a vector, may be inner products, whose lanes are steps of the sum. Panels of `shared` constants
    are equal for all numbers of rows. Blocks of columns may be outermost with `columns_first`."""
    whole = Plan(*_fastest(c, processor, constants, by_rows, shared, columns_first=columns_first))
    few = extent(c.columns[-1]) % processor.lanes(c.bits)
    if not dots or few in (0, extent(c.columns[-1])) or len(c.reduction) != 1 or last_axis(c.left) != c.reduction[0].var.name:
        return whole
    tile, _, others = _fastest(columns_before(c, few), processor, constants, True, shared, True, columns_first)
    apart = Plan(tile, few, others + _dot_cycles(c, few, tile, processor))
    return apart if not tile.left and apart.cycles < whole.cycles else whole


def _dot_cycles(c: Contraction, columns: int, t: GemmTile, processor: CPU) -> float:
    """Cycles of the last `columns` as inner products, a register tile of rows by a column each, with the copies of the columns
    for each block of rows: a line for each step, and a load and a store for each element."""
    tiles, steps, others = ceil(extent(c.rows[-1]) / t.mr), size(c.reduction), size((*c.batch, *c.rows[:-1], *c.columns[:-1]))
    step = processor.step_cycles(t.mr, t.mr + 1, 0)
    dots = tiles * (ceil(steps / processor.lanes(c.bits)) * step + t.mr * processor.lane_sum_cycles(c.bits))
    nbytes = size((*c.columns, *c.reduction)) * c.bits // 8
    blocks, threads = ceil(tiles / t.mc), c.threads(processor)
    copies = blocks * steps * (processor.memory.row[processor.home(nbytes)] / columns + 1)
    return others * columns * float(dots + copies) * float(busiest(others * blocks, threads))


def columns_before(c: Contraction, last: int) -> Contraction:
    """The product without its last columns."""
    *first, it = c.columns
    return replace(c, columns=(*first, replace(it, extent=Const(extent(it) - last))))


def shared_columns(c: Contraction, processor: CPU) -> int:
    """The columns in a panel of a constant that products of several numbers of rows read."""
    return min(SHARED_VECTORS * processor.lanes(c.bits), extent(c.columns[-1]))


def tiles(
    c: Contraction, processor: CPU, constants: frozenset[str] = frozenset(), by_rows: bool | None = None,
    shared: frozenset[str] = frozenset(), columns_first: bool = False,
) -> GemmTile:  # fmt: skip
    """The sizes of `plan`, without inner products."""
    return plan(c, processor, constants, by_rows, shared, False, columns_first).tile


def _fastest(
    c: Contraction, processor: CPU, constants: frozenset[str], by_rows: bool | None, shared: frozenset[str], again: bool = False,
    columns_first: bool = False,
) -> tuple[GemmTile, int, float]:  # fmt: skip
    """The fastest blocks of a product by themselves, and their cycles. With `again`, inner products read the rows once more, and
    the other columns of a stage, a part of each of its rows, can't be packed."""
    M, N, K = extent(c.rows[-1]), extent(c.columns[-1]), size(c.reduction)
    alike = c.right.buffer.name in shared
    tile = product_tile(M, N, K, processor.lanes(c.bits), processor, columns=shared_columns(c, processor) if alike else 0)
    more, transposed = N >= 2 * tile.columns and M > 1, last_axis(c.left) != c.reduction[-1].var.name
    across = last_axis(c.right) != c.columns[-1].var.name
    left, right = (
        Operand(
            dtypes.nbytes(x.buffer.dtype), c.bits // 8 if _is_converted(x, c) else dtypes.nbytes(x.buffer.dtype), row,
            (True,) if must or x.buffer.name in constants else ways, x.buffer.name in constants, turned, _is_converted(x, c),
            CACHE_LINE_BYTES if constants else ARRAY_BYTES,
        )
        for x, row, ways, must, turned in (
            (c.left, K * c.bits // 8, (False, True)[: 1 + more], more and (transposed or _is_converted(c.left, c)), False),
            (c.right, _row_bytes(c), (False, True)[: 1 + (columns_first or not again)], across and M > 1, across),
        )
    )  # fmt: skip
    product = Product(
        M, N, K, c.bits, left, right, size((*c.batch, *c.rows[:-1], *c.columns[:-1])),
        extent(c.reduction[-1]) if len(c.reduction) == 1 else 0,
        columns_first and size(c.rows[:-1]) == 1 and not right.constant and not again, again, alike,
    )  # fmt: skip
    found, cycles = fastest(product, tile, processor, c.threads(processor), by_rows)
    return found, 0, cycles


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


def variants(c: Contraction, machine: CPU, given: frozenset[str] = frozenset()) -> list[Sum]:
    """The ways to run a sum that are worth a sketch, the seed's first: whole, or in parts if there are several. No stage computes
    the buffers `given`."""
    usual = _way(c, tiles(c, machine, columns_first=_are_given(c, given)))
    found = [Sum.WHOLE, *([Sum.IN_PARTS] if extent(c.reduction[-1]) > machine.lanes(c.bits) else [])]
    return sorted({*found, usual}, key=lambda v: (v != usual, list(Sum).index(v)))


def _are_given(c: Contraction, given: frozenset[str]) -> bool:
    """True where no stage computes the operands. Else rows are outermost, and computed block by block."""
    return {c.left.buffer.name, c.right.buffer.name} <= given


def _way(c: Contraction, t: GemmTile) -> Sum:
    """The way to run the sum that sizes mean."""
    if t.kc >= extent(c.reduction[-1]):
        return Sum.WHOLE
    return Sum.IN_PARTS if t.by_rows else Sum.BY_COLUMNS


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
    t, few, _ = plan(
        c, machine, s.constants, None, s.shared, alone and divisible(s.block(c.block)), own_sizes and _are_given(c, s.given)
    )
    usual = _way(c, t)
    variant = usual if variant is None else variant
    if variant is Sum.IN_PARTS and not t.by_rows:  # else one thread may have the only block of rows
        t = tiles(c, machine, s.constants, True, s.shared)
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
    used_once = t.columns_first and own_sizes  # a block of columns that all blocks of rows use is packed there
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
