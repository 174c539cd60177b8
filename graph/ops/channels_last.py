"""Operators of images of quantised numbers, channels last, between products of integers. They exist in graphs alone."""

from __future__ import annotations

from collections.abc import Sequence

from tir import te
from tir.ir import Expr

from .convolution import SlidingWindow, pad, steps_of, windows
from .registry import NEWEST, need, operator, shape_of


@operator("ImageRows", NEWEST)
def image_rows(x, *, kernel, strides, dilations, pads, zero):
    """x (N, H, W, C) -> (N, OH, OW, KH, KW, C): the elements of each window (im2col); those around the image are `zero`."""
    need("the images", x, (None,) * 4, "integer")
    images, height, width, channels = shape_of(x)
    down, across = windows((height, width), kernel, strides, dilations, pads)
    padded = _padded(x, (down, across), te.const(zero, x.dtype))

    def formula(n: Expr, h: Expr, w: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        return padded[n, down.index(h, i), across.index(w, j), c]

    return te.compute((images, down.outputs, across.outputs, *kernel, channels), formula, name="rows")


def _padded(x: te.Tensor, moved: Sequence[SlidingWindow], value: Expr) -> te.Tensor:
    """Images with what their windows need around them."""
    return pad(x, (0, *(w.before for w in moved), 0), (0, *(w.needed for w in moved), 0), value)


@operator("DepthwiseConv", NEWEST)
def depthwise_conv(x, weight, *, strides, dilations, pads, zero):
    """x (N, H, W, C) less its zero point, each channel convolved with its own of weight (KH, KW, C) -> (N, OH, OW, C)."""
    need("the images", x, (None,) * 4, "integer")
    images, height, width, channels = shape_of(x)
    need("the weight", weight, (None, None, channels), "float")
    moved = windows((height, width), shape_of(weight)[:2], strides, dilations, pads)
    real = te.compute(x.shape, lambda *i: (x[i].astype("int32") - zero).astype(weight.dtype), name="real")
    padded, steps = _padded(real, moved, te.const(0.0, weight.dtype)), steps_of(moved)

    def formula(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        at = tuple(window.index(p, s) for window, p, s in zip(moved, (h, w), steps, strict=True))
        return te.sum(padded[(n, *at, c)] * weight[(*steps, c)], axis=steps)

    return te.compute((images, *(w.outputs for w in moved), channels), formula, name="conv")
