"""Products of matrices, batches of them, and convolutions: tiles through shared memory, accumulated in registers.

A block computes a tile of the result step by step along the sum; in each step its threads load a tile of either factor into
shared memory together, and each thread multiplies a small tile in registers. Where axes do not fill tiles, the product is
padded with zeros in shared memory, so that no inner loop has a condition. Convolutions are products of matrices that are read
at computed places (windows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from schedule.machine import GPU, H100
from schedule.primitive import loops_of
from schedule.schedule import Schedule
from tir.ir import Block, Cast, Const, Load
from tir.traverse import rewrite

from ..templates.structure import Contraction, contraction, is_plain, loop_of, size
from .launch import fetch, rasterise, stage
from .tensor_cores import TF32_TILES, Instruction, WarpTile, multiply
from .tensor_cores import TILES as WARP_TILES


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a block's tile, the steps of the sum in it, and the rows and columns of a thread's."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    stages: int  # tiles that take turns in shared memory

    @property
    def threads(self) -> int:
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)


TILES = (
    Tile(128, 128, 16, 8, 8, 3), Tile(128, 64, 16, 8, 4, 3), Tile(64, 64, 16, 4, 4, 3), Tile(32, 32, 16, 4, 2, 3),
    Tile(16, 16, 16, 2, 1, 3),
)  # fmt: skip
Shape = TypeVar("Shape", Tile, WarpTile)


def matches(block: Block) -> Contraction | None:
    """The block as a contraction, whose factors may be converted before they are multiplied, as halves are to float32."""
    plain = rewrite(block, lambda n: n.value if isinstance(n, Cast) and isinstance(n.value, Load) else None)
    return contraction(plain)


def suits(c: Contraction) -> bool:
    """Whether both factors are used again for other elements of the result."""
    return (
        bool(c.rows)
        and bool(c.columns)
        and size(c.rows) > 1
        and size(c.columns) > 1
        and all(isinstance(it.extent, Const) for it in (*c.batch, *c.rows, *c.columns, *c.sums))
    )


def choose(tiles: Sequence[Shape], rows: int, columns: int, batch: int, gpu: GPU) -> Shape:
    """The largest of some tiles that leaves enough blocks for all processors, and is not mostly padding; else the one with the
    least padding and most blocks."""
    for tile in tiles:
        blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
        used = rows * columns / (-(-rows // tile.rows) * tile.rows * -(-columns // tile.columns) * tile.columns)
        if blocks >= gpu.sms // 2 and used > 0.6:
            return tile
    return min(tiles, key=lambda t: (-(-rows // t.rows) * t.rows * -(-columns // t.columns) * t.columns, t.rows))


def apply(
    s: Schedule,
    c: Contraction,
    after: str | None,
    tile: Tile | WarpTile | None = None,
    cores: Instruction | None = None,
    gpu: GPU = H100,
) -> None:
    """Tile a product of matrices, with the elementwise block `after` behind it, and bind it to blocks and threads; on tensor
    cores where `cores` says by which instruction."""
    if cores is not None:
        tiles = TF32_TILES if cores.factors == "tf32" else WARP_TILES
        chosen = choose(tiles, size(c.rows), size(c.columns), size(c.batch), gpu) if tile is None else tile
        assert isinstance(chosen, WarpTile)
        multiply(s, c, after, cores, chosen)
    else:
        chosen = choose(TILES, size(c.rows), size(c.columns), size(c.batch), gpu) if tile is None else tile
        assert isinstance(chosen, Tile)
        matrices(s, c, after, chosen, gpu)


def is_matrices(c: Contraction) -> bool:
    """Whether a contraction is a product of matrices, or a batch of them."""
    return is_plain(c.left) and is_plain(c.right) and len(c.rows) == len(c.columns) == len(c.sums) == 1


def matrices(s: Schedule, c: Contraction, after: str | None, tile: Tile, gpu: GPU = H100) -> None:
    """A product of matrices, or a batch: padded in shared memory to whole tiles."""
    block = c.block
    (row,), (column,), (step,) = c.rows, c.columns, c.sums
    sizes = {row.var.name: tile.rows, column.var.name: tile.columns, step.var.name: tile.depth}
    (left, right), after = stage(s, c, after, "local", sizes)
    # A thread has strips of four columns, so that a warp reads whole lines of shared memory, and rows as far apart as there are
    # threads, so that its threads read the left factor from different banks.
    across = tile.columns // tile.thread_columns
    strip = min(4, tile.thread_columns)
    batch = [loop_of(it) for it in c.batch]
    i, j, k = loop_of(row), loop_of(column), loop_of(step)
    by, ii, ty = s.split(i, [None, tile.thread_rows, tile.rows // tile.thread_rows])
    bx, jq, tx, jj = s.split(j, [None, tile.thread_columns // strip, across, strip])
    ko, ki = s.split(k, [None, tile.depth])
    s.reorder(*batch, by, bx, ko, ty, tx, ki, ii, jq, jj)
    s.compute_at(left, ko)
    s.compute_at(right, ko)
    s.reverse_compute_at(after, bx)
    first = s.decompose_reduction(block, ko)
    if batch:
        s.bind(s.fuse(*batch), "blockIdx.z")
    blocks = rasterise(s, by, bx)
    s.bind(blocks, "blockIdx.x")
    if gpu.modern:  # else what is loaded for the next tile takes registers too
        s.annotate(blocks, "resident_blocks", 2)
    names = [x.name for x in loops_of(s.func, first)]
    for axis, loop in zip(("threadIdx.y", "threadIdx.x"), names[-5:-3], strict=True):
        s.bind(loop, axis)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    s.unroll(ki)
    s.annotate(ko, "pipeline_stages", tile.stages)
    threads = (("threadIdx.y", tile.rows // tile.thread_rows), ("threadIdx.x", across))
    for copy in (left, right):
        fetch(s, copy, 2, threads)
    _write_back(s, after, tile, strip)


def _write_back(s: Schedule, after: str, tile: Tile, strip: int) -> None:
    """The tile of the result goes from registers to its place: each thread its own elements."""
    i, j = [x.name for x in loops_of(s.func, after)][-2:]
    ii, ty = s.split(i, [tile.thread_rows, tile.rows // tile.thread_rows])
    jq, tx, jj = s.split(j, [tile.thread_columns // strip, tile.columns // tile.thread_columns, strip])
    s.reorder(ty, tx, ii, jq, jj)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    if strip > 1:
        s.vectorize(jj)
