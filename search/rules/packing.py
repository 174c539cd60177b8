"""Matrix products over packed operands, in the loop order of GotoBLAS."""

from __future__ import annotations

from schedule import ScheduleError
from schedule.library.structure import Contraction, contraction, is_plain, last_axis, loop_of
from tir.ir import Iter

from ..sketch import State, Tile, extent
from .rule import Verdict
from .tiling import FULL, elementwise_consumer

PARTS = 512  # steps of a sum from which on it may also run in parts


class Packing:
    """A matrix product is tiled so that a tile of the result stays in registers while a block of the left operand and a strip of
    the right one are walked from front to back (Goto and van de Geijn, ACM TOMS 34(3), 2008; Van Zee and van de Geijn, ACM TOMS
    41(3), 2015). In one sketch the whole sum runs at once, in another in parts.

    Loops, outermost first: batch, other rows and columns; blocks of rows; parts of the sum; blocks of columns; tiles of rows;
    tiles of columns; the sum; rows of a tile, unrolled; columns of a tile, a vector. The elementwise consumer is computed for
    each tile, or for each block of rows where the sum runs in parts. Which operands are copied into the order of these loops is
    a choice that annotation adds (see `search.packs`).
    """

    name = "packing"

    def applies(self, state: State, block: str) -> Verdict:
        consumer = elementwise_consumer(state, block)
        if not FULL.applies(state, block) or consumer in state.marks:
            return Verdict.SKIP
        return Verdict.APPLY if product(state, block) is not None else Verdict.SKIP

    def apply(self, state: State, block: str) -> list[State]:
        c = product(state, block)
        assert c is not None
        results = [self._apply(state, c, parts=False)]
        if extent(c.sums[-1]) >= PARTS:
            results.append(self._apply(state, c, parts=True))
        return [new for new in results if new is not None]

    def _apply(self, state: State, c: Contraction, parts: bool) -> State | None:
        new = state.fired(f"{self.name}, the sum in parts" if parts else self.name, c.block)
        consumer = elementwise_consumer(new, c.block)
        outer = [loop_of(it) for it in (*c.batch, *c.rows[:-1], *c.columns[:-1])]
        r0, r1, r2 = self._split(new, c, c.rows[-1], 3)
        c0, c1, c2 = self._split(new, c, c.columns[-1], 3)
        sums = [loop_of(it) for it in c.sums[:-1]]
        k0, k1 = self._split(new, c, c.sums[-1], 2) if parts else ("", loop_of(c.sums[-1]))
        levels = [[*outer, r0], [k0] if parts else [], [c0], [r1], [c1], [*sums, k1], [r2], [c2]]
        try:
            new.schedule.reorder(*(loop for level in levels for loop in level))
            if consumer is not None:
                new.schedule.reverse_compute_at(consumer, r0 if parts else c1, preserve_unit_loops=True)
                new.marks[consumer] = "fused"
        except ScheduleError:
            return None
        new.marks[c.block] = "packed"
        new.levels[c.block] = levels
        return new

    def _split(self, state: State, c: Contraction, it: Iter, parts: int) -> list[str]:
        names, columns = state.split(loop_of(it), parts)
        vector = it == c.columns[-1]
        state.tiles.append(Tile(c.block, it.var.name, extent(it), it in c.sums, columns, vector, c.bits))
        return names


def product(state: State, block: str) -> Contraction | None:
    """The block as a matrix product whose operands can be packed: all their indices are axes, and rows reuse columns."""
    c = contraction(state.block(block))
    if c is None or not c.rows or not is_plain(c.left) or not is_plain(c.right) or last_axis(c.right) != c.columns[-1].var.name:
        return None
    return c if extent(c.rows[-1]) > 1 and extent(c.columns[-1]) > 1 else None
