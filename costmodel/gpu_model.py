"""A formula for kernels on a GPU: issue slots, shared memory, caches and occupancy, after the roofline model (Williams, Waterman
and Patterson, CACM 2009) with a roof for each.

What it is told of a tiled nest are the columns of its virtual threads, threads, elements and steps; of any other the memory that
must move at least. Figures are those of an H100 (white paper, 2022), rounded; only ratios matter.
"""

from __future__ import annotations

import numpy as np

from .family import Family
from .geometry import Access, Machine, Nest

PROCESSORS = 132
SCHEDULERS = 4  # warps that issue each clock, a multiprocessor
WARP = 32
WARPS, BLOCKS = 64, 32  # resident on a multiprocessor, at most
REGISTERS = 65536
RESERVED = 40  # registers of a thread besides its accumulators
SHARED = 227 * 1024
L2_BYTES, MEMORY_BYTES = 3200.0, 1900.0  # a clock, of all multiprocessors
IN_FLIGHT = 32.0  # instructions of a multiprocessor that hide the latency of arithmetic
INDEPENDENT = 8  # of them, at most, from one warp
STEP = 600.0  # clocks until a tile from memory is there, which other blocks of the multiprocessor hide
LAUNCH = 4000.0
UNTILED = 0.25  # of the issue slots that a nest without tiles uses


class GPUModel:
    """Scores a row by minus the logarithm of the clocks its kernels are estimated to take."""

    def __init__(self, machine: Machine):
        self.machine = machine

    def score(self, family: Family, rows: np.ndarray) -> np.ndarray:
        total = np.zeros(len(rows))
        for nest in family.nests:
            total += LAUNCH + (self.tiled(nest, rows) if any(nest.roles) else self.untiled(nest))
        return -np.log(np.maximum(total, 1.0))

    def update(self, family: Family, rows: np.ndarray, seconds: np.ndarray) -> None:
        """A formula has nothing to learn."""

    def untiled(self, nest: Nest) -> float:
        """Clocks of a nest that moves each element once."""
        elements = sum(float(np.prod(a.shape)) * a.nbytes for a in nest.accesses)
        work = float(np.prod([float(e) for e in nest.extents]))
        return max(elements / MEMORY_BYTES, work / (PROCESSORS * SCHEDULERS * WARP * UNTILED))

    def tiled(self, nest: Nest, rows: np.ndarray) -> np.ndarray:
        """Estimated clocks of a nest tiled through shared memory, a float64 vector with one entry a row."""
        n = len(rows)
        sizes = {role: _sizes(nest, rows, role) for role in "vtsr"}
        each = sizes["v"] * sizes["s"]
        tiles = each * sizes["t"] * sizes["r"]
        counts = np.ceil(np.array(nest.extents) / tiles)
        spatial = ~np.array(nest.reduce)
        blocks, steps = np.prod(counts[:, spatial], axis=1), np.prod(counts[:, ~spatial], axis=1)
        threads, accumulators = np.prod(sizes["t"], axis=1), np.prod(each, axis=1)
        depth = np.prod(sizes["r"], axis=1)
        warps = np.ceil(threads / WARP)

        # Per warp and step of the sum: instructions, and clocks of the shared memory, of which lanes at one place share a load.
        reads = [a for a in nest.accesses if not a.written]
        last = max((k for k in range(len(nest.extents)) if nest.columns[k] and not nest.reduce[k]), default=0)
        along = np.minimum(sizes["t"][:, last], WARP)
        instructions, banked = accumulators.copy(), np.zeros(n)
        for a in reads:
            used = {axis for dim in a.dims for axis, _ in dim if not nest.reduce[axis]}
            words = np.prod(each[:, sorted(used)], axis=1) * a.nbytes / 4
            distinct = along if last in used else np.ceil(WARP / along)
            instructions += words / np.minimum(4, sizes["s"][:, last] if last in used else 1)
            banked += np.maximum(words * distinct / WARP, words / 4)
        inner = np.maximum(instructions / SCHEDULERS, banked)

        footprint = sum(_elements(a, tiles) * a.nbytes for a in reads) + np.zeros(n)
        copying = 2 * footprint / 4 / WARP  # instructions of all warps of a block
        resident = np.minimum(BLOCKS, np.floor(WARPS / warps))
        resident = np.minimum(resident, np.floor(REGISTERS / ((accumulators + RESERVED) * warps * WARP)))
        resident = np.maximum(1, np.minimum(resident, np.floor(SHARED / np.maximum(1, 2 * footprint))))
        resident = np.minimum(resident, np.ceil(blocks / PROCESSORS))
        busy = np.minimum(1.0, resident * warps * np.minimum(accumulators, INDEPENDENT) / IN_FLIGHT)
        block = steps * (warps * depth * inner / busy + copying / SCHEDULERS + STEP / resident)
        compute = np.ceil(blocks / PROCESSORS) * block
        cache = blocks * steps * footprint / L2_BYTES
        memory = sum(float(np.prod(a.shape)) * a.nbytes for a in nest.accesses) / MEMORY_BYTES
        most = np.maximum(np.maximum(compute, cache), memory)
        return most + 0.2 * (compute + cache + memory - most)


def _sizes(nest: Nest, rows: np.ndarray, role: str) -> np.ndarray:
    """The product of the columns of a role along each axis, an (n, axes) float64 matrix."""
    result = np.ones((len(rows), len(nest.extents)))
    for axis, (columns, roles) in enumerate(zip(nest.columns, nest.roles, strict=True)):
        for column, own in zip(columns, roles, strict=True):
            if own == role:
                result[:, axis] *= rows[:, column]
    return result


def _elements(access: Access, tiles: np.ndarray) -> np.ndarray:
    """The elements of a buffer that a tile touches."""
    result = np.ones(len(tiles))
    for dim in access.dims:
        span = np.ones(len(tiles))
        for axis, coefficient in dim:
            span = span + coefficient * (tiles[:, axis] - 1)
        result = result * span
    return result
