"""Transposed convolutions: the pixels of the result are sorted by their remainder modulo the stride, each class a convolution.

A transposed convolution is a sum that skips the zeros between the elements of an image: a term is there only where the index of a
pixel and that of a kernel element add up to a multiple of the stride. For pixels of one class those are kernel elements of one
class, so that the condition leaves the inner loops, which then are those of a direct convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.machine import CPU
from schedule.schedule import Schedule
from tir.affine import polynomial
from tir.ir import TRUE, Binary, Block, Const, Expr, Iter, Load, Select, Store, Var, conjuncts

from .conv2d import Tiles
from .gemm import packed, register_tile
from .structure import Contraction, contraction, extent, last_axis, loop_of, size


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
    if c is None or len(c.columns) != 1 or not c.rows or last_axis(c.right) != c.vector or c.batch:
        return None
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
            kernels = [it for it in c.sums if it.var.name in parts]
            if len(pixels) == len(kernels) == 1 and len([m for m in terms if m]) == 2:
                return Class(pixels[0], kernels[0], stride)
    return None


def suits(t: Transposed, processor: CPU) -> bool:
    """Whether there are channels enough for a vector."""
    return extent(t.channels) >= processor.lanes(t.c.bits)


def tiles(t: Transposed, processor: CPU) -> Tiles:
    """A good register tile: pixels of a class along the last axis, and channels."""
    lanes = processor.lanes(t.c.bits)
    return Tiles(*register_tile(pixels_of_class(t), extent(t.channels), size(t.c.sums), lanes, processor))


def pixels_of_class(t: Transposed) -> int:
    """How many pixels of a class a row has at most."""
    row = t.c.rows[-1]
    return -(-extent(row) // strides(t).get(row.var.name, 1))


def strides(t: Transposed) -> dict[str, int]:
    """The strides of those axes that have classes."""
    return {it.var.name: x.stride for x in t.classes for it in (x.pixel, x.kernel)}


def by_class(s: Schedule, t: Transposed, axes: tuple[Iter, ...]) -> list[tuple[str, list[str]]]:
    """The loop of each axis, and the one of its classes, if it has any, split off."""
    found: list[tuple[str, list[str]]] = []
    for it in axes:
        loop, inner = loop_of(it), []
        if it.var.name in strides(t):
            loop, *inner = s.split(loop, [None, strides(t)[it.var.name]])
        found.append((loop, inner))
    return found


def apply(s: Schedule, t: Transposed, processor: CPU, sizes: Tiles | None = None, epilogue: str | None = None) -> None:
    """Schedule a transposed convolution, whose loops are as they were made, and its elementwise consumer `epilogue`, if any.

    Loops, outermost first: tiles of channels, other axes, classes of pixels (threads); rows and tiles of pixels; classes of the
    kernel; the sums; pixels and channels of a tile. ScheduleError where a step is refused.
    """
    c, wanted = t.c, tiles(t, processor) if sizes is None else sizes
    rows, sums = by_class(s, t, c.rows), by_class(s, t, c.sums)
    c0, c1 = s.split(loop_of(t.channels), [None, wanted.channels], preserve_unit_iters=False)
    p0, p1 = s.split(rows[-1][0], [None, wanted.pixels], preserve_unit_iters=False)
    classes = [loop for _, inner in rows for loop in inner]
    outer = [loop for loop, _ in rows[:-1]]
    kernel = [loop for _, inner in sums for loop in inner]
    s.reorder(c0, *classes, *outer, p0, *kernel, *(loop for loop, _ in sums), p1, c1)

    copy = packed(s, c.block, c.right, t.channels.var.name, wanted.channels, False)
    s.vectorize(s.get_loops(copy)[-1])
    if epilogue is not None:
        s.reverse_compute_at(epilogue, p0, preserve_unit_loops=True)
        s.vectorize(s.get_loops(epilogue)[-1])
    s.unroll(p1)
    s.vectorize(c1)
    if processor.threads(size((*c.rows, *c.columns, *c.sums)) * processor.computing(c.bits)) > 1:
        s.parallel(s.fuse(*s.get_loops(copy)[:2]))
        s.parallel(s.fuse(c0, *classes, *outer))


__all__ = ["Class", "Transposed", "apply", "by_class", "matches", "pixels_of_class", "strides", "suits", "tiles"]
