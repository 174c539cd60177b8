"""Skinny products: convolutions with fewer output channels than lanes, their channels last; those of the image are the lanes.

Each lane sums up its part, and the lanes are added when a tile is complete (`rfactor`). So an image with its channels last is
read in whole vectors, of which each serves all output channels. Transposed convolutions have classes as in `conv2d_transpose`.
"""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from schedule.register_tiles import RegisterTile, fewest_cycles, fitting
from tir.ir import Block, Iter

from . import conv2d_transpose
from .block_analysis import epilogue, fuse_epilogue, last_axis, loop_of, size, store_last
from .conv2d import Convolution, by_class
from .conversion import is_converted, read_converted
from .marks import done, share_out

NAME = "narrow convolution"


def matches(block: Block) -> Convolution | None:
    """The block as a convolution, transposed or not, whose image has the summed channels last, if it is one."""
    found = conv2d_transpose.matches(block)
    return found if found is not None and _lane_axis(found) is not None else None


def _lane_axis(c: Convolution) -> Iter | None:
    """The axis of the sum that walks the memory of the image, unless it has classes."""
    name = last_axis(c.image)
    return next((it for it in c.reduction if it.var.name == name and name not in c.strides), None)


def suits(c: Convolution, processor: CPU) -> bool:
    """True where there are fewer output channels than lanes, and image channels to fill them."""
    lanes, axis = processor.lanes(c.contraction.bits), _lane_axis(c)
    return axis is not None and extent(c.channels[-1]) < lanes <= extent(axis) and extent(axis) % lanes == 0


def cycles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles of all cores together."""
    return size(c.pixels) / c.pixels_of_class * tiles(c, processor).cycles


def tiles(c: Convolution, processor: CPU) -> RegisterTile:
    """The tile of the fewest cycles for all pixels of a class in a row; each pixel is a vector of its own."""
    steps = ceil(size(c.reduction) / (processor.lanes(c.contraction.bits) * prod(x.stride for x in c.classes)))
    m, v = fitting(processor, range(1, min(c.pixels_of_class, processor.registers) + 1), [extent(c.channels[-1])])
    each = processor.step_cycles(m * v, m + v, 0) * steps + processor.entry_cycles(m * v)
    return fewest_cycles(m, v, np.ceil(c.pixels_of_class / m) * each)


def build(s: OpenSchedule, c: Convolution) -> None:
    """Schedule a convolution, whose loops are as they were made, with its elementwise consumer, if it has one.

    Loops, outermost first: other axes, rows and tiles of pixels (threads); classes of pixels and of the kernel; the sums; pixels,
    output channels and lanes of a tile. ScheduleError where a step is refused.
    """
    machine, block, bits = s.target.machine, c.contraction.block, c.contraction.bits
    wanted = tiles(c, machine)
    axis, row = _lane_axis(c), c.pixels[-1]
    assert axis is not None, "what suits has one"
    read_converted(s, block, c.image)
    after, channel, stride = epilogue(s, block), loop_of(c.channels[-1]), c.strides.get(row.var.name, 1)
    count = c.pixels_of_class
    most = max(1, machine.accumulators(extent(c.channels[-1])) // extent(c.channels[-1]))
    missing = count * stride - extent(row)
    (pixels,) = s.sizes(block, row.var.name, seed=(wanted.rows,), extent=count, limit=most, unit=stride, missing=missing)
    chunks, lane = s.split(loop_of(axis), [None, machine.lanes(bits)])
    partial = s.rfactor(lane, len(c.contraction.store.indices))
    rows, reduce_loops = by_class(s, c, c.pixels), by_class(s, c, [it for it in c.reduction if it is not axis])
    p0, p1 = s.split(rows[-1][0], [None, pixels])
    outer = [loop for loop, _ in rows[:-1]]
    classes = [loop for _, inner in (*rows, *reduce_loops) for loop in inner]
    s.reorder(*outer, p0, *classes, *(loop for loop, _ in reduce_loops), chunks, p1, channel, lane)

    copy = s.cache_read(partial, c.weights.buffer.name, "global", [partial])
    if is_converted(c.weights, c.contraction.store.buffer.dtype):
        s.unsafe_set_dtype(copy, 0, c.contraction.store.buffer.dtype)
    store_last(s, copy, c.weights.indices, axis.var.name)

    s.reverse_compute_at(block, p0, preserve_unit_loops=True)
    s.annotate(s.get_loops(block)[-1], "combine_lanes", True)
    fuse_epilogue(s, after, p0)
    s.unroll(p1)
    s.unroll(channel)
    s.vectorize(lane)
    share_out(s, block, [*outer, p0], c.contraction.work, machine.fma_cycles(bits))
    done(s, copy, block)
