"""Convolutions of each channel with a kernel of its own: a register tile slides along the rows of the image.

There is little to compute for each element, so it should move only once. Each vector of a row is loaded from the image itself,
with zeros in the lanes of padding. It serves all rows of the tile that see it. The epilogue works on the tile in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from schedule.machine import CACHE_LINE_BYTES, CPU, TILE_ENTRY_CYCLES
from schedule.open_schedule import Continuation, OpenSchedule, computed_bits, extent
from schedule.open_trace import Role
from tir.arith.polynomial import polynomial
from tir.ir import Block, Iter, Load, Select, Store, Var
from tir.traverse import variables, walk

from . import elementwise
from .block_analysis import at_axes, contraction, epilogue, fuse_epilogue, loop_of, made_for, size, stored, stride
from .conversion import read_converted
from .division import balanced
from .marks import UNROLL_LIMITS, choose_unroll, done, one_of, share_out

NAME = "depthwise convolution"
LESS_CODE = 1 / 6  # fraction of the cycles that a tile of fewer rows may cost: its code, longer than its data, is read too
MAX_SLIDING_ROWS = 14  # most rows of a tile whose windows slide, for any number of registers: all are unrolled


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """A register tile: `rows` by `vectors` registers of the last axis; the padding of `strip` tiles of rows is made together."""

    rows: int
    vectors: int
    strip: int


@dataclass(frozen=True, slots=True)
class Windows:
    """A reduction of windows of `image`: the axes `pixels` of the result move the window, `channels` do not; `reduction` are
    those within it. The last dimension of the result may be of either kind. `weights` are the factors, if there are any."""

    block: str
    store: Store
    image: Load
    channels: tuple[Iter, ...]
    pixels: tuple[Iter, ...]
    reduction: tuple[Iter, ...]
    weights: Load | None = None

    @property
    def vector(self) -> Iter:
        """The axis that is the last dimension of the result."""
        last = next(i for i in reversed(self.store.indices) if isinstance(i, Var))
        return next(it for it in (*self.channels, *self.pixels) if it.var == last)

    @property
    def rows(self) -> tuple[Iter, ...]:
        """The axes that move the window, but for that of the last dimension."""
        return tuple(it for it in self.pixels if it is not self.vector)

    @property
    def bits(self) -> int:
        return computed_bits(self.store.buffer.dtype)

    @property
    def work(self) -> int:
        """The number of elements in all windows."""
        return size((*self.channels, *self.pixels, *self.reduction))


def matches(block: Block) -> Windows | None:
    """The block as a depthwise convolution, if it is one."""
    c = contraction(block)
    if c is None or c.rows or not c.batch or not c.columns or not at_axes(c.left) or at_axes(c.right):
        return None
    windows = Windows(c.block, c.store, c.right, c.batch, c.columns, c.reduction, c.left)
    return windows if windows.rows else None


def tiles(c: Windows, processor: CPU) -> DepthwiseTile:
    """Good sizes, computed from the extents and the processor."""
    row = c.rows[-1]
    count, width, lanes = extent(row), extent(c.vector), processor.lanes(c.bits)
    # Registers for accumulators; the others hold the kernel and loaded elements. Where windows slide, a row of the tile is done,
    # and leaves its registers, when the window `live` rows on begins.
    room = processor.registers // 2 - 2
    slides = c.vector in c.pixels and stride(c.image, row.var) < _kernel_rows(c)
    live = ceil(_kernel_rows(c) / stride(c.image, row.var)) if slides else 1
    # Two vectors where masks cost instructions: masks of a row that ends within the second are constants, others are shared.
    line = 2 * lanes * c.bits // 8 >= CACHE_LINE_BYTES
    two = lanes < width < 2 * lanes or (slides and line and width > lanes and stride(c.image, c.vector.var) == 1)
    vectors = 2 if two and not processor.masks and 2 * live <= processor.registers - 4 else 1  # elements and weights, of both
    most = min(count, MAX_SLIDING_ROWS if slides else room // vectors)
    # The last tile is code of its own where it is not whole; it counts twice.
    cost = {r: (ceil(count / r) + (count % r > 0)) * _tile_cycles(c, r, vectors, processor) for r in range(1, most + 1)}
    rows = min(r for r, cycles in cost.items() if cycles <= (1 + LESS_CODE) * min(cost.values()))
    read = width * stride(c.image, c.vector.var) * c.bits // 8
    strip = balanced(ceil(count / rows), max(1, processor.l1 // (3 * read * rows * stride(c.image, row.var))), 1)
    return DepthwiseTile(rows, vectors, strip)


def _tile_cycles(c: Windows, rows: int, vectors: int, processor: CPU) -> float:
    """Cycles of a register tile: its multiply-adds, or its loads, of which each serves all rows that see it."""
    row, kernel = c.rows[-1].var, _kernel_rows(c)
    loads = (stride(c.image, row) * (rows - 1) + kernel) * (size(c.reduction) // kernel) * stride(c.image, c.vector.var)
    return TILE_ENTRY_CYCLES + vectors * max(rows * size(c.reduction) / processor.fmas, loads / processor.loads)


def _kernel_rows(c: Windows) -> int:
    """Rows of the window."""
    indices = [i for i in c.image.indices if c.rows[-1].var.name in variables(i)]
    return size(it for it in c.reduction if it.var.name in variables(*indices))


def suits(c: Windows, processor: CPU) -> bool:
    """True where the lanes of a vector read elements that follow each other, or lie at equal distances."""
    return any(polynomial(i).get((c.vector.var,), 0) for i in c.image.indices)


def cycles(c: Windows, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles of all cores together."""
    t, lanes = tiles(c, processor), processor.lanes(c.bits)
    return size((*c.channels, *c.pixels)) / (t.rows * t.vectors * lanes) * _tile_cycles(c, t.rows, t.vectors, processor)


def build(s: OpenSchedule, c: Windows) -> None:
    """Schedule a depthwise convolution, its elementwise consumer, if it has one, and the block that pads its input.

    Loops, outermost first: all other axes and strips of rows (threads); tiles of rows; tiles of the last axis; the kernel; rows
    and lanes of a tile. ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    t, lanes = tiles(c, machine), machine.lanes(c.bits)
    axes = {it.var.name: it for it in (*c.channels, *c.pixels)}
    row, vector = c.rows[-1], c.vector
    after = epilogue(s, c.block)
    if c.weights is not None:
        read_converted(s, c.block, c.weights)
    padding = _padding_block(s, c)
    order = [axes[i.name] for i in c.store.indices if isinstance(i, Var)]
    outer = [loop_of(it) for it in order if it is not row and it is not vector]
    strip, rows = s.sizes(c.block, row.var.name, 2, seed=(t.strip, t.rows))
    (width,) = s.sizes(c.block, vector.var.name, seed=(min(t.vectors * lanes, extent(vector)),), vector=True)
    h0, h1, h2 = s.split(loop_of(row), [None, strip, rows])
    w0, w1 = s.split(loop_of(vector), [None, width])
    kernel = [loop_of(it) for it in c.reduction]
    s.reorder(*outer, h0, h1, w0, *kernel, h2, w1)
    fuse_epilogue(s, after, w0)
    if padding is not None:
        _place_padding(s, c.block, padding, h0, "inline")
    if len(kernel) > 1:
        s.unroll(kernel[-1])
    choose_unroll(s, c.block, kernel[0], seed=UNROLL_LIMITS[-1])
    s.unroll(h2)
    s.vectorize(w1)
    share_out(s, c.block, [*outer, h0], c.work, machine.loaded_fma_cycles(c.bits))
    done(s, c.block)
    s.pending = [b for b in s.pending if b != padding]


def _place_padding(s: OpenSchedule, block: str, padding: str, strip: str, seed: str) -> None:
    """Branch over the padding of the input: for each strip, all of it before, or each element as it is read."""

    def by_strips(new: OpenSchedule) -> None:
        new.compute_at(padding, strip, preserve_unit_loops=True)
        new.vectorize(new.get_loops(padding)[-1])

    ways: dict[str, Continuation] = {
        "for each strip": by_strips,
        "before": lambda new: elementwise.build(new, padding),
        "inline": lambda new: new.compute_inline(padding),
    }
    one_of(s, f"place of {padding}", ways, seed=seed, block=block, role=Role.LOCATION)


def _padding_block(s: OpenSchedule, c: Windows) -> str | None:
    """The block that makes the padded input, if there is one and nothing else reads its result."""
    for block in map(s.block, made_for(s, c.block)):
        if stored(block).buffer.name == c.image.buffer.name and any(isinstance(n, Select) for n in walk(block.body)):
            return block.name
    return None
