"""Sums of scaled blocks: products by weights of few bits, of few rows, as fast as the weights come from memory.

The sum of a block is a sum of products of its own, over words of which each has several weights. It stays in registers while all
words of the block pass, for some vectors of columns; then it is scaled and added to the result. Constant words and scales are
packed, so that memory has what such a tile reads in one stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir.ir import Block, Iter, Load, Store, Var
from tir.traverse import loads, variables

from .block_analysis import at_axes, driven_axes, epilogue, fuse_epilogue, last_axis, loop_of, regular, size, stored
from .marks import done, share_out

NAME = "sums of blocks"
MAX_VECTORS = 8  # vectors of columns in a tile: their sums hide the latency of additions twice over
REGISTERS_A_SUM = 2  # vector registers for each sum of a block: its own, and one for weights and their conversion


@dataclass(frozen=True, slots=True)
class BlockedSums:
    """The block `result`, which adds up the scaled results of `sums`, a block for each step of its sum."""

    result: Block
    sums: Block
    rows: tuple[Iter, ...]
    columns: Iter
    blocks: Iter


def matches(s: Schedule, name: str) -> BlockedSums | None:
    """A sum along one axis over the results of another sum, at the axes of both, which nothing else reads."""
    result = find_block(s.func, name)
    if not _is_sum(result) or len(result.reduction) != 1 or len(result.spatial) not in (1, 2):
        return None
    column, (along,) = last_axis(Load(stored(result).buffer, stored(result).indices)), result.reduction
    for producer in s.get_producers(name):
        sums = find_block(s.func, producer)
        if not _is_sum(sums) or s.get_consumers(producer) != [name]:
            continue
        read = [x for x in loads(result.body) if x.buffer == stored(sums).buffer]
        at = variables(*read[0].indices) if len(read) == 1 and at_axes(read[0]) else set()
        missing = [it for it in result.iters if it.var.name not in at and extent(it) > 1]
        if missing or not at or last_axis(read[0]) != column or not _reads_words(sums):
            continue
        *rows, columns = result.spatial
        if columns.var.name == column:
            return BlockedSums(result, sums, tuple(rows), columns, along)
    return None


def _is_sum(block: Block) -> bool:
    """True for a reduction of one store, by loops of constant extents."""
    return block.is_reduction and isinstance(block.body, Store) and regular(block)


def suits(found: BlockedSums, processor: CPU) -> bool:
    """True where registers hold a vector of the sums of each row."""
    return REGISTERS_A_SUM * size(found.rows) <= processor.registers


def _reads_words(sums: Block) -> bool:
    """True where an operand has several elements in one of its own: an axis of the sum is in the other one alone."""
    read = list(dict.fromkeys(x for x in loads(sums.body) if x.buffer != stored(sums).buffer))
    summed = [{v for v in variables(*x.indices) if v in {it.var.name for it in sums.reduction}} for x in read]
    return len(read) == 2 and summed[0] != summed[1]


def build(s: OpenSchedule, found: BlockedSums) -> None:
    """Schedule the sums, whose loops are still as they were made, with an epilogue.

    Loops, outermost first: tiles of columns (threads); blocks; words of a block; numbers of a word and rows, unrolled; vectors.
    """
    machine: CPU = s.target.machine
    result, sums, lanes = found.result.name, found.sums.name, machine.lanes(32)
    after = epilogue(s, result)
    columns, rows = extent(found.columns), size(found.rows)
    most = max(1, min(MAX_VECTORS, machine.registers // (REGISTERS_A_SUM * rows)))
    fitting = [v for v in range(1, most + 1) if columns % (v * lanes) == 0]
    width = s.choose(
        f"{result} columns",
        list(dict.fromkeys(min(v * lanes, columns) for v in (max(fitting, default=most), *range(1, most + 1)))),
        block=result,
    )
    tile, vector = s.split(loop_of(found.columns), [None, width])
    s.reorder(tile, loop_of(found.blocks), *map(loop_of, found.rows), vector)
    s.vectorize(vector)
    for row in found.rows:
        s.unroll(loop_of(row))  # so that the sums stay in registers
    s.compute_at(sums, loop_of(found.blocks), preserve_unit_loops=True)
    words, others, vector = _inner(s, sums, found)
    s.reorder(*words, *others, vector)
    for loop in (*words[rows > 1 :], *others):  # beside sums of several rows, registers do not hold all words of a block
        s.unroll(loop)
    s.vectorize(vector)
    constants = [
        (b.name, x.buffer.name) for b in (found.sums, found.result) for x in loads(b.body) if x.buffer.name in s.constants
    ]
    copies = [s.pack(block, name, preserve_unit_loops=True) for block, name in dict.fromkeys(constants)]
    for copy in copies:
        if loops := s.get_loops(copy):  # the scale of one block of one column has none
            s.vectorize(loops[-1])
    done(s, *copies)
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
