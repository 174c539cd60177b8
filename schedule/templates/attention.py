"""Attention, softmax(Q Kᵀ) V: a product, row normalisation, a product, by tiles of rows whose scores stay in the nearest caches.

The products are tiled as in `gemm`, and the stages between them scheduled as in `row_normalisation`. All run in the same loops
over batches and tiles of rows. Only the rows of one tile exist at a time, and the last product reads them in place. Chimera
(Zheng et al., HPCA 2023) fuses products in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from schedule.machine import CPU, PAGE_BYTES
from schedule.open_schedule import OpenSchedule, extent
from schedule.primitive import find_block
from schedule.register_tiles import MAX_TILE_VECTORS, fewest_cycles, fitting
from schedule.schedule import Schedule
from tir.ir import Const, Var

from . import gemm, inner_product, row_normalisation
from .block_analysis import Contraction, epilogue, last_axis, size, stored
from .pack_branches import separate_rows
from .template import SumOfProducts

NAME = "attention"


@dataclass(frozen=True, slots=True)
class Attention:
    """The product that makes `scores`, or None; the stages that make `weights` of their rows, None where the result reads the
    scores, or elements made of them; the product of these."""

    scores: Contraction | None
    weights: row_normalisation.Rows | None
    result: Contraction

    @property
    def products(self) -> list[Contraction]:
        return [c for c in (self.scores, self.result) if c is not None]


def matches(s: OpenSchedule, block: str) -> Attention | None:
    """The attention that ends with the product `block`, if its left operand is made row by row and for it alone."""
    if (read := _left_operand(s, block)) is None or (weights := row_normalisation.matches(s, read[1])) is None:
        return None
    result, processor = read[0], s.target.machine
    stages = {weights.last, *weights.stages}
    products = sorted({p for b in stages for p in s.get_producers(b)} - stages)
    made = [gemm.matches(find_block(s.func, p)) for p in products]
    found = [c for c in made if c is not None and _makes_rows(s, c, stages, processor)]
    return Attention(found[0] if len(found) == 1 else None, weights, result)


def packed(s: OpenSchedule, block: str) -> Attention | None:
    """The attention that ends with `block`, if packed copies of its columns pay: those of few rows are read once."""
    found = matches(s, block)
    if found is None or (c := found.scores) is None:
        return found
    apart = SumOfProducts(inner_product).cycles(s, c.block) < gemm.cycles(c, s.target.machine, s.constants)
    return None if apart else found


def chain(s: OpenSchedule, block: str) -> Attention | None:
    """The attention, or two products, that end with `block`: the second reads the first, or elements made of it, by rows."""
    if (found := packed(s, block)) is not None or (read := _left_operand(s, block)) is None:
        return found
    result, maker = read
    first = next((p for p in s.get_producers(maker) if epilogue(s, p) == maker), maker)
    scores = gemm.matches(find_block(s.func, first))
    stages = {block} if first == maker else {maker}
    return None if scores is None or not _makes_rows(s, scores, stages, s.target.machine) else Attention(scores, None, result)


def _left_operand(s: OpenSchedule, block: str) -> tuple[Contraction, str] | None:
    """A block as a product by rows, and the block that makes its left operand for it alone."""
    result = gemm.matches(s.block(block))
    if result is None or not _plain(result, s.target.machine) or not reads_rows(result):
        return None
    makers = [p for p in s.get_producers(block) if stored(s.block(p)).buffer == result.left.buffer]
    if len(makers) != 1 or s.get_consumers(makers[0]) != [block] or makers[0] in s.get_output_blocks():
        return None
    return result, makers[0]


def _plain(c: Contraction, processor: CPU) -> bool:
    """True where a product has one axis of rows and one of columns beside its batches, and gains by tiles."""
    return not c.rows[:-1] and not c.columns[:-1] and gemm.suits(c, processor)


def reads_rows(c: Contraction) -> bool:
    """True where the left operand of a product has batches, rows and one axis of the sum as dimensions, in that order."""
    axes = (*c.batch, *c.rows, *c.reduction)
    return (
        len(c.rows) == len(c.reduction) == 1
        and len(axes) == len(c.left.indices)
        and all(i == it.var or (isinstance(i, Const) and extent(it) == 1) for i, it in zip(c.left.indices, axes, strict=True))
    )


def _makes_rows(s: Schedule, c: Contraction, stages: set[str], processor: CPU) -> bool:
    """True where a product makes rows for some stages alone, in the order of its batches."""
    order = [it.var for it in (*c.batch, c.rows[-1], c.columns[-1])]
    alone = {*s.get_consumers(c.block)} <= stages and c.block not in s.get_output_blocks()
    return alone and _plain(c, processor) and [i for i in c.store.indices if isinstance(i, Var)] == order


def tiles(found: Attention, processor: CPU, constants: frozenset[str]) -> list[gemm.GemmTile]:
    """Good sizes for the products: the number of rows with which both take the fewest cycles, each with its best columns. All
    columns are in L2, so a block is one tile of rows."""
    lanes, rows = processor.lanes(found.result.bits), extent(found.result.rows[-1])

    m, v = fitting(processor, range(1, min(rows, processor.registers) + 1), range(1, MAX_TILE_VECTORS + 1))

    def cycles(c: Contraction) -> np.ndarray:
        columns = np.ceil(extent(c.columns[-1]) / (v * lanes))
        return np.ceil(rows / m) * columns * processor.tile_cycles(m, v, size(c.reduction))

    each = [cycles(c) for c in found.products]
    mr = min(sorted({*m.tolist()}), key=lambda n: sum(time[m == n].min() for time in each))
    made = []
    for c, time in zip(found.products, each, strict=True):
        _, nr, _ = fewest_cycles(m[m == mr], np.minimum(v * lanes, extent(c.columns[-1]))[m == mr], time[m == mr])
        usual = gemm.tiles(c, processor, constants)
        transposed = last_axis(c.left) != c.reduction[-1].var.name
        nc = ceil(extent(c.columns[-1]) / nr)
        made.append(gemm.GemmTile(mr, nr, size(c.reduction), 1, nc, left=transposed, right=usual.right, by_rows=True))
    return made


def build(s: OpenSchedule, found: Attention) -> None:
    """Schedule the products, whose loops are still as they were made, with the stages between and after them. ScheduleError where
    a step is refused.

    Loops, outermost first: batches; tiles of rows; in these the loops of the one product, of the rows, of the other product.
    """
    scores, weights, result = found.scores, found.weights, found.result
    *first, last = tiles(found, s.target.machine, s.constants)
    depth = len(result.batch) + 1
    kept = [] if weights is None else [weights.last]  # blocks that make a tile of rows
    gemm.build(s, result, gemm.Sum.WHOLE, sizes=last)
    outer = [s.tiling(result.block).levels[0][-1]]
    if scores is not None:
        kept.append(epilogue(s, scores.block) or scores.block)
        gemm.build(s, scores, gemm.Sum.WHOLE, like=result.block, sizes=first[0])
        outer.append(s.tiling(scores.block).levels[0][-1])
    if weights is not None:
        loops = row_normalisation.nest(s, replace(weights, stages=tuple(b for b in weights.stages if b not in s.scheduled)))
        outer.append(s.split(loops[depth - 1], [None, prod(s.lengths[result.block, result.rows[-1].var.name])])[0])
    s.merge(*outer)
    for product in found.products:
        tiled = s.tiling(product.block)
        s.scheduled[product.block] = replace(tiled, levels=(tuple(s.get_loops(product.block)[:depth]), *tiled.levels[1:]))
    if extent(result.reduction[0]) * result.bits // 8 % PAGE_BYTES == 0:
        for block in kept:
            separate_rows(s, block)
