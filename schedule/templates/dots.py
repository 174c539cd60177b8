"""Inner products: a few rows or columns, and an operand of many whose memory the sum walks; a tile of the result at a time.

Packing for lanes of columns would transpose a large matrix, which does not pay for a few rows. So the lanes are steps of the sum.
Vectors of some rows of both operands make a tile of partial sums in registers, whose lanes are added up at the end. The small
operand is transposed where the sum does not walk its memory.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.register_tiles import RegisterTile, fewest_cycles, fitting
from tir.ir import Block, Load

from . import elementwise, gemm
from .block_analysis import Contraction, divisible, last_axis, loop_of, merged, size, store_last
from .lanes import in_lanes
from .marks import done, share_out

NAME = "dot products"
GUARD_COST = 1.25  # of tiles that do not divide the result: on a Zen 4, five of 2,214 rows take 1.1 to 1.25 x as long as two
MAX_ROWS_FOR_DOTS = 24  # most rows or columns for which packing takes longer


def matches(block: Block) -> Contraction | None:
    """The block as a product of two to MAX_ROWS_FOR_DOTS rows, or columns, if the sum walks the memory of the larger operand."""
    c = gemm.matches(block)
    if c is None or len(c.reduction) != 1:
        return None
    few = 1 < min(extent(c.rows[-1]), extent(c.columns[-1])) <= MAX_ROWS_FOR_DOTS
    return c if few and last_axis(_larger_operand(c)) == c.reduction[0].var.name and divisible(block) else None


def _larger_operand(c: Contraction) -> Load:
    """The operand of more rows or columns."""
    return c.right if extent(c.columns[-1]) >= extent(c.rows[-1]) else c.left


def suits(c: Contraction, processor: CPU) -> bool:
    """True where the sum has a vector for each of the few rows or columns: for shorter sums, packing copies less than it saves in
    adding up lanes."""
    return extent(c.reduction[0]) >= min(extent(c.rows[-1]), extent(c.columns[-1])) * processor.lanes(c.bits)


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, with adding up the lanes of each result."""
    others, results = size((*c.batch, *c.rows[:-1], *c.columns[:-1])), size((*c.batch, *c.rows, *c.columns))
    return others * tiles(c, processor).cycles + results * gemm.ADD_LANES_CYCLES


def tiles(c: Contraction, processor: CPU) -> RegisterTile:
    """The tile of the fewest cycles for all rows and columns, each a vector that is loaded."""
    rows, columns = extent(c.rows[-1]), extent(c.columns[-1])
    n, m = fitting(processor, range(1, min(columns, 8) + 1), range(1, min(rows, 8) + 1))
    steps = ceil(extent(c.reduction[0]) / processor.lanes(c.bits))
    step = processor.step_cycles(m * n, m + n, 0)
    guards = np.where((rows % m > 0) | (columns % n > 0), GUARD_COST, 1.0)
    turns = np.ceil(rows / m) * np.ceil(columns / n) * guards
    return fewest_cycles(m, n, turns * (step * steps + processor.entry_cycles(m * n)))


def build(s: OpenSchedule, c: Contraction) -> None:
    """Schedule the product, whose loops are still as they were made. ScheduleError where a step is refused.

    Loops, outermost first: batch, other rows and columns, tiles of the larger operand (threads); tiles of the smaller one; steps
    of the sum; rows and columns of a tile; lanes.
    """
    machine = s.target.machine
    t = tiles(c, machine)
    small = c.left if _larger_operand(c) is c.right else c.right
    if last_axis(small) != c.reduction[0].var.name:
        _read_transposed_copy(s, c, small)
    outer = [loop_of(it) for it in (*c.batch, *c.columns[:-1], *c.rows[:-1])]
    c0, c1 = s.split(loop_of(c.columns[-1]), [None, *s.sizes(c.block, c.columns[-1].var.name, seed=(t.columns,))])
    r0, r1 = s.split(loop_of(c.rows[-1]), [None, *s.sizes(c.block, c.rows[-1].var.name, seed=(t.rows,))])
    more, fewer = (c0, r0) if _larger_operand(c) is c.right else (r0, c0)
    s.reorder(*outer, more, fewer, r1, c1)
    partial = in_lanes(s, c.block, machine.lanes(c.bits))
    around = len(outer) + 2
    r1, c1, step, _ = s.get_loops(partial)[around:]
    s.reorder(step, r1, c1)
    for loop in (r1, c1, *s.get_loops(c.block)[around:-1]):
        s.unroll(loop)
    shared = merged(s, partial, c.block, around)[:-1]
    share_out(s, c.block, shared, c.work, machine.read_cycles(c.bits), partial)
    done(s, c.block)


def _read_transposed_copy(s: OpenSchedule, c: Contraction, small: Load) -> None:
    """Let the product read an operand through a copy whose memory the sum walks."""
    copy = s.cache_read(c.block, small.buffer.name, "global", [c.block])
    store_last(s, copy, small.indices, c.reduction[0].var.name)
    elementwise.build(s, copy)
