"""Convolutions with pixels in the lanes of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, Stage, Tiled
from schedule.templates import pixels
from schedule.templates.conv2d import Convolution, matches
from schedule.templates.structure import epilogue, reuses_data, size
from tir.ir import Iter
from tir.traverse import variables

from .rule import Verdict
from .tiling import Tiling

ANY = Tiling(needed=reuses_data)


class PixelsInLanes:
    """A convolution whose result has its pixels last is tiled so that some vectors of pixels by a few channels stay in registers
    while the whole sum runs: the weights are read where they are, an element broadcast to all lanes. All pixels of an image count
    as one row; where they do not lie in memory like that, the image is unrolled first, so that each step of the sum reads a row
    (im2col; Chellapilla et al., IWFHR 2006). Nothing has to be turned round, which is dear where sums are short or pixels few.

    Loops, outermost first: groups and other axes; tiles of pixels and tiles of channels, in either order; the sum; channels,
    unrolled; pixels, a vector. The elementwise consumer is computed for each tile, and is made if there is none.
    """

    name = "pixels in lanes"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        consumer = epilogue(state, block)
        if not ANY.applies(state, block) or consumer in state.scheduled or block in state.copies:
            return Verdict.SKIP
        c = matches(state.block(block))
        if c is None or c.members is not None or not c.turned:
            return Verdict.SKIP
        return Verdict.APPLY if size(pixels.row(c)) >= state.target.lanes(c.contraction.bits) else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        new = state.fired(self.name, block)
        c = matches(new.block(block))
        assert c is not None
        try:
            self._tile(new, c)
        except ScheduleError:
            return []
        return [new]

    def _tile(self, state: OpenSchedule, c: Convolution) -> None:
        s, block = state, c.contraction.block
        consumer = epilogue(state, block) or s.cache_write(block, 0, "global")
        nest = pixels.as_rows(s, c, consumer, threads=1)
        state.pending = [b for b in state.pending if b not in nest.inlined]
        (c0, c1), (p0, p1) = (
            self._split(state, c, loop, axes, vector=loop == nest.pixels)
            for loop, axes in ((nest.channels, c.channels[-1:]), (nest.pixels, pixels.row(c)))
        )
        state.branch(
            f"{block} order",
            {
                label: lambda new, first=first: new.reorder(*nest.outer, *first, *nest.sums, c1, p1)
                for label, first in (("channels inside", (p0, c0)), ("pixels inside", (c0, p0)))
            },
            block=block,
        )
        s = state
        s.reverse_compute_at(consumer, s.get_loops(block)[len(nest.outer) + 1], preserve_unit_loops=True)
        s.vectorize(s.get_loops(consumer)[-1])
        state.scheduled[consumer] = Stage.FUSED
        levels = [s.get_loops(block)[: len(nest.outer) + 2], [], nest.sums, [c1], [p1]]
        state.scheduled[block] = Tiled.of(state, block, levels, 2, (len(levels[0]),), panels=True)

    def _split(self, state: OpenSchedule, c: Convolution, loop: str, axes: Sequence[Iter], vector: bool) -> list[str]:
        block = c.contraction.block
        axis = next(it.var.name for it in state.block(block).iters if loop in variables(it.binding))
        parts = tuple(it.var.name for it in axes)
        return state.split(loop, [None, *state.sizes(block, axis, vector=vector, bits=c.contraction.bits, parts=parts)])
