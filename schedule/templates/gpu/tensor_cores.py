"""Products of matrices on tensor cores: tiles in shared memory, fragments in the registers of warps.

A block's tile goes to shared memory several steps ahead (`pipeline_stages`). Its rows have some bytes between them, so that a
warp meets no bank twice (`align`). Each warp loads its part into registers (scope `warp`) and multiplies by `mma`. Where axes do
not fill tiles, the product is padded with zeros in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedule.intrinsics import WARPGROUP
from schedule.machine import GPU
from schedule.open_schedule import OpenSchedule, Stage, extent
from tir import dtypes
from tir.ir import Block, Load, Var, annotation
from tir.memory import SWIZZLED, WARP, WARP_SCOPE

from ..block_analysis import Contraction, last_axis, loop_of, size, stored
from ..template import WholeNest
from .launch import (
    accumulate,
    bind_blocks,
    choose_pipeline,
    choose_row_order,
    grouped,
    inline_producers,
    lanes_of,
    load_together,
    pad,
    source_of,
)
from .products import BlockTile, choose, is_matrices, matched_product, padded_length

TF32 = "tf32"  # an annotation of a block: its factors may be rounded to 10 bits of mantissa
MIN_EXTENT = 16  # least rows, columns and steps of a product that are worth a tile
FRAGMENT = 16  # rows and columns that `ldmatrix` loads; an instruction makes half as many columns of the result
STAGES = (3, 2, 4, 5, 1)  # tiles of shared memory that take turns
BYTE_ROW_OFFSET = 8  # bytes beyond a multiple of 32 of rows whose bytes come by themselves
LOAD_PRODUCTS = 32  # multiply-adds of an SM (of halves, 1024 a clock) while L2 delivers an element (64 bytes a clock)
READ_PRODUCTS = 16  # of them while shared memory gives one (128 bytes a clock)


TILES = (
    BlockTile(128, 256, 32, 64, 64, 4), BlockTile(128, 128, 32, 64, 64, 4), BlockTile(64, 64, 32, 32, 32, 4),
    BlockTile(32, 32, 32, 16, 16, 4),
)  # fmt: skip
TF32_TILES = (BlockTile(128, 128, 32, 64, 64, 3), BlockTile(64, 64, 32, 32, 32, 4), BlockTile(32, 32, 32, 16, 16, 4))
GROUP_TILES = (BlockTile(128, 256, 64, 64, 256, 4), BlockTile(128, 128, 64, 64, 128, 3), BlockTile(64, 64, 64, 64, 64, 4))
DOUBLE_TILES = (BlockTile(64, 64, 16, 32, 32, 4), BlockTile(32, 32, 16, 16, 16, 4))  # an accumulator has two registers


@dataclass(frozen=True, slots=True)
class TensorCoreInstruction:
    """The names that the intrinsics of a product have in common, and the steps that one instruction takes."""

    factors: str
    accumulators: str
    depth: int
    grouped: bool = False  # by a warpgroup, which reads shared memory

    def name(self, c: Contraction) -> str:
        """The intrinsic for factors in the order in which they lie."""
        order = [
            "n" if (last_axis(x) == c.reduction[0].var.name) == is_left else "t"
            for x, is_left in ((c.left, True), (c.right, False))
        ]
        kind = f"{WARPGROUP}_m64n8" if self.grouped else "mma_m16n8"
        return f"{kind}k{self.depth}_{''.join(order)}_{self.factors}_{self.accumulators}"


_BY_DTYPE = {
    ("float16", "float32"): TensorCoreInstruction("f16", "f32", 16),
    ("bfloat16", "float32"): TensorCoreInstruction("bf16", "f32", 16),
    ("float16", "float16"): TensorCoreInstruction("f16", "f16", 16),
    ("float64", "float64"): TensorCoreInstruction("f64", "f64", 8),
}
_BYTES = {"int8": "s8", "uint8": "u8"}
_LOADED = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", **_BYTES}  # types by their names in `ldmatrix`


def matches(block: Block, exact: bool = False) -> tuple[Contraction, TensorCoreInstruction] | None:
    """The product of matrices of a block, over the last two dimensions of its arrays, and the instruction that can do it.

    float32 has one only where the block is annotated `tf32`; if `exact`, it has the multiply-adds of a warp, annotated or not.
    """
    c = matched_product(block)
    if c is None or not is_matrices(c) or min(size(c.rows), size(c.columns), size(c.reduction)) < MIN_EXTENT:
        return None
    factors, accumulators = {c.left.buffer.dtype, c.right.buffer.dtype}, c.store.buffer.dtype
    for x, inner in ((c.left, c.rows), (c.right, c.columns), (c.store, (*c.rows, *c.columns))):
        wanted = {it.var.name for it in (inner if x is c.store else (*inner, *c.reduction))}
        if {i.name for i in x.indices[-2:] if isinstance(i, Var)} != wanted:
            return None
    if factors <= set(_BYTES) and accumulators == "int32":
        left, right = (_BYTES[x.buffer.dtype] for x in (c.left, c.right))
        return c, TensorCoreInstruction(left if left == right else left + right, "s32", 32)
    if len(factors) != 1:
        return None
    (factor,) = factors
    if factor == accumulators == "float32":
        tf32 = not exact and annotation(block.annotations, TF32, False)
        return (c, TensorCoreInstruction("tf32" if tf32 else "f32", "f32", 8)) if tf32 or exact else None
    how = _BY_DTYPE.get((factor, accumulators))
    return None if how is None else (c, how)


def seed(c: Contraction, how: TensorCoreInstruction, gpu: GPU) -> BlockTile:
    """The tile of a product, no larger than that is, in units of an instruction."""
    tiles = GROUP_TILES if how.grouped else {"tf32": TF32_TILES, "f64": DOUBLE_TILES}.get(how.factors, TILES)
    rate = 1 + how.grouped  # warpgroups multiply twice as fast
    tile = choose(tiles, c, gpu, rate * LOAD_PRODUCTS, rate * READ_PRODUCTS)
    if how.grouped:
        return replace(tile, held_rows=FRAGMENT)
    if how.accumulators == "s32":  # rows of as many bytes
        tile = replace(tile, depth=2 * tile.depth)
    rows, columns = (padded_length(-(-size(axes) // FRAGMENT)) * FRAGMENT for axes in (c.rows, c.columns))
    depth = padded_length(-(-size(c.reduction) // how.depth)) * how.depth
    return replace(tile, rows=min(tile.rows, rows), columns=min(tile.columns, columns), depth=min(tile.depth, depth))


def build(s: OpenSchedule, found: tuple[Contraction, TensorCoreInstruction]) -> None:
    """Schedule a matrix product, perhaps batched, its epilogue behind it."""
    c, how = found
    block = c.block
    tile = seed(c, how, s.target.machine)
    shared = [s.cache_read(block, x.buffer.name, SWIZZLED if how.grouped else "shared") for x in (c.left, c.right)]
    after = accumulate(s, block, WARP_SCOPE)
    for copy in shared:
        inline_producers(s, copy)
    (row,), (column,), (step,) = c.rows, c.columns, c.reduction
    group, (warps_down, warps_across) = grouped(-(-extent(row) // tile.rows)), tile.parts
    levels = (
        (row, FRAGMENT, "gwf", (group, warps_down, tile.held_rows // FRAGMENT)),
        (column, FRAGMENT, "wf", (warps_across, tile.held_columns // FRAGMENT)),
        (step, how.depth, "r", (tile.depth // how.depth,)),
    )
    lengths, units = {}, {}
    for it, unit, roles, seeds in levels:
        count = -(-extent(it) // unit)
        units[it.var.name] = unit
        lengths[it.var.name] = s.sizes(
            block, it.var.name, len(roles), seed=seeds, extent=count, roles=roles, padded=True, unit=unit,
            missing=count * unit - extent(it),
        )  # fmt: skip
    pad(s, block, lengths, units)
    held = [] if how.grouped else [s.cache_read(block, stored(s.block(copy)).buffer.name, WARP_SCOPE) for copy in shared]
    loops: dict[str, list[str]] = {}
    for it in s.block(block).iters:
        if (name := it.var.name) in lengths:
            inner = (2, FRAGMENT // 2) if name == column.var.name else (units[name],)
            loops[name] = s.split(loop_of(it), [None, *lengths[name], *inner])
    (by, group_loop, wy, ti, ii), (bx, wx, tj, half, jj), (ko, kk, ki) = (loops[it.var.name] for it in (row, column, step))
    (_, warp_rows, down), (warp_columns, across), _ = (lengths[it.var.name] for it in (row, column, step))
    grid = [*(loop_of(it) for it in c.batch), by, bx, group_loop]
    s.reorder(*grid, ko, wy, wx, kk, ti, tj, half, ii, jj, ki)
    for copy in held:
        s.compute_at(copy, kk)
    for copy in shared:
        s.compute_at(copy, ko)
    s.reverse_compute_at(after, group_loop)
    first = s.decompose_reduction(block, ko)
    blocks = bind_blocks(s, grid)
    _bind_warps(s, s.get_loops(first)[1:3])
    _bind_warps(s, [wy, wx])
    sizes = {row.var.name: tile.rows, column.var.name: tile.columns, step.var.name: tile.depth}
    for copy, factor in zip(shared, (c.left, c.right), strict=True):
        shape = [sizes[i.name] for i in factor.indices[-2:] if isinstance(i, Var)]
        lanes = lanes_of(source_of(s, copy), shape, tile.threads * WARP)
        if dtypes.nbytes(factor.buffer.dtype) == 1 and not by_ldmatrix(factor, step.var.name):
            lanes = min(lanes, BYTE_ROW_OFFSET)  # where rows start
        choose_row_order(s, block, copy, shape[-1] * dtypes.nbytes(factor.buffer.dtype))
        load_together(s, block, copy, factor.buffer.name, [warp_columns, warp_rows, WARP], lanes)
        if not how.grouped:
            align(s, copy, factor, step.var.name)
    if held:
        load_fragments(s, held, (c.left, c.right), step.var.name, how)
    s.tensorize(ii, how.name(c))
    s.unroll(kk)
    choose_pipeline(s, block, blocks, ko, STAGES, tile.stages, 2 if tile.rows * tile.columns <= 128 * 128 else 1)
    _bind_result(s, after, (warp_rows, warp_columns), (down * FRAGMENT, across * FRAGMENT))
    for name in (block, f"{block}_update", first, after, *shared, *held):
        s.scheduled[name] = Stage.BOUND


def _bind_result(s: OpenSchedule, after: str, warps: tuple[int, int], tile: tuple[int, int]) -> None:
    """Have each warp write the rows and columns of its tile; there are so many warps along rows and columns."""
    (row, column), (rows, columns) = s.get_loops(after)[-2:], tile
    row_warp, row = s.split(row, [warps[0], rows])
    column_warp, column = s.split(column, [warps[1], columns])
    s.reorder(row_warp, column_warp, row, column)
    _bind_warps(s, [row_warp, column_warp])


def _bind_warps(s: OpenSchedule, loops: list[str]) -> None:
    """Bind the warps along rows and columns; the lanes of a warp are threadIdx.x."""
    for loop, axis in zip(loops, "yz", strict=True):
        s.bind(loop, f"threadIdx.{axis}")


def align(s: OpenSchedule, copy: str, factor: Load, step: str) -> None:
    """Have the rows of a tile end where the threads of a warp meet different banks. For `ldmatrix`, which loads 8 rows of 16
    bytes at once, they are 16 bytes off a multiple of 64. For elements that come by themselves, from 4 rows of 8, they are 32
    bytes off a multiple of 128; for bytes, from 4 rows that are four apart, 8 off one of 32; for 8 bytes, from 4 pairs of rows,
    16 off one of 64, and for pairs of these, from 2 rows of 4, 64 off one of 128."""
    nbytes, (multiple, offset) = dtypes.nbytes(factor.buffer.dtype), _row_pitch(factor, step)
    s.storage_align(copy, 0, -2, multiple // nbytes, offset // nbytes)


def _row_pitch(factor: Load, step: str) -> tuple[int, int]:
    nbytes = dtypes.nbytes(factor.buffer.dtype)
    if nbytes == 8:
        return (128, 64) if last_axis(factor) == step else (64, 16)
    return (64, 16) if by_ldmatrix(factor, step) else (32, BYTE_ROW_OFFSET) if nbytes == 1 else (128, 32)


def tile_bytes(factor: Load, step: str, steps: int, others: int) -> int:
    """The bytes of shared memory of a tile of a factor, with its rows aligned."""
    rows, length = (others, steps) if last_axis(factor) == step else (steps, others)
    multiple, offset = _row_pitch(factor, step)
    return rows * (-(-(length * dtypes.nbytes(factor.buffer.dtype) - offset) // multiple) * multiple + offset)


def load_fragments(s: OpenSchedule, held: Sequence[str], factors: Sequence[Load], step: str, how: TensorCoreInstruction) -> None:
    """Load fragments by `ldmatrix` where it can."""
    for copy, factor in zip(held, factors, strict=True):
        if how.factors == "f32" or not by_ldmatrix(factor, step):
            continue
        i, j = s.get_loops(copy)[-2:]
        io, ii = s.split(i, [None, 16])
        jo, ji = s.split(j, [None, how.depth])
        s.reorder(io, jo, ii, ji)
        s.tensorize(ii, f"ldmatrix_16x{how.depth}_{_LOADED[factor.buffer.dtype]}")


def by_ldmatrix(factor: Load, step: str) -> bool:
    """True where `ldmatrix` loads the fragments of a factor: no elements of 64 bits, and only those of 16 transposed."""
    nbytes = dtypes.nbytes(factor.buffer.dtype)
    return nbytes == 2 or (nbytes < 8 and last_axis(factor) == step)


def _matches(s: OpenSchedule, block: str) -> tuple[Contraction, TensorCoreInstruction] | None:
    """The product of a block that tensor cores of the target compute. At the seed a product that fills a tile is one of
    warpgroups; the search varies numbers of warps of their own."""
    gpu = s.target.machine
    found = matches(s.block(block)) if gpu.modern else None
    if found is None or found[1].factors not in ("f16", "bf16") or not (s.at_seed and gpu.warpgroups):
        return found
    c, how = found
    tile = GROUP_TILES[-1].shape
    return c, replace(how, grouped=all(size(x) >= n for x, n in zip((c.rows, c.columns, c.reduction), tile, strict=True)))


# Matrix products for m16n8k16 (float16, bfloat16), m16n8k32 (int8, uint8) or m16n8k8 (float64, and float32 annotated `tf32`).
TENSOR_CORES = WholeNest("tiling for tensor cores", _matches, build)
