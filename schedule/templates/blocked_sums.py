"""Sums of scaled blocks: products by weights of few bits, which for few rows take as long as the weights come from memory.

A block has a sum of products of its own, over words that each have several weights. For some vectors of columns it stays in
registers until all words of the block are read. Then it is scaled and added to the result. Constant words and scales are packed,
so that a tile reads one stream of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir.ir import Block, Iter, Load, Store, Var
from tir.traverse import loads, variables

from .block_analysis import at_axes, driven_axes, epilogue, fuse_epilogue, last_axis, loop_of, regular, size, stored
from .low_precision import adds_pairs, has_dots
from .marks import done, share_out

NAME = "sums of blocks"
# Most vectors of columns in a tile of dot products, by any number of rows, so that all read one packed order. For one row, two
# vectors of three digits hide the latency of dot products.
DOT_VECTORS = 2
REGISTERS_A_SUM = 2  # vector registers for each sum of a block: its own, and one for weights and their conversion


@dataclass(frozen=True, slots=True)
class BlockedSums:
    """The block `result`, which adds up the scaled results of `sums`, a block for each step of its sum."""

    result: Block
    sums: Block
    rows: tuple[Iter, ...]
    columns: Iter
    blocks: Iter
    unpacked: str = ""  # the block that makes the numbers that `sums` reads, a byte each; empty where `sums` reads words


def matches(s: Schedule, name: str) -> BlockedSums | None:
    """The block `name` as a sum along one axis over the results of another sum, which nothing else reads; None for others."""
    result = find_block(s.func, name)
    if not _is_sum(result) or len(result.reduction) != 1 or len(result.spatial) not in (1, 2):
        return None
    column, (along,) = last_axis(Load(stored(result).buffer, stored(result).indices)), result.reduction
    for producer in s.get_producers(name):
        sums = find_block(s.func, producer)
        if not _is_sum(sums) or s.get_consumers(producer) != [name]:
            continue
        read = [x for x in loads(result.body) if x.buffer == stored(sums).buffer]
        unpacked = _unpacked(s, sums)
        at = variables(*read[0].indices) if at_axes(read[0]) or unpacked else set()
        missing = [it for it in result.iters if it.var.name not in at and extent(it) > 1]
        if missing or not at or last_axis(read[0]) != column or not (unpacked or _reads_words(sums)):
            continue
        *rows, columns = result.spatial
        if columns.var.name == column:
            return BlockedSums(result, sums, tuple(rows), columns, along, unpacked)
    return None


def _is_sum(block: Block) -> bool:
    """True for a reduction of one store, by loops of constant extents."""
    return block.is_reduction and isinstance(block.body, Store) and regular(block)


def _unpacked(s: Schedule, sums: Block) -> str:
    """The producer of sums of integers that makes bytes of bytes: it unpacks numbers of fewer bits. Empty without one."""
    for producer in s.get_producers(sums.name):
        made = find_block(s.func, producer)
        if stored(sums).buffer.dtype == "int32" and not made.is_reduction and isinstance(made.body, Store):
            read = {x.buffer.dtype for x in loads(made.body)}
            if read == {stored(made).buffer.dtype} == {"uint8"}:
                return producer
    return ""


def suits(found: BlockedSums, processor: CPU) -> bool:
    """True where registers hold a vector of sums of each row; for bytes, where dot products compute whole vectors of columns."""
    if found.unpacked:
        lanes = processor.lanes(32)
        dots = has_dots(processor) or adds_pairs(processor)
        return dots and extent(found.columns) % lanes == 0 and extent(found.sums.reduction[-1]) == 4
    return REGISTERS_A_SUM * size(found.rows) <= processor.registers


def _reads_words(sums: Block) -> bool:
    """True where an element of one operand, a word, has several factors: an axis of the sum indexes the other operand alone."""
    read = list(dict.fromkeys(x for x in loads(sums.body) if x.buffer != stored(sums).buffer))
    summed = [{v for v in variables(*x.indices) if v in {it.var.name for it in sums.reduction}} for x in read]
    return len(read) == 2 and summed[0] != summed[1]


def build(s: OpenSchedule, found: BlockedSums) -> None:
    """Schedule the sums, whose loops are still as they were made, with an epilogue.

    Loops, outermost first: tiles of columns (threads); blocks; words of a block; numbers of a word and rows, unrolled; vectors.
    """
    if found.unpacked:
        _build_dots(s, found)
        return
    machine: CPU = s.target.machine
    result, sums, lanes = found.result.name, found.sums.name, machine.lanes(32)
    after = epilogue(s, result)
    columns, rows = extent(found.columns), size(found.rows)
    most = max(1, min(2 * ceil(machine.fmas * machine.core.latency), machine.registers // (REGISTERS_A_SUM * rows)))
    fitting = [v for v in range(1, most + 1) if columns % (v * lanes) == 0]
    widths = dict.fromkeys(min(v * lanes, columns) for v in (max(fitting, default=most), *range(1, most + 1)))
    width = s.choose(f"{result} columns", list(widths), block=result)
    tile, vector = s.split(loop_of(found.columns), [None, width])
    s.reorder(tile, loop_of(found.blocks), *map(loop_of, found.rows), vector)
    s.vectorize(vector)
    for row in found.rows:
        s.unroll(loop_of(row))  # so that the sums stay in registers
    s.compute_at(sums, loop_of(found.blocks), preserve_unit_loops=True)
    words, others, vector = _inner(s, sums, found)
    s.reorder(*words, *others, vector)
    for loop in (*words[rows > 1 :], *others):  # with sums of several rows, registers do not hold all words of a block
        s.unroll(loop)
    s.vectorize(vector)
    read = ((b.name, x.buffer.name) for b in (found.sums, found.result) for x in loads(b.body) if x.buffer.name in s.constants)
    for block, name in dict.fromkeys(read):  # in the order of its loops
        copy = s.pack(block, name, preserve_unit_loops=True)
        if loops := s.get_loops(copy):  # the scale of one block of one column has none
            s.vectorize(loops[-1])
        done(s, copy)
    fuse_epilogue(s, after, tile)
    work = size((*found.rows, found.columns, found.blocks, *found.sums.reduction))
    share_out(s, result, [tile], work, machine.fma_cycles(32))
    done(s, result, sums)


def _inner(s: OpenSchedule, sums: str, found: BlockedSums) -> tuple[list[str], list[str], str]:
    """The innermost loops of the sums of a block: over words and numbers, over rows, and the vector."""
    *_, vector = stored(s.block(sums)).indices
    nest = s.get_loops(sums)[-len(found.sums.iters) :]
    drives = driven_axes(s.block(sums))
    reduced = {it.var.name for it in s.block(sums).reduction}
    words = [x for x in nest if drives.get(x) in reduced]
    last = [x for x in nest if isinstance(vector, Var) and drives.get(x) == vector.name]
    return words, [x for x in nest if x not in (*words, *last)], last[-1]


def dot_columns(columns: int, lanes: int) -> int:
    """The columns of a tile of dot products: panels of constants have as many."""
    return lanes * max(v for v in range(1, DOT_VECTORS + 1) if columns % (v * lanes) == 0)


def _build_dots(s: OpenSchedule, found: BlockedSums) -> None:
    """Schedule sums of products of bytes by dot products in lanes, each vector of numbers unpacked once for all rows of a tile.

    Loops, outermost first: tiles of columns (threads); tiles of rows; blocks; tiles far apart; words of a block; numbers of a
    byte; vectors of columns; rows and digits, unrolled; lanes.
    """
    machine: CPU = s.target.machine
    result, sums, numbers, lanes = found.result.name, found.sums.name, found.unpacked, machine.lanes(32)
    after = epilogue(s, result)
    columns, rows = extent(found.columns), size(found.rows)
    digits = size(found.sums.spatial) // (rows * extent(found.blocks) * columns)
    vectors = dot_columns(columns, lanes) // lanes
    most = max(1, ((machine.registers - 2) // vectors - 1) // (digits + 1))  # beside numbers, a broadcast and a scale
    tile_rows = max(m for m in range(1, min(rows, most) + 1) if rows % m == 0)
    # Rows of a single tile leave time for memory: panels far apart, whose codes and scales are a stream each, come together.
    most = min(machine.memory.streams // 2, (machine.registers - 3) // (vectors * tile_rows) - digits)
    fitting = [n for n in range(2, most + 1) if columns % (n * vectors * lanes) == 0 and rows == tile_rows]
    far = max(fitting, default=1)
    stream, tile, vector = s.split(loop_of(found.columns), [far, None, vectors * lanes])
    halves = [s.split(loop_of(row), [None, tile_rows]) for row in found.rows]
    around, inside = [outer for outer, _ in halves], [inner for _, inner in halves]
    s.reorder(tile, *around, loop_of(found.blocks), stream, *inside, vector)
    s.vectorize(vector)
    s.compute_at(sums, stream, preserve_unit_loops=True)
    *nest, columns_, word, half, part = s.get_loops(sums)[-len(found.sums.iters) :]
    across, lane = s.split(columns_, [None, lanes])
    s.reorder(word, half, across, *nest, lane, part)
    s.compute_at(numbers, across, preserve_unit_loops=True)
    s.vectorize(s.fuse(*s.get_loops(numbers)[-2:]))
    s.set_scope(numbers, 0, "local")  # computed at each call, though it reads constants alone: numbers have more bytes than codes
    for loop in (word, half, across, *nest, stream, *inside):
        s.unroll(loop)
    first = s.decompose_reduction(sums, word)
    *unrolled, last = s.get_loops(first)[-len(nest) - 2 :]
    for loop in unrolled:
        s.unroll(loop)
    s.vectorize(last)
    s.tensorize(lane, f"dot_{lanes}x4_s8u8")
    if far == 1:
        fuse_epilogue(s, after, around[-1] if around else tile)
    work = size((*found.rows, found.columns, found.blocks, *found.sums.reduction)) * digits
    share_out(s, result, [tile], work, machine.read_cycles(8))
    done(s, result, sums, numbers)
