"""The normal form of formulas: simple, with constant factors outside of sums, and with terms computed where they are summed."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule, extent
from schedule.primitives.blocks.simplify_formula import rewritten, simplified
from schedule.rewriting.index_map import IndexMap
from tir.ir import Binary, Block, Select, Store
from tir.traverse import loads, variables, walk

from ..block_analysis import at_axes, is_elementwise, regular, stored


def simple_formulas(s: OpenSchedule, block: str) -> None:
    """Simplify the formula of a block where that changes how values are computed, or leaves fewer divisions and conditions."""
    b = s.block(block)
    if not isinstance(b.body, Store):
        return
    if rewritten(b.body) != b.body or _count_decisions(simplified(b)) < _count_decisions(b):
        s.simplify_formula(block)


def _count_decisions(block: Block) -> int:
    """The number of quotients, remainders and choices in the formula of a block."""
    return sum(isinstance(n, Select) or (isinstance(n, Binary) and n.op in ("//", "%")) for n in walk(block.body))


def factors_outside(s: OpenSchedule, block: str) -> None:
    """Take constant factors out of a sum."""
    if s.block(block).is_reduction:
        s.attempt(_factor_out, block)


def _factor_out(s: OpenSchedule, block: str) -> None:
    scaled = s.factor_out(block)
    if not regular(s.block(scaled)):  # axes of one iteration get loops, as all others have
        s.transform_block_layout(scaled, IndexMap.identity([it.var.name for it in s.block(scaled).iters]), True)
    s.attempt(_one_factor, scaled)


def _one_factor(s: OpenSchedule, scaled: str) -> None:
    """Have the consumer of a sum multiply by its constant factor, if both become one factor."""
    readers = s.get_consumers(scaled)
    if len(readers) == 1 and is_elementwise(s.block(readers[0])):
        s.compute_inline(scaled)
        s.simplify_formula(readers[0], factors=True)


def stages_inside(s: OpenSchedule, block: str) -> None:
    """Inline into a reduction the elementwise stages that it alone reads, each element once."""
    b = s.block(block)
    if not b.is_reduction or not isinstance(b.body, Store) or not regular(b):
        return
    for producer in s.get_producers(block):
        if _read_once(s, producer, b):
            s.attempt(OpenSchedule.compute_inline, producer, True)
            return stages_inside(s, block)


def _read_once(s: OpenSchedule, producer: str, reader: Block) -> bool:
    """True where a block is elementwise, and each element is read in one iteration of `reader` alone."""
    p = s.block(producer)
    if not is_elementwise(p) or not regular(p) or s.get_consumers(producer) != [reader.name] or producer in s.get_output_blocks():
        return False
    axes = {it.var.name for it in reader.iters if extent(it) > 1}
    read = [x for x in loads(reader.body) if x.buffer.name == stored(p).buffer.name]
    return len(set(read)) == 1 and at_axes(read[0]) and axes <= variables(*read[0].indices)


def padding_outside(s: OpenSchedule, block: str) -> None:
    """Have a sum of products with conditions on its terms, as by padding, read padded copies instead."""
    b = s.block(block)
    if not b.is_reduction or not isinstance(b.body, Store):
        return
    chosen = [n.true_value for n in walk(b.body) if isinstance(n, Select)]
    if any(isinstance(n, Binary) and n.op == "*" and n.dtype == b.body.value.dtype for n in walk(b.body)):
        for x in (x for value in chosen for x in loads(value) if x.buffer != b.body.buffer):
            s.attempt(OpenSchedule.stage_padding, block, x.buffer.name)
