"""Convolutions of narrow numbers as matrix products over im2col panels, by the instructions that add a few products at once.

Panels are those of `im2col`, in the type of the image. The product, which packs them for the instructions, is that of
`low_precision`.
"""

from __future__ import annotations

from schedule.machine import CPU
from schedule.open_schedule import Declined, OpenSchedule
from tir import dtypes
from tir.ir import Block

from . import im2col, low_precision
from .block_analysis import epilogue
from .conv2d import Convolution
from .conv2d import matches as convolution

NAME = "pixels by dot products"


def matches(block: Block) -> Convolution | None:
    """The block as a convolution of narrow numbers, converted to the type of their sum, if it is one."""
    c = convolution(block)
    return c if c is not None and low_precision.is_supported(c.contraction) else None


def suits(c: Convolution, processor: CPU) -> bool:
    """True where the last dimensions of the result are pixels, enough for a vector, and the processor has an instruction."""
    return im2col.suits(c, processor) and low_precision.suits(im2col.product(c, False), processor)


def cycles(c: Convolution, processor: CPU, constants: frozenset[str] = frozenset()) -> float:
    """The estimated cycles on one core, with copies."""
    copies = 0.0 if im2col.in_place(c) else im2col.panel_cycles(c, dtypes.bits(c.image.dtype), processor)
    return copies + low_precision.cycles(im2col.product(c, False), processor, constants)


def build(s: OpenSchedule, c: Convolution) -> None:
    """Tile a convolution, whose loops are still as they were made, as a product of narrow numbers over its pixels.

    Its epilogue is made if there is none. ScheduleError where a step is refused.
    """
    block = c.contraction.block
    after = epilogue(s, block) or s.cache_write(block, 0, "global")
    inlined = im2col.as_product(s, c, after, convert=False)
    s.pending = [b for b in s.pending if b not in inlined]
    found = low_precision.matches(s.block(block))
    if found is None:
        raise Declined(f"`{block}` is no product of narrow numbers over its pixels")
    low_precision.build(s, found, after)
