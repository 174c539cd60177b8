"""Matrix products over packed operands, in the loop order of GotoBLAS."""

from __future__ import annotations

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, extent
from schedule.templates import gemm
from schedule.templates.structure import Contraction, epilogue, last_axis, reuses_data

from .rule import Verdict
from .tiling import Tiling

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
        consumer = epilogue(state, block)
        if not ANY.applies(state, block) or consumer in state.scheduled:
            return Verdict.SKIP
        return Verdict.APPLY if product(state, block) is not None else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        c = product(state, block)
        assert c is not None
        results = []
        for variant in gemm.variants(c, state.target.machine):
            new = state.fired(self.name + variant, block)
            try:
                gemm.build(new, c, variant)
            except ScheduleError:
                continue
            results.append(new)
        return results


def product(state: OpenSchedule, block: str) -> Contraction | None:
    """The block as a matrix product whose operands can be packed: all their indices are axes, and rows reuse columns. Where the
    sum runs along the rows of the right operand (it is transposed), there must be rows enough to pay for the copy."""
    c = gemm.matches(state.block(block))
    if c is None:
        return None
    least = 1 if last_axis(c.right) == c.vector else ROWS - 1
    return c if extent(c.rows[-1]) > least and extent(c.columns[-1]) > 1 else None
