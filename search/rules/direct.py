"""Transposed convolutions with output channels in the lanes of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, Stage, Tiled, extent
from schedule.templates import transposed
from schedule.templates.structure import epilogue, loop_of, reuses_data
from tir.ir import Iter

from .rule import Verdict
from .tiling import Tiling

ANY = Tiling(needed=reuses_data)


class TransposedConvolution:
    """A transposed convolution sums up only where an element of the kernel meets one of the image, not the zeros between two.
    Pixels are sorted by their remainder modulo the stride: those of one class meet elements of one class of the kernel, so that
    no condition is left inside, and there the nest is that of a direct convolution. Ansor has an attribute of the computation for
    that, which asks for axes to be unrolled, so that the code generator finds the zeros.

    Loops, outermost first: panels of channels and classes of pixels; other pixels; tiles of rows and of a row of pixels; classes
    of the kernel and the sum; rows and pixels, unrolled; channels, a vector. The elementwise consumer is computed for each tile.
    """

    name = "transposed convolution"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        consumer = epilogue(state, block)
        if not ANY.applies(state, block) or consumer in state.scheduled or block in state.copies:
            return Verdict.SKIP
        t = transposed.matches(state.block(block))
        lanes = state.target.lanes(t.c.bits) if t is not None else 0
        return Verdict.APPLY if t is not None and t.classes and 2 * extent(t.channels) >= lanes else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        new = state.fired(self.name, block)
        t = transposed.matches(new.block(block))
        assert t is not None
        consumer = epilogue(new, block)
        strides = {it.var.name: x.stride for x in t.classes for it in (x.pixel, x.kernel)}
        loops = {it.var.name: [loop_of(it)] for it in (*t.c.rows, *t.c.sums)}
        try:
            for axis, stride in strides.items():
                loops[axis] = new.split(*loops[axis], [None, stride])
            sums = [loops[it.var.name] for it in t.c.sums]
            c0, c1 = _split(new, block, t.channels, loop_of(t.channels), vector=True)
            names = [(it, loops[it.var.name][0], strides.get(it.var.name, 1)) for it in t.c.rows]
            others, within = _tiled(new, block, names)
            p0 = others.pop()
            panels = [c0, *(loop for it in t.c.rows for loop in loops[it.var.name][1:])]
            reduced = [*(loop for own in sums for loop in own[1:]), *(own[0] for own in sums)]
            new.reorder(*panels, *others, p0, *reduced, *within, c1)
            if consumer is not None:
                new.reverse_compute_at(consumer, p0, preserve_unit_loops=True)
                new.scheduled[consumer] = Stage.FUSED
        except ScheduleError:
            return []
        levels = [panels, others, [p0], reduced, within, [c1]]
        new.scheduled[block] = Tiled.of(new, block, levels, 2, (len(panels), len(panels) + len(others)), panels=True)
        return [new]


def _tiled(state: OpenSchedule, block: str, pixels: Sequence[tuple[Iter, str, int]]) -> tuple[list[str], list[str]]:
    """Split the loops of the last two axes of pixels, each given with its loop and its number of classes, by open lengths;
    returns the outer loops of all axes, and the inner ones."""
    outer, inner = [], []
    for n, (it, loop, parts) in enumerate(pixels, 1 - len(pixels)):
        if n >= -1 and extent(it) > parts:
            loop, within = _split(state, block, it, loop, parts=parts)
            inner.append(within)
        outer.append(loop)
    return outer, inner


def _split(state: OpenSchedule, block: str, it: Iter, loop: str, vector: bool = False, parts: int = 1) -> list[str]:
    """Split a loop, that of an axis or of so many classes of it, in two with an open inner length."""
    count = -(-extent(it) // parts)
    sizes = state.sizes(block, it.var.name, extent=count, vector=vector, unit=parts, missing=count * parts - extent(it))
    return state.split(loop, [None, *sizes])
