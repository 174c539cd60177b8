"""Operators that move a window over images: convolution and pooling, of any number of dimensions, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tir import dtypes, te
from tir.ir import Expr

from .registry import need, operator, shape_of

RANKS = range(3, 9)  # numbers of dimensions of images: one for images, one for channels, and those that a window moves over


@dataclass(frozen=True)
class Window:
    """Windows along one axis of an image: `kernel` elements, `dilation` apart, `stride` from one window to the next.

    `before` and `after` are the padding that counts as part of the image; `outputs` the number of windows. With `ceil_mode` the
    last window may reach further.
    """

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    outputs: int

    @property
    def reach(self) -> int:
        """How many elements lie between the first and the last of a window, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def needed(self) -> int:
        """The padding after the image that the last window needs."""
        return max(0, (self.outputs - 1) * self.stride + self.reach - self.extent - self.before)

    def index(self, place: Expr, step: Expr) -> Expr:
        """Where in the padded image a window has its element `step`."""
        start = place if self.stride == 1 else place * self.stride
        return start + (step if self.dilation == 1 else step * self.dilation)

    def elements(self, place: Expr, padding: bool) -> Expr:
        """How many elements of a window lie in the image; with `padding`, also those in `before` and `after`."""
        start = place * self.stride - self.before
        end = self.extent + (self.after if padding else 0)
        last = te.minimum(te.const(self.kernel - 1), (end - 1 - start) // self.dilation)
        first = te.const(0) if padding else te.minimum(te.const(0), start // self.dilation)
        return last + first + 1


def windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> list[Window]:
    """The windows along each axis, as ONNX says them. Raises ValueError where a number is missing or a window does not fit."""
    n = len(extents)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    if not len(kernel) == len(strides) == len(dilations) == n or len(pads) != 2 * n:
        raise ValueError(f"an image of {n} dimension(s) needs as many sizes, strides and dilations, and twice as many pads")
    if min(*strides, *dilations) < 1 or min(pads) < 0:
        raise ValueError("strides and dilations must be at least 1, and pads at least 0")
    found = []
    for axis, (extent, k, stride, dilation) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        reach = (k - 1) * dilation + 1
        before, after = pads[axis], pads[n + axis]
        match auto_pad:
            case "NOTSET":
                pass
            case "VALID":
                before = after = 0
            case "SAME_UPPER" | "SAME_LOWER":
                total = max(0, (-(-extent // stride) - 1) * stride + reach - extent)
                small, large = total // 2, total - total // 2
                before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
            case _:
                raise ValueError(f"auto_pad {auto_pad!r} is not there")
        free = extent + before + after - reach
        if free < 0:
            raise ValueError(f"a window that reaches over {reach} does not fit a padded extent of {extent + before + after}")
        outputs = free // stride + 1
        if ceil_mode and free % stride and outputs * stride < extent + before:  # windows begin in the image, or before it
            outputs += 1
        found.append(Window(extent, k, stride, dilation, before, after, outputs))
    return found


def pad(x: te.Tensor, before: Sequence[int], after: Sequence[int], value: float) -> te.Tensor:
    """A stage that puts a value before and after each axis; `x` itself where there is none to put."""
    if not any(before) and not any(after):
        return x
    extents = shape_of(x)

    def formula(*index: Expr) -> Expr:
        limits: list[Expr] = []
        for i, b, a, extent in zip(index, before, after, extents, strict=True):
            limits += [i >= b] if b else []
            limits += [i < b + extent] if a else []
        inner = tuple(i - b if b else i for i, b in zip(index, before, strict=True))
        return te.if_then_else(te.all(*limits), x[inner], te.const(value, x.dtype))

    return te.compute([b + e + a for b, e, a in zip(before, extents, after, strict=True)], formula, name="pad")


def _padded(x: te.Tensor, moved: Sequence[Window], value: float) -> te.Tensor:
    return pad(x, (0, 0, *(w.before for w in moved)), (0, 0, *(w.needed for w in moved)), value)


def _steps(moved: Sequence[Window]) -> list[te.ReduceAxis]:
    return [te.reduce_axis((0, w.kernel), f"r{n}") for n, w in enumerate(moved)]


@operator("Conv")
def conv(
    x, weight, bias=None, *, kernel_shape=None, strides=None, dilations=None, pads=None, auto_pad="NOTSET", group=1
):  # fmt: skip
    """x (N, C, ...), weight (M, C / group, kernel ...), bias (M) -> (N, M, ...)."""
    need("the input", x, dtype="number", ranks=RANKS)
    need("the weight", weight, dtype=x.dtype, ranks=(x.ndim,))
    images, channels, *extents = shape_of(x)
    outputs, own, *kernel = shape_of(weight)
    need("the bias", bias, [outputs], x.dtype)
    if own * group != channels or outputs % group:
        raise ValueError(f"a weight {list(shape_of(weight))} in {group} group(s) does not fit {channels} channels")
    if kernel_shape is not None and list(kernel_shape) != kernel:
        raise ValueError(f"kernel_shape {list(kernel_shape)} contradicts the weight, {list(shape_of(weight))}")
    moved = windows(extents, kernel, strides, dilations, pads, auto_pad)
    padded = _padded(x, moved, 0)
    steps = _steps(moved)
    each = outputs // group  # channels that a group makes
    channel = [te.reduce_axis((0, own), "rc")] if own > 1 or group == 1 else []

    def formula(*index: Expr) -> Expr:
        n, co, *place = index
        inner: Expr = channel[0] if channel else te.const(0)
        c: Expr = inner
        if group > 1:
            number = co if each == 1 else co // each
            c = number * own + inner if channel else number
        at = tuple(w.index(p, s) for w, p, s in zip(moved, place, steps, strict=True))
        return te.sum(padded[(n, c, *at)] * weight[(co, inner, *steps)], axis=[*channel, *steps])

    result = te.compute([images, outputs, *(w.outputs for w in moved)], formula, name="conv")
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result[i] + bias[i[1]], name="biased")


def _pool(x: te.Tensor, kernel_shape, strides, dilations, pads, auto_pad: str, ceil_mode: int) -> list[Window]:
    need("the input", x, dtype="number", ranks=RANKS)
    return windows(shape_of(x)[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


def _pooled(x: te.Tensor, moved: Sequence[Window], reducer: Callable[..., Expr], outside: float, name: str) -> te.Tensor:
    padded, steps = _padded(x, moved, outside), _steps(moved)

    def formula(*index: Expr) -> Expr:
        at = tuple(w.index(p, s) for w, p, s in zip(moved, index[2:], steps, strict=True))
        return reducer(padded[(*index[:2], *at)], axis=steps)

    return te.compute([*shape_of(x)[:2], *(w.outputs for w in moved)], formula, name=name)


@operator("MaxPool")
def max_pool(
    x, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0, storage_order=0
):  # fmt: skip
    moved = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return _pooled(x, moved, te.max, dtypes.limits(x.dtype)[0], "max_pool")


@operator("AveragePool", 7)
def average_pool(
    x, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0
):  # fmt: skip
    moved = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = _pooled(x, moved, te.sum, 0, "window_sum")
    if not any(w.before or w.needed for w in moved):
        count = te.const(prod(w.kernel for w in moved), x.dtype)
        return te.compute(total.shape, lambda *i: total[i] / count, name="average_pool")

    def formula(*index: Expr) -> Expr:
        elements: Expr = te.const(1)
        for w, p in zip(moved, index[2:], strict=True):
            elements = elements * w.elements(p, bool(count_include_pad))
        return total[index] / elements.astype(x.dtype)

    return te.compute(total.shape, formula, name="average_pool")


def _over_image(x: te.Tensor, reducer: Callable[..., Expr], name: str) -> te.Tensor:
    need("the input", x, dtype="number", ranks=RANKS)
    images, channels, *extents = shape_of(x)
    steps = [te.reduce_axis((0, e), f"r{n}") for n, e in enumerate(extents)]
    shape = [images, channels, *(1 for _ in extents)]
    return te.compute(shape, lambda n, c, *_: reducer(x[(n, c, *steps)], axis=steps), name=name)


@operator("GlobalAveragePool")
def global_average_pool(x):
    total = _over_image(x, te.sum, "total")
    count = te.const(prod(shape_of(x)[2:]), x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / count, name="average")


@operator("GlobalMaxPool")
def global_max_pool(x):
    return _over_image(x, te.max, "global_max")
