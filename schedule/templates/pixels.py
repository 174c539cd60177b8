"""Direct convolutions with pixels as lanes: the weights are read where they are, an element broadcast to a row of pixels.

What `conv2d` does with channels as lanes needs the weights in another order, and must transpose its tiles where the channels are
not the last dimension of the result. Both are dear where there are few pixels, or few steps of the sum. Here all pixels of an
image count as one row. Where they lie in memory like that, as in a convolution by 1 x 1, the image is read in place; else it is
unrolled first, so that each step of the sum reads a row (im2col; Chellapilla et al., High Performance Convolutional Neural
Networks for Document Processing, IWFHR 2006). Of few weights, as of the first layer of a network, there is too little to compute
for each element of the copy: lanes are pixels of one row then, read from the image itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, prod
from typing import Any

from schedule.machine import CPU, PACKED_ELEMENT_LOADS, PAGE_BYTES, STRIDED_ELEMENT_LOADS
from schedule.open_schedule import OpenSchedule, Stage, Tiled, Way, extent
from schedule.rewriting.index_map import IndexMap
from tir.arith.polynomial import polynomial
from tir.ir import Iter, Var, const_shape
from tir.traverse import variables

from .block_analysis import epilogue, is_elementwise, loop_of, size, stored
from .conv2d import Convolution, image_cycles, matches
from .gemm import register_tile
from .marks import done, share, share_out

NAME = "pixels in lanes"
MIN_CHANNELS_BY_ROWS = 16  # for which there must be registers, since each tile of channels picks the pixels from the image again
MIN_FILLED = 0.8  # part of the lanes that must have pixels where vectors end with the rows


@dataclass(frozen=True, slots=True)
class PixelTile:
    """Sizes of a register tile: channels, and pixels."""

    channels: int
    pixels: int


@dataclass(frozen=True, slots=True)
class FlatConvolution:
    """The loops of a convolution whose pixels are one axis, that of `pixels`, and the blocks that became part of others."""

    outer: list[str]
    channels: str
    reduction: list[str]
    pixels: str
    inlined: list[str]


def row(c: Convolution) -> tuple[Iter, ...]:
    """The pixel axes that are the last dimensions of the result: they are made one."""
    axes = {it.var.name: it for it in c.pixels}
    found: list[Iter] = []
    for index in reversed(c.contraction.store.indices):
        if not isinstance(index, Var) or index.name not in axes:
            break
        found.insert(0, axes[index.name])
    return tuple(found)


def suits(c: Convolution, processor: CPU) -> bool:
    """Whether the last dimensions of the result are pixels, enough for a vector."""
    return c.members is None and c.transposed_result and size(row(c)) >= processor.lanes(c.contraction.bits)


def tiles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> PixelTile:
    """A good register tile, computed from the extents and the processor."""
    lanes = processor.lanes(c.contraction.bits)
    whole, element = ceil(size(row(c)) / lanes) * lanes, _element_loads(c, constants)
    return PixelTile(*register_tile(extent(c.channels[-1]), whole, size(c.reduction), lanes, processor, element=element))


def _element_loads(c: Convolution, constants: frozenset[str]) -> float:
    """Loads of an element of the weights: those that are constant are packed."""
    return PACKED_ELEMENT_LOADS if c.weights.buffer.name in constants else STRIDED_ELEMENT_LOADS


def cycles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """About how many cycles it takes on one core; infinite where pixels don't fill a vector."""
    if not suits(c, processor):
        return inf
    bits = c.contraction.bits
    if by_rows(c, processor):
        channels, count = _channels_of_row(c, processor), size((*c.groups, *c.channels, *c.pixels)) / processor.lanes(bits)
        return count / channels * processor.tile_cycles(channels, _stride(c), size(c.reduction)) / _filled(c, processor)
    t, lanes = tiles(c, processor, constants), processor.lanes(bits)
    pixels, steps = size(row(c)), size(c.reduction)
    tile = processor.tile_cycles(t.channels, t.pixels // lanes, steps, _element_loads(c, constants))
    outer = size((*c.groups, *c.channels, *c.pixels)) // (pixels * extent(c.channels[-1]))
    time = outer * ceil(extent(c.channels[-1]) / t.channels) * ceil(pixels / t.pixels) * tile
    elements = prod(const_shape(c.image.buffer))
    if not in_place(c):
        elements = unrolled = steps * size((*c.groups, *c.pixels))
        rows = unrolled // extent(c.pixels[-1]) * ceil(extent(c.pixels[-1]) / lanes)
        time += rows * lanes * processor.pack_cycles(bits, unrolled * bits // 8)
    return time + image_cycles(c, elements, extent(c.channels[-1]), processor)


def in_place(c: Convolution) -> bool:
    """Whether the pixels of `row` lie one after the other in the image at each step of the sum, in rows that do not evict each
    other."""
    pixels, shape = row(c), const_shape(c.image.buffer)
    units = {it.var.name for it in c.reduction if extent(it) == 1}
    if len(c.image.indices) < len(pixels):
        return False
    last = list(zip(c.image.indices, shape, strict=True))[-len(pixels) :]
    if not all(variables(i) - units == {it.var.name} and n == extent(it) for (i, n), it in zip(last, pixels, strict=True)):
        return False
    return size(pixels) * c.contraction.bits // 8 % PAGE_BYTES != 0


def by_rows(c: Convolution, processor: CPU) -> bool:
    """Whether the image is read where it is, row by row: there are few weights, most lanes have pixels, and a tile may have
    enough channels."""
    if not suits(c, processor) or in_place(c) or processor.accumulators(1) < MIN_CHANNELS_BY_ROWS:
        return False
    weights = size((*c.groups, *c.channels, *c.reduction)) * c.contraction.bits // 8
    return weights <= processor.l1_strip_bytes and _filled(c, processor) >= MIN_FILLED


def _filled(c: Convolution, processor: CPU) -> float:
    """The part of the lanes that have pixels, if vectors end with the rows."""
    lanes, row = processor.lanes(c.contraction.bits), extent(c.pixels[-1])
    return row / (ceil(row / lanes) * lanes)


def _stride(c: Convolution) -> int:
    """How many elements of the image lie between two pixels of a row."""
    return max(1, *(polynomial(i).get((c.pixels[-1].var,), 0) for i in c.image.indices))


def _channels_of_row(c: Convolution, processor: CPU) -> int:
    """Channels of a register tile with one vector of pixels, the tiles as equal as can be; registers are left for what the pixels
    are picked from."""
    channels = extent(c.channels[-1])
    return ceil(channels / ceil(channels / (processor.accumulators(1) - _stride(c))))


def _build_by_rows(s: OpenSchedule, c: Convolution) -> None:
    """Loops, outermost first: tiles of channels, groups, other axes and rows (threads); vectors of a row; the sum; channels,
    unrolled; pixels, a vector. Images of all channels written side by side are more streams than processors prefetch. What pads
    the image is a part of reading it."""
    machine, block, row = s.target.machine, c.contraction.block, c.pixels[-1]
    after, padding = epilogue(s, block), _padding(s, block)
    outer = [loop_of(it) for it in (*c.groups, *c.channels[:-1], *c.pixels[:-1])]
    (channels,) = s.sizes(block, c.channels[-1].var.name, seed=(_channels_of_row(c, machine),))
    (lanes,) = s.sizes(block, row.var.name, seed=(machine.lanes(c.contraction.bits),), vector=True)
    c0, c1 = s.split(loop_of(c.channels[-1]), [None, channels])
    w0, w1 = s.split(loop_of(row), [None, lanes])
    steps = [loop_of(it) for it in c.reduction]
    s.reorder(c0, *outer, w0, *steps, c1, w1)
    if after is not None:
        s.reverse_compute_at(after, w0, preserve_unit_loops=True)
        s.vectorize(s.get_loops(after)[-1])
    for name in padding:
        s.compute_inline(name)
    s.unroll(steps[-1])
    s.unroll(c1)
    s.vectorize(w1)
    share_out(s, block, [c0, *outer], c.contraction.work, machine.fma_cycles(c.contraction.bits))
    done(s, block)
    s.pending = [b for b in s.pending if b not in padding]


def build(s: OpenSchedule, c: Convolution, sizes: PixelTile | None = None) -> None:
    """Tile a convolution, whose loops are still as they were made, with its elementwise consumer, which is made if there is none,
    and unroll its image, with what pads it, where that is needed.

    Loops, outermost first: groups and other axes; tiles of pixels and tiles of channels, in either order: at the seed those
    outside of which there are more bytes to read; the sum, in the order of the weights; channels, unrolled; pixels, a vector. The
    consumer is computed for each tile. `sizes` are other seeds than those of `tiles`. ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    if sizes is None and by_rows(c, machine):
        _build_by_rows(s, c)
        return
    t, block, bits = sizes or tiles(c, machine, s.constants), c.contraction.block, c.contraction.bits
    after = epilogue(s, block) or s.cache_write(block, 0, "global")
    threads, pixels, lanes = c.contraction.threads(machine), size(row(c)), machine.lanes(bits)
    nest = as_rows(s, c, after, threads)
    s.pending = [b for b in s.pending if b not in nest.inlined]
    if pixels % lanes:
        s.storage_align(block, 0, -2, lanes, 0)  # a tile may be wider than a row
    whole = ceil(pixels / lanes) * lanes
    c0, c1 = _split(s, c, nest.channels, c.channels[-1:], t.channels)
    p0, p1 = _split(s, c, nest.pixels, row(c), t.pixels, vector=True, extent=whole, missing=whole - pixels)
    orders = {"channels inside": (p0, c0), "pixels inside": (c0, p0)}
    weights = size((*c.channels, *c.reduction)) * bits // 8

    def ordered(*first: str) -> Way:
        return lambda new: new.reorder(*nest.outer, *first, *nest.reduction, c1, p1)

    s.branch(
        f"{block} order",
        {label: ordered(*first) for label, first in orders.items()},
        seed="channels inside" if weights < machine.l2_reuse_bytes else "pixels inside",
        block=block,
    )
    first = s.get_loops(block)[: len(nest.outer) + 2]
    s.reverse_compute_at(after, first[-1], preserve_unit_loops=True)
    s.vectorize(s.get_loops(after)[-1])
    s.scheduled[after] = Stage.FUSED
    tiled = Tiled.of(s, block, [first, [], nest.reduction, [c1], [p1]], 2, (len(first),), panels=True)
    assert tiled.operands is not None
    if c.weights.buffer.name in s.constants:
        tiled = replace(tiled, operands=replace(tiled.operands, seed=((c.weights.buffer.name, "in front"),)))
    s.scheduled[block] = replace(tiled, shared=len(first) if threads > 1 else 0)


def _split(s: OpenSchedule, c: Convolution, loop: str, axes: Sequence[Iter], seed: int, **described: Any) -> list[str]:
    """Split the loop of an axis that counts through others with an open inner length."""
    block = c.contraction.block
    axis = next(it.var.name for it in s.block(block).iters if loop in variables(it.binding))
    parts = tuple(it.var.name for it in axes)
    return s.split(loop, [None, *s.sizes(block, axis, seed=(seed,), bits=c.contraction.bits, parts=parts, **described)])


def as_rows(s: OpenSchedule, c: Convolution, after: str, threads: int) -> FlatConvolution:
    """Make the pixels of `row` one axis, the last, of a convolution, whose loops are still as they were made, and of its
    elementwise consumer `after`; the image is unrolled, by so many threads, where that is needed. ScheduleError where a step is
    refused."""
    block, pixels = c.contraction.block, row(c)
    places = {i.name: n for n, i in enumerate(c.weights.indices) if isinstance(i, Var)}
    reduce_axes = sorted(c.reduction, key=lambda it: places[it.var.name])
    inlined = [] if in_place(c) else _unrolled(s, c, reduce_axes, threads)
    flat = [it.var.name for it in pixels]
    dims = [i.name for i in c.contraction.store.indices if isinstance(i, Var)]
    s.transform_layout(block, ("write", 0), _map(dims, dims[: -len(pixels)], flat, pixels))
    order = [it.var.name for it in (*c.groups, *c.channels, *c.pixels[: -len(pixels)])]
    steps = [it.var.name for it in reduce_axes]
    axes = [it.var.name for it in s.block(block).iters]
    s.transform_block_layout(block, _map(axes, [*order, *steps], flat, pixels))
    dims = [i.name for i in stored(s.block(after)).indices if isinstance(i, Var)]
    axes = [it.var.name for it in s.block(after).iters]
    s.transform_block_layout(after, _map(axes, dims[: -len(pixels)], dims[-len(pixels) :], pixels))
    *made, last = s.get_loops(block)
    loops = dict(zip([*order, *steps], made, strict=True))
    channels = loops.pop(c.channels[-1].var.name)
    return FlatConvolution(
        [loops[name] for name in order if name in loops], channels, [loops[name] for name in steps], last, inlined
    )


def _unrolled(s: OpenSchedule, c: Convolution, reduce_axes: list[Iter], threads: int) -> list[str]:
    """Let a convolution read its image from a copy with a row of pixels for each step of the sum; returns the block that pads the
    image, if it could become a part of the copy."""
    pixels = row(c)
    seen = set().union(*(variables(i) for i in c.image.indices))
    axes = [it.var.name for it in s.block(c.contraction.block).iters if it.var.name in seen]
    copy = s.reindex(c.contraction.block, c.image.buffer.name)
    outer = [name for it in (*c.groups, *c.pixels[: -len(pixels)], *reduce_axes) if (name := it.var.name) in seen]
    flat = [it.var.name for it in pixels]
    s.transform_layout(copy, ("write", 0), _map(axes, outer, flat, pixels))
    if size(pixels) * c.contraction.bits // 8 % PAGE_BYTES == 0:
        s.storage_align(copy, 0, -2, 32, 16)
    made = _padding(s, copy)
    for name in made:
        s.compute_inline(name)
    made_by = zip(axes, s.block(copy).iters, strict=True)
    loops = {name: it.binding.name for name, it in made_by if isinstance(it.binding, Var)}  # those of extent 1 have none
    order = [loops[name] for name in outer if name in loops]
    within = [loops[name] for name in flat if name in loops]
    s.reorder(*order, *within)
    s.vectorize(within[-1])
    if threads > 1 and order:
        share(s, copy, order)
    done(s, copy)
    return made


def _padding(s: OpenSchedule, copy: str) -> list[str]:
    """The elementwise block that makes what a copy reads, for nothing else."""
    made = s.get_producers(copy)
    reusable = len(made) == 1 and is_elementwise(s.block(made[0])) and s.get_consumers(made[0]) == [copy]
    return made if reusable and made[0] not in s.get_output_blocks() else []


def _map(names: list[str], outer: list[str], flat: list[str], pixels: tuple[Iter, ...]) -> IndexMap:
    """The index map from all `names` to those in `outer` and one number that counts through `flat`, which have the extents of
    `pixels`."""
    order = [names.index(name) for name in (*outer, *flat)]
    return IndexMap.identity(names).permute(*order).fuse(len(outer), *map(extent, pixels[1:]))


__all__ = ["FlatConvolution", "PixelTile", "as_rows", "build", "cycles", "in_place", "matches", "row", "suits", "tiles"]
