"""Direct convolutions: a register tile of pixels by output channels, the weights packed.

The channels are the lanes of vectors, whatever the layout, stride, padding or dilation: pixels are broadcast, and the weights of
some channels lie together in a packed panel, in the order in which they are used (Georganas et al., Anatomy of High-Performance
Deep Learning Convolutions on SIMD Architectures, SC 2018). Where the result has its channels elsewhere than innermost, a tile is
turned round in a small buffer when it is stored, together with what comes after the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from schedule.machine import CPU
from schedule.schedule import Schedule
from tir.ir import Binary, Block, Const, Iter, Load, Var
from tir.traverse import walk

from .gemm import packed, register_tile, tile_cycles, walk_columns, walk_tiles
from .structure import Contraction, contraction, extent, is_plain, last_axis, loop_of, size, store_last

DEEP = 32  # steps of a sum from which on turning tiles round costs little


@dataclass(frozen=True, slots=True)
class Convolution:
    """A contraction of `image`, whose indices are sums of axes, and `weights`, whose indices are axes: the axes `groups` are in
    both and the result, `pixels` in image and result, `channels` in weights and result, `sums` in image and weights. Where the
    last of the channels says which group of channels of the image is seen, `members` of them see the same one."""

    contraction: Contraction
    image: Load
    weights: Load
    groups: tuple[Iter, ...]
    pixels: tuple[Iter, ...]
    channels: tuple[Iter, ...]
    sums: tuple[Iter, ...]
    members: int | None = None

    @property
    def turned(self) -> bool:
        """Whether the channels are not the last dimension of the result."""
        return self.contraction.store.indices[-1] != self.channels[-1].var


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of a register tile: pixels of a row, and channels."""

    pixels: int
    channels: int


def matches(block: Block) -> Convolution | None:
    """The block as a convolution with more than one output channel, if it is one."""
    c = contraction(block)
    if c is None:
        return None
    if not c.by_columns:
        return _grouped(c)
    if is_plain(c.left) == is_plain(c.right) or not c.rows or not c.columns:
        return None
    if is_plain(c.left):
        return Convolution(c, c.right, c.left, c.batch, c.columns, c.rows, c.sums)
    return Convolution(c, c.left, c.right, c.batch, c.rows, c.columns, c.sums)


def _grouped(c: Contraction) -> Convolution | None:
    """A convolution whose result has its channels last, of which so many in a row see one group of those of the image."""
    weights, image = (c.left, c.right) if is_plain(c.left) else (c.right, c.left)
    channel = next((it for it in c.batch if it.var.name == c.vector), None)
    pixels = (*c.rows, *c.columns)
    if channel is None or not pixels or not is_plain(weights) or is_plain(image):
        return None
    members = _members(image, channel.var)
    if members is None or extent(channel) % members or members == 1:
        return None
    groups = tuple(it for it in c.batch if it is not channel)
    return Convolution(c, image, weights, groups, pixels, (channel,), c.sums, members)


def _members(image: Load, channel: Var) -> int | None:
    """The divisor, if all that an element of the image depends on of a channel is its quotient by one."""
    quotients = {n for i in image.indices for n in walk(i) if isinstance(n, Binary) and n.op == "//" and n.a == channel}
    uses = sum(n == channel for i in image.indices for n in walk(i))
    divisors = {n.b.value for n in quotients if isinstance(n.b, Const)}
    within = sum(n in quotients for i in image.indices for n in walk(i))
    return int(divisors.pop()) if len(divisors) == 1 and uses == within else None


def suits(c: Convolution, processor: CPU) -> bool:
    """Whether there are channels enough for a vector, and, where tiles must be turned round, work enough to pay for it."""
    lanes = processor.lanes(c.contraction.bits)
    if c.members is not None and c.members % lanes:
        return False
    return extent(c.channels[-1]) >= lanes and (not c.turned or size(c.sums) >= DEEP)


def tiles(c: Convolution, processor: CPU) -> Tiles:
    """A good register tile, computed from the extents and the processor."""
    lanes, members = processor.lanes(c.contraction.bits), c.members
    channels = extent(c.channels[-1]) if members is None else members
    tile = register_tile(extent(c.pixels[-1]), channels, size(c.sums), lanes, processor, members is not None)
    return Tiles(*tile)


def cycles(c: Convolution, processor: CPU) -> float:
    """About how many cycles it takes on one core, with the copies of the weights and the turning round of the result."""
    t, lanes = tiles(c, processor), processor.lanes(c.contraction.bits)
    tile = tile_cycles(t.pixels, ceil(t.channels / lanes), size(c.sums))
    outer = size((*c.groups, *c.channels[:-1], *c.pixels[:-1]))
    count = outer * ceil(extent(c.pixels[-1]) / t.pixels) * ceil(extent(c.channels[-1]) / t.channels)
    weights = size((*c.groups, *c.channels, *c.sums))
    across = last_axis(c.weights) != c.channels[-1].var.name  # panels are then read from as many lines as they have channels
    each = 0.2 if not across else 0.5 if weights * c.contraction.bits // 8 <= processor.l2 else 1.0
    return count * tile + weights * each + (0.2 * size((*c.groups, *c.channels, *c.pixels)) if c.turned else 0.0)


def parts(c: Convolution, t: Tiles, processor: CPU) -> list[int]:
    """Into how many parts each axis of the sum is cut, the outer ones first, so that a part of a panel of weights stays in half
    of the second-level cache while all pixels come by; ones where the results of all these pixels would not stay there to be
    turned round.
    """
    nbytes, room = c.contraction.bits // 8, processor.reused
    left = ceil(size(c.sums) * t.channels * nbytes / room)
    if c.turned and size(c.pixels) * t.channels * nbytes > room:
        left = 1
    counts = []
    for it in c.sums:
        n = extent(it)
        fitting = [d for d in range(left, 2 * left + 1) if n % d == 0]
        counts.append(fitting[0] if fitting else n if n < left else 1)
        left = ceil(left / counts[-1])
    return counts


def apply(s: Schedule, c: Convolution, processor: CPU, sizes: Tiles | None = None, epilogue: str | None = None) -> None:
    """Schedule a convolution, whose loops are still as they were made, and its elementwise consumer `epilogue`, if there is one.

    Loops, outermost first: groups, tiles of channels (threads, where there are enough), parts of the sum, rows of pixels, tiles
    of pixels, sums, pixels and channels of a tile. ScheduleError where a step is refused.
    """
    t = tiles(c, processor) if sizes is None else sizes
    block = c.contraction.block
    if c.turned and epilogue is None:
        epilogue = s.cache_write(block, 0, "global")
    groups = [loop_of(it) for it in (*c.groups, *c.channels[:-1])]
    rows = [loop_of(it) for it in c.pixels[:-1]]
    c0, c1 = s.split(loop_of(c.channels[-1]), [None, t.channels], preserve_unit_iters=False)
    p0, p1 = s.split(loop_of(c.pixels[-1]), [None, t.pixels], preserve_unit_iters=False)
    axes = (*c.groups, *c.channels, *c.pixels, *c.sums)
    threads = processor.threads(size(axes) * processor.computing(c.contraction.bits))
    panels = size((*c.groups, *c.channels[:-1])) * ceil(extent(c.channels[-1]) / t.channels)
    by_panels = threads == 1 or panels % threads == 0 or panels >= 4 * threads
    blocks, sums = [], []
    for it, count in zip(c.sums, parts(c, t, processor), strict=True):
        *cut, rest = s.split(loop_of(it), [count, None]) if by_panels and count > 1 else [loop_of(it)]
        blocks += cut
        sums.append(rest)
    s.reorder(*groups, c0, *blocks, *rows, p0, *sums, p1, c1)

    copy = packed(s, block, c.weights, c.channels[-1].var.name, t.channels, False)
    if by_panels:
        s.compute_at(copy, [c0, *blocks][-1], preserve_unit_loops=True)  # a panel is packed just before it is used
    lanes = processor.lanes(c.contraction.bits)
    walk_tiles(s, copy, c.weights, c.channels[-1].var.name, lanes)
    if not by_panels:
        s.parallel(s.get_loops(copy)[0])

    if epilogue is not None:
        s.reverse_compute_at(epilogue, c0 if blocks else p0, preserve_unit_loops=True)
        if c.turned:
            last = store_last(s, block, c.contraction.store.indices, c.channels[-1].var.name)
            loops = s.get_loops(epilogue)[-len(c.contraction.store.indices) :]
            walk_columns(s, loops[last], loops[-1], lanes)
        s.vectorize(s.get_loops(epilogue)[-1])
    s.unroll(p1)
    s.vectorize(c1)
    if threads > 1:
        shared = [*groups, c0] if by_panels else [*groups, c0, *rows]
        s.parallel(s.fuse(*shared))


__all__ = ["Convolution", "Tiles", "apply", "cycles", "matches", "parts", "suits", "tiles"]
