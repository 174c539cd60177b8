"""Convolutions with fewer output channels than lanes, their channels last: the channels of the image are the lanes.

Each lane sums up its part; what the lanes have is added when a tile is complete (`rfactor`). So an image with its channels last
is read in whole vectors, of which each serves all output channels. Transposed convolutions are sorted by classes as in
`transposed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.machine import CPU
from schedule.schedule import Schedule
from tir.ir import Block, Iter

from . import transposed
from .structure import extent, last_axis, loop_of, size, store_last
from .transposed import Transposed


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pixels of a register tile, which has all output channels of each."""

    pixels: int


def matches(block: Block) -> Transposed | None:
    """The block as a convolution, transposed or not, whose image has the channels that are summed up last, if it is one."""
    found = transposed.matches(block)
    return found if found is not None and _lane_axis(found) is not None else None


def _lane_axis(t: Transposed) -> Iter | None:
    """The axis of the sum that walks the memory of the image, unless it has classes."""
    name = last_axis(t.c.left)
    sorted_by_class = {x.kernel.var.name for x in t.classes}
    return next((it for it in t.c.sums if it.var.name == name and name not in sorted_by_class), None)


def suits(t: Transposed, processor: CPU) -> bool:
    """Whether there are fewer output channels than lanes, and image channels to fill them."""
    lanes, axis = processor.lanes(t.c.bits), _lane_axis(t)
    return axis is not None and extent(t.channels) < lanes <= extent(axis) and extent(axis) % lanes == 0


def tiles(t: Transposed, processor: CPU) -> Tiles:
    """As many pixels as there are registers for, the tiles of a row as equal as can be."""
    channels, count = extent(t.channels), transposed.pixels_of_class(t)
    most = max(1, processor.accumulators(channels) // channels)
    return Tiles(-(-count // -(-count // most)))


def apply(s: Schedule, t: Transposed, processor: CPU, sizes: Tiles | None = None, epilogue: str | None = None) -> None:
    """Schedule a convolution, whose loops are as they were made, and its elementwise consumer `epilogue`, if any.

    Loops, outermost first: other axes, rows and tiles of pixels (threads); classes of pixels and of the kernel; the sums; pixels,
    output channels and lanes of a tile. ScheduleError where a step is refused.
    """
    c, wanted = t.c, tiles(t, processor) if sizes is None else sizes
    axis = _lane_axis(t)
    assert axis is not None, "what suits has one"
    channel = loop_of(t.channels)
    chunks, lane = s.split(loop_of(axis), [None, processor.lanes(c.bits)])
    partial = s.rfactor(lane, len(c.store.indices))
    rows, sums = transposed.by_class(s, t, c.rows), transposed.by_class(s, t, tuple(it for it in c.sums if it is not axis))
    p0, p1 = s.split(rows[-1][0], [None, wanted.pixels], preserve_unit_iters=False)
    outer = [loop for loop, _ in rows[:-1]]
    classes = [loop for _, inner in rows for loop in inner]
    kernel = [loop for _, inner in sums for loop in inner]
    s.reorder(*outer, p0, *classes, *kernel, *(loop for loop, _ in sums), chunks, p1, channel, lane)

    copy = s.cache_read(partial, c.right.buffer.name, "global", [partial])
    store_last(s, copy, c.right.indices, axis.var.name)

    s.reverse_compute_at(c.block, p0, preserve_unit_loops=True)
    s.annotate(s.get_loops(c.block)[-1], "combine_lanes", True)
    if epilogue is not None:
        s.reverse_compute_at(epilogue, p0, preserve_unit_loops=True)
        s.vectorize(s.get_loops(epilogue)[-1])
    s.unroll(p1)
    s.unroll(channel)
    s.vectorize(lane)
    if processor.threads(size((*c.rows, *c.columns, *c.sums)) * processor.computing(c.bits)) > 1:
        s.parallel(s.fuse(*outer, p0) if outer else p0)


__all__ = ["Tiles", "apply", "matches", "suits", "tiles"]
