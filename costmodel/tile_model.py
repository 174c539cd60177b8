"""A formula for tiled nests: multiply-adds against loads in the register tile, and bytes moved into each cache.

After Low et al., "Analytical modeling is enough for high-performance BLIS" (TOMS 2016), for the micro-kernel, and the closed-form
traffic of MOpt (ASPLOS 2021) for the caches, made coarse: a cache keeps the largest tile level whose footprint fits it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .geometry import Access, Machine, Nest

# Cycles a cache line takes from the next level out to this one, a vector register a cycle from L1 being the unit; and the latency
# of a multiply-add in cycles, two starting each cycle. Round figures of current x86 cores; only ratios matter.
LINE_CYCLES = (2.0, 6.0, 14.0)  # L2 -> L1, L3 -> L2, memory -> L3
LINE = 64
LATENCY = 4
MULTIPLY_ADDS_A_CYCLE = 2
LOADS_A_CYCLE = 2
WAY = 4096  # bytes after which addresses fall into the same set of L1
SHARE = 0.75  # of a cache that a tile can count on
ENTRY = 20.0  # cycles to enter the innermost reduction, besides moving the accumulators in and out


class TileModel:
    """Scores a row by minus the logarithm of the cycles its tiled nests are estimated to take."""

    def __init__(self, machine: Machine):
        self.machine = machine

    def score(self, nests: Sequence[Nest], rows: np.ndarray) -> np.ndarray:
        total = np.zeros(len(rows))
        for nest in nests:
            total += self.cycles(nest, rows)
        return -np.log(np.maximum(total, 1.0))

    def update(self, nests: Sequence[Nest], rows: np.ndarray, seconds: np.ndarray) -> None:
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
        for access in nest.accesses:
            if access.written:
                continue
            used = {axis for dim in access.dims for axis, _ in dim if not nest.reduce[axis]}
            number = np.ones(len(inner))
            for axis in used:
                size = inner[:, axis]
                number = number * (np.ceil(size / lanes) if axis == nest.vector else size)
            loads += number
        issue = np.maximum(vectors / MULTIPLY_ADDS_A_CYCLE, loads / LOADS_A_CYCLE)
        # More accumulators than registers: each spilled one is stored and loaded again.
        panel = np.ceil(inner[:, nest.vector] / lanes) if nest.vector is not None else 1.0
        spilled = np.maximum(0.0, vectors + panel + 1 - self.machine.registers)
        chained = LATENCY if any(nest.reduce) else 0
        return np.maximum(issue + spilled, chained)

    def _traffic(self, nest: Nest, levels: list[np.ndarray], counts: list[np.ndarray]) -> np.ndarray:
        """Cycles spent on moving cache lines."""
        total = np.zeros(len(levels[0]))
        footprints = [np.sum([_lines(nest, a, levels, depth) for a in nest.accesses], axis=0) for depth in range(6)]
        for size, cycles in zip((self.machine.l1, self.machine.l2, self.machine.l3), LINE_CYCLES, strict=True):
            moved = np.full(len(total), np.inf)
            for depth in range(6):  # 0 is the whole nest; the deeper, the smaller
                fits = footprints[depth] * LINE <= SHARE * size
                moved = np.where(np.isinf(moved) & fits, footprints[depth] * counts[depth], moved)
            total += np.where(np.isinf(moved), footprints[5] * counts[5], moved) * cycles
        ways = max(1, self.machine.l1 // WAY)
        for access in nest.accesses:
            rivals = _rivals(nest, access, levels)
            total += np.where(rivals > ways, _lines(nest, access, levels, 5) * counts[5] * LINE_CYCLES[0], 0.0)
        return total


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
        places = (2, 4) if nest.reduce[axis] else (0, 1, 3, 5)
        for place, length in zip(places, lengths, strict=False):
            levels[place][:, axis] = length
    return levels


def _count(nest: Nest, levels: list[np.ndarray], depth: int) -> np.ndarray:
    """How often the body of the first `depth` levels runs."""
    result = np.ones(len(levels[0]))
    for level in levels[: min(depth, 5)]:  # the innermost level is the body itself
        result = result * np.prod(level, axis=1)
    return result


def _lines(nest: Nest, access: Access, levels: list[np.ndarray], depth: int) -> np.ndarray:
    """Cache lines that one access touches while the levels from `depth` inwards run."""
    n = len(levels[0])
    sizes = np.ones((n, len(nest.extents)))
    for level in levels[depth:]:
        sizes = sizes * level
    sizes = np.minimum(sizes, np.array(nest.extents, dtype=float))
    result = np.ones(n)
    for position, dim in enumerate(access.dims):
        span = np.ones(n)
        for axis, coefficient in dim:
            span = span + coefficient * (sizes[:, axis] - 1)
        span = np.minimum(span, access.shape[position])
        if position == len(access.dims) - 1:
            span = np.ceil(span * access.nbytes / LINE)
        result = result * span
    return result


def _rivals(nest: Nest, access: Access, levels: list[np.ndarray]) -> np.ndarray:
    """How many lines of the innermost tile compete for one set of L1, as the rows of a matrix with a power-of-two length do."""
    result = np.ones(len(levels[0]))
    stride = access.nbytes
    for position in reversed(range(len(access.dims))):
        if position < len(access.dims) - 1:
            span = np.ones(len(result))
            for axis, coefficient in access.dims[position]:
                span = span + coefficient * (levels[5][:, axis] - 1)
            places = WAY // math.gcd(stride, WAY)
            result = result * np.ceil(np.minimum(span, access.shape[position]) / max(1, min(places, WAY // LINE)))
        stride *= access.shape[position]
    return result
