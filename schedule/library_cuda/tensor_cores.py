"""Products of matrices on tensor cores.

A block's tile goes to shared memory several steps ahead (`pipeline_stages`), in rows with some bytes between, so that a warp
meets no bank twice (`align`); each warp loads its part into registers (scope `warp`) and multiplies by `mma`. Where axes do not
fill tiles, the product is padded with zeros in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Load, Var
from tir.memory import WARP

from ..templates.structure import Contraction, iterations, last_axis, loop_of, size
from .launch import fetch, rasterise, stage

TF32 = "tf32"  # an annotation of a block: its factors may be rounded to 10 bits of mantissa
LEAST = 16  # rows, columns and steps of a product that are worth a tile


@dataclass(frozen=True, slots=True)
class WarpTile:
    """Rows, columns and steps of a block's tile, rows and columns of a warp's, and the tiles that take turns in shared memory."""

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int

    @property
    def warps(self) -> tuple[int, int]:
        """The warps along rows and columns."""
        return self.rows // self.warp_rows, self.columns // self.warp_columns


TILES = (
    WarpTile(128, 256, 32, 64, 64, 4), WarpTile(128, 128, 32, 64, 64, 4), WarpTile(64, 64, 32, 32, 32, 4),
    WarpTile(32, 32, 32, 16, 16, 4),
)  # fmt: skip
TF32_TILES = (WarpTile(128, 128, 32, 64, 64, 3), WarpTile(64, 64, 32, 32, 32, 4), WarpTile(32, 32, 32, 16, 16, 4))


@dataclass(frozen=True, slots=True)
class Instruction:
    """The names that the intrinsics of a product have in common, and the steps that one instruction takes."""

    factors: str
    sums: str
    depth: int


_BY_DTYPE = {
    ("float16", "float32"): Instruction("f16", "f32", 16),
    ("bfloat16", "float32"): Instruction("bf16", "f32", 16),
    ("float16", "float16"): Instruction("f16", "f16", 16),
}


def instruction(c: Contraction, tf32: bool) -> Instruction | None:
    """The instruction that computes a contraction of matrices, whose last two dimensions are theirs; None if there is none.

    float32 has one only where `tf32` says that factors may be rounded to 10 bits of mantissa.
    """
    factors, sums = {c.left.buffer.dtype, c.right.buffer.dtype}, c.store.buffer.dtype
    if len(factors) != 1 or min(size(c.rows), size(c.columns), size(c.sums)) < LEAST:
        return None
    for x, inner in ((c.left, c.rows), (c.right, c.columns), (c.store, (*c.rows, *c.columns))):
        wanted = {it.var.name for it in (inner if x is c.store else (*inner, *c.sums))}
        if {i.name for i in x.indices[-2:] if isinstance(i, Var)} != wanted:
            return None
    (factor,) = factors
    if factor == sums == "float32":
        return Instruction("tf32", "f32", 8) if tf32 else None
    return _BY_DTYPE.get((factor, sums))


def multiply(s: Schedule, c: Contraction, after: str | None, how: Instruction, tile: WarpTile) -> None:
    """Schedule a product of matrices, or a batch of them, with the elementwise block `after` behind it."""
    block = c.block
    (row,), (column,), (step,) = c.rows, c.columns, c.sums
    sizes = {row.var.name: tile.rows, column.var.name: tile.columns, step.var.name: tile.depth}
    shared, after = stage(s, c, after, "warp", sizes)
    held = [s.cache_read(block, find_block(s.func, copy).body.buffer.name, "warp") for copy in shared]  # type: ignore[attr-defined]
    batch = [loop_of(it) for it in c.batch]
    i, j, k = loop_of(row), loop_of(column), loop_of(step)
    by, wy, ti, ii = s.split(i, [None, tile.warps[0], tile.warp_rows // 16, 16])
    bx, wx, tj, jj = s.split(j, [None, tile.warps[1], tile.warp_columns // 8, 8])
    ko, kk, ki = s.split(k, [None, tile.depth // how.depth, how.depth])
    s.reorder(*batch, by, bx, ko, wy, wx, kk, ti, tj, ii, jj, ki)
    for copy in held:
        s.compute_at(copy, kk)
    for copy in shared:
        s.compute_at(copy, ko)
    s.reverse_compute_at(after, bx)
    first = s.decompose_reduction(block, ko)
    if batch:
        s.bind(s.fuse(*batch), "blockIdx.z")
    outer = len(batch) > 0
    blocks = rasterise(s, by, bx)
    s.bind(blocks, "blockIdx.x")
    if tile.rows * tile.columns <= 128 * 128:
        s.annotate(blocks, "resident_blocks", 2)
    names = [x.name for x in loops_of(s.func, first)]
    for y, x in ((names[1 + outer], names[2 + outer]), (wy, wx)):
        s.bind(y, "threadIdx.y")
        s.bind(x, "threadIdx.z")
    threads = (("threadIdx.y", tile.warps[0]), ("threadIdx.z", tile.warps[1]), ("threadIdx.x", WARP))
    for copy, factor in zip(shared, (c.left, c.right), strict=True):
        fetch(s, copy, _apart(s, copy), threads)
        align(s, copy, factor, step.var.name)
    load_fragments(s, held, (c.left, c.right), step.var.name, how)
    order = ("n" if last_axis(c.left) == step.var.name else "t") + ("t" if last_axis(c.right) == step.var.name else "n")
    s.tensorize(ii, f"mma_m16n8k{how.depth}_{order}_{how.factors}_{how.sums}")
    s.unroll(kk)
    s.annotate(ko, "pipeline_stages", tile.stages)
    _write_back(s, after, tile)


def _apart(s: Schedule, copy: str) -> int:
    """Where two rows of a tile are 128 bytes, which are stored at once, take rows that are four apart: the next one begins 80
    bytes on, in banks that the first one has. Returns over how many loops the tile is copied."""
    row, column = [x.name for x in loops_of(s.func, copy)][-2:]
    if 2 * (iterations(s, column) or 0) * dtypes.nbytes(find_block(s.func, copy).body.buffer.dtype) != 128:  # type: ignore[attr-defined]
        return 2
    rows, two, four = s.split(row, [None, 2, 4])
    s.reorder(rows, four, two)
    return 4


def align(s: Schedule, copy: str, factor: Load, step: str) -> None:
    """Have the rows of a tile end where the threads of a warp meet different banks: 16 bytes off a multiple of 64 for `ldmatrix`,
    which loads 8 rows of 16 bytes at once; 32 off a multiple of 128 for elements that come by themselves, from 4 rows of 8."""
    nbytes = dtypes.nbytes(factor.buffer.dtype)
    multiple, offset = (128, 32) if nbytes == 4 and last_axis(factor) != step else (64, 16)
    s.storage_align(copy, 0, -2, multiple // nbytes, offset // nbytes)


def load_fragments(s: Schedule, held: list[str], factors: tuple, step: str, how: Instruction) -> None:
    """Fragments come by `ldmatrix`, but for elements of 32 bits that would have to be transposed."""
    for copy, factor in zip(held, factors, strict=True):
        if how.depth == 8 and last_axis(factor) != step:
            continue
        i, j = [x.name for x in loops_of(s.func, copy)][-2:]
        io, ii = s.split(i, [None, 16])
        jo, ji = s.split(j, [None, how.depth])
        s.reorder(io, jo, ii, ji)
        s.tensorize(ii, f"ldmatrix_16x{how.depth}_{'f32' if how.depth == 8 else how.factors}")


def _write_back(s: Schedule, after: str, tile: WarpTile) -> None:
    """The tile of the result goes from registers to its place: each warp its own."""
    i, j = [x.name for x in loops_of(s.func, after)][-2:]
    wy, ii = s.split(i, [tile.warps[0], tile.warp_rows])
    wx, jj = s.split(j, [tile.warps[1], tile.warp_columns])
    s.reorder(wy, wx, ii, jj)
    s.bind(wy, "threadIdx.y")
    s.bind(wx, "threadIdx.z")
