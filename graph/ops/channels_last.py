"""Operators of images of quantised numbers, channels last, between products of integers. They exist in graphs alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tir import dtypes, te
from tir.ir import Expr

from .convolution import SlidingWindow, pad, steps_of, windows
from .quantization import pairs_attrs
from .registry import NEWEST, need, operator, shape_of

CHANNELS_OF_PIXEL = 4  # channels of 8 bits that are one int32


def sign_offset(dtype: str, to: str) -> int:
    """The number to add to integers of 8 bits that become those of the other sign."""
    return int(dtypes.limits(to)[0] - dtypes.limits(dtype)[0])


@operator("ImageRows", NEWEST)
def image_rows(x, *, kernel, strides, dilations, pads, zero):
    """x (N, H, W, C) -> (N, OH, OW, KH, KW, C): the elements of windows over one to three dimensions (im2col), `zero` around."""
    need("the images", x, dtype="integer", ranks=range(3, 6))
    images, *extents, channels = shape_of(x)
    moved = windows(extents, kernel, strides, dilations, pads)
    padded = _padded(x, moved, te.const(zero, x.dtype))

    def formula(n: Expr, *i: Expr) -> Expr:
        *at, c = i
        pixels, taps = at[: len(moved)], at[len(moved) :]
        return padded[(n, *(w.index(p, t) for w, p, t in zip(moved, pixels, taps, strict=True)), c)]

    return te.compute((images, *(w.outputs for w in moved), *kernel, channels), formula, name="rows")


@operator("ChannelsLastConv", NEWEST)
def channels_last_conv(x, weight, *, strides, dilations, pads, zero, to="uint8", narrow_pairs=False):
    """x (N, H, W, C), bytes of the other sign shifted by 128 `to` that type, convolved with weight (KH, KW, C, O)
    -> (N, OH, OW, O): int32 or float32 sums that processors have instructions for. The elements around the image are `zero`.
    Images have one to three dimensions. With `narrow_pairs`, products by neighbouring channels add up within 16 bits."""
    need("the images", x, dtype="number", ranks=range(3, 6))
    *_, channels = shape_of(x)
    need("the weight", weight, (*(None for _ in x.shape[1:-1]), channels, None), "integer" if dtypes.is_int(x.dtype) else x.dtype)
    total = "int32" if dtypes.is_int(x.dtype) else dtypes.computed(x.dtype)
    moved = windows(shape_of(x)[1:-1], shape_of(weight)[:-2], strides, dilations, pads)
    other = dtypes.bits(x.dtype) == 8 and x.dtype != to
    shifted = (lambda e: (e.astype("int32") + sign_offset(x.dtype, to)).astype(to)) if other else None
    padded, steps = _padded(x, moved, te.const(zero, x.dtype), shifted), steps_of(moved)
    channel = te.reduce_axis((0, channels), "channel")

    def formula(n: Expr, *i: Expr) -> Expr:
        at = (w.index(p, t) for w, p, t in zip(moved, i[:-1], steps, strict=True))
        return te.sum(
            padded[(n, *at, channel)].astype(total) * weight[(*steps, channel, i[-1])].astype(total), axis=(*steps, channel)
        )

    shape = (shape_of(x)[0], *(w.outputs for w in moved), shape_of(weight)[-1])
    return te.compute(shape, formula, name="conv", attrs=pairs_attrs(narrow_pairs))


@operator("PackChannels", NEWEST)
def pack_channels(x):
    """x (N, C, H, W) of up to four channels of 8 bits -> (N, H, W, 1): the channels of a pixel as one int32, the first lowest."""
    need("the images", x, dtype="integer", ranks=range(3, 6))
    images, channels, *extents = shape_of(x)

    def formula(n: Expr, *i: Expr) -> Expr:
        numbers = [te.bit_and(x[(n, c, *i[:-1])].astype("int32"), te.const(255)) for c in range(channels)]
        return reduce(te.bit_or, [te.shift_left(number, te.const(8 * c)) for c, number in enumerate(numbers)])

    return te.compute((images, *extents, 1), formula, name="pixels")


@operator("Bytes", NEWEST, view=True)
def bytes_of(x, *, to):
    """x (..., 1) of int32 -> (..., 4): the bytes of each element, the lowest first, as integers of the type `to`."""
    return te.compute(
        (*shape_of(x)[:-1], CHANNELS_OF_PIXEL), lambda *i: x[(*i[:-1], te.const(0))].astype(to), name="view"
    )  # no kernel


def _padded(x: te.Tensor, moved: Sequence[SlidingWindow], value: Expr, each: Callable[[Expr], Expr] | None = None) -> te.Tensor:
    """Images with a value around them as far as their windows need it, `each` element converted."""
    return pad(x, (0, *(w.before for w in moved), 0), (0, *(w.needed for w in moved), 0), value, each)


@operator("DepthwiseConv", NEWEST)
def depthwise_conv(x, weight, *, strides, dilations, pads, zero):
    """x (N, H, W, C) less its zero point, each channel convolved with its own of weight (KH, KW, C) -> (N, OH, OW, C)."""
    need("the images", x, (None,) * 4, "number")
    images, height, width, channels = shape_of(x)
    need("the weight", weight, (None, None, channels), "float")
    moved = windows((height, width), shape_of(weight)[:2], strides, dilations, pads)
    steps = steps_of(moved)

    def number(e: Expr) -> Expr:
        return (e.astype("int32") - zero if dtypes.is_int(x.dtype) else e).astype(weight.dtype)

    padded = _padded(x, moved, te.const(zero, x.dtype), number)

    def formula(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        at = tuple(window.index(p, s) for window, p, s in zip(moved, (h, w), steps, strict=True))
        return te.sum(padded[(n, *at, c)] * weight[(*steps, c)], axis=steps)

    return te.compute((images, *(w.outputs for w in moved), channels), formula, name="conv")
