"""A formula for tiled nests: multiply-adds against loads in the register tile, and bytes moved into each cache.

After Low et al., "Analytical modeling is enough for high-performance BLIS" (TOMS 2016), for the micro-kernel, and the closed-form
traffic of MOpt (ASPLOS 2021) for the caches, made coarse: a cache keeps the largest tile level whose footprint fits it, and whose
lines don't crowd its sets.
"""

from __future__ import annotations

import math

import numpy as np

from .family import Family
from .geometry import Access, Machine, Nest

# Cycles a cache line takes from the next level out to this one, a vector register a cycle from L1 being the unit; and the latency
# of a multiply-add in cycles, two starting each cycle. Round figures of current x86 cores; only ratios matter.
LINE_CYCLES = (2.0, 6.0, 14.0)  # L2 -> L1, L3 -> L2, memory -> L3
LINE = 64
LATENCY = 4
MULTIPLY_ADDS_A_CYCLE = 2
LOADS_A_CYCLE = 2
WAYS = (4096, 65536, 0)  # bytes after which addresses fall into the same set of L1 and L2; L3 scatters them
SHARE = 0.75  # of a cache that a tile can count on
ENTRY = 20.0  # cycles to enter the innermost reduction, besides moving the accumulators in and out


class TileModel:
    """Scores a row by minus the logarithm of the cycles its tiled nests are estimated to take."""

    def __init__(self, machine: Machine):
        self.machine = machine

    def score(self, family: Family, rows: np.ndarray) -> np.ndarray:
        total = np.zeros(len(rows))
        for nest in family.nests:
            total += self.cycles(nest, rows)
        return -np.log(np.maximum(total, 1.0))

    def update(self, family: Family, rows: np.ndarray, seconds: np.ndarray) -> None:
        """A formula has nothing to learn."""

    def cycles(self, nest: Nest, rows: np.ndarray) -> np.ndarray:
        """Estimated cycles of one nest, a float64 vector with one entry a row."""
        levels = _levels(nest, rows)
        counts = [_count(nest, levels, depth) for depth in range(len(levels) + 1)]
        body = self._body(nest, levels)
        vectors = self._vectors(nest, levels)
        compute = counts[5] * body + counts[4] * (ENTRY + 2.0 * vectors)
        moved = self._traffic(nest, levels, counts)
        tasks = np.prod(levels[0], axis=1)
        rounds = np.ceil(tasks / self.machine.threads) * self.machine.threads / tasks
        return (np.maximum(compute, moved) + 0.3 * np.minimum(compute, moved)) * rounds / self.machine.threads

    def _vectors(self, nest: Nest, levels: list[np.ndarray]) -> np.ndarray:
        """Accumulators of the innermost spatial tile, in vector registers."""
        lanes = max(1, self.machine.vector_bits // nest.element_bits)
        vectors = np.ones(len(levels[-1]))
        for axis in range(len(nest.extents)):
            if not nest.reduce[axis]:
                size = levels[-1][:, axis]
                vectors = vectors * (np.ceil(size / lanes) if axis == nest.vector else size)
        return vectors

    def _body(self, nest: Nest, levels: list[np.ndarray]) -> np.ndarray:
        """Cycles of the innermost spatial tile for one step of the reduction."""
        lanes = max(1, self.machine.vector_bits // nest.element_bits)
        inner = levels[-1]
        vectors = self._vectors(nest, levels)
        loads = np.zeros(len(inner))
        panel = np.zeros(len(inner))  # of the loads those of vectors, which are used again further on in the tile
        for access in nest.accesses:
            if access.written:
                continue
            used = {axis for dim in access.dims for axis, _ in dim if not nest.reduce[axis]}
            number = np.ones(len(inner))
            for axis in used:
                size = inner[:, axis]
                number = number * (np.ceil(size / lanes) if axis == nest.vector else size)
            if nest.vector in used:
                panel += number
                number = number * (1 if _aligned(access) else 2)
            loads += number
        issue = np.maximum(vectors / MULTIPLY_ADDS_A_CYCLE, loads / LOADS_A_CYCLE)
        # More values than registers: each spilled one is stored and loaded again.
        spilled = np.maximum(0.0, vectors + panel + 1 - self.machine.registers)
        chained = LATENCY if any(nest.reduce) else 0
        return np.maximum(issue + spilled, chained)

    def _traffic(self, nest: Nest, levels: list[np.ndarray], counts: list[np.ndarray]) -> np.ndarray:
        """Cycles spent on moving cache lines.

        The largest tile that fits a cache is loaded anew for each of its runs, except for what the loop around it leaves there:
        the lines that the runs of that one loop share are loaded once.
        """
        n = len(levels[0])
        tiles = [_tile(nest, levels, depth) for depth in range(6)]
        footprints = [sum(_lines(access, tile) for access in nest.accesses) for tile in tiles]
        loaded = [footprints[0]]
        for depth in range(1, 6):
            around, length = _innermost(levels[depth - 1])
            strip = tiles[depth].copy()
            strip[np.arange(n), around] *= length
            strip = np.minimum(strip, np.array(nest.extents, dtype=float))
            loaded.append(sum(_lines(access, strip) for access in nest.accesses) * counts[depth] / length)
        total = np.zeros(n)
        for size, way, cycles in zip(self.machine.caches, WAYS, LINE_CYCLES, strict=True):
            moved = loaded[5]  # the innermost tile is in registers, so it counts as fitting
            for depth in reversed(range(5)):  # 0 is the whole nest; the deeper, the smaller
                fits = footprints[depth] * LINE <= SHARE * size
                if way:
                    rivals = sum(_rivals(access, tiles[depth], way) for access in nest.accesses)
                    fits &= rivals <= max(len(nest.accesses), size // way)
                moved = np.where(fits, loaded[depth], moved)
            total += moved * cycles
        for access in nest.accesses:  # operands that evict each other in the innermost tile
            if not access.written:
                crowded = _rivals(access, tiles[5], WAYS[0]) > max(1, self.machine.l1 // WAYS[0])
                total += np.where(crowded, _lines(access, tiles[5]) * counts[5] * LINE_CYCLES[0], 0.0)
        return total


# Where the levels of an axis stand in S0 S1 R0 S2 R1 S3, by whether it is a reduction and how many levels it has.
PLACES = {
    (True, 1): (4,), (True, 2): (2, 4),
    (False, 1): (0,), (False, 2): (0, 5), (False, 3): (0, 3, 5), (False, 4): (0, 1, 3, 5),
}  # fmt: skip


def _levels(nest: Nest, rows: np.ndarray) -> list[np.ndarray]:
    """The lengths of the loops of S0 S1 R0 S2 R1 S3, each an (n, axes) float64 matrix, 1 where an axis has no loop there."""
    n, axes = len(rows), len(nest.extents)
    levels = [np.ones((n, axes)) for _ in range(6)]
    for axis in range(axes):
        inner = [rows[:, c] for c in nest.columns[axis]]
        product = np.ones(n, dtype=np.int64)
        for size in inner:
            product = product * size
        lengths = [np.ceil(nest.extents[axis] / product), *inner]
        # An axis of fewer levels lacks middle ones: the innermost of a spatial one is in the innermost tile.
        places = PLACES[nest.reduce[axis], len(lengths)]
        for place, length in zip(places, lengths, strict=True):
            levels[place][:, axis] = length
    return levels


def _count(nest: Nest, levels: list[np.ndarray], depth: int) -> np.ndarray:
    """How often the body of the first `depth` levels runs."""
    result = np.ones(len(levels[0]))
    for level in levels[: min(depth, 5)]:  # the innermost level is the body itself
        result = result * np.prod(level, axis=1)
    return result


def _aligned(access: Access) -> bool:
    """Whether vectors along the last dimension start where lines do; others cross lines, and each such load counts twice."""
    return len(access.dims[-1]) == 1 and access.shape[-1] * access.nbytes % LINE == 0


def _tile(nest: Nest, levels: list[np.ndarray], depth: int) -> np.ndarray:
    """How far each axis runs while the levels from `depth` inwards do, an (n, axes) float64 matrix."""
    return np.minimum(np.prod(levels[depth:], axis=0), np.array(nest.extents, dtype=float))


def _innermost(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The axis of the innermost loop of a level that has more than one iteration (the last axis where none has), and its
    length."""
    axes = level.shape[1]
    around = axes - 1 - np.argmax(level[:, ::-1] > 1, axis=1)
    return around, level[np.arange(len(level)), around]


def _lines(access: Access, tile: np.ndarray) -> np.ndarray:
    """Cache lines that one access touches in a tile, whose size along each axis is a column of `tile`."""
    result = np.ones(len(tile))
    for position, dim in enumerate(access.dims):
        span = np.ones(len(tile))
        for axis, coefficient in dim:
            span = span + coefficient * (tile[:, axis] - 1)
        span = np.minimum(span, access.shape[position])
        if position == len(access.dims) - 1:
            span = np.ceil(span * access.nbytes / LINE)
        result = result * span
    return result


def _rivals(access: Access, tile: np.ndarray, way: int) -> np.ndarray:
    """How many lines of a tile compete for one set of a cache, as the rows of a matrix with a power-of-two length do; addresses
    `way` bytes apart fall into the same set."""
    result = np.ones(len(tile))
    stride = access.nbytes
    for position in reversed(range(len(access.dims))):
        if position < len(access.dims) - 1:
            span = np.ones(len(tile))
            for axis, coefficient in access.dims[position]:
                span = span + coefficient * (tile[:, axis] - 1)
            places = way // math.gcd(stride, way)
            result = result * np.ceil(np.minimum(span, access.shape[position]) / max(1, min(places, way // LINE)))
        stride *= access.shape[position]
    return result
