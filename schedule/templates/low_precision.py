"""Products of numbers of 8 or 16 bits by the instructions that add a few products at once.

There are two kinds. Tile registers (AMX) multiply 16 rows by 16 columns in an instruction. Dot products in lanes add to each lane
of a vector the products of 4 or 2 elements of its column and a row (`schedule/intrinsics/dots.py`). Where x86 has none for bytes,
they are copied as int16, of which VPMADDWD multiplies and adds pairs; VPMADDUBSW takes weights so small that its 16 bits hold a
pair.

For both kinds, operands are copied tile by tile in the order of the instructions: columns of some steps of the sum side by side.
Partial tiles are filled up with zeros. Rows for dot products are read in place, if they end with a whole step. A long sum runs in
parts, as in `gemm`, so that rows stay in L1 while the columns come from L2. Between parts the results are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np

from schedule.intrinsics.dots import find_dot, letters
from schedule.machine import CACHE_SHARE, CPU, Amount, Machine
from schedule.open_schedule import OpenSchedule, extent
from schedule.register_tiles import MAX_TILE_VECTORS, fewest_cycles, fitting
from schedule.rewriting.index_map import IndexMap
from tir import dtypes
from tir.ir import Block, Cast, Const, Expr, Iter, Load, Var

from . import elementwise, gemm
from .block_analysis import Contraction, adds_products, at_axes, epilogue, last_axis, loop_of, pairing, size, stored
from .division import balanced
from .marks import done, share
from .pack_branches import separate_rows

NAME = "low precision"
SHAPES = ((2, 2), (1, 4), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))  # rows by columns of tiles that fit registers, with operands
TILE_LINES = 16  # lines of a tile register, one a row
LOAD_CYCLES = (8, 20)  # cycles to load a tile of 1 KiB: from L1 two lines of 64 bytes a cycle, from L2 some 50 bytes
# Parts that a sum is as long as at most, which runs whole: tile registers, and dot products in lanes. Each part loads and stores
# all results. On a Zen 4, a sum of 2.1 parts takes 1.03 x as long in three; with 48 KiB of L1, 1800 steps were faster whole, 2048
# not.
WHOLE_SUM_PARTS = (1.5, 2.5)
TILE_CYCLES = 18  # cycles of an instruction on tiles: 16 on an Emerald Rapids, with loads from L1 at 92 to 98 % of that speed
# Least register tiles of columns in a block, for dot products: each block reads, or copies, rows again. On a Zen 4, 51 x 2680 x
# 1982 of bfloat16 take 1.04 x as long with three as with five.
MIN_BLOCK = 5
MIN_ROW_BYTES = 16  # least bytes of a row that is copied at once: shorter stores have a mask, and loads wait for them


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction that multiplies `rows` by `columns` over `groups` of `parts` adjacent steps of a sum, and its intrinsic."""

    rows: int
    columns: int
    groups: int
    parts: int
    intrinsic: str
    shifted: str = ""  # the operand that is made unsigned, as the processor has no instruction for its sign
    wider: str = ""  # the dtype that operands are converted to as they are copied
    unfused: int = 0  # multiplications of whole vectors whose products are in registers of their own before they are added

    @property
    def depth(self) -> int:
        """The steps of the sum."""
        return self.groups * self.parts

    @property
    def multiplications(self) -> int:
        """Multiplications of whole vectors."""
        return max(1, self.unfused)

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        return 4 * self.columns * self.groups


@dataclass(frozen=True, slots=True)
class Tiling:
    """Instructions along rows and columns of a register tile and along a part of the sum; register tiles of columns in a `block`.
    `own`: each thread has blocks of its own. A shared one would leave the caches before other threads read it."""

    rows: int
    columns: int
    steps: int
    block: int
    own: bool


def matches(block: Block) -> Contraction | None:
    """The block as a matrix product of narrow numbers, converted to the type of their sum, if it is one."""
    c = gemm.matches(block) or _of_windows(block)
    if c is None or (len(c.reduction) != 1 and at_axes(c.left)):
        return None
    kind = c.store.buffer.dtype
    return c if is_supported(c) and adds_products(block, Cast(kind, c.left), Cast(kind, c.right)) else None


def _of_windows(block: Block) -> Contraction | None:
    """The block as a convolution of an image with channels last, by such weights: a product whose rows are windows."""
    c = pairing(block)
    if c is None or not c.by_columns or at_axes(c.left) or not at_axes(c.right) or not c.rows:
        return None
    channel = [it for it in c.reduction if it.var.name == last_axis(c.left)]
    return replace(c, reduction=(*(it for it in c.reduction if it not in channel), *channel)) if channel else None


def is_supported(c: Contraction) -> bool:
    """True for types for which there are instructions."""
    left, right, total = _types(c)
    integers = total == "int32" and ({left, right} <= {"int8", "uint8"} or left == right == "int16")
    return integers or (left, right, total) == ("bfloat16", "bfloat16", "float32")


def _types(c: Contraction) -> tuple[str, str, str]:
    return c.left.buffer.dtype, c.right.buffer.dtype, c.store.buffer.dtype


def instruction(c: Contraction, processor: CPU) -> Instruction | None:
    """The instruction that the processor has for a product."""
    left, right, total = _types(c)
    if not is_supported(c):
        return None
    parts, lanes = 32 // dtypes.bits(left), processor.lanes(32)
    if {"amx-tile", "amx-int8" if total == "int32" else "amx-bf16"} <= processor.features and left != "int16":
        return Instruction(16, 16, 16, parts, f"amx_16x16x{16 * parts}_{letters(left, right)}")
    clamps = c.narrow_pairs and right == "int8" and adds_pairs(processor)
    for a, b, shifted in _choices(c, clamps):
        if find_dot(a, b, lanes, processor.features, clamps):
            name = f"dot_{lanes}x{parts}_{'pairs_' * clamps}{letters(a, b)}"
            return Instruction(1, lanes, 1, parts, name, shifted, unfused=2 * clamps or int(left == "int16"))
    wide = total == "int32" and has_pairs(processor)
    return Instruction(1, lanes, 1, 2, f"dot_{lanes}x2_s16", wider="int16", unfused=1) if wide else None


def _choices(c: Contraction, clamps: bool) -> list[tuple[str, str, str]]:
    """Types of the operands, as given or with one made unsigned, and the name of that one: first the larger, or for an
    instruction that `clamps` the one without small weights."""
    left, right = c.left.buffer, c.right.buffer
    found = [(left.dtype, right.dtype, "")]
    found += [("uint8", right.dtype, left.name)] * (left.dtype == "int8")
    if right.dtype == "int8" and not clamps:
        found.insert(1 if size(c.rows) <= size(c.columns) else 2, (left.dtype, "uint8", right.name))
    return found


def has_dots(processor: CPU) -> bool:
    """True where the processor adds up four products of bytes in the lanes of a vector, of which one at least has signs."""
    return any(find_dot(kind, "int8", processor.lanes(32), processor.features) for kind in ("uint8", "int8"))


def has_pairs(processor: CPU) -> bool:
    """True where the processor adds products up in pairs: of int16 (VPMADDWD), and of bytes, in 16 bits (VPMADDUBSW)."""
    return find_dot("int16", "int16", processor.lanes(32), processor.features) is not None


def adds_pairs(machine: Machine) -> bool:
    """True for a processor that adds products of bytes up in pairs alone."""
    return isinstance(machine, CPU) and has_pairs(machine) and not has_dots(machine)


def suits(c: Contraction, processor: CPU) -> bool:
    """True where the processor has an instruction, and there are several rows. Windows of an image must be readable in place."""
    how = instruction(c, processor)
    if how is None or extent(c.rows[-1]) == 1:
        return False
    return at_axes(c.left) or (in_place(c, how) and not how.shifted)  # of a window's elements, no other array has the sums


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, with copies."""
    how = instruction(c, processor)
    assert how is not None, "what suits has one"
    t = tiles(c, how, processor)
    rows, columns, steps = (ceil(extent(it) / n) for it, n in _units(c, t, how))
    count, taps = size((*c.batch, *c.rows[:-1], *c.columns[:-1])) * rows * columns * steps, size(c.reduction[:-1])
    copied = [x for x in (c.left, c.right)[in_place(c, how) :] if x.buffer.name not in constants]
    packed = sum(size(_axes(c, x)) * dtypes.nbytes(x.buffer.dtype) for x in copied) * processor.pack_cycles(8)
    packed *= 2 if how.rows > 1 else 1  # into panels, and into tiles
    return count * _tile_cycles(t.rows, t.columns, taps * t.steps, how, processor) + packed


def tiles(c: Contraction, how: Instruction, processor: CPU) -> Tiling:
    """Good sizes for a product, computed from its extents and the processor."""
    row_tiles, column_tiles = ceil(extent(c.rows[-1]) / how.rows), ceil(extent(c.columns[-1]) / how.columns)
    taps, steps = size(c.reduction[:-1]), ceil(extent(c.reduction[-1]) / how.depth)

    def turns(shape: tuple[int, int]) -> float:
        return ceil(row_tiles / shape[0]) * ceil(column_tiles / shape[1]) * _tile_cycles(*shape, steps, how, processor)

    if how.rows > 1:
        rows, columns = min(SHAPES, key=turns)
    else:
        heights, widths = range(1, min(row_tiles, processor.registers) + 1), range(1, min(column_tiles, MAX_TILE_VECTORS) + 1)
        m, v = fitting(processor, heights, widths, how.unfused)
        count = np.ceil(row_tiles / m) * np.ceil(column_tiles / v)
        rows, columns, _ = fewest_cycles(m, v, count * _tile_cycles(m, v, taps * steps, how, processor), gain=1.0)
    # Rows of a part stay in L1, in tile registers with columns.
    most = max(1, int(processor.l1 * (1 / 3 if how.rows > 1 else CACHE_SHARE)) // (4 * rows * how.rows * how.groups))
    part = steps if taps > 1 or steps <= most * WHOLE_SUM_PARTS[how.rows == 1] else balanced(steps, most, 1)
    panel = columns * taps * ceil(steps / part) * part * how.nbytes
    panels, threads = ceil(column_tiles / columns), c.threads(processor)
    own = in_place(c, how) and panels * panel > processor.l3_reuse_bytes
    least = MIN_BLOCK if how.rows == 1 and (own or threads == 1) else 1  # small blocks are shared more evenly
    block = balanced(panels, max(least, processor.l2_reuse_bytes // panel), threads if own else 1)
    return Tiling(rows, columns, part, block, own)


def in_place(c: Contraction, how: Instruction) -> bool:
    """True where rows are read in place: the sum walks their memory in whole steps, in the type of the instruction."""
    step = c.reduction[-1]
    fits = how.rows == 1 and not how.wider and last_axis(c.left) == step.var.name and extent(step) % how.depth == 0
    return fits and c.left.buffer.name not in (c.right.buffer.name, how.shifted)


def _tile_cycles(rows: Amount, columns: Amount, steps: int, how: Instruction, processor: CPU) -> Amount:
    """Cycles of a register tile of instructions. For tile registers, rows come from L1 and columns from L2."""
    if how.rows == 1:
        return processor.tile_cycles(rows, columns, steps, how.multiplications)
    loads = rows * LOAD_CYCLES[0] + columns * LOAD_CYCLES[1]
    copied = 3 * TILE_LINES * processor.memory.line[0]  # cycles of a tile of the result
    return max(rows * columns * TILE_CYCLES, loads) * steps + rows * columns * copied


def _units(c: Contraction, t: Tiling, how: Instruction) -> list[tuple[Iter, int]]:
    """The axes of rows, columns and the sum, with the elements that a register tile has of each."""
    return [(c.rows[-1], t.rows * how.rows), (c.columns[-1], t.columns * how.columns), (c.reduction[-1], t.steps * how.depth)]


def _axes(c: Contraction, x: Load) -> tuple[Iter, ...]:
    """The axes of an operand."""
    names = {i.name for i in x.indices if isinstance(i, Var)}
    return tuple(it for it in (*c.batch, *c.rows, *c.columns, *c.reduction) if it.var.name in names)


def build(s: OpenSchedule, c: Contraction, after: str | None = None) -> None:
    """Tile a product, whose loops are still as they were made, with its elementwise consumer: `after`, or the one found, or else
    a copy of the result. ScheduleError where a step is refused.

    Loops, outermost first: batch, other columns and rows, blocks of columns, tiles of rows (threads); parts of the sum; register
    tiles of columns; instructions of a part; tiles of a register tile, unrolled; rows, columns and steps of an instruction.
    """
    machine: CPU = s.target.machine
    how = instruction(c, machine)
    assert how is not None, "what suits has one"
    if how.rows == 1 and last_axis(c.left) == c.rows[-1].var.name:
        elementwise.copy_transposed(s, c.block, c.left, c.reduction[-1].var.name)
        found = matches(s.block(c.block))
        assert found is not None, "it reads the copy as it read the array"
        c, how = found, replace(how, shifted=found.left.buffer.name if how.shifted == c.left.buffer.name else how.shifted)
    block, t = c.block, tiles(c, how, machine)
    units = {it.var.name: n for it, n in _units(c, t, how)}
    row, column, step = units
    after = after or epilogue(s, block, rows=True)
    after = None if after in s.scheduled else after
    reads_rows, copies = in_place(c, how), dict[str, str]()
    if how.shifted:
        copies[how.shifted], _, corrected = s.make_unsigned(block, how.shifted)
        if after is None:
            after = corrected
        else:
            s.compute_inline(corrected)
    left, right = (
        "" if reads_rows and x is c.left else copies.get(x.buffer.name) or s.cache_read(block, x.buffer.name, "global", [block])
        for x in (c.left, c.right)
    )
    for copy in (left, right) if how.wider else ():
        s.unsafe_set_dtype(copy, 0, how.wider)
    if after is None:
        after = s.cache_write(block, 0, "global")
    padded = {axis: 1 if reads_rows and axis == row else n for axis, n in units.items()}
    s.pad_einsum(block, [padded.get(it.var.name, 1) for it in s.block(block).iters])

    of_rows, of_columns = (row, (t.rows, how.rows)), (column, (t.columns, how.columns))
    across = how.rows > 1 and last_axis(c.left) == row  # rows are copied as columns are, then tile by tile into their own order
    side_by_side, order = (step, (how.groups, how.parts)), (0, 3, 1, 4, 2, 5)
    element = dtypes.nbytes(how.wider or c.left.buffer.dtype)
    # Long rows are copied in long vectors; for tile registers, 64 bytes of a row are together.
    by_rows = how.rows == 1 and extent(c.reduction[-1]) * element >= MIN_ROW_BYTES
    of_steps, in_order = ((step, ()), (0, 1, 2, 3)) if by_rows else ((step, (how.depth,)), (0, 3, 1, 2, 4))
    of_left = ((of_rows, side_by_side), order) if across else ((of_rows, of_steps), in_order)
    operands = ((left, c.left, of_left), (right, c.right, ((of_columns, side_by_side), order)))
    for name, x, tiled in operands[reads_rows:]:
        layout = _tile_layout(x.indices, *tiled)
        s.transform_layout(name, ("write", 0), layout)
        s.transform_block_layout(name, layout)

    loops = {it.var.name: loop_of(it) for it in s.block(block).iters}
    r0, r1, r2 = s.split(loops[row], [None, t.rows, how.rows])
    panels, c2, c3 = s.split(loops[column], [None, t.columns, how.columns])
    c0, c1 = s.split(panels, [None, t.block])
    k0, k1, k2, k3 = s.split(loops[step], [None, t.steps, how.groups, how.parts])
    batch, others, taps = (
        [loops[it.var.name] for it in axes] for axes in ((*c.batch, *c.columns[:-1]), c.rows[:-1], c.reduction[:-1])
    )
    around = [*batch, *others, c0, r0] if at_axes(c.left) else [*batch, c0, *others, r0]
    s.reorder(*around, k0, c1, *taps, k1, r1, c2, r2, c3, k2, k3)
    parted = s.loop(k0).extent != Const(1)
    s.reverse_compute_at(after, r0 if parted else c1, preserve_unit_loops=True)
    of_result = ((of_columns,), (0, 1, 2)) if reads_rows else ((of_rows, of_columns), (0, 3, 1, 2, 4, 5))
    s.transform_layout(block, ("write", 0), _tile_layout(c.store.indices, *of_result))
    s.vectorize(s.split(s.get_loops(after)[-1], [None, t.columns * how.columns])[-1])
    if not parted and how.rows == 1:
        s.unroll(s.get_loops(after)[-3])  # so that the results stay in registers
    s.unroll(r1)
    s.unroll(c2)
    names, parts_of_sum = [block], [k0]
    if parted:  # the first part starts from nothing
        parts_of_sum = s.loop_partition(k0, [1, None])
        names = [f"{block}_{loop}" for loop in parts_of_sum]
    for name, loop in [] if reads_rows else zip(names, parts_of_sum, strict=True):
        copy = s.cache_read(name, stored(s.block(left)).buffer.name, "global", [name])
        if across:
            layout = _rows_of_tiles(len(s.block(copy).iters), how.parts)
            s.transform_layout(copy, ("write", 0), layout)
            s.transform_block_layout(copy, layout)
        s.compute_at(copy, loop, preserve_unit_loops=True)
        if by_rows:
            s.vectorize(s.get_loops(copy)[-1])
            separate_rows(s, copy)
            continue
        *_, steps, tile, line, lanes = s.get_loops(copy)
        s.reorder(tile, line, steps)  # row by row, as processors fetch ahead
        s.vectorize(lanes)
    if across:
        _copy_operand(s, c, left, c.rows[-1], t.rows * how.rows, how, False)
    elif not reads_rows:
        s.compute_inline(left)
    instructions = [s.get_loops(name)[-4 if how.rows > 1 else -3] for name in names]
    s.vectorize(s.get_loops(s.decompose_reduction(names[0], s.get_loops(names[0])[-7 - len(taps)]))[-1])
    for loop in instructions:
        s.tensorize(loop, how.intrinsic)
    # A block of columns that all rows follow is packed where they use it, so that it is still in L2.
    threads = c.threads(machine)
    at_blocks = size(c.rows[:-1]) == 1 and c.right.buffer.name not in s.constants and (threads == 1 or t.own)
    place = c0 if at_blocks else None
    _copy_operand(s, c, right, c.columns[-1], t.columns * how.columns, how, last_axis(c.right) == step, place)
    if threads > 1:
        share(s, after, around[:-1] if at_blocks else around)
    done(s, after)


def _tile_layout(indices: Sequence[Expr], factors: Sequence[tuple[str, tuple[int, ...]]], order: Sequence[int]) -> IndexMap:
    """The index map of a buffer, accessed at `indices`, that tiles the dimensions of some axes by `factors`. The other dimensions
    come first, then the levels of all tiled ones in an `order`."""
    cut, at = dict(factors), 0
    outputs, places, kept = IndexMap.identity(len(indices)), dict[str, int](), list[int]()
    for i in indices:
        lengths = cut.get(i.name, ()) if isinstance(i, Var) else ()
        if isinstance(i, Var) and i.name in cut:
            outputs, places[i.name] = outputs.tile(at, *lengths), at
        else:
            kept.append(at)
        at += len(lengths) + 1
    levels = [places[axis] + n for axis, lengths in factors for n in range(len(lengths) + 1)]
    return outputs.permute(*kept, *(levels[n] for n in order))


def _rows_of_tiles(rank: int, parts: int) -> IndexMap:
    """The index map of an operand in tiles, from rows that are steps of the sum, `parts` side by side, to its own rows."""
    inputs = tuple(Var(f"i{n}") for n in range(rank))
    *others, step, row, part = inputs
    return IndexMap(inputs, (*others, row, step * parts + part))


def _copy_operand(
    s: OpenSchedule, c: Contraction, copy: str, axis: Iter, unit: int, how: Instruction, across: bool, place: str | None = None
) -> None:
    """Copy an operand at the loop `place`, or in front of the product by all threads. Vectors are of `axis`, of which a register
    tile has `unit` elements. Loops run over steps of the sum, so that a line that two tiles share is still in L1 for the
    second. Where the sum lies `across` these vectors, a line has some steps, and loops run over tiles. Partial tiles are
    copied apart."""
    if place is not None:
        s.compute_at(copy, place, preserve_unit_loops=True)
    loops = s.get_loops(copy)
    around = 0 if place is None else loops.index(place) + 1
    *batch, lines, steps, vectors, _, lane, part = loops[around:]
    s.vectorize(s.fuse(lane, part))
    squares = how.columns if across and how.groups == 1 else 1  # steps that are transposed at once
    whole_lines, whole_steps = extent(axis) // unit, extent(c.reduction[-1]) // how.depth
    # The outermost loop is cut: threads share it with those of a batch.
    if squares == 1:
        s.reorder(steps, *batch, lines)
        cuts = [[whole_steps], [whole_lines]]
    else:
        s.reorder(lines, *batch)
        cuts = [[whole_lines], [whole_steps // squares * squares, whole_steps]]
    made = [copy]
    for depth, ends in zip((0, len(batch) + 1), cuts, strict=True):
        loop = s.get_loops(made[0])[around + depth]
        known = s.loop(loop).extent
        assert isinstance(known, Const)
        lengths = [b - a for a, b in pairwise([0, *ends, int(known.value)]) if b > a]
        if len(lengths) > 1:
            made = [*(f"{made[0]}_{piece}" for piece in s.loop_partition(loop, [*lengths[:-1], None])), *made[1:]]
    if squares > 1 and whole_steps >= squares:
        *_, steps, vectors, _, _ = s.get_loops(made[0])
        outer, inner = s.split(steps, [None, squares])
        s.reorder(vectors, outer, inner)  # one square's rows at a time, as processors fetch ahead
        s.unroll(inner)
    if c.threads(s.target.machine) > 1 and place is None:
        share(s, made[0], s.get_loops(made[0])[: len(batch) + 1])
    done(s, *made)
