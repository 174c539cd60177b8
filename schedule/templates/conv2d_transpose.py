"""Transposed convolutions: the pixels of the result are sorted by their remainder modulo the stride, each class a convolution.

A transposed convolution skips the zeros between the elements of an image. It has a term only where the indices of a pixel and of
a kernel element add up to a multiple of the stride. Pixels of one class meet kernel elements of one class. So the condition
leaves the inner loops, which then are those of a direct convolution.
"""

from __future__ import annotations

from dataclasses import replace

from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule, extent
from tir.arith.polynomial import polynomial
from tir.ir import TRUE, Binary, Block, Const, Expr, Load, Select, Store, Var, conjuncts

from .block_analysis import Contraction, at_axes, contraction, epilogue, last_axis, size
from .conv2d import Class, Convolution, cycles, tile, tiles

NAME = "transposed convolution"


def matches(block: Block) -> Convolution | None:
    """The block as a transposed convolution with its channels last, if it is one: its weights may be read backwards."""
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
    return Convolution(c, c.left, c.right, (), c.rows, c.columns, c.reduction, classes=classes)


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


def suits(c: Convolution, processor: CPU) -> bool:
    """True where it is no plain convolution, and there are channels enough for half a vector."""
    return 2 * extent(c.channels[-1]) >= processor.lanes(c.contraction.bits) and (bool(c.classes) or not at_axes(c.weights))


def build(s: OpenSchedule, c: Convolution) -> None:
    """Tile a transposed convolution, whose loops are as they were made, with its epilogue, if it has one.

    Loops, outermost first: panels of channels and classes of pixels; other pixels; tiles of rows and of a row of pixels; classes
    of the kernel and the sum; rows and pixels, unrolled; channels, a vector. The epilogue is computed for each tile, unless a
    class has every other pixel of a row. Annotation packs the weights and shares loops. ScheduleError where a step is refused.
    """
    after = None if c.pixels[-1].var.name in c.strides else epilogue(s, c.contraction.block)
    tile(s, c, tiles(c, s.target.machine), after)


__all__ = ["NAME", "build", "cycles", "matches", "suits", "tiles"]
