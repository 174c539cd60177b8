"""Blocks of a matrix product: a population of block sizes, loop orders and packed operands as arrays, and its fastest row.

A row of the population has the register tiles of a block, the steps of a part of the sum, the loop order, and which operands are
packed. Its cycles are those of its arithmetic and of its lines from L2, L3 and memory, which hide each other (Low et al.,
Analytical Modeling is Enough for High-Performance BLIS, ACM TOMS 43(2), 2016). Arithmetic hides no copies of operands, no results
of parts, no columns from L3 or memory, and not the latency of rows where a prefetcher begins. The busiest thread counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd
from statistics import fmean
from typing import NamedTuple

import numpy as np

from .machine import CACHE_LINE_BYTES, CACHE_SHARE, CPU, EXPOSED_LOADS, L2_WAY_BYTES, PAGE_BYTES, Amount
from .register_tiles import RegisterTile

# Share of the fewer cycles, of arithmetic or of the lines that move meanwhile, that the others do not hide. It breaks ties: on a
# Zen 4, blocks chosen so of 24 products with some 28 blocks each take 1.037 x the best, without it 1.052 x.
EXPOSED_SHARE = 0.02
# Share of the cycles of rows from L3 that arithmetic does not hide. Fitted on a Zen 3: products with 2000 and 3072 steps were
# 7 to 9 % slower where rows came again for each panel of columns than in blocks of several panels.
EXPOSED_ROWS = 0.1
# Lines that most cores fetch at once, from 10 (Haswell) to 24 (Zen 3): `Memory.row` times so many is the latency.
MISSES_IN_FLIGHT = 12
# Pages of the first and the second TLB of most x86 cores. The second one has 1536 on Skylake, 2048 on a Zen 3, where a load took
# 7 ns with 1,228 pages in turn, and 46 ns with 4,144.
TLB_PAGES, TLB2_PAGES = 64, 2048
# Cycles of a load that misses the first TLB, of about seven, which a core does not hide. Without it, blocks of the products above
# take 1.12 x the best.
PAGE_CYCLES = 1.0


class Operand(NamedTuple):
    """An operand: the bytes of an element, of a packed element, and from one row to the next. `pack` has the ways to read it: in
    place (False), packed (True). A `constant` operand is packed before any call, a `transposed` one in squares. A `converted` one
    is converted at each use in place, or once where it is packed. Its memory begins at a multiple of `alignment` bytes."""

    element: int
    packed: int
    row: int
    pack: tuple[bool, ...] = (False, True)
    constant: bool = False
    transposed: bool = False
    converted: bool = False
    alignment: int = CACHE_LINE_BYTES


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


def overlapped(arithmetic: Amount, moved: Amount) -> Amount:
    """Cycles of arithmetic together with those of the lines that move meanwhile."""
    return np.maximum(arithmetic, moved) + EXPOSED_SHARE * np.minimum(arithmetic, moved)


def lost(used: Amount, capacity: int) -> Amount:
    """The share of what fills a cache or a TLB that is gone when it is used again: nothing of what leaves some of the capacity to
    other data, and all of what does not fit, as the oldest goes first."""
    return np.clip((np.asarray(used) / capacity - CACHE_SHARE) / (1 - CACHE_SHARE), 0, 1)


def lines_of_pieces(nbytes: int, x: Operand) -> float:
    """The mean number of lines of a piece of `nbytes` bytes, where such pieces follow each other in the rows of an operand."""
    starts = range(0, CACHE_LINE_BYTES, gcd(nbytes, x.row, x.alignment))
    return fmean(ceil((start + nbytes) / CACHE_LINE_BYTES) for start in starts)


def busiest(units: Amount, threads: int) -> Amount:
    """The work of the thread that has most of so many equal units, over that of an equal share."""
    return np.ceil(units / threads) * threads / units


def block_sizes(tiles: int, threads: int) -> list[int]:
    """Block sizes, in tiles, of 1, 2, 3, 4, 6, 8, 12, ... nearly equal blocks, in all or for each thread."""
    blocks = [n for power in range(tiles.bit_length()) for n in (1 << power, 3 << power)]
    return sorted({ceil(tiles / n) for n in (*blocks, *(n * threads for n in blocks))}, reverse=True)


def part_lengths(p: Product, tile: RegisterTile, processor: CPU) -> list[int]:
    """Steps of the sum in 1, 2, 4, ... parts, up to parts whose rows and columns of a register tile stay in L1."""
    if not p.steps:
        return [1]
    step = p.K // p.steps * (min(p.M, tile.rows) * p.left.element + tile.columns * p.right.packed)
    lanes, most = processor.lanes(p.bits), 1
    while p.steps * step > most * processor.l1 and p.steps > most * lanes:
        most *= 2
    counts = [1 << n for n in range(most.bit_length())]
    if p.alike:
        return [p.steps // n for n in counts if p.steps % n == 0 and (n == 1 or p.M > tile.rows)]
    return [ceil(ceil(p.steps / n) / lanes) * lanes if n > 1 else p.steps for n in counts]  # whole squares where transposed


@lru_cache(4096)
def fastest(p: Product, tile: RegisterTile, processor: CPU, threads: int, by_rows: bool | None = None) -> tuple[GemmTile, float]:
    """The block sizes with the fewest cycles of the busiest thread, and the fewest times the threads without waits for lines, as
    estimates of other templates do not have those."""
    mr, nr, _ = tile
    ways = (False, True)
    axes = (
        part_lengths(p, tile, processor),
        block_sizes(ceil(p.M / mr), threads), block_sizes(ceil(p.N / nr), threads), p.left.pack, p.right.pack, ways, ways,
    )  # fmt: skip
    population = [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
    *_, right, rows, first = population
    legal = (rows if threads == 1 else ~(rows & first)) & ~(first & ~(right & p.columns_first))
    if by_rows is not None or p.again:  # inner products read the rows of their thread
        legal &= rows == (p.again or by_rows)
    population = [x[legal] for x in population]
    blocks = Blocks(p, tile, processor, threads, *population)
    best = int(np.argmin(blocks.cycles()))
    kc, *others = (x[best].item() for x in population)
    return GemmTile(mr, nr, kc if p.steps else p.K, *others), float(blocks.cycles(waits=False).min()) * threads


class Blocks:
    """A population of blocks, and the terms of their cycles: an element of each array for each row."""

    def __init__(
        self, p: Product, tile: RegisterTile, processor: CPU, threads: int, kc: np.ndarray, mc: np.ndarray, nc: np.ndarray,
        left: np.ndarray, right: np.ndarray, by_rows: np.ndarray, columns_first: np.ndarray,
    ) -> None:  # fmt: skip
        self.p, self.processor, self.threads, self.mc, self.nc = p, processor, threads, mc, nc
        self.left, self.right, self.columns_first = left, right, columns_first
        self.mr, self.nr, _ = tile
        self.line, self.row = np.array(processor.memory.line), np.array(processor.memory.row)
        self.latency = MISSES_IN_FLIGHT * self.row * (np.arange(len(self.row)) > 0)  # arithmetic hides that of L2
        self.row_tiles, self.column_tiles = ceil(p.M / self.mr), ceil(p.N / self.nr)
        self.row_blocks, self.column_blocks = np.ceil(self.row_tiles / mc), np.ceil(self.column_tiles / nc)
        self.parts, self.depth = np.ceil((p.steps or 1) / kc), kc * p.K / (p.steps or 1)
        sizes = p.M * p.K * p.left.element, p.N * p.K * p.right.element, p.M * p.N * p.bits // 8
        self.A, self.B, self.C = (size / CACHE_LINE_BYTES for size in sizes)
        self.at_A, self.at_B = map(processor.home, sizes[:2])
        self.m, self.n = np.where(columns_first, p.M, np.minimum(mc * self.mr, p.M)), np.minimum(nc * self.nr, p.N)
        self.rows = self.m * self.depth * np.where(left, p.left.packed, p.left.element)  # bytes of a block
        self.columns = self.n * self.depth * np.where(right, p.right.packed, p.right.element)
        self.held = self.columns + self.rows * self.mr / self.m  # between two uses of columns
        self.apart = ~right & (self.nr * p.right.element < p.right.row)  # the rows of a panel are not contiguous
        self.fetched = np.where(columns_first, 0, self.row_blocks)
        self.columns_shared, self.inside = columns_first | ~by_rows, ~columns_first & by_rows  # rows are packed in their blocks

    def cycles(self, waits: bool = True) -> np.ndarray:
        """Cycles of the busiest thread; infinite for blocks that L2 does not hold, if it holds any."""
        (columns, fetched), (rows, late), (front, own) = self.of_columns(waits), self.of_rows(), self.copies()
        alone = fetched + late + self.results() + self.foreign() + own
        share, same_rows = self.share()
        total = share * (overlapped(self.arithmetic(), columns + rows) + alone + same_rows) + front / self.threads
        fits = self.held <= max(CACHE_SHARE * self.processor.l2, self.held.min())  # where none fits, the smallest does
        return np.where(fits, self.p.outer * total, np.inf)

    def arithmetic(self) -> np.ndarray:
        """Cycles of all register tiles. In place, vectors may cross lines, large rows have pages of their own, and the last panel
        is narrower."""
        p, processor, lanes = self.p, self.processor, self.processor.lanes(self.p.bits)
        panel = ceil(self.nr / lanes)
        across = lines_of_pieces(min(lanes, p.N) * p.right.element, p.right) - 1
        pages = PAGE_CYCLES * min(1.0, p.right.row / PAGE_BYTES) * lost(self.depth * p.right.row / PAGE_BYTES, TLB_PAGES)
        conversion = processor.conversion_cycles * p.right.converted

        def in_place(vectors: int) -> np.ndarray:
            """Cycles of a step of a panel of so many vectors."""
            step = processor.step_cycles(self.mr * vectors, vectors, self.mr + across * vectors)
            return np.asarray(step + conversion * vectors + pages) * (vectors > 0)

        vectors = ceil(p.N / lanes) + (p.N % lanes > 0 and not processor.masks)  # a mask takes as long as a vector
        unpacked = (vectors // panel * in_place(panel) + in_place(vectors % panel)) / self.column_tiles
        step = np.where(self.right, processor.step_cycles(self.mr * panel, panel, self.mr), unpacked)
        # Tiles with which copies fill up the last blocks are computed, too.
        count = np.where(self.left, self.row_blocks * self.mc, self.row_tiles)
        count = count * np.where(self.right, self.column_blocks * self.nc, self.column_tiles)
        return np.asarray(count * self.parts * (self.depth * step + processor.entry_cycles(self.mr * panel)))

    def of_columns(self, waits: bool) -> tuple[np.ndarray, np.ndarray]:
        """Cycles of the lines of columns, and of those that arithmetic does not hide: of all blocks of rows but the first from L3
        or memory, and of rows in memory that lie apart. With `waits` also those of `waits`. A block of columns is read for each
        tile of rows."""
        p, row, line = self.p, self.row, self.line
        crowded = ~self.right & (self.depth * gcd(p.right.row, L2_WAY_BYTES) > self.processor.l2)  # the rows use few sets of L2
        kept = np.maximum(self.processor.home(self.held), crowded)
        far, near = (self.B * np.where(self.apart, row[level], line[level]) for level in (self.at_B, kept))
        first = np.minimum(self.fetched, 1) if self.at_B else self.fetched  # all of them where columns come from L2
        hidden = np.where(self.apart & (self.at_B == len(row) - 1), 0, first)
        exposed, late = self.waits() if waits else (0.0, 0.0)
        if self.at_B:
            hidden = hidden * (1 - exposed)
        return far * hidden + near * (self.row_tiles - self.fetched), far * (self.fetched - hidden) + late

    def waits(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of lines of columns from L3 that wait for each other, and cycles in which those from L2 do. Lines that lie
        apart are not prefetched, and wait for the share of a step in which lines come. L1 keeps a block of columns whose rows do
        not fall into few of its sets."""
        p, processor, row = self.p, self.processor, self.row
        step = processor.step_cycles(self.mr * ceil(self.nr / processor.lanes(p.bits)), 0, 0)
        lines = self.apart * lines_of_pieces(self.nr * p.right.element, p.right)
        near, far = (np.minimum(1, lines * row[level] / step) for level in (0, self.at_B))
        again = lost(np.maximum(self.held, self.depth * gcd(p.right.row, PAGE_BYTES)), processor.l1)
        visits = again * (self.row_tiles - self.fetched)
        if not self.at_B:
            visits = visits + lost(self.B * CACHE_LINE_BYTES, processor.l1) * self.fetched
        return far, visits * self.column_tiles * p.K * lines * row[0] * near

    def of_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles of the lines of rows, and of those and the latencies that arithmetic does not hide. A block of rows is read for
        each block of columns. A prefetcher begins anew at each part of a row, and at each page in memory."""
        p, processor, line = self.p, self.processor, self.line
        rows, visits = self.rows * np.where(self.columns_shared, self.parts, 1), self.column_blocks - 1 + p.again
        others = (self.threads - 1) * np.where(self.columns_first, self.columns, rows + self.columns)  # L3 has those, too
        between = rows + self.columns + self.m * self.n * p.bits // 8
        again = np.where(between > processor.l2_reuse_bytes, processor.home(between + others), 0)
        far = self.A * visits * line[again]
        length, whole = self.depth * p.left.element / PAGE_BYTES, self.left | (self.parts == 1)
        begins = p.M * self.parts * np.where(whole, length * (again == len(line) - 1), np.ceil(length))
        waits = visits * begins * self.latency[again] + EXPOSED_ROWS * far * (again == 1)
        waits += visits * self.walks(p.M * self.parts * np.where(whole, length, np.ceil(length)))
        moved = self.A * line[processor.level(p.M * p.K * p.left.element)] + far
        evicted = self.mr * self.depth * p.left.element > CACHE_SHARE * processor.l1
        moved += self.A * np.where(evicted, self.column_tiles - self.column_blocks, 0) * line[0]
        ways = processor.rows_in_a_set(self.mr, p.left.row)
        evicting = EXPOSED_LOADS * lost(ways + 1, processor.l1_ways)  # lines of columns pass, too
        waits += np.where(self.left, 0.0, evicting * self.A * self.column_tiles * line[0])
        if ways > processor.l1_ways:  # other rows evict each line between two elements
            moved += np.where(self.left, 0.0, p.M * p.K * self.column_tiles * line[0])
        return np.asarray(moved), np.asarray(waits)

    def walks(self, pages: np.ndarray) -> np.ndarray:
        """Cycles to translate the addresses of `pages` of rows, and of results, for each block of columns: a load from L3 for
        each page that the second TLB has lost since the last block."""
        results = self.p.M * np.maximum(1, self.n * self.p.bits // 8 / PAGE_BYTES)
        block = (pages / np.where(self.columns_shared, 1, self.parts) + results) * self.m / self.p.M
        return np.asarray((pages + self.parts * results) * lost(block, TLB2_PAGES) * self.latency[1])

    def results(self) -> np.ndarray:
        """Cycles of the results of parts of the sum, which are stored and loaded again. A prefetcher begins at each row."""
        span = self.m * np.where(self.columns_shared, self.n, self.p.N) * self.p.bits // 8
        home = self.processor.home(span)
        begins = self.p.M * self.column_blocks * self.latency[home]
        return np.asarray((self.parts - 1) * (2 * self.C * self.line[home] + begins))

    def copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles to pack operands before the product, by all threads together, and by each thread in its blocks. Of a piece of a
        row in memory, the first line is not prefetched."""
        p, processor, first = self.p, self.processor, self.columns_first

        def packing(lines: float, x: Operand, source: int, copy: np.ndarray, elements: int, pieces: Amount) -> np.ndarray:
            squares = elements * processor.shuffle_cycles(p.bits) if x.transposed else 0.0
            converted = elements / processor.lanes(p.bits) * processor.conversion_cycles * x.converted
            moved = lines * (self.line[source] + 2 * self.line[copy] * x.packed / x.element)
            moved += pieces * (self.row - self.line)[source] * (source == len(self.row) - 1)
            return np.asarray((moved + squares + converted) * (not x.constant))

        of_rows = self.left * packing(self.A, p.left, self.at_A, np.where(self.inside, 0, self.at_A), p.M * p.K, 0)
        place = np.where(first, processor.home(self.columns), self.at_B)
        pieces = 0 if p.right.transposed else p.N * p.K / np.where(first, self.n, self.nr)
        of_columns = self.right * packing(self.B, p.right, self.at_B, place, p.N * p.K, pieces)
        front = np.where(self.inside, 0.0, of_rows) + np.where(first, 0.0, of_columns)
        return front, np.where(self.inside, of_rows, 0.0) + np.where(first, of_columns, 0.0)

    def foreign(self) -> np.ndarray:
        """Cycles of lines that other threads have packed, which come through L3."""
        p = self.p
        columns = np.where(self.columns_first | p.right.constant, 0.0, self.right * self.B * p.right.packed / p.right.element)
        rows = np.where(self.inside | p.left.constant, 0.0, self.left * self.A * p.left.packed / p.left.element)
        return np.asarray(self.line[1] * (self.threads - 1) / self.threads * (columns + rows))

    def share(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of the busiest thread, and its cycles where threads write parts of the same rows: a prefetcher runs on,
        within a page, into lines that another thread writes. Blocks at the end, which may be smaller, are another thread's."""
        first, threads = self.columns_first, self.threads
        units = self.p.outer * np.where(first, 1, self.row_blocks) * np.where(self.columns_shared, self.column_blocks, 1)
        rows, columns = (
            np.where(first, 1.0, self.mc / self.row_tiles),
            np.where(self.columns_shared, self.nc / self.column_tiles, 1.0),
        )
        share = np.minimum(np.ceil(units / threads) * rows * columns / self.p.outer, 1.0)
        same_rows = self.columns_shared & (np.ceil(units / threads) < self.column_blocks) & (threads > 1)
        run = np.minimum(self.n * self.p.bits // 8, PAGE_BYTES) / CACHE_LINE_BYTES
        return share, np.where(same_rows, self.p.M * self.column_blocks * run * self.line[-1], 0.0)
