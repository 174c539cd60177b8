"""A formula for kernels on a GPU: issue slots, tensor cores, shared memory, caches and occupancy.

After the roofline model (Williams, Waterman and Patterson, CACM 2009), with a roof for each. For a tiled nest it reads the
columns of virtual threads, threads, elements and steps, or of warps and fragments. For any other nest it takes the larger of the
least memory traffic and the issue slots. Figures are those of an H100 (white paper, 2022), rounded; only ratios matter.
"""

from __future__ import annotations

import numpy as np

from schedule.machine import GPU, WARP_SCHEDULERS_PER_SM
from tir.memory import WARP

from .model import Formula
from .sketch_programs import TileAccess, TiledNest

RESERVED, RESERVED_ON_CORES = 40, 48  # registers of a thread besides its accumulators and fragments
FRAGMENT_REGISTERS = 4  # of a thread for 16 rows and columns of a factor; a result of float32 takes twice as many
INSTRUCTIONS_IN_FLIGHT = 32.0  # instructions of an SM that hide the latency of arithmetic
MAX_INDEPENDENT = 8  # of them, at most, from one warp
MMA_CLOCKS = 6.0  # clocks that an instruction of a warp keeps a tensor core busy
LDMATRIX_CLOCKS = 4.0  # clocks of the shared memory for a fragment of 16 rows of 32 bytes
LATENCY_CLOCKS = 600.0  # clocks until a tile arrives from memory
LAUNCH_CLOCKS = 4000.0  # clocks
UNTILED_SHARE = 0.25  # share of the issue slots that a nest without tiles uses


class GPUModel(Formula):
    """The formula for a GPU; its cycles are clocks, and include those of a launch."""

    def __init__(self, machine: GPU):
        self.machine = machine

    def cycles(self, nest: TiledNest, rows: np.ndarray) -> np.ndarray:
        return LAUNCH_CLOCKS + (self.tiled(nest, rows) if any(nest.roles) else np.full(len(rows), self.untiled(nest)))

    def untiled(self, nest: TiledNest) -> float:
        """Clocks of a nest that moves each element once."""
        elements = sum(float(np.prod(a.shape)) * a.nbytes for a in nest.accesses)
        work = float(np.prod([float(e) for e in nest.extents]))
        return max(elements / self.machine.memory, work / (self.machine.sms * WARP_SCHEDULERS_PER_SM * WARP * UNTILED_SHARE))

    def tiled(self, nest: TiledNest, rows: np.ndarray) -> np.ndarray:
        """Estimated clocks of a nest tiled through shared memory, a float64 vector with one entry a row."""
        gpu = self.machine
        sizes = {role: _sizes(nest, rows, role) for role in "gvtwsfr"}
        tiles = np.prod([sizes[role] for role in "vtwsfr"], axis=0) * np.array(nest.units or (1,) * len(nest.extents))
        counts = np.ceil(np.ceil(np.array(nest.extents) / tiles) / sizes["g"]) * sizes["g"]
        spatial = ~np.array(nest.reduce)
        blocks, steps = np.prod(counts[:, spatial], axis=1), np.prod(counts[:, ~spatial], axis=1)
        depth = np.prod(sizes["r"], axis=1)
        if fragments := [k for k, roles in enumerate(nest.roles) if "f" in roles]:
            warps = np.prod(sizes["w"], axis=1)
            inner, held, independent = _on_cores(sizes["f"][:, fragments])
        else:
            warps = np.ceil(np.prod(sizes["t"], axis=1) / WARP)
            inner, held, independent = _in_lanes(nest, sizes)

        reads = [a for a in nest.accesses if not a.written]
        footprint = sum(_elements(a, tiles) * a.nbytes for a in reads) + np.zeros(len(rows))
        copying = 2 * _copies(nest, tiles, rows) / WARP  # instructions of all warps of a block: an address, and the copy
        ahead = np.zeros(len(rows)) if nest.stages is None else rows[:, nest.stages] - 1.0
        resident = np.minimum(gpu.blocks, np.floor(gpu.warps / warps))
        resident = np.minimum(resident, np.floor(gpu.register_file / ((held + reserved(bool(fragments))) * warps * WARP)))
        resident = np.maximum(1, np.minimum(resident, np.floor(gpu.shared / np.maximum(1, (ahead + 1) * footprint))))
        resident = np.minimum(resident, np.ceil(blocks / gpu.sms))
        busy = np.minimum(1.0, resident * warps * np.minimum(independent, MAX_INDEPENDENT) / INSTRUCTIONS_IN_FLIGHT)
        step = warps * depth * inner / busy + copying / WARP_SCHEDULERS_PER_SM
        waiting = np.maximum(0.0, LATENCY_CLOCKS - ahead * step) / resident  # other blocks work meanwhile
        compute = np.ceil(blocks / gpu.sms) * (steps * (step + waiting) + LATENCY_CLOCKS / resident)
        cache = blocks * steps * footprint / gpu.l2_bandwidth
        memory = _traffic(nest, tiles, sizes["g"], counts, blocks, np.minimum(blocks, gpu.sms * resident), gpu.l2) / gpu.memory
        most = np.maximum(np.maximum(compute, cache), memory)
        return most + 0.2 * (compute + cache + memory - most)


def reserved(cores: bool) -> int:
    """The registers of a thread for addresses and operands, with tensor cores (`cores`) or without."""
    return RESERVED_ON_CORES if cores else RESERVED


def _in_lanes(nest: TiledNest, sizes: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clocks of a reduction step for a warp without tensor cores, accumulator registers, and independent instructions.

    Lanes that read one address share a load from shared memory.
    """
    each = sizes["v"] * sizes["s"]
    accumulators = np.prod(each, axis=1)
    last = max((k for k in range(len(nest.extents)) if nest.columns[k] and not nest.reduce[k]), default=0)
    along = np.minimum(sizes["t"][:, last], WARP)
    instructions, banked = accumulators.copy(), np.zeros(len(each))
    for a in nest.accesses:
        if a.written:
            continue
        used = {axis for dim in a.dims for axis, _ in dim if not nest.reduce[axis]}
        words = np.prod(each[:, sorted(used)], axis=1) * a.nbytes / 4
        distinct = along if last in used else np.ceil(WARP / along)
        instructions += words / np.minimum(4, sizes["s"][:, last] if last in used else 1)
        banked += np.maximum(words * distinct / WARP, words / 4)
    return np.maximum(instructions / WARP_SCHEDULERS_PER_SM, banked), accumulators, accumulators


def _on_cores(fragments: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clocks, registers and independent instructions as of `_in_lanes`, with tensor cores. `fragments` has the number of
    fragments of a warp along rows and columns; each is 16 long."""
    products, loads = 2 * np.prod(fragments, axis=1), np.sum(fragments, axis=1)
    return (
        np.maximum(products * MMA_CLOCKS / WARP_SCHEDULERS_PER_SM, loads * LDMATRIX_CLOCKS),
        FRAGMENT_REGISTERS * (products + loads),
        products,
    )


def _copies(nest: TiledNest, tiles: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The number of copies that load a block's tiles; a copy moves the gcd of its `widths` and the row length, in elements."""
    total = np.zeros(len(rows))
    for access, column in zip(nest.accesses, nest.widths or (None,) * len(nest.accesses), strict=True):
        if not access.written:
            width = np.ones(len(rows)) if column is None else np.gcd(rows[:, column], access.shape[-1])
            total += _elements(access, tiles) / width
    return total


def _traffic(
    nest: TiledNest, tiles: np.ndarray, groups: np.ndarray, counts: np.ndarray, blocks: np.ndarray, wave: np.ndarray, l2: int
) -> np.ndarray:
    """Bytes from and to memory. Operands beyond the second-level cache are read anew by each wave of blocks."""
    least = sum(float(np.prod(a.shape)) * a.nbytes for a in nest.accesses)
    grouped = next((k for k, roles in enumerate(nest.roles) if "g" in roles), None)
    if grouped is None or least <= l2:
        return np.full(len(tiles), least)
    along = max(k for k in range(len(nest.extents)) if nest.columns[k] and not nest.reduce[k] and k != grouped)
    extents = np.array(nest.extents, dtype=float)
    spans = np.where(np.array(nest.reduce), extents, tiles)
    columns = np.ceil(wave / groups[:, grouped])
    spans[:, along] *= np.minimum(columns, counts[:, along])
    spans[:, grouped] *= groups[:, grouped] * np.ceil(columns / counts[:, along])
    spans = np.minimum(spans, extents)
    read = sum(_elements(a, spans) * a.nbytes for a in nest.accesses if not a.written)
    written = sum(float(np.prod(a.shape)) * a.nbytes for a in nest.accesses if a.written)
    return np.maximum(least, np.ceil(blocks / wave) * read + written)


def _sizes(nest: TiledNest, rows: np.ndarray, role: str) -> np.ndarray:
    """The product of the columns of a role along each axis, an (n, axes) float64 matrix."""
    result = np.ones((len(rows), len(nest.extents)))
    for axis, (columns, roles) in enumerate(zip(nest.columns, nest.roles, strict=True)):
        for column, own in zip(columns, roles, strict=True):
            if own == role:
                result[:, axis] *= rows[:, column]
    return result


def _elements(access: TileAccess, tiles: np.ndarray) -> np.ndarray:
    """The elements of a buffer that a tile touches."""
    result = np.ones(len(tiles))
    for dim in access.dims:
        span = np.ones(len(tiles))
        for axis, coefficient in dim:
            span = span + coefficient * (tiles[:, axis] - 1)
        result = result * span
    return result
