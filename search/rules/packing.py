"""Matrix products over packed operands, in the loop order of GotoBLAS."""

from __future__ import annotations

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from schedule.templates import gemm
from schedule.templates.structure import Contraction, last_axis, loop_of
from tir.ir import Iter

from .rule import Verdict
from .tiling import Tiling, elementwise_consumer, reuses_data

PARTS = 512  # steps of a sum from which on it may also run in parts
ROWS = 4  # from which on a transposed right operand is packed
ANY = Tiling(needed=reuses_data)


class Packing:
    """A matrix product is tiled so that a tile of the result stays in registers while a block of the left operand and a strip of
    the right one are walked from front to back (Goto and van de Geijn, ACM TOMS 34(3), 2008; Van Zee and van de Geijn, ACM TOMS
    41(3), 2015). In one sketch the whole sum runs at once, in another in parts.

    Loops, outermost first: batch, other columns and rows; blocks of rows; parts of the sum; blocks of columns; tiles of rows;
    tiles of columns; the sum; rows of a tile, unrolled; columns of a tile, a vector. The elementwise consumer is computed for
    each tile, or for each block of rows where the sum runs in parts. Which operands are copied into the order of these loops is
    a choice that annotation adds (see `search.packs`).

    Multi-level tiling has nothing better for such a block, but may find a better order of blocks for one that is not packed.
    """

    name = "packing"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        consumer = elementwise_consumer(state, block)
        if not ANY.applies(state, block) or consumer in state.scheduled:
            return Verdict.SKIP
        return Verdict.APPLY if product(state, block) is not None else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        c = product(state, block)
        assert c is not None
        results = []
        for parts in (False, True) if extent(c.sums[-1]) >= PARTS else (False,):
            new = state.fired(f"{self.name}, the sum in parts" if parts else self.name, block)
            try:
                self.tile(new, c, parts=parts)
            except ScheduleError:
                continue
            results.append(new)
        return results

    def tile(
        self,
        state: OpenSchedule,
        c: Contraction,
        like: str | None = None,
        parts: bool = False,
    ) -> None:
        """Split and reorder the loops of a product, and compute its consumer in them. ScheduleError where a step is refused.

        Rows are tiled as those of the packed product `like`, where it is given.
        """
        consumer = elementwise_consumer(state, c.block)
        outer = [loop_of(it) for it in (*c.batch, *c.columns[:-1], *c.rows[:-1])]
        r0, r1, r2 = self._split(state, c, c.rows[-1], 3, like)
        c0, c1, c2 = self._split(state, c, c.columns[-1], 3)
        sums = [loop_of(it) for it in c.sums[:-1]]
        k0, k1 = self._split(state, c, c.sums[-1], 2) if parts else ("", loop_of(c.sums[-1]))
        levels = [[*outer, r0], [k0] if parts else [], [c0], [r1], [c1], [*sums, k1], [r2], [c2]]
        state.reorder(*(loop for level in levels for loop in level))
        if consumer is not None:
            state.reverse_compute_at(consumer, r0 if parts else c1, preserve_unit_loops=True)
            state.scheduled[consumer] = Stage.FUSED
        depth = len(levels[0])
        state.scheduled[c.block] = Tiled(
            tuple(map(tuple, levels)),
            tile=2,
            depths=(depth,) if parts else (depth, depth + 1),
            operands=Operands(by_blocks=True),
        )

    def _split(self, state: OpenSchedule, c: Contraction, it: Iter, levels: int, like: str | None = None) -> list[str]:
        axis = next((a for b, a in state.lengths if b == like), None)
        same = None if like is None or axis is None else (like, axis)
        sizes = state.sizes(c.block, it.var.name, levels - 1, like=same, vector=it == c.columns[-1], bits=c.bits)
        return state.split(loop_of(it), [None, *sizes])


def product(state: OpenSchedule, block: str) -> Contraction | None:
    """The block as a matrix product whose operands can be packed: all their indices are axes, and rows reuse columns. Where the
    sum runs along the rows of the right operand (it is transposed), there must be rows enough to pay for the copy."""
    c = gemm.matches(state.block(block))
    if c is None:
        return None
    least = 1 if last_axis(c.right) == c.vector else ROWS - 1
    return c if extent(c.rows[-1]) > least and extent(c.columns[-1]) > 1 else None
