"""A formula for tiled nests: multiply-adds against loads in the register tile, and bytes moved into each cache.

The micro-kernel follows Low et al., "Analytical modeling is enough for high-performance BLIS" (TOMS 2016). The caches follow
MOpt's closed-form traffic (ASPLOS 2021), made coarse: a cache keeps the largest tile level that fits it and its sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

import numpy as np

from schedule.machine import CACHE_LINE_BYTES, CACHE_SHARE, CPU, SET_ALIASING_BYTES

from .model import Formula
from .recording import Recorder, Recording, Value, and_not, ceil, logical_or, maximum, minimum, product, where
from .sketch_programs import TileAccess, TiledNest


class TileModel(Formula):
    """The formula for a processor."""

    def __init__(self, machine: CPU):
        self.machine = machine

    def cycles(self, nest: TiledNest, rows: np.ndarray) -> np.ndarray:
        found = np.empty((1, len(rows)))
        _recorded(nest, self.machine).run(rows, found)
        return found[0]


@lru_cache(maxsize=4096)
def _recorded(nest: TiledNest, machine: CPU) -> Recording:
    """A program for the cycles of a nest."""
    recorder = Recorder()
    sizes = [[recorder.column(c) for c in axis] for axis in nest.columns]
    return recorder.compiled({0: _cycles(nest, sizes, machine)})


Sizes = list[Value]  # a number for each axis


def _cycles(nest: TiledNest, sizes: Sequence[Sequence[Value]], machine: CPU) -> Value:
    """Estimated cycles of a nest whose axes have inner tiles of these sizes, outermost first."""
    levels = _levels(nest, sizes)
    counts = _run_counts(levels)
    compute = counts[5] * _body(nest, levels[-1], machine) + counts[4] * machine.entry_cycles(
        2.0 * _vectors(nest, levels[-1], machine)
    )
    moved = _traffic(nest, levels, counts, machine)
    tasks = product(levels[0])
    rounds = ceil(tasks / machine.cores) * machine.cores / tasks
    return maximum(compute, moved) * rounds / machine.cores


def _vectors(nest: TiledNest, inner: Sizes, machine: CPU) -> Value:
    """Accumulators of the innermost spatial tile, in vector registers."""
    return _registers(nest, inner, [axis for axis in range(len(nest.extents)) if not nest.reduce[axis]], machine)


def _registers(nest: TiledNest, inner: Sizes, axes: Sequence[int], machine: CPU) -> Value:
    """Vector registers for the innermost tile's values of an operand indexed by `axes`."""
    lanes = machine.lanes(nest.element_bits)
    return product([ceil(inner[axis] / lanes) if axis == nest.vector else inner[axis] for axis in axes])


def _body(nest: TiledNest, inner: Sizes, machine: CPU) -> Value:
    """Cycles of the innermost spatial tile for one step of the reduction."""
    vectors = _vectors(nest, inner, machine)
    elements: Value = 0.0  # that are broadcast
    panel: Value = 0.0  # vectors that are used again further on in the tile
    crossing: Value = 0.0  # of them, those that cross lines, and are loaded in two parts
    for access in nest.accesses:
        if access.written:
            continue
        used = sorted({axis for dim in access.dims for axis, _ in dim if not nest.reduce[axis]})
        number = _registers(nest, inner, used, machine)
        if nest.vector in used:
            panel = panel + number
            crossing = crossing + (0 if _aligned(access) else number)
        else:
            elements = elements + number
    # More values than registers: each spilled one is stored and loaded again.
    spilled = maximum(0.0, vectors + panel + 1 - machine.registers)
    return machine.step_cycles(vectors, panel + crossing, elements, maximum, waits=any(nest.reduce)) + spilled


def _traffic(nest: TiledNest, levels: list[Sizes], counts: list[Value], machine: CPU) -> Value:
    """Cycles spent on moving cache lines.

    The largest tile that fits a cache is loaded anew for each of its runs. Lines shared by the runs of the loop right around it
    are loaded once.
    """
    tiles = [_tile(nest, levels, depth) for depth in range(6)]
    footprints = [sum(_lines(access, tile) for access in nest.accesses) for tile in tiles]
    loaded = [footprints[0]]
    for depth in range(1, 6):
        around, length = _innermost(levels[depth - 1])
        strip = [minimum(size * n, extent) for size, n, extent in zip(tiles[depth], around, nest.extents, strict=True)]
        loaded.append(sum(_lines(access, strip) for access in nest.accesses) * counts[depth] / length)
    total: Value = 0.0
    for size, way, cycles in zip(machine.caches, SET_ALIASING_BYTES, machine.memory.line, strict=True):
        moved = loaded[5]  # the innermost tile is in registers, so it counts as fitting
        for depth in reversed(range(5)):  # 0 is the whole nest; the deeper, the smaller
            fits = footprints[depth] * CACHE_LINE_BYTES <= CACHE_SHARE * size
            if way:
                rivals = sum(_rivals(access, tiles[depth], way) for access in nest.accesses)
                fits = and_not(fits, rivals > max(len(nest.accesses), size // way))
            moved = where(fits, loaded[depth], moved)
        total = total + moved * cycles
    for access in nest.accesses:  # operands that evict each other in the innermost tile
        if not access.written:
            evicting = _rivals(access, tiles[5], SET_ALIASING_BYTES[0]) > max(1, machine.l1 // SET_ALIASING_BYTES[0])
            total = total + where(evicting, _lines(access, tiles[5]) * counts[5] * machine.memory.line[0], 0.0)
    return total


# The levels of an axis among S0 S1 R0 S2 R1 S3, by (reduction, their number).
LEVELS = {
    (True, 1): (4,), (True, 2): (2, 4),
    (False, 1): (0,), (False, 2): (0, 5), (False, 3): (0, 3, 5), (False, 4): (0, 1, 3, 5),
}  # fmt: skip


def _levels(nest: TiledNest, sizes: Sequence[Sequence[Value]]) -> list[Sizes]:
    """The lengths of the loops of S0 S1 R0 S2 R1 S3, 1 where an axis has no loop there."""
    levels: list[Sizes] = [[1.0] * len(nest.extents) for _ in range(6)]
    for axis, inner in enumerate(sizes):
        lengths = [ceil(nest.extents[axis] / product(inner)), *inner]
        # An axis of fewer levels lacks middle ones: the innermost of a spatial one is in the innermost tile.
        for level, length in zip(LEVELS[nest.reduce[axis], len(lengths)], lengths, strict=True):
            levels[level][axis] = length
    return levels


def _run_counts(levels: list[Sizes]) -> list[Value]:
    """Runs of the body within the first 0, 1, ..., 5 levels; the innermost level is the body itself."""
    return list(accumulate(map(product, levels[:5]), mul, initial=1.0))


def _aligned(access: TileAccess) -> bool:
    """True where vectors along the last dimension start where lines do; others cross lines, and each such load counts twice."""
    return len(access.dims[-1]) == 1 and access.shape[-1] * access.nbytes % CACHE_LINE_BYTES == 0


def _tile(nest: TiledNest, levels: list[Sizes], depth: int) -> Sizes:
    """The extent of each axis in the tile of the levels from `depth` inwards."""
    return [minimum(product(axis), extent) for axis, extent in zip(zip(*levels[depth:], strict=True), nest.extents, strict=True)]


def _innermost(level: Sizes) -> tuple[Sizes, Value]:
    """The length of a level's innermost loop with several iterations: by axis, 1 for the others, and as one number."""
    around: Sizes = []
    inside: Value = False  # a loop further in has several iterations
    for length in reversed(level):
        several = length > 1
        around.insert(0, where(and_not(several, inside), length, 1.0))
        inside = logical_or(inside, several)
    return around, product(around)


def _spans(access: TileAccess, tile: Sizes) -> Sizes:
    """The length of each dimension of an access in a tile."""
    whole = [sum((coefficient * (tile[axis] - 1) for axis, coefficient in dim), start=1.0) for dim in access.dims]
    return [minimum(span, size) for span, size in zip(whole, access.shape, strict=True)]


def _lines(access: TileAccess, tile: Sizes) -> Value:
    """Cache lines that one access touches in a tile."""
    *outer, last = _spans(access, tile)
    return product([*outer, ceil(last * access.nbytes / CACHE_LINE_BYTES)])


def _rivals(access: TileAccess, tile: Sizes, way: int) -> Value:
    """Lines of a tile that compete for one set of a cache; addresses `way` bytes apart fall into the same set."""
    result: Value = 1.0
    stride = access.nbytes * access.shape[-1]
    for span, size in reversed(list(zip(_spans(access, tile)[:-1], access.shape[:-1], strict=True))):
        offsets = way // math.gcd(stride, way)
        result = result * ceil(span / max(1, min(offsets, way // CACHE_LINE_BYTES)))
        stride *= size
    return result
