"""Convolutions with fewer output channels than lanes, their channels last: the channels of the image are the lanes.

Each lane sums up its part; what the lanes have is added when a tile is complete (`rfactor`). So an image with its channels last
is read in whole vectors, of which each serves all output channels. Transposed convolutions are sorted by classes as in
`transposed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, prod

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from tir.ir import Block, Iter

from . import transposed
from .block_analysis import epilogue, fuse_epilogue, last_axis, loop_of, size, store_last
from .marks import done, share_out
from .transposed import Transposed

NAME = "narrow convolution"


@dataclass(frozen=True, slots=True)
class NarrowTile:
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
    return next((it for it in t.c.reduction if it.var.name == name and name not in sorted_by_class), None)


def suits(t: Transposed, processor: CPU) -> bool:
    """True where there are fewer output channels than lanes, and image channels to fill them."""
    lanes, axis = processor.lanes(t.c.bits), _lane_axis(t)
    return axis is not None and extent(t.channels) < lanes <= extent(axis) and extent(axis) % lanes == 0


def cycles(t: Transposed, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core; infinite where it does not suit."""
    c, lanes = t.c, processor.lanes(t.c.bits)
    if not suits(t, processor):
        return inf
    pixels, channels = tiles(t, processor).pixels, extent(t.channels)
    steps = ceil(size(c.reduction) / (lanes * prod(x.stride for x in t.classes)))
    return size(c.rows) / pixels * processor.tile_cycles(pixels, channels, steps, element=1 / processor.loads)


def tiles(t: Transposed, processor: CPU) -> NarrowTile:
    """The tile with as many pixels as there are registers for, the tiles of a row as equal as can be."""
    count = transposed.pixels_of_class(t)
    return NarrowTile(ceil(count / ceil(count / _max_pixels(t, processor))))


def _max_pixels(t: Transposed, processor: CPU) -> int:
    """Pixels for which there are registers."""
    return max(1, processor.accumulators(extent(t.channels)) // extent(t.channels))


def build(s: OpenSchedule, t: Transposed, sizes: NarrowTile | None = None) -> None:
    """Schedule a convolution, whose loops are as they were made, with its elementwise consumer, if it has one.

    Loops, outermost first: other axes, rows and tiles of pixels (threads); classes of pixels and of the kernel; the sums; pixels,
    output channels and lanes of a tile. `sizes` are other seeds than those of `tiles`. ScheduleError where a step is refused.
    """
    c, machine = t.c, s.target.machine
    wanted = sizes or tiles(t, machine)
    axis, row = _lane_axis(t), c.rows[-1]
    assert axis is not None, "what suits has one"
    after, channel, stride = epilogue(s, c.block), loop_of(t.channels), transposed.strides(t).get(row.var.name, 1)
    count, most = transposed.pixels_of_class(t), _max_pixels(t, machine)
    missing = count * stride - extent(row)
    (pixels,) = s.sizes(c.block, row.var.name, seed=(wanted.pixels,), extent=count, limit=most, unit=stride, missing=missing)
    chunks, lane = s.split(loop_of(axis), [None, machine.lanes(c.bits)])
    partial = s.rfactor(lane, len(c.store.indices))
    rows, reduce_loops = (
        transposed.by_class(s, t, c.rows),
        transposed.by_class(s, t, tuple(it for it in c.reduction if it is not axis)),
    )
    p0, p1 = s.split(rows[-1][0], [None, pixels])
    outer = [loop for loop, _ in rows[:-1]]
    classes = [loop for _, inner in rows for loop in inner]
    kernel = [loop for _, inner in reduce_loops for loop in inner]
    s.reorder(*outer, p0, *classes, *kernel, *(loop for loop, _ in reduce_loops), chunks, p1, channel, lane)

    copy = s.cache_read(partial, c.right.buffer.name, "global", [partial])
    store_last(s, copy, c.right.indices, axis.var.name)

    s.reverse_compute_at(c.block, p0, preserve_unit_loops=True)
    s.annotate(s.get_loops(c.block)[-1], "combine_lanes", True)
    fuse_epilogue(s, after, p0)
    s.unroll(p1)
    s.unroll(channel)
    s.vectorize(lane)
    share_out(s, c.block, [*outer, p0], c.work, machine.fma_cycles(c.bits))
    done(s, copy, c.block)
