"""Transposed convolutions: the pixels of the result are sorted by their remainder modulo the stride, each class a convolution.

A transposed convolution is a sum that skips the zeros between the elements of an image: a term is there only where the index of a
pixel and that of a kernel element add up to a multiple of the stride. For pixels of one class those are kernel elements of one
class, so that the condition leaves the inner loops, which then are those of a direct convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, prod

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, Operands, Stage, Tiled, extent
from tir.arith.polynomial import polynomial
from tir.ir import TRUE, Binary, Block, Const, Expr, Iter, Load, Select, Store, Var, conjuncts

from .block_analysis import Contraction, at_axes, contraction, epilogue, last_axis, loop_of, size
from .conv2d import ConvolutionTile, split_axis, split_pixels
from .gemm import register_tile

NAME = "transposed convolution"


@dataclass(frozen=True, slots=True)
class Class:
    """A condition `(pixel + kernel + ...) % stride == 0` on an axis of the result and one of the sum."""

    pixel: Iter
    kernel: Iter
    stride: int


@dataclass(frozen=True, slots=True)
class Transposed:
    """A contraction that is summed up only where all of `classes` hold, none if the stride is 1; `channels` are the last
    dimension of the result and of the weights, `c.right`, whose other indices may run backwards."""

    c: Contraction
    classes: tuple[Class, ...]
    channels: Iter


def matches(block: Block) -> Transposed | None:
    """The block as a transposed convolution with its channels last, if it is one."""
    body = block.body
    condition: Expr = TRUE
    if isinstance(body, Store) and isinstance(body.value, Select) and body.value.false_value == Load(body.buffer, body.indices):
        condition = body.value.condition
        body = body.with_(value=body.value.true_value)
    c = contraction(block.with_(body=body))
    if c is None or len(c.columns) != 1 or not c.rows or last_axis(c.right) != c.vector or size(c.batch) > 1 or at_axes(c.left):
        return None
    c = replace(c, batch=(), rows=(*c.batch, *c.rows))  # an image alone may be read at 0
    found = [_class(part, c) for part in conjuncts(condition)]
    classes = tuple(x for x in found if x is not None)
    used = [it.var.name for x in classes for it in (x.pixel, x.kernel)]
    if len(classes) < len(found) or len(set(used)) < len(used):
        return None
    return Transposed(c, classes, c.columns[0])


def _class(condition: Expr, c: Contraction) -> Class | None:
    match condition:
        case Binary("==", Binary("%", index, Const(int(stride))), Const(0)):
            terms = polynomial(index)
            parts = {m[0].name for m, factor in terms.items() if len(m) == 1 and isinstance(m[0], Var) and factor == 1}
            pixels = [it for it in c.rows if it.var.name in parts]
            kernels = [it for it in c.reduction if it.var.name in parts]
            if len(pixels) == len(kernels) == 1 and len([m for m in terms if m]) == 2:
                return Class(pixels[0], kernels[0], stride)
    return None


def suits(t: Transposed, processor: CPU) -> bool:
    """True where it is no plain convolution, and there are channels enough for half a vector."""
    return 2 * extent(t.channels) >= processor.lanes(t.c.bits) and (bool(t.classes) or not at_axes(t.c.right))


def cycles(t: Transposed, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, with the copies of the weights; infinite where vectors are not filled."""
    c, wanted, lanes = t.c, tiles(t, processor), processor.lanes(t.c.bits)
    if extent(t.channels) < lanes:
        return inf
    classes = prod(x.stride for x in t.classes)
    rows = size(c.rows[:-1]) * ceil(pixels_of_class(t) / wanted.pixels) * strides(t).get(c.rows[-1].var.name, 1)
    tile = processor.tile_cycles(wanted.pixels, ceil(wanted.channels / lanes), ceil(size(c.reduction) / classes))
    copies = 0.0 if c.right.buffer.name in constants else size((*c.columns, *c.reduction)) * processor.pack_cycles(c.bits)
    return rows * ceil(extent(t.channels) / wanted.channels) * tile + copies


def tiles(t: Transposed, processor: CPU) -> ConvolutionTile:
    """A good register tile: pixels of a class along the last axis, and channels."""
    lanes = processor.lanes(t.c.bits)
    return ConvolutionTile(*register_tile(pixels_of_class(t), extent(t.channels), size(t.c.reduction), lanes, processor))


def pixels_of_class(t: Transposed) -> int:
    """The largest number of pixels of a class in a row."""
    row = t.c.rows[-1]
    return ceil(extent(row) / strides(t).get(row.var.name, 1))


def strides(t: Transposed) -> dict[str, int]:
    """The strides of those axes that have classes."""
    return {it.var.name: x.stride for x in t.classes for it in (x.pixel, x.kernel)}


def by_class(s: OpenSchedule, t: Transposed, axes: tuple[Iter, ...]) -> list[tuple[str, list[str]]]:
    """The loop of each axis, and the one of its classes, if it has any, split off."""
    found: list[tuple[str, list[str]]] = []
    for it in axes:
        loop, inner = loop_of(it), []
        if it.var.name in strides(t):
            loop, *inner = s.split(loop, [None, strides(t)[it.var.name]])
        found.append((loop, inner))
    return found


def build(s: OpenSchedule, t: Transposed, sizes: ConvolutionTile | None = None) -> None:
    """Tile a transposed convolution, whose loops are as they were made, with its elementwise consumer, if it has one.

    Loops, outermost first: panels of channels and classes of pixels; other pixels; tiles of rows and of a row of pixels; classes
    of the kernel and the sum; rows and pixels, unrolled; channels, a vector. The elementwise consumer is computed for each tile.
    How the weights are packed, and what threads share, is left to annotation. `sizes` are other seeds than those of `tiles`.
    ScheduleError where a step is refused.
    """
    c, machine = t.c, s.target.machine
    wanted = sizes or tiles(t, machine)
    after = epilogue(s, c.block)
    rows, reduce_loops = by_class(s, t, c.rows), by_class(s, t, c.reduction)
    c0, c1 = split_axis(s, c.block, t.channels, loop_of(t.channels), wanted.channels, vector=True)
    axes = [(it, loop, strides(t).get(it.var.name, 1)) for it, (loop, _) in zip(c.rows, rows, strict=True)]
    others, within = split_pixels(s, c.block, axes, wanted.pixels)
    p0 = others.pop()
    panels = [c0, *(loop for _, classes in rows for loop in classes)]
    reduced = [*(loop for _, classes in reduce_loops for loop in classes), *(loop for loop, _ in reduce_loops)]
    levels = [panels, others, [p0], reduced, within, [c1]]
    s.reorder(*(loop for level in levels for loop in level))
    if after is not None:
        s.reverse_compute_at(after, p0, preserve_unit_loops=True)
        s.scheduled[after] = Stage.FUSED
    depth = len(panels) + len(others)
    s.scheduled[c.block] = replace(
        Tiled.of(s, c.block, levels, 2, (len(panels), depth), panels=True),
        shared=depth if c.threads(machine) > 1 else 0,
        uneven=bool(t.classes),  # of the kernel's elements, classes have more and fewer
        operands=Operands(seed=((c.right.buffer.name, "in front"),)),
    )
