"""Populations for GPUs: rows whose blocks of threads, registers and shared memory fit the device.

Thread and register tiles are grown from one element by small factors, each on an axis drawn at random, until a drawn number of
threads, and of elements a thread, is reached. `fit` brings any row within the limits, which are columns of booleans over the
whole matrix: what is too much is halved, the largest part first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.target import Target
from costmodel import Access

from ..geometry import nests
from ..sketch import Sketch, Tile
from .device import Device, device

THREADS = ((32, 0.08), (64, 0.17), (128, 0.3), (256, 0.33), (512, 0.09), (1024, 0.03))  # of a block, and how often each is drawn
ELEMENTS = ((1, 0.03), (2, 0.05), (4, 0.1), (8, 0.15), (16, 0.25), (32, 0.22), (64, 0.15), (128, 0.05))  # of a thread
VIRTUAL = ((1, 0.4), (2, 0.3), (4, 0.25), (8, 0.05))
DEPTHS = ((1, 0.03), (2, 0.05), (4, 0.12), (8, 0.3), (16, 0.3), (32, 0.15), (64, 0.05))  # steps of the sum through shared memory
FACTORS = (2, 3, 5, 7)
WARP = 32
RESERVED = 40  # registers of a thread for addresses and operands
EXACT = 0.9  # how often an axis that cannot be padded is cut only where that leaves no rest
ROUNDS = 24


def draw(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Draw the tile sizes of `rows`, in place."""
    n = len(rows)
    for block in dict.fromkeys(t.block for t in sketch.tiles):
        tiles = [t for t in sketch.tiles if t.block == block]
        spatial, reduce = [t for t in tiles if not t.reduce], [t for t in tiles if t.reduce]
        for t in tiles:
            rows[:, t.columns] = 1
        _grow(rows, spatial, "t", _drawn(THREADS, n, rng), rng)
        elements = _drawn(ELEMENTS, n, rng)
        virtual = np.minimum(_drawn(VIRTUAL, n, rng), elements)
        _grow(rows, spatial, "v", virtual, rng)
        _grow(rows, spatial, "s", elements // virtual, rng)
        _grow(rows, reduce, "r", _drawn(DEPTHS, n, rng), rng)


def _drawn(table: Sequence[tuple[int, float]], n: int, rng: np.random.Generator) -> np.ndarray:
    values, weights = zip(*table, strict=True)
    return rng.choice(values, size=n, p=np.array(weights) / sum(weights))


def _grow(rows: np.ndarray, tiles: Sequence[Tile], role: str, budget: np.ndarray, rng: np.random.Generator) -> None:
    """Multiply columns of one role by small factors, each of an axis at random, until their product reaches the budget."""
    if not tiles:
        return
    columns = [c for t in tiles for c, r in zip(t.columns, t.roles, strict=True) if r == role]
    for _ in range(2 * int(np.ceil(np.log2(budget.max(initial=1)))) + 2):
        left = budget // np.prod(rows[:, columns], axis=1)
        axis = rng.integers(len(tiles), size=len(rows))
        for k, t in enumerate(tiles):
            mine = [c for c, r in zip(t.columns, t.roles, strict=True) if r == role]
            own = np.flatnonzero((axis == k) & (left > 1))
            if not len(own):
                continue
            used = np.prod(rows[np.ix_(own, t.columns)], axis=1)
            factor = _factor(t, used, rng)
            fits = (factor <= left[own]) & (used * factor <= _most(t))
            column = np.array(mine)[rng.integers(len(mine), size=len(own))]
            rows[own, column] *= np.where(fits, factor, 1)


def _factor(t: Tile, used: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """By what the part of an axis in use grows: doubled where it can be padded, else mostly by a factor of what is left."""
    n = len(used)
    if t.padded:
        return np.full(n, 2)
    found = np.ones(n, dtype=np.int64)
    for f in rng.permutation(FACTORS):
        found = np.where((found == 1) & (t.extent % (used * f) == 0), f, found)
    return np.where((found == 1) & (rng.random(n) > EXACT), 2, found)


def _most(t: Tile) -> int:
    """The largest tile of an axis."""
    return 1 << (t.extent - 1).bit_length() if t.padded else t.extent


def fit(sketch: Sketch, target: Target, rows: np.ndarray) -> None:
    """Bring rows within the limits of the device, in place; twice changes nothing more."""
    for t in sketch.tiles:
        left = np.full(len(rows), _most(t), dtype=np.int64)
        for column in reversed(t.columns):
            rows[:, column] = np.clip(rows[:, column], 1, left)
            left //= rows[:, column]
    limits = device(target)
    for tiled in _tiled(sketch):
        # Threads only grow to a warp, all else only shrinks; what shrinks may make room for threads.
        for _ in range(ROUNDS):
            before = rows.copy()
            _fit_block(tiled, limits, rows)
            if (rows == before).all():
                break
    for limit in sketch.limits:
        for column in limit.columns:
            options = np.sort([o for c in sketch.choices if c.column == column for o in c.options])
            others = np.prod(rows[:, limit.columns], axis=1) // rows[:, column]
            most = np.maximum(options[0], limit.most // others)
            rows[:, column] = np.minimum(rows[:, column], options[np.searchsorted(options, most, side="right") - 1])


@dataclass(frozen=True, slots=True)
class _Tiled:
    """A tiled block: its columns by what they are, and what it reads through shared memory, by the tiles of its axes."""

    virtual: list[int]
    threads: list[int]
    elements: list[int]
    reduce: list[int]
    tiles: list[Tile]
    reads: list[Access]
    axes: list[tuple[int, ...]]  # the columns of each axis of the block, none where it has one iteration
    buffers: int | None  # the column that says whether tiles are loaded a step ahead

    def shared(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of shared memory, a vector."""
        sizes = [np.prod(rows[:, columns], axis=1) for columns in self.axes]
        total = np.zeros(len(rows), dtype=np.int64)
        for access in self.reads:
            elements = np.ones(len(rows), dtype=np.int64)
            for n, dim in enumerate(access.dims):
                span = np.ones(len(rows), dtype=np.int64)
                for axis, coefficient in dim:
                    span = span + coefficient * (sizes[axis] - 1)
                if n == len(access.dims) - 1 and n:
                    span = -(-span // 8) * 8 + 4  # rows may be skewed
                elements = elements * span
            total += elements * access.nbytes
        return total * (1 if self.buffers is None else 1 + rows[:, self.buffers])


def _tiled(sketch: Sketch) -> list[_Tiled]:
    found = []
    blocks = list(dict.fromkeys(t.block for t in sketch.tiles))
    for block, nest in zip(blocks, nests(sketch), strict=False):  # those of other blocks come behind
        tiles = [t for t in sketch.tiles if t.block == block]

        def of(role: str) -> list[int]:
            return [c for t in tiles for c, r in zip(t.columns, t.roles, strict=True) if r == role]  # noqa: B023

        buffers = next((c.column for c in sketch.choices if c.name == f"{block} double buffer"), None)
        reads = [a for a in nest.accesses if not a.written]
        found.append(_Tiled(of("v"), of("t"), of("s"), of("r"), tiles, reads, list(nest.columns), buffers))
    return found


def _fit_block(tiled: _Tiled, limits: Device, rows: np.ndarray) -> None:
    _fill_warp(tiled, rows)
    _shrink(rows, tiled.threads, lambda r: np.prod(r[:, tiled.threads], axis=1) > limits.threads)
    _shrink(rows, tiled.virtual, lambda r: np.prod(r[:, tiled.virtual], axis=1) > limits.virtual)

    def crowded(r: np.ndarray) -> np.ndarray:
        threads = np.prod(r[:, tiled.threads], axis=1)
        each = np.minimum(limits.registers, limits.register_file // np.maximum(threads, WARP))
        return np.prod(r[:, tiled.virtual + tiled.elements], axis=1) > np.maximum(4, each - RESERVED)

    _shrink(rows, tiled.virtual + tiled.elements, crowded)
    _shrink(rows, tiled.reduce, lambda r: tiled.shared(r) > limits.shared)
    _shrink(rows, tiled.virtual + tiled.elements, lambda r: tiled.shared(r) > limits.shared)


def _fill_warp(tiled: _Tiled, rows: np.ndarray) -> None:
    """Double threads, of the last axis first, until there is a warp; elements of a thread become threads where the axis is used
    up."""
    for t in reversed([t for t in tiled.tiles if not t.reduce]):
        thread = t.columns[t.roles.index("t")]
        others = [c for c in t.columns if c != thread]
        for _ in range(5):
            few = np.prod(rows[:, tiled.threads], axis=1) < WARP
            room = 2 * np.prod(rows[:, t.columns], axis=1) <= _most(t)
            rows[few & room, thread] *= 2
            for column in others:
                taken = few & ~room & (rows[:, column] % 2 == 0)
                rows[taken, column] //= 2
                rows[taken, thread] *= 2
                few &= ~taken


def _shrink(rows: np.ndarray, columns: list[int], too_much) -> None:
    """Halve the largest of some columns where the rows are too much."""
    for _ in range(ROUNDS):
        over = np.flatnonzero(too_much(rows))
        if not len(over) or not columns:
            return
        part = rows[np.ix_(over, columns)]
        largest = np.argmax(part, axis=1)
        some = np.arange(len(over))
        part[some, largest] = np.maximum(1, part[some, largest] // 2)
        rows[np.ix_(over, columns)] = part
