"""Blocks of a matrix product: a population of block sizes, loop orders and packed operands as arrays, and its fastest row.

A row of the population has the register tiles of a block, the steps of a part of the sum, the loop order, and which operands are
packed. Its cycles are those of its arithmetic or those of its lines from L2, L3 and memory, whichever are more (Low et al.,
Analytical Modeling is Enough for High-Performance BLIS, ACM TOMS 43(2), 2016). Arithmetic hides no copies of operands, no results
of parts, and no rows in memory that lie apart. The busiest thread counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd
from statistics import fmean
from typing import NamedTuple

import numpy as np

from .machine import CACHE_LINE_BYTES, CACHE_SHARE, CPU, L2_WAY_BYTES, PAGE_BYTES
from .register_tiles import RegisterTile

EXPOSED_SHARE = 0.02  # share of the fewer cycles, of arithmetic or of lines, that the others do not hide: it breaks ties
MIN_PART_STEPS = 128  # least steps of a part of a sum: each part loads and stores all results
TLB_PAGES = 64  # pages of the first TLB of most x86 cores
PAGE_CYCLES = 1.0  # cycles of a load that misses the first TLB, of about seven, which a core does not hide
CONVERSION_CYCLES = 1.0  # cycles to convert a vector of halves: two micro-operations


class Operand(NamedTuple):
    """An operand: the bytes of an element, of a packed element, and from one row to the next. `pack` has the ways to read it: in
    place (False), packed (True). A `constant` operand is packed before any call, a `transposed` one in squares. A `converted` one
    is converted at each use in place, or once where it is packed."""

    element: int
    packed: int
    row: int
    pack: tuple[bool, ...] = (False, True)
    constant: bool = False
    transposed: bool = False
    converted: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """`outer` products of M by N results of `bits` bits, each a sum of K steps."""

    M: int
    N: int
    K: int
    bits: int
    left: Operand
    right: Operand
    outer: int = 1
    steps: int = 0  # extent of the axis of the sum that may be cut into parts; 0: none
    columns_first: bool = False  # blocks of columns may be outermost, and packed where they are used
    again: bool = False  # inner products read a block of rows once more, so threads divide rows
    alike: bool = False  # parts of the sum are equal; a single tile of rows has only one


class GemmTile(NamedTuple):
    """Sizes of a tiled product: a register tile of `mr` rows by `nr` columns, and `kc` steps of the sum. A block has `mc`
    register tiles of rows and `nc` of columns (MC and NC of GotoBLAS in units of MR and NR). `left` and `right`: the operand is
    packed. `by_rows`: threads divide rows only, not columns. `columns_first`: blocks of columns are outermost."""

    mr: int
    nr: int
    kc: int
    mc: int
    nc: int
    left: bool
    right: bool
    by_rows: bool
    columns_first: bool = False


def block_sizes(tiles: int, threads: int) -> list[int]:
    """Block sizes, in tiles, of 1, 2, 3, 4, 6, 8, 12, ... nearly equal blocks, in all or for each thread."""
    blocks = [n for power in range(tiles.bit_length()) for n in (1 << power, 3 << power)]
    return sorted({ceil(tiles / n) for n in (*blocks, *(n * threads for n in blocks))}, reverse=True)


@lru_cache(4096)
def fastest(p: Product, tile: RegisterTile, processor: CPU, threads: int, by_rows: bool | None = None) -> tuple[GemmTile, float]:
    """The block sizes with the fewest cycles, and those cycles."""
    mr, nr, _ = tile
    steps, lanes, ways = p.steps or 1, processor.lanes(p.bits), (False, True)
    parts = [n for n in (1 << i for i in range(steps.bit_length())) if n == 1 or steps >= MIN_PART_STEPS * n]
    lengths = [ceil(ceil(steps / n) / lanes) * lanes if n > 1 else steps for n in parts]  # whole squares where transposed
    if p.alike:
        lengths = [steps // n for n in parts if steps % n == 0 and (n == 1 or p.M > mr)]
    axes = (
        lengths,
        block_sizes(ceil(p.M / mr), threads), block_sizes(ceil(p.N / nr), threads), p.left.pack, p.right.pack, ways, ways,
    )  # fmt: skip
    population = [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
    *_, right, rows, first = population
    legal = (rows if threads == 1 else ~(rows & first)) & ~(first & ~(right & p.columns_first))
    if by_rows is not None or p.again:  # inner products read the rows of their thread
        legal &= rows == (p.again or by_rows)
    population = [x[legal] for x in population]
    total = cycles(p, tile, processor, threads, *population)
    best = int(np.argmin(total))
    kc, *others = (x[best].item() for x in population)
    return GemmTile(mr, nr, kc if p.steps else p.K, *others), float(total[best])


def cycles(
    p: Product, tile: RegisterTile, processor: CPU, threads: int, kc: np.ndarray, mc: np.ndarray, nc: np.ndarray,
    left: np.ndarray, right: np.ndarray, by_rows: np.ndarray, columns_first: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Cycles of the busiest thread for each row of a population; infinite for blocks that L2 does not hold, if it holds any."""
    mr, nr, _ = tile
    lanes, memory, result = processor.lanes(p.bits), processor.memory, p.bits // 8
    line, row = np.array(memory.line), np.array(memory.row)
    panel, row_tiles, column_tiles = ceil(nr / lanes), ceil(p.M / mr), ceil(p.N / nr)
    row_blocks, column_blocks, parts = np.ceil(row_tiles / mc), np.ceil(column_tiles / nc), np.ceil((p.steps or 1) / kc)
    depth, m, n = kc * p.K / (p.steps or 1), np.minimum(mc * mr, p.M), np.minimum(nc * nr, p.N)
    sizes = p.M * p.K * p.left.element, p.N * p.K * p.right.element, p.M * p.N * result
    A, B, C = (size / CACHE_LINE_BYTES for size in sizes)
    at_A, at_B = map(processor.home, sizes[:2])

    # Arithmetic. In place, vectors may cross lines, large rows have pages of their own, and the last panel is narrower.
    starts = range(0, CACHE_LINE_BYTES, gcd(p.right.row, CACHE_LINE_BYTES))
    across = fmean(start + min(lanes, p.N) * p.right.element > CACHE_LINE_BYTES for start in starts)
    pages = np.where(depth * p.right.row > TLB_PAGES * PAGE_BYTES, PAGE_CYCLES * min(1.0, p.right.row / PAGE_BYTES), 0.0)
    conversion = CONVERSION_CYCLES * p.right.converted

    def in_place(vectors: int) -> np.ndarray:
        """Cycles of a step of a panel of so many vectors."""
        step = processor.step_cycles(mr * vectors, vectors, mr + across * vectors)
        return np.asarray(step + conversion * vectors + pages) * (vectors > 0)

    vectors = ceil(p.N / lanes) + (p.N % lanes > 0 and not processor.masks)  # a mask takes as long as a vector
    unpacked = (vectors // panel * in_place(panel) + in_place(vectors % panel)) / column_tiles
    step = np.where(right, processor.step_cycles(mr * panel, panel, mr), unpacked)
    # Tiles with which copies fill up the last blocks are computed, too.
    count = np.where(left, row_blocks * mc, row_tiles) * np.where(right, column_blocks * nc, column_tiles)
    arithmetic = count * (parts * (depth * step + processor.entry_cycles(mr * panel)))

    # Lines. A block of columns is read for each tile of rows, a block of rows for each block of columns.
    apart = ~right & (nr * p.right.element < p.right.row)  # the rows of a panel are not contiguous
    rows = np.where(columns_first, p.M, m) * depth * np.where(left, p.left.packed, p.left.element)
    columns = n * depth * np.where(right, p.right.packed, p.right.element)
    crowded = ~right & (depth * gcd(p.right.row, L2_WAY_BYTES) > processor.l2)  # the rows use few sets of L2
    held = columns + np.where((column_blocks > 1) & ~columns_first, rows, 0)
    fetched, kept = np.where(columns_first, 0, row_blocks), np.maximum(processor.home(held), crowded)
    far, nearest = B * fetched * np.where(apart, row[at_B], line[at_B]), line[processor.home(rows + columns)]
    exposed = np.where(apart & (at_B == len(row) - 1), far, 0.0)
    moved = far - exposed + B * (row_tiles - fetched) * np.where(apart, row[kept], line[kept])
    moved += A * (line[at_A] + (column_blocks - 1) * nearest)
    exposed += A * nearest * p.again
    evicted = mr * depth * p.left.element > CACHE_SHARE * processor.l1
    moved += A * np.where(evicted, column_tiles - column_blocks, 0) * line[0]
    if processor.rows_in_a_set(mr, p.left.row) > processor.l1_ways:  # other rows evict each line between two elements of it
        moved += np.where(left, 0.0, p.M * p.K * column_tiles * line[0])
    columns_shared = columns_first | ~by_rows
    span = np.where(columns_first, p.M, m) * np.where(columns_shared, n, p.N) * result
    exposed += 2 * (parts - 1) * C * line[processor.home(span)]  # results of parts

    # Copies: before the product, by all threads together, or by each thread in its blocks.
    def packing(lines: float, x: Operand, source: int, copy: np.ndarray, elements: int) -> np.ndarray:
        squares = elements * processor.shuffle_cycles(p.bits) if x.transposed else 0.0
        converted = elements / lanes * CONVERSION_CYCLES * x.converted
        return np.asarray(
            (lines * (line[source] + 2 * line[copy] * x.packed / x.element) + squares + converted) * (not x.constant)
        )

    inside = ~columns_first & by_rows  # rows are packed in their blocks
    of_rows = left * packing(A, p.left, at_A, np.where(inside, 0, at_A), p.M * p.K)
    of_columns = right * packing(B, p.right, at_B, np.where(columns_first, processor.home(columns), at_B), p.N * p.K)
    front = np.where(inside, 0.0, of_rows) + np.where(columns_first, 0.0, of_columns)
    # Lines that other threads have packed come through L3.
    foreign = line[1] * (threads - 1) / threads
    exposed += foreign * np.where(columns_first | p.right.constant, 0.0, right * B * p.right.packed / p.right.element)
    exposed += foreign * np.where(inside | p.left.constant, 0.0, left * A * p.left.packed / p.left.element)
    own = np.where(inside, of_rows, 0.0) + np.where(columns_first, of_columns, 0.0)
    # The busiest thread has whole blocks: those at the end, which may be smaller, are another's.
    units = p.outer * np.where(columns_first, 1, row_blocks) * np.where(columns_shared, column_blocks, 1)
    block = np.where(columns_first, 1.0, mc / row_tiles) * np.where(columns_shared, nc / column_tiles, 1.0) / p.outer
    share = np.minimum(np.ceil(units / threads) * block, 1.0)
    # Where threads write parts of the same rows, a prefetcher runs on, within a page, into lines that another thread writes.
    same_rows = columns_shared & (np.ceil(units / threads) < column_blocks)
    run = np.minimum(n * result, PAGE_BYTES) / CACHE_LINE_BYTES
    exposed += np.where(same_rows & (threads > 1), p.M * column_blocks * run * line[-1], 0.0)
    both = np.maximum(arithmetic, moved) + EXPOSED_SHARE * np.minimum(arithmetic, moved)
    total = p.outer * (share * (both + exposed + own) + front / threads)
    fits = held <= max(CACHE_SHARE * processor.l2, held.min())  # where none fits, the smallest does
    return np.where(fits, total, np.inf)
