"""Direct convolutions: a register tile of pixels by output channels, the weights packed.

The channels are the lanes of vectors, whatever the layout, stride, padding or dilation. Pixels are broadcast; the weights of some
channels lie together in a packed panel, in their order of use (Georganas et al., Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures, SC 2018). Where the result does not have its channels last, a tile is transposed in a small
buffer when it is stored, together with the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from schedule.machine import CACHE_LINE_BYTES, CACHE_SHARE, CPU, EXPOSED_LOADS
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from schedule.product_blocks import busiest, overlapped
from schedule.register_tiles import RegisterTile, product_tile
from tir.arith.symbolic import symbolic_min
from tir.ir import Binary, Block, Const, Iter, Load, Var, const_shape
from tir.traverse import variables, walk

from .block_analysis import (
    Contraction,
    at_axes,
    contraction,
    epilogue,
    last_axis,
    loop_of,
    size,
    store_last,
    stride,
    transpose_in_squares,
)
from .conversion import is_converted, read_converted
from .division import shares_are_equal
from .gemm import Sum
from .marks import UNROLLED_STATEMENTS

NAME = "direct convolution"


@dataclass(frozen=True, slots=True)
class Class:
    """A condition `(pixel + kernel + ...) % stride == 0` on an axis of the result and one of the sum."""

    pixel: Iter
    kernel: Iter
    stride: int


@dataclass(frozen=True, slots=True)
class Convolution:
    """A contraction of `image`, whose indices are sums of axes, and `weights`, whose indices are axes. The axes `groups` are in
    both and the result, `pixels` in image and result, `channels` in weights and result, `reduction` in image and weights. So many
    as `members` of the last channels read one group of channels of the image. Only terms for which all of `classes` hold are
    summed up."""

    contraction: Contraction
    image: Load
    weights: Load
    groups: tuple[Iter, ...]
    pixels: tuple[Iter, ...]
    channels: tuple[Iter, ...]
    reduction: tuple[Iter, ...]
    members: int | None = None
    classes: tuple[Class, ...] = ()

    @property
    def strides(self) -> dict[str, int]:
        """The strides of those axes that have classes."""
        return {it.var.name: x.stride for x in self.classes for it in (x.pixel, x.kernel)}

    @property
    def group_channels(self) -> int:
        """The number of last channels that read one group of channels of the image."""
        return self.members or extent(self.channels[-1])

    @property
    def step_classes(self) -> int:
        """The classes of the steps of a sum, of which a pixel has one."""
        return prod(x.stride for x in self.classes)

    @property
    def rows(self) -> int:
        """The rows of pixels of an image, each of one class."""
        return size(self.pixels[:-1]) * self.strides.get(self.pixels[-1].var.name, 1)

    @property
    def pixels_of_class(self) -> int:
        """The largest number of pixels of a class in a row."""
        row = self.pixels[-1]
        return ceil(extent(row) / self.strides.get(row.var.name, 1))

    @property
    def transposed_result(self) -> bool:
        """True where the channels are not the last dimension of the result."""
        return self.contraction.store.indices[-1] != self.channels[-1].var


def matches(block: Block) -> Convolution | None:
    """The block as a convolution with more than one output channel, if it is one."""
    c = contraction(block)
    if c is None:
        return None
    if not c.by_columns:
        return _match_grouped(c)
    if at_axes(c.left) == at_axes(c.right) or not c.rows or not c.columns:
        return None
    if at_axes(c.left):
        return Convolution(c, c.right, c.left, c.batch, c.columns, c.rows, c.reduction)
    return Convolution(c, c.left, c.right, c.batch, c.rows, c.columns, c.reduction)


def _match_grouped(c: Contraction) -> Convolution | None:
    """The block as a grouped convolution with its channels last, `members` of which read one group of the image's channels."""
    weights, image = (c.left, c.right) if at_axes(c.left) else (c.right, c.left)
    own, pixels = (c.rows, c.columns) if weights is c.left else (c.columns, c.rows)
    channel = next((it for it in c.batch if it.var.name == c.vector), None)
    if channel is None or not pixels or not at_axes(weights) or at_axes(image):
        return None
    members = _members(image, channel.var)
    if members is None or extent(channel) % members or members == 1:
        return None
    groups = tuple(it for it in c.batch if it is not channel)
    return Convolution(c, image, weights, groups, (*own, *pixels), (channel,), c.reduction, members)


def _members(image: Load, channel: Var) -> int | None:
    """The divisor n, if elements of the image depend on a channel only by `channel // n`; None else."""
    quotients = {n for i in image.indices for n in walk(i) if isinstance(n, Binary) and n.op == "//" and n.a == channel}
    uses = sum(n == channel for i in image.indices for n in walk(i))
    divisors = {n.b.value for n in quotients if isinstance(n.b, Const)}
    within = sum(n in quotients for i in image.indices for n in walk(i))
    return int(divisors.pop()) if len(divisors) == 1 and uses == within else None


def suits(c: Convolution, processor: CPU) -> bool:
    """True where there are channels enough for half a vector."""
    return 2 * extent(c.channels[-1]) >= processor.lanes(c.contraction.bits)


def tiles(c: Convolution, processor: CPU) -> RegisterTile:
    """The register tile of pixels of a row by channels with the fewest cycles for a row of pixels."""
    lanes, channels = processor.lanes(c.contraction.bits), c.group_channels
    dividing = c.members is not None and channels % lanes == 0
    row, steps = c.pixels_of_class, ceil(size(c.reduction) / c.step_classes)
    return product_tile(row, channels, steps, lanes, processor, dividing, bool(c.classes), c.transposed_result)


def cycles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles of the busiest core times the cores, with copies of the weights and transposes of the result."""
    t = tiles(c, processor)
    kind, bits = c.contraction.store.buffer.dtype, c.contraction.bits
    weights = 0 if c.weights.buffer.name in constants else size((*c.groups, *c.channels, *c.reduction))
    copied = (weights, prod(const_shape(c.image.buffer)) * is_converted(c.image, kind))
    copies = sum(n * processor.pack_cycles(bits, n * bits // 8) for n in copied)
    copies += weights * (last_axis(c.weights) != c.channels[-1].var.name) * processor.shuffle_cycles(bits)
    copies += size((*c.groups, *c.channels, *c.pixels)) * c.transposed_result * processor.turn_cycles(bits)
    images, panels = size((*c.groups, *c.channels[:-1])), ceil(extent(c.channels[-1]) / t.columns)
    units = images * panels * (1 if _enough_panels(c, t, processor) else c.rows)
    _, least = _fastest(c, t, processor)
    return float(busiest(units, c.contraction.threads(processor))) * images * least + copies


def _fastest(c: Convolution, t: RegisterTile, processor: CPU) -> tuple[list[int], float]:
    """The parts of each axis of the sum, the outer ones first, with the fewest cycles of all tiles of an image, and those cycles.
    Sums are cut into 1, 2, 4, ... parts or little more, where threads share panels only."""
    longest = size(c.reduction) if _enough_panels(c, t, processor) else 1
    partitions = [_partition(c, 1 << n) for n in range(longest.bit_length())]
    total = _sum_cycles(c, t, np.array([prod(counts) for counts in partitions]), processor)
    best = int(np.argmin(total))
    return partitions[best], float(total[best])


def _sum_cycles(c: Convolution, t: RegisterTile, count: np.ndarray, processor: CPU) -> np.ndarray:
    """Cycles of all tiles of an image with the sum in so many parts, an element for each count. A tile reads its panel of weights
    in each part, and stores and loads its results."""
    lanes, nbytes = processor.lanes(c.contraction.bits), c.contraction.bits // 8
    groups = extent(c.channels[-1]) // c.group_channels
    panels, turns = groups * ceil(c.group_channels / t.columns), c.rows * ceil(c.pixels_of_class / t.rows)
    panel = np.ceil(size(c.reduction) / c.step_classes / count) * t.columns * nbytes
    moved, exposed = _lines_cycles(c, t, count, panel, turns, processor)
    arithmetic = groups * c.rows * t.cycles + np.zeros(len(count))
    if is_converted(c.weights, c.contraction.store.buffer.dtype):  # at each use
        arithmetic += panels * count * turns * panel / nbytes / lanes * processor.conversion_cycles
    results = size(c.pixels) * t.columns * nbytes
    stored = (count - 1) * turns * processor.entry_cycles(2 * t.rows * ceil(t.columns / lanes))
    if results > CACHE_SHARE * processor.l1:
        stored = stored + 2 * (count - 1) * results / CACHE_LINE_BYTES * processor.memory.line[processor.home(results)]
    return np.asarray(overlapped(arithmetic, panels * count * moved) + panels * (EXPOSED_LOADS * count * exposed + stored))


def _lines_cycles(
    c: Convolution, t: RegisterTile, count: np.ndarray, panel: np.ndarray, turns: int, processor: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of the lines of all tiles by a panel of so many bytes in one part of the sum, and of those that arithmetic hides in
    part. If L1 holds the panel and the lines of a tile, the next tile finds them there."""
    line, groups = np.array(processor.memory.line), size(c.groups) * (extent(c.channels[-1]) // c.group_channels)
    image = prod(const_shape(c.image.buffer)) * c.contraction.bits // 8 // groups
    of_tile, of_row = (_tile_lines(c, n) / c.step_classes / count for n in (t.rows, extent(c.pixels[-1])))
    near = panel + of_tile * CACHE_LINE_BYTES <= CACHE_SHARE * processor.l1
    lines = image / count / CACHE_LINE_BYTES
    again = np.maximum(0.0, turns * of_tile - lines) * line[processor.home(of_row * CACHE_LINE_BYTES)]
    of_image = lines * line[processor.home(image)] + np.where(near, 0.0, again)
    read = np.where(near, line[processor.home(panel * count)], turns * line[processor.home(panel)])
    return panel / CACHE_LINE_BYTES * read + of_image, np.where(near, 0.0, of_image)


def _tile_lines(c: Convolution, pixels: int) -> float:
    """Lines of the image that so many pixels of a row read in the whole sum, wherever the first of its elements lies."""
    place = next(i for i in c.image.indices if c.pixels[-1].var.name in variables(i))
    taps = [it for it in c.reduction if it.var.name in variables(place)]
    reach = sum((extent(it) - 1) * stride(c.image, it.var) for it in taps)
    span = ((pixels - 1) * stride(c.image, c.pixels[-1].var) + reach) * c.contraction.bits // 8
    others = size(c.reduction) // size(taps)
    if place == c.image.indices[-1]:
        return others * (1 + span / CACHE_LINE_BYTES)
    return others * min(span + c.contraction.bits // 8, pixels * size(taps) * c.contraction.bits // 8) / CACHE_LINE_BYTES


def _partition(c: Convolution, left: int) -> list[int]:
    """The number of parts of each axis of the sum, `left` in all or little more."""
    counts = []
    for it in c.reduction:
        n = extent(it)
        fitting = [d for d in range(left, 2 * left + 1) if n % d == 0]
        counts.append(fitting[0] if fitting else n if n < left else 1)
        left = ceil(left / counts[-1])
    return counts


def variants(c: Convolution, processor: CPU, given: frozenset[str] = frozenset()) -> list[Sum]:
    """The ways to run a sum that are worth a sketch, the seed's first: whole, or in parts."""
    t, usual = _seed(c, processor)
    panel = size(c.reduction) * t.columns * c.contraction.bits // 8
    found = [Sum.WHOLE, *([Sum.IN_PARTS] if usual is Sum.IN_PARTS or panel > processor.l2_reuse_bytes else [])]
    return sorted(found, key=lambda v: v != usual)


def _seed(c: Convolution, processor: CPU) -> tuple[RegisterTile, Sum]:
    t = tiles(c, processor)
    counts, _ = _fastest(c, t, processor)
    return t, Sum.IN_PARTS if max(counts) > 1 else Sum.WHOLE


def _enough_panels(c: Convolution, t: RegisterTile, processor: CPU) -> bool:
    """True where there are panels of weights enough for threads to share nothing else."""
    panels = size((*c.groups, *c.channels[:-1])) * ceil(extent(c.channels[-1]) / t.columns)
    return shares_are_equal(panels, c.contraction.threads(processor))


def build(s: OpenSchedule, c: Convolution, variant: Sum | None = None) -> None:
    """Tile a convolution, whose loops are still as they were made, with its epilogue, if it has one.

    Loops, outermost first: groups; panels of channels; parts of the sum; other pixels; tiles of rows and of a row of pixels; the
    sum; rows and pixels, unrolled; channels, a vector. The epilogue is computed for each tile, or for each panel where the sum
    runs in parts. Where the result does not have its channels last, it transposes the tile; it is made if there is none.
    Annotation chooses how the weights are packed, and the loops that threads share. ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    t, usual = _seed(c, machine)
    variant = usual if variant is None else variant
    after, in_parts = epilogue(s, c.contraction.block), variant is Sum.IN_PARTS
    if c.transposed_result and after is None:
        after = s.cache_write(c.contraction.block, 0, "global")
    tile(s, c, t, after, _enough_panels(c, t, machine), in_parts)
    if c.transposed_result:
        assert after is not None
        _transpose_tile(s, c, after, whole=in_parts)


def tile(
    s: OpenSchedule, c: Convolution, t: RegisterTile, after: str | None, by_panels: bool = False, in_parts: bool = False
) -> None:
    """Tile a convolution, with its epilogue `after`. Threads share panels of weights and classes of pixels, with `by_panels`
    nothing else. Classes of the kernel come right before the sum, which runs whole, or `in_parts`."""
    block, machine = c.contraction.block, s.target.machine
    read_converted(s, block, c.image)  # each element is broadcast, and used many times
    groups = [loop_of(it) for it in (*c.groups, *c.channels[:-1])]
    rows, steps = by_class(s, c, c.pixels), by_class(s, c, c.reduction)
    cut, reduce_loops = [], [loop for loop, _ in steps]
    if in_parts:
        counts, _ = _fastest(c, t, machine)
        longest = max(c.reduction, key=extent)
        for n, (it, count) in enumerate(zip(c.reduction, counts, strict=True)):
            if count > 1 or (max(counts) == 1 and it is longest):
                outer, reduce_loops[n] = split_axis(s, block, it, reduce_loops[n], ceil(extent(it) / count))
                cut.append(outer)
    c0, c1 = split_axis(s, block, c.channels[-1], loop_of(c.channels[-1]), t.columns, vector=True)
    pixels = [(it, loop, c.strides.get(it.var.name, 1)) for it, (loop, _) in zip(c.pixels, rows, strict=True)]
    others, within = split_pixels(s, block, pixels, t.rows)
    p0 = others.pop()
    panels, kernel = [*groups, c0, *(x for _, own in rows for x in own)], [x for _, own in steps for x in own]
    levels = [[*panels, *cut], others, [p0], [*kernel, *reduce_loops], within, [c1]]
    s.reorder(*(loop for level in levels for loop in level))
    if after is not None:
        s.reverse_compute_at(after, c0 if cut else p0, preserve_unit_loops=True)
        s.scheduled[after] = Stage.FUSED
    depth = len(panels)
    shared = 0 if c.contraction.threads(machine) == 1 else depth if by_panels else depth + len(others)
    tiled = Tiled.of(s, block, levels, 2, (depth,) if cut else (depth, depth + len(others)), panels=True)
    packing = ((c.weights.buffer.name, "at its panels" if by_panels else "in front"),)
    uneven = bool(c.classes)  # classes have different numbers of the kernel's elements
    s.annotate(reduce_loops[-1], "in_order", True)  # else LLVM holds a window's elements in registers that accumulators need
    tiled = replace(tiled, uneven=uneven, statements=UNROLLED_STATEMENTS, operands=Operands(seed=packing))
    s.scheduled[block] = replace(tiled, shared=shared)


def by_class(s: OpenSchedule, c: Convolution, axes: Sequence[Iter]) -> list[tuple[str, list[str]]]:
    """The loop of each axis, with the loop of its classes split off, if it has any."""
    found: list[tuple[str, list[str]]] = []
    for it in axes:
        loop, inner = loop_of(it), []
        if it.var.name in c.strides:
            loop, *inner = s.split(loop, [None, c.strides[it.var.name]])
        found.append((loop, inner))
    return found


def split_axis(s: OpenSchedule, block: str, it: Iter, loop: str, seed: int, vector: bool = False, classes: int = 1) -> list[str]:
    """Split the loop of an axis, or of its `classes`, in two with an open inner length."""
    count, axis = ceil(extent(it) / classes), it.var.name
    missing = count * classes - extent(it)
    sizes = s.sizes(block, axis, seed=(seed,), extent=count, vector=vector, unit=classes, missing=missing)
    return s.split(loop, [None, *sizes])


def split_pixels(s: OpenSchedule, block: str, pixels: Sequence[tuple[Iter, str, int]], seed: int) -> tuple[list[str], list[str]]:
    """Split the loops of the last two axes of pixels by open lengths, `seed` pixels of a row by one row at the seed. Each axis
    comes with its loop and its number of classes. Returns the outer loops of all axes, and the inner ones."""
    outer, inner = [], []
    for n, (it, loop, classes) in enumerate(pixels, 1 - len(pixels)):
        if n >= -1 and extent(it) > classes:
            loop, within = split_axis(s, block, it, loop, 1 if n else seed, classes=classes)
            inner.append(within)
        outer.append(loop)
    return outer, inner


def _transpose_tile(s: OpenSchedule, c: Convolution, after: str, whole: bool) -> None:
    """Have the epilogue of a convolution transpose a tile, or with `whole` a panel, in registers, in squares of a vector's lanes.
    The channels become the last dimension of the array that it reads."""
    block, indices, lanes = c.contraction.block, c.contraction.store.indices, s.target.lanes(c.contraction.bits)
    place = store_last(s, block, indices, c.channels[-1].var.name)
    nest, row = s.get_loops(after)[-len(indices) :], c.pixels[-1]
    others = [loop for n, loop in enumerate(nest[:-1]) if n != place]
    s.reorder(*others, nest[place], nest[-1])
    (channels,) = s.lengths[block, c.channels[-1].var.name]
    (pixels,) = [extent(row)] if whole else s.lengths.get((block, row.var.name), [1])
    transpose_in_squares(s, nest[place], nest[-1], symbolic_min(channels, lanes), symbolic_min(pixels, lanes))
    s.reorder(s.get_loops(after)[-4], *others)  # so that each channel is written from its first row to its last
