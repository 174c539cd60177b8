"""Winograd's convolutions: tiles are transformed, multiplied point by point and transformed back, a block of tiles at a time.

The channels are the lanes of vectors: an image is first copied with its channels last. The transformed inputs and the products of
a block of tiles stay in L2. Each point has a matrix product of tiles by output channels, whose right operand, the transformed
weights, is packed (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, section 4; Jia et al.,
Optimizing N-Dimensional, Winograd-Based Convolution for Manycore CPUs, PPoPP 2018). The consumer of the convolution transposes
the outputs of a block in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import ceil, prod

import numpy as np

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, computed_bits, extent
from schedule.primitive import blocks_below, find_block
from schedule.register_tiles import MAX_TILE_VECTORS, fewest_cycles, fitting
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Binary, Block, Const, Iter, Select, Var, const_shape
from tir.traverse import loaded_names, loads

from . import elementwise, gemm, low_precision
from .block_analysis import Contraction, last_axis, loop_length, size, stored, transpose_in_squares
from .low_precision import Instruction
from .marks import PACKED_DISTANCE, UNROLLED_STATEMENTS, done, share


@dataclass(frozen=True, slots=True)
class Filtered:
    """A convolution by minimal filtering, as blocks. `source` has the channels of the image last, which `padding` has padded, if
    there is any. `inputs` transform it, the first one first; `products` multiplies; `outputs` transform back. `last` takes the
    outputs out of tiles of the extents `tile`, with their channels last or first. Integers are multiplied by `dot`."""

    padding: str | None
    source: str
    inputs: tuple[str, ...]
    products: Contraction
    outputs: tuple[str, ...]
    last: str
    tile: tuple[int, ...]
    channels_last: bool
    dot: Instruction | None

    @property
    def bits(self) -> int:
        """The width of an element of the inputs, as they are computed."""
        return computed_bits(self.products.left.buffer.dtype)


@dataclass(frozen=True, slots=True)
class Blocking:
    """A block of `rows` by `columns` tiles. Its register tile of products has `down` by `across` tiles and `channels` output
    channels. Threads share the blocks, or with `together` each stage of the only one. `cycles` is an estimate for all blocks on
    one core."""

    rows: int
    columns: int
    down: int
    across: int
    channels: int
    together: bool
    cycles: float


def matches(s: OpenSchedule, block: str) -> Filtered | None:
    """The blocks around a batched matrix product that transform its left operand and result by a constant matrix."""
    c = gemm.matches(find_block(s.func, block))
    if c is None or not c.batch or c.columns[-1].var.name != c.vector or len(c.columns) > 1 or len(c.reduction) > 1:
        return None
    inputs = [*_transforms(s, block, c.left.buffer.name)]
    outputs, reader = list[str](), _only_reader(s, block)
    while reader is not None and chosen(find_block(s.func, reader)) is not None:
        outputs.append(reader)
        reader = _only_reader(s, reader)
    if not inputs or len(inputs) != len(outputs) or len(inputs) > len(c.batch) or reader is None:
        return None
    source = _producer(s, inputs[-1])
    if source is None or _only_reader(s, source) != inputs[-1] or not elementwise.matches(find_block(s.func, reader)):
        return None
    tile = _output_tile([find_block(s.func, name) for name in outputs])
    if len(tile) != len(c.rows) - 1 or len(find_block(s.func, reader).iters) != len(tile) + 2:
        return None
    padding = _producer(s, source)
    if padding is not None and _only_reader(s, padding) != source:
        padding = None
    dot = low_precision.instruction(c, s.target.machine)
    if dtypes.is_int(c.store.buffer.dtype) and (dot is None or extent(c.columns[-1]) % dot.columns):
        return None
    last, made = find_block(s.func, reader), stored(find_block(s.func, outputs[-1])).buffer.name
    channels_last = all(last_axis(x) == last.iters[-1].var.name for x in loads(last.body) if x.buffer.name == made)
    return Filtered(padding, source, tuple(reversed(inputs)), c, tuple(outputs), reader, tile, channels_last, dot)


def _transforms(s: Schedule, block: str, buffer: str) -> Iterator[str]:
    """The blocks that make a buffer by transforms, one after the other, the last one first."""
    made = [p for p in s.get_producers(block) if stored(find_block(s.func, p)).buffer.name == buffer]
    while len(made) == 1 and chosen(find_block(s.func, made[0])) is not None and len(s.get_consumers(made[0])) == 1:
        yield made[0]
        made = s.get_producers(made[0])


def _producer(s: Schedule, block: str) -> str | None:
    found = s.get_producers(block)
    return found[0] if len(found) == 1 and elementwise.matches(find_block(s.func, found[0])) else None


def _only_reader(s: Schedule, block: str) -> str | None:
    found = s.get_consumers(block)
    return found[0] if len(found) == 1 and block not in s.get_output_blocks() else None


def chosen(block: Block) -> Iter | None:
    """The axis of a transform that chooses a row of a constant matrix, by a formula that chooses between sums of one buffer."""
    if not elementwise.matches(block) or len(loaded_names(block.body)) != 1:
        return None
    match stored(block).value:
        case Select(Binary("==", Var(name), Const()), _, _):
            return next((it for it in block.iters if it.var.name == name), None)
        case _:
            return None


def _output_tile(outputs: Sequence[Block]) -> tuple[int, ...]:
    """The outputs of a tile along each axis of the image, 1 along untransformed ones; empty without tile dimensions."""
    inner = set[int]()  # of the buffer that the last block writes, the dimensions of outputs in a tile
    for block in outputs:
        dims, read, axis = stored(block).indices, loads(block.body)[0].indices, chosen(block)
        assert axis is not None
        kept = [*(read[n] for n in inner), axis.var]
        if not set(kept) <= set(dims[2:-1]):  # behind an image and a tile, before the channels
            return ()
        inner = {dims.index(v) for v in kept}
    found: list[int] = []
    _, *lengths, _ = const_shape(stored(outputs[-1]).buffer)
    for n, length in enumerate(lengths, 1):
        if n in inner:
            found[-1] = length
        else:
            found.append(1)
    return tuple(found)


# --- how much it takes ---------------------------------------------------------------------------------------------------


def cycles(w: Filtered, s: Schedule, processor: CPU) -> float:
    """The estimated cycles on one core: those of `tiles`, the transforms, and the two transposes."""

    def written(bits: int, *blocks: str) -> int:
        """The number of bits that blocks write, in whole vectors of elements of so many."""
        shapes = [const_shape(stored(find_block(s.func, b)).buffer) for b in blocks]
        return sum(prod(shape[:-1]) * ceil(shape[-1] / processor.lanes(bits)) * processor.vector_bits for shape in shapes)

    transforms = written(w.bits, *w.inputs) + written(w.products.bits, *w.outputs)
    ends = written(w.bits, w.source) + written(w.products.bits, w.last)
    return tiles(w, processor).cycles + transforms * processor.copy_cycles(1) + ends * processor.pack_cycles(1)


def tiles(w: Filtered, processor: CPU) -> Blocking:
    """Good sizes, computed from the extents and the processor: the fewest cycles of the core that has most to do."""
    c = w.products
    threads, (*_, rows, columns) = c.threads(processor), (1, *map(extent, c.rows[1:]))
    others = size((*c.rows[:1], *c.rows[1:-2]))  # images, and tiles along the axes before the last two
    points = size(c.batch)
    weights = points * size(c.reduction) * size(c.columns) * w.bits // 8
    read = weights * processor.read_cycles(8, weights) if weights > processor.l2_reuse_bytes else 0.0
    best: tuple[float, Blocking] | None = None
    for down, across in _block_sizes(rows, columns, ceil(processor.lanes(c.bits) / w.tile[-1])):
        count = others * ceil(rows / down) * ceil(columns / across)
        register, tile = _register_tile(w, down, across, processor)
        time = count * (points * tile + read)
        held = down * across * points * (size(c.reduction) * w.bits + size(c.columns) * c.bits) // 8
        if held > processor.l2_reuse_bytes:
            time += 2 * count * held * processor.read_cycles(8, processor.l2 + 1)
        for together in [True] if count == others == 1 else [False]:
            share = 1.0 if together else ceil(count / threads) * threads / count
            if best is None or time * share < best[0]:
                best = time * share, Blocking(down, across, *register, together, time)
    assert best is not None
    return best[1]


def _block_sizes(rows: int, columns: int, unit: int) -> list[tuple[int, int]]:
    """Sizes of blocks that divide the rows of tiles evenly, or one row into multiples of `unit` tiles of whole vectors."""
    whole = {(ceil(rows / n), columns) for n in range(1, rows + 1)}
    return sorted(whole | {(1, n) for n in range(unit, columns, unit)}, reverse=True)


def _register_tile(w: Filtered, down: int, across: int, processor: CPU) -> tuple[tuple[int, int, int], float]:
    """The register tile of a block's products, (tile rows and columns, channels), and the cycles of all at one point."""
    c, (steps, unfused) = w.products, (w.dot.depth, w.dot.unfused) if w.dot else (1, 0)
    lanes, channels = processor.lanes(c.bits), extent(c.columns[-1])
    widths = [
        v for v in range(1, min(MAX_TILE_VECTORS, ceil(channels / lanes)) + 1) if w.dot is None or not channels % (v * lanes)
    ]
    # Tiles in a part of a row, or of some whole rows.
    m, v = fitting(processor, [*range(1, across), *range(across, down * across + 1, across)], widths, unfused)
    turns = np.ceil(np.where(m < across, down * np.ceil(across / m), down * across / m)) * np.ceil(channels / (v * lanes))
    best = fewest_cycles(m, np.minimum(v * lanes, channels), turns * processor.tile_cycles(m, v, size(c.reduction) // steps))
    return (max(1, best.rows // across), min(best.rows, across), best.columns), best.cycles


# --- the schedule --------------------------------------------------------------------------------------------------------


def build(s: OpenSchedule, w: Filtered) -> None:
    """Schedule all blocks of a convolution by minimal filtering, whose loops are still as they were made.

    Loops, outermost first: images; blocks of tiles (threads); in each the stages one after the other. If all tiles are one block,
    the stages are nests of their own, and threads share each. ScheduleError where a step is refused.
    """
    machine: CPU = s.target.machine
    t, lanes, before = tiles(w, machine), machine.lanes(w.products.bits), machine.lanes(w.bits)
    threads = w.products.threads(machine)
    outer = _split_places(s, w, t)
    if not t.together:
        for stage in (*reversed(w.outputs), w.products.block, *reversed(w.inputs), w.source, *([w.padding] if w.padding else [])):
            s.compute_at(stage, outer[-1], preserve_unit_loops=True)
    pieces = _build_source(s, w, before)
    _build_inputs(s, w, before)
    product = _build_products(s, w, t)
    _build_outputs(s, w, lanes)
    if threads > 1 and t.together:
        for block in (pieces[0], w.inputs[-1], product, w.outputs[-1], w.last):
            share(s, block, _shared_loops(s, block, 2 if w.channels_last and block in (w.source, w.last) else 4))
    elif threads > 1:
        share(s, w.last, outer)
    done(s, *([w.padding] if w.padding else []), *pieces, *w.inputs, product, *w.outputs, w.last)


def _split_places(s: OpenSchedule, w: Filtered, t: Blocking) -> list[str]:
    """Split the places of `last` into blocks, its channels and innermost places into squares; returns the outer loops."""
    image, *places = _own_loops(s, w.last).values()
    channel = places.pop(-1 if w.channels_last else 0)
    outer, inner = [image], list[str]()
    counts = [*[1] * (len(places) - 2), t.rows, t.columns][-len(places) :]
    for place, m, count in zip(places, w.tile, counts, strict=True):
        if t.together:
            inner.append(place)
            continue
        block, within = s.split(place, [None, m * count])
        outer, inner = [*outer, block], [*inner, within]
    if w.channels_last:
        s.reorder(*outer, *inner, channel)
        s.vectorize(channel)
        return outer
    s.reorder(*outer, *inner[:-1], channel, inner[-1])
    lanes = s.target.machine.lanes(w.products.bits)
    transpose_in_squares(s, channel, inner[-1], lanes, lanes)
    return outer


def _build_source(s: OpenSchedule, w: Filtered, lanes: int) -> list[str]:
    """Pad a row of some channels, and transpose it in squares, too; returns the blocks of whole squares and of the rest."""
    *others, place, channel = _own_loops(s, w.source).values()
    if w.channels_last:
        s.vectorize(channel)
        return [w.source]
    c0, c1 = s.split(channel, [None, lanes])
    s.reorder(*others, c0, place, c1)
    length = loop_length(s, place) or 0
    whole = length // lanes * lanes
    pieces = []
    for piece in s.loop_partition(place, [whole, None]) if 0 < whole < length else [place]:
        (block,) = blocks_below(s.loop(piece))
        s.unroll(s.split(piece, [None, lanes])[1])
        s.vectorize(s.get_loops(block.name)[-1])
        pieces.append(block.name)
    if w.padding is not None:
        s.compute_at(w.padding, c0, preserve_unit_loops=True)
        s.vectorize(s.get_loops(w.padding)[-1])
    return pieces


def _build_inputs(s: OpenSchedule, w: Filtered, lanes: int) -> None:
    """Transform the inputs: the first axis for a row of tiles and a vector of channels at a time."""
    for n, block in reversed(list(enumerate(w.inputs))):
        *others, channel = _own_loops(s, block).values()
        points, places = others[: n + 1], others[n + 1 :]
        c0, c1 = s.split(channel, [None, lanes])
        s.reorder(*places[:-1], c0, places[-1], *points, c1)
        _unroll_tile(s, points[-1:], c1)
        if n:
            s.compute_at(w.inputs[n - 1], c0, preserve_unit_loops=True)


def _build_products(s: OpenSchedule, w: Filtered, t: Blocking) -> str:
    """Multiply point by point: panels of packed weights, register tiles of inputs by output channels. Returns the first block."""
    c, own = w.products, _own_loops(s, w.products.block)
    points, rows = ([own[it.var.name] for it in axes] for axes in (c.batch, c.rows))
    (steps,) = (own[it.var.name] for it in c.reduction)
    outer, within = rows[:-2] if len(rows) > 2 else rows[:1], list[str]()
    for row, part in zip(rows[len(outer) :], [t.down, t.across][len(outer) + 2 - len(rows) :], strict=True):
        block, inner = s.split(row, [None, part])
        outer, within = [*outer, block], [*within, inner]
    k0, k1 = s.split(own[c.columns[-1].var.name], [None, t.channels])
    pair = list[str]()
    if w.dot is not None:
        steps, *pair = s.split(steps, [None, w.dot.depth])
        vectors, k1 = s.split(k1, [None, w.dot.columns])
        within.append(vectors)
    s.reorder(*points, k0, *outer, steps, *within, k1, *pair)
    for loop in within:
        s.unroll(loop)
    if w.dot is None:
        s.vectorize(k1)
    copy = s.pack(c.block, c.right.buffer.name, preserve_unit_loops=True)
    s.vectorize(s.get_loops(copy)[-1])
    s.annotate(steps, "prefetch", [[stored(s.block(copy)).buffer.name, PACKED_DISTANCE]])
    s.annotate(steps, "pragma_auto_unroll_max_step", UNROLLED_STATEMENTS)
    done(s, copy)
    if w.dot is None:
        return c.block
    first = s.decompose_reduction(c.block, steps)
    s.vectorize(s.get_loops(first)[-1])
    s.tensorize(k1, w.dot.intrinsic)
    return first


def _build_outputs(s: OpenSchedule, w: Filtered, lanes: int) -> None:
    """Transform the products of a tile and a vector of channels back, in registers."""
    *earlier, final = w.outputs
    image, *others, channel = _own_loops(s, final).values()
    around, within = [image], list[str]()
    for m in w.tile:
        around.append(others.pop(0))
        within += [others.pop(0)] if m > 1 else []
    c0, c1 = s.split(channel, [None, lanes])
    s.reorder(*around, c0, *within, c1)
    _unroll_tile(s, within, c1)
    for block in reversed(earlier):
        s.compute_at(block, c0, preserve_unit_loops=True)
        *own, channel = _own_loops(s, block).values()
        _unroll_tile(s, own, channel)


def _unroll_tile(s: OpenSchedule, loops: Sequence[str], vector: str) -> None:
    for loop in loops:
        s.unroll(loop)
    s.vectorize(vector)


def _own_loops(s: OpenSchedule, block: str) -> dict[str, str]:
    """The loops of a block by its axes, in order; only the place of the block may have changed."""
    axes = [it.var.name for it in s.block(block).iters]
    return dict(zip(axes, s.get_loops(block)[-len(axes) :], strict=True))


def _shared_loops(s: OpenSchedule, block: str, inner: int) -> list[str]:
    """The loops around a block that threads share: outermost, with nothing else, outside of its `inner` loops."""
    nest = [s.loop(name) for name in s.get_loops(block)[:-inner]]
    alone = takewhile(lambda pair: pair[0].body is pair[1], pairwise(nest))
    return [nest[0].name, *(inner.name for _, inner in alone)]
