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
from schedule.product_blocks import busiest, overlapped
from schedule.register_tiles import RegisterTile, fewest_cycles, fitting
from tir import dtypes
from tir.ir import Block, Load

from . import elementwise, gemm
from .block_analysis import Contraction, divisible, last_axis, loop_of, merged, size
from .lanes import in_lanes
from .marks import done, share_out

NAME = "dot products"
# Cycles of tiles that do not divide the result, over those of others, and again of steps whose last vector is a part, if lanes
# have no masks or tiles do not divide: on a Zen 4, 1.1 to 1.25 x alone, 1.8 x for 51 x 2680 x 1982 of float64 with AVX2.
GUARD_COST = 1.3


def matches(block: Block) -> Contraction | None:
    """The block as a product of several rows and columns, if the sum walks the memory of the larger operand."""
    c = gemm.matches(block)
    if c is None or len(c.reduction) != 1 or min(extent(c.rows[-1]), extent(c.columns[-1])) < 2:
        return None
    return c if last_axis(_larger_operand(c)) == c.reduction[0].var.name and divisible(block) else None


def _larger_operand(c: Contraction) -> Load:
    """The operand of more rows or columns."""
    return c.right if extent(c.columns[-1]) >= extent(c.rows[-1]) else c.left


def suits(c: Contraction, processor: CPU) -> bool:
    """True where the sum has a vector for each of the few rows or columns; for shorter sums, packing copies less."""
    return extent(c.reduction[0]) >= min(extent(c.rows[-1]), extent(c.columns[-1])) * processor.lanes(c.bits)


def cycles(c: Contraction, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles of the busiest core times the cores: register tiles while their rows come from caches, sums of the
    lanes of each result, and a copy of the smaller operand where that is transposed."""
    others, results = size((*c.batch, *c.rows[:-1], *c.columns[:-1])), size((*c.batch, *c.rows, *c.columns))
    larger, steps, t = _larger_operand(c), size(c.reduction), tiles(c, processor)
    bits, lengths = dtypes.bits(larger.buffer.dtype), (extent(c.rows[-1]), extent(c.columns[-1]))
    tile = (t.rows, t.columns) if larger is c.left else (t.columns, t.rows)  # of the larger operand, and of the smaller one
    many, few, small = max(lengths), min(lengths), c.left if larger is c.right else c.right
    turns = many / tile[0] * ceil(few / tile[1])
    # If L1 does not hold the smaller operand, both are read again, for each tile of the other.
    again = turns * tile[1] + many * (few / tile[1] - 1) if few * steps * bits > 8 * processor.l1 else 0.0
    moved = steps * (
        again * processor.read_cycles(bits, few * steps * bits // 8)
        + many * processor.read_cycles(bits, many * steps * bits // 8)
    )
    copies = few * steps * processor.transpose_cycles(c.bits) * (last_axis(small) != c.reduction[0].var.name)
    share = float(busiest(others * ceil(many / tile[0]), c.threads(processor)))
    return share * (others * (overlapped(t.cycles, moved) + copies) + results * processor.lane_sum_cycles(c.bits))


def tiles(c: Contraction, processor: CPU) -> RegisterTile:
    """The tile of the fewest cycles for all rows and columns, each a vector that is loaded."""
    rows, columns, lanes = extent(c.rows[-1]), extent(c.columns[-1]), processor.lanes(c.bits)
    n, m = fitting(processor, range(1, min(columns, 8) + 1), range(1, min(rows, 8) + 1))
    apart = (rows % m > 0) | (columns % n > 0)
    part = (extent(c.reduction[0]) % lanes > 0) & (apart | (not processor.masks))
    step = processor.step_cycles(m * n, m + n, 0) * GUARD_COST ** (apart.astype(int) + part)
    turns = np.ceil(rows / m) * np.ceil(columns / n)
    return fewest_cycles(m, n, turns * (step * ceil(extent(c.reduction[0]) / lanes) + processor.entry_cycles(m * n)))


def build(s: OpenSchedule, c: Contraction) -> None:
    """Schedule the product, whose loops are still as they were made. ScheduleError where a step is refused.

    Loops, outermost first: batch, other rows and columns, tiles of the larger operand (threads); tiles of the smaller one; steps
    of the sum; rows and columns of a tile; lanes.
    """
    machine = s.target.machine
    t = tiles(c, machine)
    small = c.left if _larger_operand(c) is c.right else c.right
    if last_axis(small) != c.reduction[0].var.name:
        elementwise.copy_transposed(s, c.block, small, c.reduction[0].var.name)
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
