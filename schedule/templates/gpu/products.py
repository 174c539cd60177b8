"""Products of matrices, batches of them, and other reductions that reuse data: tiles through shared memory, accumulated in
registers.

A block computes a tile of the result step by step along the sum. In each step its threads together load a tile of each operand
into shared memory, and each thread multiplies its part in registers. Where axes do not fill tiles, the product is padded with
zeros in shared memory, so that no inner loop has a condition. Convolutions are written as products of matrices first
(windows.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from schedule.error import ScheduleError
from schedule.machine import GPU
from schedule.open_schedule import Continuation, OpenSchedule, Stage, extent, is_spatial
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.arith.symbolic import map_choice
from tir.ir import Block, Const, Store, Var
from tir.memory import WARP
from tir.traverse import loads, stored_names, stores

from ..block_analysis import Contraction, at_axes, contraction, last_axis, reuses_data, size, stored
from ..marks import choose_unroll, fuse_all
from ..template import Template, Verdict
from .launch import (
    accumulate,
    bind_blocks,
    bind_group,
    choose_pipeline,
    choose_row_order,
    grouped,
    inline_producers,
    lanes_of,
    load_together,
    pad,
    reduces_along_memory,
    source_of,
)

UNROLL_LIMITS = (16, 0, 64, 512, 1024)
LOAD_PRODUCTS = 8  # multiply-adds of float32 of an SM (128 a clock) while L2 delivers an element (64 bytes a clock): sm_80, sm_90
READ_PRODUCTS = 2  # of them while shared memory gives one (128 bytes a clock), half of which threads of a warp have in common
STAGES = (2, 1, 3, 4)  # tiles of shared memory that take turns
SECTOR_BYTES = 32  # of global memory, moved together
REGISTER_BYTES = 4  # bytes of a register of a thread
MAX_ACCUMULATORS = 64  # registers of a thread that hold results: half of those that two blocks on an SM leave it
SKEWS = ((1, 0), (8, 4), (2, 1))  # lengths of rows of a tile, in elements: a multiple of the first plus the second


@dataclass(frozen=True, slots=True)
class BlockTile:
    """The rows, columns and steps of the sum of a block, those that a thread or a warp holds in registers, and the stages of the
    pipeline."""

    rows: int
    columns: int
    depth: int
    held_rows: int
    held_columns: int
    stages: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.depth

    @property
    def held(self) -> tuple[int, int]:
        return self.held_rows, self.held_columns

    @property
    def parts(self) -> tuple[int, int]:
        """The threads, or warps, along rows and columns."""
        return self.rows // self.held_rows, self.columns // self.held_columns

    @property
    def threads(self) -> int:
        return prod(self.parts)


TILES = (
    BlockTile(128, 128, 16, 8, 8, 3), BlockTile(128, 64, 16, 8, 4, 3), BlockTile(64, 64, 16, 4, 4, 3),
    BlockTile(32, 32, 16, 4, 2, 3), BlockTile(16, 16, 16, 2, 1, 3),
)  # fmt: skip


def matched_product(block: Block) -> Contraction | None:
    """The block as a contraction of factors that may be converted first, each used for several elements of the result, which are
    sums of several products."""
    c = contraction(block, units=True)
    return c if c is not None and min(size(c.rows), size(c.columns), size(c.reduction)) > 1 else None


def product(s: Schedule, block: str) -> Contraction:
    """The contraction of a block that is a `matched_product`."""
    c = matched_product(find_block(s.func, block))
    assert c is not None
    return c


def is_matrices(c: Contraction) -> bool:
    """True where a contraction is a product of matrices, or a batch of them."""
    return at_axes(c.left) and at_axes(c.right) and len(c.rows) == len(c.columns) == len(c.reduction) == 1


def few_results(block: Block, gpu: GPU) -> bool:
    """True where a reduction has fewer results than terms, and at most as many as a block has threads (Ansor's condition)."""
    results = size(block.spatial)
    return results < size(it for it in block.iters if not is_spatial(it)) and results <= gpu.threads


def choose(tiles: Sequence[BlockTile], c: Contraction, gpu: GPU, load: int, read: int) -> BlockTile:
    """The tile for which the SM with most blocks takes least time, of several the smallest.

    A step of a block multiplies, loads elements that take the time of `load` multiply-adds each, and reads others from its tile,
    of `read` each. The longest of the three hides half of the others."""
    rows, columns = size(c.rows), size(c.columns)

    def cost(t: BlockTile) -> tuple[float, int]:
        results, blocks = t.rows * t.columns, -(-rows // t.rows) * -(-columns // t.columns) * size(c.batch)
        parts = results, load * (t.rows + t.columns), read * results * sum(1 / n for n in t.held)
        return ceil(blocks / gpu.sms) * (max(parts) + sum(parts)) / 2, results

    return min(tiles, key=cost)


def padded_length(n: int) -> int:
    """The longest tile of an axis of `n` iterations: the least power of two that is no less."""
    return 1 << (n - 1).bit_length()


def seed(c: Contraction, gpu: GPU) -> BlockTile:
    """The tile of a product of matrices, no larger than that is, whose lines in memory fill sectors. Threads have fewer rows
    where they would be less than a warp."""
    fitting = [t for t in TILES if _accumulators(t, c) <= MAX_ACCUMULATORS]
    tile = choose(fitting, c, gpu, LOAD_PRODUCTS, READ_PRODUCTS)
    walked = {last_axis(x): SECTOR_BYTES // dtypes.nbytes(x.buffer.dtype) for x in (c.left, c.right)}
    rows, columns, depth = (
        min(max(t, walked.get(it.var.name, 1)), padded_length(extent(it)))
        for t, (it,) in zip(tile.shape, (c.rows, c.columns, c.reduction), strict=True)
    )
    tile = replace(tile, rows=rows, columns=columns, depth=depth, held_rows=min(tile.held_rows, rows))
    tile = replace(tile, held_columns=min(tile.held_columns, columns))
    while tile.threads < WARP and tile.held_rows > 1:
        tile = replace(tile, held_rows=tile.held_rows // 2)
    return tile


class TileThroughShared(Template):
    """Rules 3 to 5 of Ansor (table 1) with its cache reads, as on a GPU: a reduction that reuses data is tiled as SSSRRSRS.

    The outermost spatial level is the blocks, then come virtual threads and threads. In each step of the outermost reduction, the
    threads load a tile of each operand that is read at one place into shared memory. The number of elements at once is open;
    elementwise producers are computed as their results are loaded. Each thread accumulates in registers; its elements, or those
    of the epilogue, are written at the end.

    What is `ours` is not in the paper. Sums of plain products are padded with zeros to whole tiles. Their blocks go through the
    columns some rows together, so that operands stay in L2. Rows of shared memory may be skewed, so that threads that walk a
    column meet different banks. Tiles are loaded some steps ahead; registers may be kept for several blocks.

    Products of matrices have a seed. A block with few results may be left to later rules.
    """

    name = "tiling through shared memory"

    def __init__(self, ours: bool = True):
        self.ours = ours

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        b = s.block(block)
        if block in s.scheduled or not s.own_loops(block) or not isinstance(b.body, Store) or b.init is None:
            return Verdict.SKIP
        constant = all(isinstance(it.extent, Const) for it in b.iters)
        if not constant or not reuses_data(b) or not all(isinstance(i, Var) for i in b.body.indices):
            return Verdict.SKIP
        if not self.ours or block in s.partial:
            return Verdict.ONLY
        shared = few_results(b, s.target.machine) and reduces_along_memory(b)  # the threads of a result might reduce it together
        return Verdict.APPLY if shared or matched_product(b) is None else Verdict.ONLY

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        c = matched_product(s.block(block))
        tile = seed(c, s.target.machine) if self.ours and c is not None and is_matrices(c) else None
        yield self.name, lambda new: build(new, block, tile, self.ours)


@dataclass(frozen=True, slots=True)
class _TiledAxis:
    """An axis of a tiled block: its loops, outermost first, and the lengths of the levels inside of a block. An axis of one
    iteration has a single loop, and no lengths. `group` is the loop over blocks that run together, on one axis only."""

    name: str
    spatial: bool
    loops: tuple[str, ...]
    lengths: tuple[int, ...]
    group: tuple[str, ...] = ()


def build(s: OpenSchedule, block: str, tile: BlockTile | None = None, ours: bool = True) -> None:
    """Tile a block, its epilogue behind it, and bind it to blocks and threads. `tile` is a matrix product's seed."""
    c = matched_product(s.block(block)) if tile is not None else None
    copies = {s.cache_read(block, buffer, "shared"): buffer for buffer in _read_once(s.block(block))}
    after = accumulate(s, block, "local")
    for copy in copies:
        inline_producers(s, copy)
    axes = _split_axes(s, block, ours, {} if c is None or tile is None else _seed_levels(c, tile))
    spatial = [a for a in axes if a.spatial and a.lengths]
    reduce = [a for a in axes if not a.spatial and a.lengths]
    blocks = [a.loops[0] for a in axes if a.spatial and not a.lengths] + [a.loops[0] for a in spatial]
    blocks += [loop for a in spatial for loop in a.group]
    steps = [a.loops[0] for a in axes if not a.spatial]
    dims = [i.name for i in stored(s.block(block)).indices if isinstance(i, Var)]
    s.reorder(
        *blocks, *steps, *(a.loops[1] for a in spatial), *(a.loops[2] for a in spatial), *(a.loops[1] for a in reduce),
        *(a.loops[3] for a in spatial), *(a.loops[2] for a in reduce), *(a.loops[4] for a in spatial),
    )  # fmt: skip
    for copy in copies:
        s.compute_at(copy, steps[-1], preserve_unit_loops=True)
    s.reverse_compute_at(after, blocks[-1], preserve_unit_loops=True)
    first = s.decompose_reduction(block, steps[0])
    grid = bind_blocks(s, blocks)
    start = s.get_loops(first)[1:]
    n = len(spatial)
    for level, kind in ((start[:n], "vthread"), (start[n : 2 * n], "threadIdx")):
        bind_group(s, level, kind)
    bind_group(s, [a.loops[1] for a in spatial], "vthread")
    bind_group(s, [a.loops[2] for a in spatial], "threadIdx")
    step = fuse_all(s, steps)
    others = [prod(a.lengths[1] for a in spatial[:-1])] if n > 1 else []
    threads = [*others, spatial[-1].lengths[1]]
    _bind_result(s, after, dims, spatial)
    for copy, buffer in copies.items():
        across = tile is not None and c is not None and buffer == c.right.buffer.name and _lies_across(c)
        if ours:
            _skew(s, block, copy, buffer, SKEWS[1] if across else SKEWS[0])
        if across and tile is not None:
            choose_row_order(s, block, copy, tile.depth * dtypes.nbytes(stored(s.block(copy)).buffer.dtype))
        load_together(s, block, copy, buffer, threads, 1 if tile is None or c is None else _lanes(s, copy, buffer, c, tile))
    if tile is None:
        if ours:
            choose_pipeline(s, block, grid, step, STAGES)
        choose_unroll(s, block, step, UNROLL_LIMITS)
    else:  # without asynchronous copies, loads of the next tile take registers, too
        # Both factors of a product across are read four steps at a time, which takes registers, too.
        crowded = c is not None and _lies_across(c) and _accumulators(tile, c) == MAX_ACCUMULATORS
        choose_pipeline(s, block, grid, step, STAGES, tile.stages, 2 if s.target.machine.modern and not crowded else 1)
        made = tile.depth * prod(tile.held)
        choose_unroll(s, block, reduce[0].loops[1], UNROLL_LIMITS, min(n for n in UNROLL_LIMITS if n >= made))
    for name in (block, f"{block}_update", first, after, *copies):
        s.scheduled[name] = Stage.BOUND


def _seed_levels(c: Contraction, tile: BlockTile) -> dict[str, tuple[int, ...]]:
    """The lengths of the levels of each axis of a product: blocks that run together, virtual threads, threads, elements.

    A thread has strips of four columns, so that a warp reads whole lines of shared memory. Its rows are as far apart as there are
    threads, so that threads read the left factor from different banks. So are its columns where the right factor lies across.
    """
    (row,), (column,), (step,) = c.rows, c.columns, c.reduction
    strip = 1 if _lies_across(c) else min(4, tile.held_columns)
    return {
        **{it.var.name: (1, 1, 1, 1) for it in c.batch},
        row.var.name: (grouped(-(-extent(row) // tile.rows)), tile.held_rows, tile.parts[0], 1, 1),
        column.var.name: (tile.held_columns // strip, tile.parts[1], 1, strip),
        step.var.name: (tile.depth, 1),
    }


def _accumulators(tile: BlockTile, c: Contraction) -> int:
    """The registers of a thread that hold results."""
    return prod(tile.held) * -(-dtypes.nbytes(c.store.buffer.dtype) // REGISTER_BYTES)


def _lies_across(c: Contraction) -> bool:
    """True where neighbours in memory of the right factor are steps of the sum, as in a product by a transposed matrix."""
    return last_axis(c.right) == c.reduction[0].var.name


def _lanes(s: OpenSchedule, copy: str, buffer: str, c: Contraction, tile: BlockTile) -> int:
    """The number of elements of a factor of a product of matrices that a thread loads at once."""
    lengths = {c.rows[0].var.name: tile.rows, c.columns[0].var.name: tile.columns, c.reduction[0].var.name: tile.depth}
    factor = c.left if c.left.buffer.name == buffer else c.right
    shape = [lengths.get(i.name, 1) if isinstance(i, Var) else 1 for i in factor.indices]
    return lanes_of(source_of(s, copy), shape, tile.threads)


def _read_once(block: Block) -> list[str]:
    """The buffers that a block reads at one place only, scalars apart: a tile around two places may be large."""
    written = stored_names(block)
    places = [x.buffer.name for x in dict.fromkeys(loads(block.body)) if x.buffer.name not in written and x.indices]
    return [name for name in dict.fromkeys(places) if places.count(name) == 1]


def _paddable(s: OpenSchedule, block: str) -> bool:
    """True where all axes of a block can be padded to any multiple."""
    try:
        s.copy().pad_einsum(block, [2 * extent(it) + 1 if extent(it) > 1 else 1 for it in s.block(block).iters])
    except ScheduleError:
        return False
    return True


def _split_axes(s: OpenSchedule, block: str, ours: bool, seeds: Mapping[str, tuple[int, ...]]) -> list[_TiledAxis]:
    """Split all axes into levels; the axis of the last dimension written comes last. With `ours`, axes that can be padded to
    multiples of their tiles are. The last spatial axis but one then has a level of blocks that run together."""
    b = s.block(block)
    long = {it.var.name for it in b.iters if extent(it) > 1}
    last = next((i.name for i in reversed(stored(b).indices) if isinstance(i, Var) and i.name in long), None)
    order = sorted(b.iters, key=lambda it: it.var.name == last)
    tiled = [it.var.name for it in order if is_spatial(it) and extent(it) > 1]
    padded = ours and (bool(seeds) or _paddable(s, block))  # a product of matrices always is
    grouped = next((name for name, levels in seeds.items() if len(levels) == 5), tiled[-2] if len(tiled) > 1 else None)
    levels = {it.var.name: "" if extent(it) == 1 else "vtss" if is_spatial(it) else "rr" for it in b.iters}
    roles = {name: "g" * (padded and name == grouped) + own for name, own in levels.items()}
    lengths = {
        name: s.sizes(block, name, len(own), seed=seeds.get(name), roles=own, perfect=not ours, padded=padded)
        for name, own in roles.items()
        if own
    }
    if padded:
        pad(s, block, lengths)
    found: dict[str, _TiledAxis] = {}
    for it, loop in s.axes(block):
        name = it.var.name
        if not roles[name]:
            found[name] = _TiledAxis(name, is_spatial(it), (loop,), ())
            continue
        loops, group = s.split(loop, [None, *lengths[name]]), roles[name].count("g")
        inner = tuple(lengths[name][group:])
        found[name] = _TiledAxis(name, is_spatial(it), (loops[0], *loops[1 + group :]), inner, tuple(loops[1 : 1 + group]))
    return [found[it.var.name] for it in order]


def _bind_result(s: OpenSchedule, after: str, dims: list[str], spatial: list[_TiledAxis]) -> None:
    """Have the threads that hold the result, whose dimensions are the axes `dims`, write it from registers to its place."""
    own = s.get_loops(after)[1:]
    parts: dict[str, list[str]] = {}
    for axis in spatial:
        loop = own[dims.index(axis.name)]
        parts[axis.name] = s.split(loop, list(axis.lengths))
    rest = [x for x, axis in zip(own, dims, strict=True) if axis not in parts]
    levels = [[parts[a.name][n] for a in spatial] for n in range(4)]
    s.reorder(*rest, *(x for level in levels for x in level))
    bind_group(s, levels[0], "vthread")
    bind_group(s, levels[1], "threadIdx")
    if dims[-1] == spatial[-1].name:
        s.vectorize(levels[3][-1])


def _skew(s: OpenSchedule, block: str, copy: str, buffer: str, seed: tuple[int, int]) -> None:
    """Leave open how the rows of a tile lie in the banks of shared memory."""
    if len(stores(s.block(copy).body)[0].indices) < 2:
        return
    skew = s.choose(f"{copy} skew", SKEWS, seed=seed, block=block, buffer=buffer)
    s.storage_align(copy, 0, -2, map_choice(skew, lambda v: v[0]), map_choice(skew, lambda v: v[1]))
