"""Convolutions as matrix products over im2col panels: a row for each output channel, a column for each pixel.

Channels as lanes, as in `conv2d`, need the weights in another order, and transposed tiles where the result does not have its
channels last. Both cost much where there are few pixels, or few steps of the sum. Here all pixels of an image are one axis, in
vectors. Where they are contiguous in memory, as in a convolution by 1 x 1, the image is read in place. Else it is copied first,
so that each step of the sum reads a row (im2col; Chellapilla et al., High Performance Convolutional Neural Networks for Document
Processing, IWFHR 2006). The product is that of `gemm`. With few weights, as in the first layer of a network, there is too little
to compute for each element of the copy. Lanes are then pixels of one row, read from the image itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, inf, prod

import numpy as np

from schedule.machine import CACHE_LINE_BYTES, CPU, PAGE_BYTES
from schedule.open_schedule import Declined, OpenSchedule, extent
from schedule.product_blocks import busiest, overlapped
from schedule.register_tiles import RegisterTile, fewest_cycles
from tir.ir import Axis, Const, Iter, Load, Var, const_shape
from tir.traverse import variables

from . import gemm, normal_form
from .block_analysis import Contraction, counted, epilogue, fuse_epilogue, loop_of, made_for, size, stride
from .conv2d import Convolution, matches
from .conversion import is_converted, read_converted
from .gemm import GemmTile, Sum
from .marks import done, share, share_out
from .pack_branches import separate_rows

NAME = "pixels in lanes"


def row(c: Convolution) -> tuple[Iter, ...]:
    """The pixel axes that are the last dimensions of the result, and become one axis."""
    axes = {it.var.name: it for it in c.pixels}
    found: list[Iter] = []
    for index in reversed(c.contraction.store.indices):
        if not isinstance(index, Var) or index.name not in axes:
            break
        found.insert(0, axes[index.name])
    return tuple(found)


def suits(c: Convolution, processor: CPU) -> bool:
    """True where the last dimensions of the result are a vector of pixels or more, and the steps of the weights lie together."""
    fits = c.members is None and c.transposed_result and size(row(c)) >= processor.lanes(c.contraction.bits)
    return fits and _steps_are_together(c)


def _steps_are_together(c: Convolution) -> bool:
    """True where no other axis of the weights lies between those of the sum."""
    steps = {it.var.name for it in c.reduction}
    long = {it.var.name for it in (*c.groups, *c.channels, *c.reduction) if extent(it) > 1}
    inner = [i.name in steps for i in c.weights.indices if isinstance(i, Var) and i.name in long]
    return sum(of_sum for of_sum, _ in groupby(inner)) <= 1


def product(c: Convolution, convert: bool = True) -> Contraction:
    """The matrix product that a convolution becomes, with panels of the image where it is not read in place. These have the type
    of the sum where they `convert`."""
    pixels, steps, others = row(c), _steps(c), c.pixels[: -len(row(c))]
    columns = Iter(Var("pixels"), Const(size(pixels)), Axis.SPATIAL, Var("pixels"))
    step = Iter(Var("steps"), Const(size(steps)), Axis.REDUCE, Var("steps"))
    left = Load(c.weights.buffer, (*(it.var for it in (*c.groups, *c.channels)), step.var))
    kind = c.contraction.store.buffer.dtype if convert and not in_place(c) else c.image.dtype
    axes = (*c.groups, *others, step, columns)
    panels = c.image.buffer.with_(shape=tuple(it.extent for it in axes), dtype=kind)
    right = Load(panels, tuple(it.var for it in axes))
    return Contraction(c.contraction.block, c.contraction.store, left, right, c.groups, c.channels, (*others, columns), (step,))


def tiles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> GemmTile:
    """Good sizes of the product, computed from the extents and the processor."""
    return gemm.tiles(product(c), processor, constants)


def variants(c: Convolution, processor: CPU, given: frozenset[str] = frozenset()) -> list[Sum]:
    """The ways to run the sum that are worth a sketch, the seed's first."""
    found = gemm.variants(product(c), processor, given if in_place(c) else frozenset())
    rows = [] if _row_cycles(c, processor) == inf else [Sum.BY_ROWS]
    return [*rows, *found] if prefers_rows(c, processor) else [*found, *rows]


def cycles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, of the faster way: with copies of the image, or by rows."""
    return min(_product_cycles(c, processor, constants), _row_cycles(c, processor))


def _row_cycles(c: Convolution, processor: CPU) -> float:
    """Cycles where the image is read in place, row by row, in vectors that end with the rows; infinite where that is illegal."""
    bits, channels, tile = c.contraction.bits, extent(c.channels[-1]), _row_tile(c, processor)
    if in_place(c) or tile is None:
        return inf
    others = size((*c.groups, *c.channels[:-1]))
    vectors = size(c.pixels[:-1]) * ceil(extent(c.pixels[-1]) / processor.lanes(bits))
    elements = prod(const_shape(c.image.buffer))
    panels = ceil(channels / tile.rows)
    share = busiest(others * panels * size(c.pixels[:-1]), c.contraction.threads(processor))
    # An image of halves that is padded is converted where it is read.
    conversions = panels * size(c.reduction) * is_converted(c.image, c.contraction.store.buffer.dtype)
    arithmetic = vectors * (tile.cycles + conversions * processor.conversion_cycles)
    nbytes = elements * bits // 8
    moved = panels * nbytes / CACHE_LINE_BYTES * processor.memory.line[processor.home(nbytes)]
    return float(share * others * overlapped(arithmetic, moved))


def _product_cycles(c: Convolution, processor: CPU, constants: frozenset[str]) -> float:
    """Cycles as a matrix product over im2col panels."""
    copies = 0.0 if in_place(c) else panel_cycles(c, c.contraction.bits, processor)
    return copies + gemm.cycles(product(c), processor, constants, in_place(c))


def panel_cycles(c: Convolution, bits: int, processor: CPU) -> float:
    """Cycles to copy an image to im2col panels of elements of so many bits, in vectors that end with the rows. Panels that
    another thread has made come through L3."""
    elements, row, lanes = size((*c.groups, *c.pixels, *c.reduction)), extent(c.pixels[-1]), processor.lanes(bits)
    made, threads = elements // row * ceil(row / lanes) * lanes, c.contraction.threads(processor)
    foreign = processor.memory.line[1] * bits / (8 * CACHE_LINE_BYTES) * (threads - 1)
    return made * processor.pack_cycles(bits, elements * bits // 8) + elements * foreign


def _steps(c: Convolution) -> tuple[Iter, ...]:
    """The axes of the sum in the order of the weights in memory."""
    places = {i.name: n for n, i in enumerate(c.weights.indices) if isinstance(i, Var)}
    return tuple(sorted(c.reduction, key=lambda it: places[it.var.name]))


def in_place(c: Convolution) -> bool:
    """True where the pixels of `row` are contiguous in the image at each step, in rows that do not evict each other."""
    pixels, shape = row(c), const_shape(c.image.buffer)
    units = {it.var.name for it in c.reduction if extent(it) == 1}
    if len(c.image.indices) < len(pixels):
        return False
    last = list(zip(c.image.indices, shape, strict=True))[-len(pixels) :]
    if not all(variables(i) - units == {it.var.name} and n == extent(it) for (i, n), it in zip(last, pixels, strict=True)):
        return False
    return size(pixels) * c.contraction.bits // 8 % PAGE_BYTES != 0


def prefers_rows(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> bool:
    """True where reading the image in place, row by row, takes fewer cycles than a copy."""
    return _row_cycles(c, processor) < _product_cycles(c, processor, constants)


def _row_tile(c: Convolution, processor: CPU) -> RegisterTile | None:
    """The register tile of a vector of pixels by channels, and all channels' cycles; None without registers to pick pixels."""
    channels, picked = extent(c.channels[-1]), stride(c.image, c.pixels[-1].var)
    m = np.arange(1, min(channels, processor.accumulators(1) - picked) + 1)
    if not m.size:
        return None
    elements = m + picked * processor.core.reads / processor.loads  # vectors to pick from come from L1, too
    each = processor.step_cycles(m, 0, elements) * size(c.reduction) + processor.entry_cycles(m)
    return fewest_cycles(m, np.ones_like(m), np.ceil(channels / m) * each)


def _build_by_rows(s: OpenSchedule, c: Convolution) -> None:
    """Loops, outermost first: tiles of channels, groups, other axes and rows (threads); vectors of a row; the sum; channels,
    unrolled; pixels, a vector. Images of all channels written side by side are more streams than processors prefetch. Padding is
    computed as the image is read."""
    machine, block, row = s.target.machine, c.contraction.block, c.pixels[-1]
    padding = _padding_blocks(s, block)
    for operand in (c.weights, c.image):
        read_converted(s, block, operand)
    after = epilogue(s, block)
    outer = [loop_of(it) for it in (*c.groups, *c.channels[:-1], *c.pixels[:-1])]
    tile = _row_tile(c, machine)
    assert tile is not None, "a variant has one"
    (channels,) = s.sizes(block, c.channels[-1].var.name, seed=(tile.rows,))
    (lanes,) = s.sizes(block, row.var.name, seed=(machine.lanes(c.contraction.bits),), vector=True)
    c0, c1 = s.split(loop_of(c.channels[-1]), [None, channels])
    w0, w1 = s.split(loop_of(row), [None, lanes])
    steps = [loop_of(it) for it in c.reduction]
    s.reorder(c0, *outer, w0, *steps, c1, w1)
    fuse_epilogue(s, after, w0)
    for name in padding:
        s.compute_inline(name)
    s.unroll(steps[-1])
    s.unroll(c1)
    s.vectorize(w1)
    share_out(s, block, [c0, *outer], c.contraction.work, machine.fma_cycles(c.contraction.bits))
    done(s, block)
    s.pending = [b for b in s.pending if b not in padding]


def build(s: OpenSchedule, c: Convolution, variant: Sum | None = None, sizes: GemmTile | None = None) -> None:
    """Tile a convolution, whose loops are still as they were made, as a matrix product with its epilogue, which is made if there
    is none. Its image, with padding, is copied to im2col panels where needed. `sizes` are other seeds than those of `tiles`.
    ScheduleError where a step is refused."""
    if variant is None:
        variant, *_ = variants(c, s.target.machine, s.given)
    if variant is Sum.BY_ROWS:
        _build_by_rows(s, c)
        return
    block = c.contraction.block
    after = epilogue(s, block) or s.cache_write(block, 0, "global")
    inlined = as_product(s, c, after)
    s.pending = [b for b in s.pending if b not in inlined]
    found = gemm.matches(s.block(block))
    if found is None:
        raise Declined(f"`{block}` is no matrix product over its pixels")
    gemm.build(s, found, variant, sizes=sizes, after=after)
    s.vectorize(s.get_loops(after)[-1])


def as_product(s: OpenSchedule, c: Convolution, after: str, convert: bool = True) -> list[str]:
    """Make a convolution, whose loops are still as they were made, and its epilogue `after` a matrix product over the pixels of
    `row`. Its image is copied to im2col panels where needed, and there converted to the type of the sum. Returns the blocks that
    became part of others. ScheduleError where a step is refused."""
    block, pixels, steps = c.contraction.block, row(c), _steps(c)
    inlined = [] if in_place(c) else _copy_image(s, c, steps, convert)
    own, others = {it.var: it for it in s.block(block).iters}, c.pixels[: -len(pixels)]
    written = [own[i] for i in c.contraction.store.indices if isinstance(i, Var)]
    s.transform_layout(block, ("write", 0), counted(written, written[: -len(pixels)], pixels), None, True)
    outer = [it for it in (*c.groups, *c.channels, *others) if extent(it) > 1 or it is c.channels[-1]]
    s.transform_block_layout(block, counted(s.block(block).iters, outer, steps, pixels), True)
    axes = s.block(after).iters
    s.transform_block_layout(after, counted(axes, axes[: -len(pixels)], axes[-len(pixels) :]), True)
    normal_form.arrays_apart(s, block)
    return inlined


def _copy_image(s: OpenSchedule, c: Convolution, steps: Sequence[Iter], convert: bool) -> list[str]:
    """Have a convolution read im2col panels of its image, by rows of pixels; returns the padding block, if it joined the copy."""
    pixels, machine = row(c), s.target.machine
    seen = variables(*c.image.indices)
    axes = [it for it in s.block(c.contraction.block).iters if it.var.name in seen]
    copy = s.reindex(c.contraction.block, c.image.buffer.name)
    if convert and is_converted(c.image, c.contraction.store.buffer.dtype):
        s.unsafe_set_dtype(copy, 0, c.contraction.store.buffer.dtype)
    outer = [it for it in (*c.groups, *c.pixels[: -len(pixels)]) if it.var.name in seen]
    s.transform_layout(copy, ("write", 0), counted(axes, outer, steps, pixels), None, True)
    if size(pixels) * c.contraction.bits // 8 % PAGE_BYTES == 0:
        separate_rows(s, copy)
    made = _padding_blocks(s, copy)
    for name in made:
        s.compute_inline(name)
    made_by = zip(axes, s.block(copy).iters, strict=True)
    loops = {mine.var: it.binding.name for mine, it in made_by if isinstance(it.binding, Var)}  # those of extent 1 have none
    order = [loops[it.var] for it in (*outer, *steps) if it.var in loops]
    within = [loops[it.var] for it in pixels if it.var in loops]
    s.reorder(*order, *within)
    s.vectorize(within[-1])
    if c.contraction.threads(machine) > 1 and order:
        share(s, copy, order)
    done(s, copy)
    return made


def _padding_blocks(s: OpenSchedule, copy: str) -> list[str]:
    """The elementwise block that makes all that a copy reads, for it alone; empty if there is none."""
    return made_for(s, copy) if len(s.get_producers(copy)) == 1 else []


__all__ = [
    "NAME", "as_product", "build", "cycles", "in_place", "matches", "panel_cycles", "product", "row", "suits", "tiles", "variants"
]  # fmt: skip
