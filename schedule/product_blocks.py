"""Blocks of a matrix product: a population of block sizes, loop orders and packed operands as arrays, and the one of the fewest
cycles.

A row of the population says how many register tiles a block has, how many steps a part of the sum, and which operands are packed.
Its cycles are the arithmetic or, where they are more, the lines that come from L2, L3 and memory (Low et al., Analytical Modeling
is Enough for High-Performance BLIS, ACM TOMS 43(2), 2016). Copies of operands, results of parts, and rows that are fetched from
memory a page apart are not hidden by arithmetic. The busiest thread counts.
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

EXPOSED = 0.02  # part of the cycles of lines that arithmetic does not hide, or of arithmetic that lines do not: it breaks ties
MIN_PART = 128  # least steps of a part of a sum: each part loads and stores all results
TLB_PAGES, PAGE_CYCLES = 64, 1.0  # pages of the first TLB, and cycles of a load beyond it that a core does not hide, of seven
CONVERSION_CYCLES = 1.0  # cycles to convert a vector of halves: two micro-operations


class Operand(NamedTuple):
    """Bytes of an element and of its copy, and between two rows in memory. `pack` are the ways to read it: False in place, True
    packed. A `constant` is packed before any call, a `transposed` one in squares. One is `converted` at each use, or packed."""

    element: int
    packed: int
    row: int
    pack: tuple[bool, ...] = (False, True)
    constant: bool = False
    transposed: bool = False
    converted: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """`outer` products of M by N results and K steps, of `bits`. The first `steps` of K may be cut into parts."""

    M: int
    N: int
    K: int
    bits: int
    left: Operand
    right: Operand
    outer: int = 1
    steps: int = 0  # of the axis that is cut into parts; 0: none
    columns_first: bool = False  # legal: blocks of columns outermost, packed where they are used
    again: bool = False  # a block of rows is read once more, by inner products: threads share rows
    alike: bool = False  # parts of the sum are equal, and follow each other: one tile of rows reads panels whole


class GemmTile(NamedTuple):
    """Sizes of a packed product: a register tile of `mr` rows by `nr` columns, and `kc` steps of the sum. A block has `mc`
    register tiles of rows and `nc` of columns (MC and NC of GotoBLAS in units of MR and NR). `left` and `right`: the operand is
    packed. `by_rows`: threads share rows (or rows and columns). `columns_first`: blocks of columns are outermost."""

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
    """Tiles of a block where there are 1, 2, 3, 4, 6, 8, 12, ... blocks as equal as can be, or as many for each thread."""
    blocks = [n for power in range(tiles.bit_length()) for n in (1 << power, 3 << power)]
    return sorted({ceil(tiles / n) for n in (*blocks, *(n * threads for n in blocks))}, reverse=True)


@lru_cache(4096)
def fastest(p: Product, tile: RegisterTile, processor: CPU, threads: int, by_rows: bool | None = None) -> tuple[GemmTile, float]:
    """The blocks of the fewest cycles, and these."""
    mr, nr, _ = tile
    steps, lanes, ways = p.steps or 1, processor.lanes(p.bits), (False, True)
    parts = [n for n in (1 << i for i in range(steps.bit_length())) if n == 1 or steps >= MIN_PART * n]
    lengths = [ceil(ceil(steps / n) / lanes) * lanes if n > 1 else steps for n in parts]  # whole squares, if transposed
    if p.alike:
        lengths = [steps // n for n in parts if steps % n == 0 and (n == 1 or p.M > mr)]
    axes = (
        lengths,
        block_sizes(ceil(p.M / mr), threads), block_sizes(ceil(p.N / nr), threads), p.left.pack, p.right.pack, ways, ways,
    )  # fmt: skip
    population = [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
    *_, right, rows, first = population
    legal = (rows if threads == 1 else ~(rows & first)) & ~(first & ~(right & p.columns_first))
    if by_rows is not None or p.again:  # inner products follow the rows of a thread
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
    """Cycles of the busiest thread for each row of a population; infinite where L2 does not hold a block."""
    mr, nr, _ = tile
    lanes, memory, result = processor.lanes(p.bits), processor.memory, p.bits // 8
    line, row = np.array(memory.line), np.array(memory.row)
    panel, row_tiles, column_tiles = ceil(nr / lanes), ceil(p.M / mr), ceil(p.N / nr)
    row_blocks, column_blocks, parts = np.ceil(row_tiles / mc), np.ceil(column_tiles / nc), np.ceil((p.steps or 1) / kc)
    depth, m, n = kc * p.K / (p.steps or 1), np.minimum(mc * mr, p.M), np.minimum(nc * nr, p.N)
    sizes = p.M * p.K * p.left.element, p.N * p.K * p.right.element, p.M * p.N * result
    A, B, C = (size / CACHE_LINE_BYTES for size in sizes)
    at_A, at_B = map(processor.home, sizes[:2])

    # Arithmetic. In place, vectors may lie across two lines, and each step has a page of its own; the last panel is narrower.
    starts = range(0, CACHE_LINE_BYTES, gcd(p.right.row, CACHE_LINE_BYTES))
    across = fmean(start + min(lanes, p.N) * p.right.element > CACHE_LINE_BYTES for start in starts)
    pages = np.where(depth * p.right.row > TLB_PAGES * PAGE_BYTES, PAGE_CYCLES * min(1.0, p.right.row / PAGE_BYTES), 0.0)
    conversion = CONVERSION_CYCLES * p.right.converted

    def in_place(vectors: int) -> np.ndarray:
        """Cycles of a step of the panel of these vectors."""
        step = processor.step_cycles(mr * vectors, vectors, mr + across * vectors)
        return np.asarray(step + conversion * vectors + pages) * (vectors > 0)

    vectors = ceil(p.N / lanes) + (p.N % lanes > 0 and not processor.masks)  # a mask takes as long as a vector
    place = (vectors // panel * in_place(panel) + in_place(vectors % panel)) / column_tiles
    steps = np.where(right, processor.step_cycles(mr * panel, panel, mr), place)
    each = parts * (depth * steps + processor.entry_cycles(mr * panel))
    # Tiles of copies that the last blocks fill up are computed, too.
    count = np.where(left, row_blocks * mc, row_tiles) * np.where(right, column_blocks * nc, column_tiles)
    arithmetic = count * each

    # Lines. A block of columns passes for each tile of rows, a block of rows for each block of columns.
    apart = ~right & (nr * p.right.element < p.right.row)  # rows of a panel
    rows = np.where(columns_first, p.M, m) * depth * np.where(left, p.left.packed, p.left.element)
    columns = n * depth * np.where(right, p.right.packed, p.right.element)
    alike = ~right & (depth * gcd(p.right.row, L2_WAY_BYTES) > processor.l2)  # sets of L2, of which rows use few
    held = columns + np.where((column_blocks > 1) & ~columns_first, rows, 0)
    fetched, again = np.where(columns_first, 0, row_blocks), np.maximum(processor.home(held), alike)
    far, nearest = B * fetched * np.where(apart, row[at_B], line[at_B]), line[processor.home(rows + columns)]
    exposed = np.where(apart & (at_B == len(row) - 1), far, 0.0)
    moved = far - exposed + B * (row_tiles - fetched) * np.where(apart, row[again], line[again])
    moved += A * (line[at_A] + (column_blocks - 1) * nearest)
    exposed += A * nearest * p.again
    evicted = mr * depth * p.left.element > CACHE_SHARE * processor.l1
    moved += A * np.where(evicted, column_tiles - column_blocks, 0) * line[0]
    if processor.rows_in_a_set(mr, p.left.row) > processor.l1_ways:  # each element from a line that others have evicted
        moved += np.where(left, 0.0, p.M * p.K * column_tiles * line[0])
    span = np.where(columns_first, p.M, m) * np.where(columns_first | ~by_rows, n, p.N) * result
    exposed += 2 * (parts - 1) * C * line[processor.home(span)]  # results of parts

    # Copies: for all threads in front, or by each thread in its blocks.
    def packing(lines: float, x: Operand, source: int, copy: np.ndarray, number: int) -> np.ndarray:
        squares = number * processor.shuffle_cycles(p.bits) if x.transposed else 0.0
        converted = number / lanes * CONVERSION_CYCLES * x.converted
        return np.asarray(
            (lines * (line[source] + 2 * line[copy] * x.packed / x.element) + squares + converted) * (not x.constant)
        )

    inside = ~columns_first & by_rows  # rows are packed in their blocks
    of_rows = left * packing(A, p.left, at_A, np.where(inside, 0, at_A), p.M * p.K)
    of_columns = right * packing(B, p.right, at_B, np.where(columns_first, processor.home(columns), at_B), p.N * p.K)
    front = np.where(inside, 0.0, of_rows) + np.where(columns_first, 0.0, of_columns)
    # What the other threads have packed comes through L3.
    foreign = line[1] * (threads - 1) / threads
    exposed += foreign * np.where(columns_first | p.right.constant, 0.0, right * B * p.right.packed / p.right.element)
    exposed += foreign * np.where(inside | p.left.constant, 0.0, left * A * p.left.packed / p.left.element)
    own = np.where(inside, of_rows, 0.0) + np.where(columns_first, of_columns, 0.0)
    # The busiest thread has whole blocks: the last ones, which may be smaller, are another's.
    columns_shared = columns_first | ~by_rows
    units = p.outer * np.where(columns_first, 1, row_blocks) * np.where(columns_shared, column_blocks, 1)
    block = np.where(columns_first, 1.0, mc / row_tiles) * np.where(columns_shared, nc / column_tiles, 1.0) / p.outer
    share = np.minimum(np.ceil(units / threads) * block, 1.0)
    # Where threads write the same rows at a time, prefetchers, which stay within a page, run on into lines that another writes.
    same_rows = columns_shared & (np.ceil(units / threads) < column_blocks)
    run = np.minimum(n * result, PAGE_BYTES) / CACHE_LINE_BYTES
    exposed += np.where(same_rows & (threads > 1), p.M * column_blocks * run * line[-1], 0.0)
    both = np.maximum(arithmetic, moved) + EXPOSED * np.minimum(arithmetic, moved)
    total = p.outer * (share * (both + exposed + own) + front / threads)
    fits = held <= max(CACHE_SHARE * processor.l2, held.min())  # L2, where any block does
    return np.where(fits, total, np.inf)
