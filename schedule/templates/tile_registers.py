"""Products of numbers of 8 or 16 bits in tile registers (AMX): each instruction multiplies 16 rows by 16 columns.

Operands are copied tile by tile into the order in which the instructions read them, some steps of the sum side by side in each
column, and filled up with zeros to whole tiles. A register tile of the result has a few tiles of rows and columns. Where the sum
is long it runs in parts, as in `gemm`, so that the rows of a part stay in the first-level cache while the columns come from the
second; the tiles of the result wait in memory in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.rewriting.index_map import IndexMap
from tir import dtypes
from tir.ir import Binary, Block, Cast, Const, Expr, Iter, Load, Store, Var

from .block_analysis import Contraction, at_axes, epilogue, loop_of, pairing, size, stored
from .division import balanced
from .marks import done, share

NAME = "tile registers"
SIDE = 16  # rows and columns of a tile of the result
TILE_BYTES = 1024  # of a tile of any kind
SHAPES = ((2, 2), (1, 4), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))  # tiles of rows and columns that registers hold, with operands
TILE_CYCLES = 18  # of an instruction
LOAD_CYCLES = (8, 20)  # of a tile from the first-level cache, and from the second
LOAD_WEIGHT = 2.0  # cycles of the load of a tile that instructions do not hide
RESULT_CYCLES = 100  # of a tile of the result: to keep it, and to move it to where it belongs
PACK_CYCLES = 0.2  # of a byte of an operand

# By the types of the factors and of the sum: the features of the processor, and the intrinsic.
INTRINSICS = {
    ("int8", "int8", "int32"): ("amx-int8", "amx_16x16x64_s8s8"),
    ("int8", "uint8", "int32"): ("amx-int8", "amx_16x16x64_s8u8"),
    ("uint8", "int8", "int32"): ("amx-int8", "amx_16x16x64_u8s8"),
    ("uint8", "uint8", "int32"): ("amx-int8", "amx_16x16x64_u8u8"),
    ("bfloat16", "bfloat16", "float32"): ("amx-bf16", "amx_16x16x32_bf16"),
}


@dataclass(frozen=True, slots=True)
class TileProduct:
    """Tiles of rows and columns in registers; instructions of a part of the sum; register tiles of columns in a block."""

    rows: int
    columns: int
    steps: int
    block: int


def matches(block: Block) -> Contraction | None:
    """The block as a matrix product of narrow numbers, converted to the type of their sum, if it is one."""
    c = pairing(block)
    if c is None or not c.by_columns or not at_axes(c.left) or not at_axes(c.right) or not c.rows or len(c.reduction) != 1:
        return None
    return c if _types(c) in INTRINSICS and _sums_products(c, block) else None


def _types(c: Contraction) -> tuple[str, str, str]:
    return c.left.buffer.dtype, c.right.buffer.dtype, c.store.buffer.dtype


def _sums_products(c: Contraction, block: Block) -> bool:
    """Whether the block adds, from 0, products of its factors in the type of the sum."""
    kind = c.store.buffer.dtype
    old, factors = Load(c.store.buffer, c.store.indices), [Cast(kind, x) for x in (c.left, c.right)]
    products = [Binary("*", *factors), Binary("*", *factors[::-1])]
    sums = [Binary("+", *terms) for p in products for terms in ((old, p), (p, old))]
    return c.store.value in sums and isinstance(block.init, Store) and block.init.value == Const(0, kind)


def suits(c: Contraction, processor: CPU) -> bool:
    """Whether the processor has the instruction, and there is more than a row."""
    return {"amx-tile", INTRINSICS[_types(c)][0]} <= processor.features and extent(c.rows[-1]) > 1


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """About how many cycles it takes on one core; infinite where it does not suit."""
    if not suits(c, processor):
        return inf
    t, depth = tiles(c, processor), _depth(c)
    rows, columns, steps = (ceil(extent(it) / n) for it, n in _units(c, t, depth))
    count = size((*c.batch, *c.rows[:-1], *c.columns[:-1])) * rows * columns
    packed = sum(size(_axes(c, x)) * dtypes.nbytes(x.buffer.dtype) for x in (c.left, c.right) if x.buffer.name not in constants)
    return count * (steps * t.steps * _step_cycles(t) + t.rows * t.columns * RESULT_CYCLES * steps) + packed * PACK_CYCLES


def tiles(c: Contraction, processor: CPU) -> TileProduct:
    """Good sizes for a product, computed from its extents and the processor."""
    row_tiles, column_tiles = ceil(extent(c.rows[-1]) / SIDE), ceil(extent(c.columns[-1]) / SIDE)
    steps = ceil(extent(c.reduction[0]) / _depth(c))

    def turns(shape: tuple[int, int]) -> float:
        cost = _step_cycles(TileProduct(*shape, steps, 1)) + sum(shape) * LOAD_WEIGHT
        return ceil(row_tiles / shape[0]) * ceil(column_tiles / shape[1]) * cost

    rows, columns = min(SHAPES, key=turns)
    most = max(1, processor.l1 // (3 * TILE_BYTES * rows))
    part = steps if steps <= most * 3 // 2 else balanced(steps, most, 1)
    panel = columns * ceil(steps / part) * part * TILE_BYTES
    block = balanced(ceil(column_tiles / columns), max(1, processor.l2_reuse_bytes // panel), 1)
    return TileProduct(rows, columns, part, block)


def _step_cycles(t: TileProduct) -> float:
    """Cycles of a step of a register tile, whose rows are in the first-level cache and whose columns are in the second."""
    return max(t.rows * t.columns * TILE_CYCLES, t.rows * LOAD_CYCLES[0] + t.columns * LOAD_CYCLES[1])


def _parts(c: Contraction) -> int:
    """How many steps of the sum lie side by side in a column."""
    return 32 // dtypes.bits(c.left.buffer.dtype)


def _depth(c: Contraction) -> int:
    """The steps of the sum of an instruction."""
    return SIDE * _parts(c)


def _units(c: Contraction, t: TileProduct, depth: int) -> list[tuple[Iter, int]]:
    """Rows, columns and the sum, and the elements that a register tile has of each."""
    return [(c.rows[-1], t.rows * SIDE), (c.columns[-1], t.columns * SIDE), (c.reduction[0], t.steps * depth)]


def _axes(c: Contraction, x: Load) -> tuple[Iter, ...]:
    """The axes of an operand."""
    names = {i.name for i in x.indices if isinstance(i, Var)}
    return tuple(it for it in (*c.batch, *c.rows, *c.columns, *c.reduction) if it.var.name in names)


def build(s: OpenSchedule, c: Contraction) -> None:
    """Tile a product, whose loops are still as they were made, with its elementwise consumer, which is made if there is none.
    ScheduleError where a step is refused.

    Loops, outermost first: batch, other columns and rows, blocks of columns, tiles of rows (threads); parts of the sum; register
    tiles of columns; instructions of a part; tiles of a register tile, unrolled; rows, columns and steps of an instruction.
    """
    machine: CPU = s.target.machine
    block, t, depth, parts = c.block, tiles(c, machine), _depth(c), _parts(c)
    row, column, step = (it.var.name for it, _ in _units(c, t, depth))
    after = epilogue(s, block, rows=True)
    left, right = (s.cache_read(block, x.buffer.name, "global", [block]) for x in (c.left, c.right))
    if after is None or after in s.scheduled:
        after = s.cache_write(block, 0, "global")
    units = {it.var.name: n for it, n in _units(c, t, depth)}
    units[column] *= t.block
    s.pad_einsum(block, [units.get(it.var.name, 1) for it in s.block(block).iters])

    of_rows, of_columns = (row, (t.rows, SIDE)), (column, (t.columns, SIDE))
    layouts = (
        (left, c.left, (of_rows, (step, (depth,))), (0, 3, 1, 2, 4)),
        (right, c.right, (of_columns, (step, (SIDE, parts))), (0, 3, 1, 4, 2, 5)),
    )
    for name, x, factors, order in layouts:
        layout = _tiled(x.indices, factors, order)
        s.transform_layout(name, ("write", 0), layout)
        s.transform_block_layout(name, layout)

    loops = {it.var.name: loop_of(it) for it in s.block(block).iters}
    r0, r1, r2 = s.split(loops[row], [None, t.rows, SIDE])
    c0, c1, c2, c3 = s.split(loops[column], [None, t.block, t.columns, SIDE])
    k0, k1, k2, k3 = s.split(loops[step], [None, t.steps, SIDE, parts])
    around = [*(loops[it.var.name] for it in (*c.batch, *c.columns[:-1], *c.rows[:-1])), c0, r0]
    s.reorder(*around, k0, c1, k1, r1, c2, r2, c3, k2, k3)
    s.reverse_compute_at(after, r0, preserve_unit_loops=True)
    s.transform_layout(block, ("write", 0), _tiled(c.store.indices, (of_rows, of_columns), (0, 3, 1, 2, 4, 5)))
    s.vectorize(s.split(s.get_loops(after)[-1], [None, t.columns * SIDE])[-1])
    s.unroll(r1)
    s.unroll(c2)
    names, parts_of_sum = [block], [k0]
    if s.loop(k0).extent != Const(1):  # the first part starts from nothing
        parts_of_sum = s.loop_partition(k0, [1, None])
        names = [f"{block}_{loop}" for loop in parts_of_sum]
    for name, loop in zip(names, parts_of_sum, strict=True):
        copy = s.cache_read(name, stored(s.block(left)).buffer.name, "global", [name])
        s.compute_at(copy, loop, preserve_unit_loops=True)
        *_, steps, tile, line, lanes = s.get_loops(copy)
        s.reorder(tile, line, steps)  # row by row, as processors fetch ahead
        s.vectorize(lanes)
    s.compute_inline(left)
    instructions = [s.get_loops(name)[-4] for name in names]
    s.vectorize(s.get_loops(s.decompose_reduction(names[0], s.get_loops(names[0])[-7]))[-1])
    for loop in instructions:
        s.tensorize(loop, INTRINSICS[_types(c)][1])
    _pack(s, c, right, t)
    if c.threads(machine) > 1:
        share(s, after, around)
    done(s, after)


def _tiled(indices: Sequence[Expr], factors: Sequence[tuple[str, tuple[int, ...]]], order: Sequence[int]) -> IndexMap:
    """The index map of a buffer, read or written at `indices`, whose dimensions at some axes are cut by these factors: the other
    dimensions first, then the levels of these, of all axes, in an order."""
    cut, at = dict(factors), 0
    outputs, places, kept = IndexMap.identity(len(indices)), dict[str, int](), list[int]()
    for i in indices:
        lengths = cut[i.name] if isinstance(i, Var) and i.name in cut else ()
        if isinstance(i, Var) and lengths:
            outputs, places[i.name] = outputs.tile(at, *lengths), at
        else:
            kept.append(at)
        at += len(lengths) + 1
    levels = [places[axis] + n for axis, lengths in factors for n in range(len(lengths) + 1)]
    return outputs.permute(*kept, *(levels[n] for n in order))


def _pack(s: OpenSchedule, c: Contraction, copy: str, t: TileProduct) -> None:
    """Copy the columns in front of the product, in vectors, by all threads: some rows of the operand after the other, in which
    lines that two tiles share are in the first-level cache when the second comes. Partial tiles are copied apart."""
    *batch, columns, steps, _, _, lane, part = s.get_loops(copy)
    s.reorder(steps, *batch, columns)
    s.vectorize(s.fuse(lane, part))
    made = [copy]
    for loop, length, unit in ((steps, extent(c.reduction[0]), _depth(c)), (columns, extent(c.columns[-1]), t.columns * SIDE)):
        if 0 < length // unit and length % unit:
            made = [*(f"{made[0]}_{part}" for part in s.loop_partition(loop, [length // unit, None])), *made[1:]]
            columns = s.get_loops(made[0])[len(batch) + 1]
    if c.threads(s.target.machine) > 1:
        share(s, made[0], s.get_loops(made[0])[: len(batch) + 1])
    done(s, *made)
