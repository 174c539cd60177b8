"""Populations for GPUs: rows whose blocks of threads, registers and shared memory fit the device.

Thread and register tiles grow from one element by small factors, each on a random axis, up to a sampled number of threads and of
elements a thread. On tensor cores warps and fragments grow. `legalize` brings any row within the limits, which are boolean
vectors over the whole matrix: it halves the largest factor first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from codegen.target import Target
from costmodel import TileAccess
from costmodel.gpu_model import FRAGMENT_REGISTERS, reserved
from schedule.machine import GPU, MAX_ACCESS_BYTES, WARP_SCHEDULERS_PER_SM
from schedule.open_trace import Role, Tile
from tir.memory import WARP

from ..space.sketch import Sketch
from .tiled_nests import by_block

Weights = tuple[tuple[int, float], ...]  # numbers, each with its probability

THREADS: Weights = ((32, 0.08), (64, 0.17), (128, 0.3), (256, 0.33), (512, 0.09), (1024, 0.03))  # of a block
ELEMENTS: Weights = ((1, 0.03), (2, 0.05), (4, 0.1), (8, 0.15), (16, 0.25), (32, 0.22), (64, 0.15), (128, 0.05))  # of a thread
VIRTUAL: Weights = ((1, 0.4), (2, 0.25), (4, 0.2), (8, 0.1), (16, 0.05))  # threads of a thread
DEPTHS: Weights = ((1, 0.03), (2, 0.05), (4, 0.12), (8, 0.3), (16, 0.3), (32, 0.15), (64, 0.05))  # of a tile in shared memory
GROUPS: Weights = ((1, 0.4), (2, 0.15), (4, 0.2), (8, 0.2), (16, 0.05))  # rows of blocks that run together
WARPS: Weights = ((1, 0.05), (2, 0.1), (4, 0.4), (8, 0.4), (16, 0.05))  # of a block, on tensor cores
FRAGMENTS: Weights = ((1, 0.05), (2, 0.1), (4, 0.2), (8, 0.25), (16, 0.3), (32, 0.1))  # of a warp, each 16 by 16
INSTRUCTIONS: Weights = ((1, 0.2), (2, 0.5), (4, 0.3))  # along the sum, from one tile of shared memory
FACTORS = (2, 3, 5, 7)  # by which a tile grows
DIVIDING_SHARE = 0.9  # probability with which a tile of an axis without padding grows only by factors that divide
IDLE_PERIOD = 8  # blocks of which at most one is idle, as rows of blocks come in groups
MAX_ROUNDS = 24  # of halving a factor


def sample_tiles(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Sample the tile sizes of `rows`, in place."""
    n = len(rows)
    for tiles in sketch.tiles_by_block.values():
        spatial, reduce = [t for t in tiles if not t.reduce], [t for t in tiles if t.reduce]
        for t in tiles:
            rows[:, t.columns] = 1
        if any("f" in t.roles for t in spatial):
            _grow(rows, spatial, "w", _weighted(WARPS, n, rng), rng)
            _grow(rows, spatial, "f", _weighted(FRAGMENTS, n, rng), rng)
            _grow(rows, reduce, "r", _weighted(INSTRUCTIONS, n, rng), rng)
        else:
            _grow(rows, spatial, "t", _weighted(THREADS, n, rng), rng)
            elements = _weighted(ELEMENTS, n, rng)
            virtual = np.minimum(_weighted(VIRTUAL, n, rng), elements)
            _grow(rows, spatial, "v", virtual, rng)
            _grow(rows, spatial, "s", elements // virtual, rng)
            _grow(rows, reduce, "r", _weighted(DEPTHS, n, rng), rng)
        _grow(rows, spatial, "g", _weighted(GROUPS, n, rng), rng)


def _weighted(table: Weights, n: int, rng: np.random.Generator) -> np.ndarray:
    values, weights = zip(*table, strict=True)
    return rng.choice(values, size=n, p=np.array(weights) / sum(weights))


def _grow(rows: np.ndarray, tiles: Sequence[Tile], role: str, budget: np.ndarray, rng: np.random.Generator) -> None:
    """Multiply columns of one role by small factors, each of an axis at random, until their product reaches the budget."""
    columns = _columns(tiles, role)
    tiles = [t for t in tiles if role in t.roles]
    if not tiles:
        return
    for _ in range(2 * int(np.ceil(np.log2(budget.max(initial=1)))) + 2):
        left = budget // np.prod(rows[:, columns], axis=1)
        axis = rng.integers(len(tiles), size=len(rows))
        for k, t in enumerate(tiles):
            mine = _columns([t], role)
            own = np.flatnonzero((axis == k) & (left > 1))
            if not len(own):
                continue
            used = np.prod(rows[own[:, None], t.columns], axis=1)
            factor = _factor(t, used, rng)
            fits = (factor <= left[own]) & (used * factor <= _max_tile(t))
            column = np.array(mine)[rng.integers(len(mine), size=len(own))]
            rows[own, column] *= np.where(fits, factor, 1)


def _columns(tiles: Sequence[Tile], role: str) -> list[int]:
    """The columns of a role."""
    return [c for t in tiles for c, r in zip(t.columns, t.roles, strict=True) if r == role]


def _factor(t: Tile, used: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The factors by which the used part of an axis grows: 2 for a padded axis, else mostly a divisor of the rest."""
    n = len(used)
    if t.padded:
        return np.full(n, 2)
    found = np.ones(n, dtype=np.int64)
    for f in rng.permutation(FACTORS):
        found = np.where((found == 1) & (t.extent % (used * f) == 0), f, found)
    return np.where((found == 1) & (rng.random(n) > DIVIDING_SHARE), 2, found)


def _max_tile(t: Tile) -> int:
    """The largest tile of an axis."""
    return 1 << (t.extent - 1).bit_length() if t.padded else t.extent


def legalize(sketch: Sketch, target: Target, rows: np.ndarray) -> None:
    """Bring rows within the limits of the device and into canonical form, in place. Applying it twice changes nothing more."""
    for t in sketch.tiles:
        left = np.full(len(rows), _max_tile(t), dtype=np.int64)
        for column in reversed(t.columns):
            rows[:, column] = np.clip(rows[:, column], 1, left)
            left //= rows[:, column]
    limits = target.machine_as(GPU)
    for tiled in _tiled_blocks(sketch):
        # Threads only grow to a warp, all other factors only shrink, which may make room for threads.
        for _ in range(MAX_ROUNDS):
            before = rows.copy()
            _fit_block(tiled, limits, rows)
            if (rows == before).all():
                break
    for limit in sketch.limits:
        for column in limit.columns:
            others = np.prod(rows[:, limit.columns], axis=1) // rows[:, column]
            _lower_choice(sketch, rows, column, limit.maximum // others)
    rows[:] = sketch.canonical(rows)


def _lower_choice(sketch: Sketch, rows: np.ndarray, column: int, upper: np.ndarray) -> None:
    """Lower a choice to its largest option up to `upper`, else to its smallest."""
    options = np.sort([o for c in sketch.choices if c.column == column for o in c.options])
    wanted = np.maximum(options[0], np.minimum(rows[:, column], upper))
    rows[:, column] = options[np.searchsorted(options, wanted, side="right") - 1]


@dataclass(frozen=True, slots=True)
class _TiledBlock:
    """A tiled block of a sketch, with its reads through shared memory."""

    sketch: Sketch
    tiles: list[Tile]
    reads: list[TileAccess]
    axes: list[tuple[int, ...]]  # the columns of each axis that make up its tile, empty for an axis of one iteration
    units: tuple[int, ...]
    stages: int | None  # column of the number of tiles that take turns
    resident: int | None  # column of the number of blocks that share the registers

    def columns(self, roles: str) -> list[int]:
        return [c for role in roles for c in _columns(self.tiles, role)]

    @property
    def cores(self) -> bool:
        """True if tensor cores multiply."""
        return bool(self.columns("f"))

    def threads(self, rows: np.ndarray) -> np.ndarray:
        """The threads of a block, a vector."""
        return np.prod(rows[:, self.columns("tw")], axis=1) * (WARP if self.cores else 1)

    def held(self, rows: np.ndarray) -> np.ndarray:
        """The registers of a thread for accumulators and fragments of factors, a vector."""
        if not self.cores:
            return np.prod(rows[:, self.columns("vs")], axis=1)
        across, down = (rows[:, c] for c in self.columns("f"))
        words = 2 if any(access.nbytes == 8 for access in self.reads) else 1
        return FRAGMENT_REGISTERS * words * (2 * across * down + across + down)

    def shared(self, rows: np.ndarray) -> np.ndarray:
        """An upper bound of the bytes of shared memory, a vector; each tile starts at a multiple of MAX_ACCESS_BYTES."""
        sizes = [np.prod(rows[:, columns], axis=1) * unit for columns, unit in zip(self.axes, self.units, strict=True)]
        total = np.zeros(len(rows), dtype=np.int64)
        for access in self.reads:
            elements = np.ones(len(rows), dtype=np.int64)
            for n, dim in enumerate(access.dims):
                span = np.ones(len(rows), dtype=np.int64)
                for axis, coefficient in dim:
                    span = span + coefficient * (sizes[axis] - 1)
                if n == len(access.dims) - 1 and n:
                    span = self._row(span, access.nbytes)
                elements = elements * span
            total += -(-elements * access.nbytes // MAX_ACCESS_BYTES) * MAX_ACCESS_BYTES
        return total * (1 if self.stages is None else rows[:, self.stages])

    def _row(self, span: np.ndarray, nbytes: int) -> np.ndarray:
        """The elements of a row with its padding. For tensor cores it ends 16 bytes off a multiple of 64, or as elements
        that come by themselves do (`tensor_cores.align`)."""
        if not self.cores:
            return -(-span // 8) * 8 + 4
        rest = (16 // nbytes - span) % (64 // nbytes)
        offset, multiple = (8, 32) if nbytes == 1 else (32 // nbytes, 128 // nbytes)
        return span + (rest if nbytes == 2 else np.maximum(rest, (offset - span) % multiple))


def _tiled_blocks(sketch: Sketch) -> list[_TiledBlock]:
    found = []
    for block, nest in by_block(sketch).items():
        tiles = sketch.tiles_by_block.get(block)
        if not tiles:
            continue
        axes = [
            tuple(c for c, role in zip(columns, roles, strict=True) if role != "g")
            for columns, roles in zip(nest.columns, nest.roles, strict=True)
        ]
        reads = [a for a, width in zip(nest.accesses, nest.widths, strict=True) if width is not None]
        found.append(_TiledBlock(sketch, tiles, reads, axes, nest.units, nest.stages, sketch.column_of(block, Role.RESIDENT)))
    return found


def _fit_block(tiled: _TiledBlock, limits: GPU, rows: np.ndarray) -> None:
    if not tiled.cores:
        _fill_warp(tiled, rows)
    elements = tiled.columns("vsf")
    _shrink(rows, tiled.columns("tw"), lambda r: tiled.threads(r) > limits.threads)
    _shrink(rows, tiled.columns("v"), lambda r: np.prod(r[:, tiled.columns("v")], axis=1) > limits.virtual)

    def too_many_registers(r: np.ndarray) -> np.ndarray:
        each = np.minimum(limits.registers, limits.register_file // _allocated(tiled.threads(r)))
        return tiled.held(r) > np.maximum(4, each - reserved(tiled.cores))

    _shrink(rows, elements, too_many_registers)
    if tiled.stages is not None:
        one = np.maximum(1, tiled.shared(rows) // rows[:, tiled.stages])
        _lower_choice(tiled.sketch, rows, tiled.stages, limits.shared // one)
    _shrink(rows, tiled.columns("r"), lambda r: tiled.shared(r) > limits.shared)
    _shrink(rows, elements, lambda r: tiled.shared(r) > limits.shared)
    if tiled.resident is not None:
        blocks = limits.register_file // (_allocated(tiled.threads(rows)) * (tiled.held(rows) + reserved(tiled.cores)))
        _lower_choice(tiled.sketch, rows, tiled.resident, blocks)
    for t in tiled.tiles:
        if "g" in t.roles:
            _shrink(rows, _columns([t], "g"), partial(_idles, t))


def _allocated(threads: np.ndarray) -> np.ndarray:
    """The threads for which a block gets registers: the same number of warps for each warp scheduler of an SM."""
    return -(-threads // (WARP_SCHEDULERS_PER_SM * WARP)) * (WARP_SCHEDULERS_PER_SM * WARP)


def _idles(t: Tile, rows: np.ndarray) -> np.ndarray:
    """True where grouping adds more than one idle block in IDLE_PERIOD along an axis."""
    group = np.prod(rows[:, _columns([t], "g")], axis=1)
    blocks = -(-t.extent // (np.prod(rows[:, t.columns], axis=1) // group))
    return -(-blocks // group) * group * (IDLE_PERIOD - 1) > blocks * IDLE_PERIOD


def _fill_warp(tiled: _TiledBlock, rows: np.ndarray) -> None:
    """Double threads, last axis first, up to a warp; at the end of an axis a thread's elements become threads."""
    for t in reversed([t for t in tiled.tiles if not t.reduce]):
        thread = t.columns[t.roles.index("t")]
        others = [c for c in t.columns if c != thread]
        for _ in range(5):
            few = tiled.threads(rows) < WARP
            room = 2 * np.prod(rows[:, t.columns], axis=1) <= _max_tile(t)
            rows[few & room, thread] *= 2
            for column in others:
                taken = few & ~room & (rows[:, column] % 2 == 0)
                rows[taken, column] //= 2
                rows[taken, thread] *= 2
                few &= ~taken


def _shrink(rows: np.ndarray, columns: list[int], too_much: Callable[[np.ndarray], np.ndarray]) -> None:
    """Halve the largest of some columns in the rows over a limit, until all are within it."""
    for _ in range(MAX_ROUNDS):
        over = np.flatnonzero(too_much(rows))
        if not len(over) or not columns:
            return
        part = rows[over[:, None], columns]
        largest = np.argmax(part, axis=1)
        some = np.arange(len(over))
        part[some, largest] = np.maximum(1, part[some, largest] // 2)
        rows[over[:, None], columns] = part
