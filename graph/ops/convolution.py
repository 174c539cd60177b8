"""Operators that move a window over images: convolution and pooling, of any number of dimensions, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tir import te
from tir.ir import Expr

from .registry import narrow, need, operator, shape_of, wide

RANKS = range(3, 9)  # numbers of dimensions of images: one for images, one for channels, and those that a window moves over


@dataclass(frozen=True)
class SlidingWindow:
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
        """The number of elements from the first to the last of a window, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def needed(self) -> int:
        """The padding after the image that the last window needs."""
        return max(0, (self.outputs - 1) * self.stride + self.reach - self.extent - self.before)

    def padded(self, total: int, auto_pad: str) -> SlidingWindow:
        """The window with `total` padding, at least 0; an odd element lies after the image for SAME_UPPER, else before it."""
        small, large = max(0, total) // 2, max(0, total) - max(0, total) // 2
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        return replace(self, before=before, after=after)

    def index(self, window: Expr, step: Expr) -> Expr:
        """The index in the padded image of the element `step` of the window number `window`."""
        start = window if self.stride == 1 else window * self.stride
        return start + (step if self.dilation == 1 else step * self.dilation)

    def taps_in_image(self) -> range:
        """The range of taps without those at the ends that meet padding alone in every window."""
        inside = [step for step in range(self.kernel) if any(0 <= at < self.extent for at in self._indices(step))]
        first, last = (inside[0], inside[-1]) if inside else (0, self.kernel - 1)
        while self.of_taps(range(first, last + 1)).before < 0:  # a window would begin inside of the image
            first -= 1
        while last + 1 < self.kernel and self._indices(last)[-1] < self.extent - 1:  # there would be more windows
            last += 1
        return range(first, last + 1)

    def _indices(self, step: int) -> range:
        """The indices in the image of one tap, window by window."""
        begin = step * self.dilation - self.before
        return range(begin, begin + self.outputs * self.stride, self.stride)

    def of_taps(self, taps: range) -> SlidingWindow:
        """The same windows with a range of their taps."""
        fewer = replace(self, kernel=len(taps), before=self.before - taps.start * self.dilation)
        after = self.after if taps.stop == self.kernel else fewer.needed
        return replace(fewer, after=after, dilation=self.dilation if len(taps) > 1 else 1)

    def elements(self, window: Expr, padding: bool) -> Expr:
        """The number of elements of a window that lie in the image; with `padding`, also those in `before` and `after`."""
        start = window * self.stride - self.before
        end = self.extent + (self.after if padding else 0)
        last = te.minimum(te.const(self.kernel - 1), (end - 1 - start) // self.dilation)
        first = te.const(0) if padding else te.minimum(te.const(0), start // self.dilation)
        return last + first + 1


def windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> list[SlidingWindow]:
    """The windows along each axis, by ONNX's attributes. Raises ValueError where a number is missing or a window does not fit."""
    found = []
    for w in _given(extents, kernel, strides, dilations, pads, auto_pad):
        if auto_pad.startswith("SAME"):
            w = w.padded((-(-w.extent // w.stride) - 1) * w.stride + w.reach - w.extent, auto_pad)
        image = w.extent + w.before + w.after
        if image < w.reach and w.extent:
            raise ValueError(f"a window that reaches over {w.reach} does not fit a padded extent of {image}")
        outputs, rest = divmod(image - w.reach, w.stride)
        more = ceil_mode and rest and (outputs + 1) * w.stride < w.extent + w.before  # windows begin in the image, or before it
        found.append(replace(w, outputs=max(0, outputs + 1 + bool(more))))
    return found


def transposed_windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
) -> list[SlidingWindow]:
    """The windows over the output of a transposed convolution, one for each element of its input, by ONNX's attributes."""
    n = len(extents)
    if len(output_padding or extents) != n:
        raise ValueError(f"output_padding {output_padding} is not a number for each of {n} dimension(s)")
    found = []
    for axis, w in enumerate(_given(extents, kernel, strides, dilations, pads, auto_pad)):
        full = w.stride * (w.extent - 1) + w.reach + (output_padding[axis] if output_padding else 0)
        result = output_shape[axis - n] if output_shape else w.extent * w.stride
        if output_shape or auto_pad.startswith("SAME"):
            w = w.padded(full - result, auto_pad)
        if not output_shape:
            result = full - w.before - w.after
        if result < 1 and (w.extent or result < 0):
            raise ValueError(f"pads of {w.before} and {w.after} leave nothing of an extent of {full}")
        found.append(replace(w, extent=result, outputs=w.extent))
    return found


def _given(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[SlidingWindow]:
    """The windows along each axis by their attributes, still without their number and the padding of SAME."""
    n = len(extents)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    if not len(kernel) == len(strides) == len(dilations) == n or len(pads) != 2 * n:
        raise ValueError(f"an image of {n} dimension(s) needs as many sizes, strides and dilations, and twice as many pads")
    if min(*kernel, *strides, *dilations) < 1 or min(pads) < 0:
        raise ValueError("sizes, strides and dilations must be at least 1, and pads at least 0")
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad {auto_pad!r} is not supported")
    around = (0,) * (2 * n) if auto_pad == "VALID" else pads
    axes = zip(extents, kernel, strides, dilations, around[:n], around[n:], strict=True)
    return [SlidingWindow(e, k, stride, dilation, before, after, 0) for e, k, stride, dilation, before, after in axes]


def pad(
    x: te.Tensor, before: Sequence[int], after: Sequence[int], value: Expr, each: Callable[[Expr], Expr] | None = None
) -> te.Tensor:
    """A stage that pads each axis with a value, or crops it, and converts `each` element; `x` itself if nothing is to do."""
    if not any(before) and not any(after) and each is None:
        return x
    extents = shape_of(x)

    def formula(*index: Expr) -> Expr:
        limits: list[Expr] = []
        for i, b, a, extent in zip(index, before, after, extents, strict=True):
            limits += [i >= b] if b > 0 else []
            limits += [i < b + extent] if a > 0 else []
        inner = tuple(i - b if b else i for i, b in zip(index, before, strict=True))
        element = te.if_then_else(te.all(*limits), x[inner], value) if limits else x[inner]
        return element if each is None else each(element)

    return te.compute([b + e + a for b, e, a in zip(before, extents, after, strict=True)], formula, name="pad")


def padded_for(x: te.Tensor, moved: Sequence[SlidingWindow], value: float) -> te.Tensor:
    before, after = (w.before for w in moved), (w.needed for w in moved)
    return pad(x, (0, 0, *before), (0, 0, *after), te.const(value, x.dtype))


def steps_of(moved: Sequence[SlidingWindow]) -> list[te.ReduceAxis]:
    return [te.reduce_axis((0, w.kernel), f"r{n}") for n, w in enumerate(moved)]


@operator("Conv", sums=True, bias=2, channels=1, integers=True, halves=1)
def conv(
    x, weight, bias=None, *, kernel_shape=None, strides=None, dilations=None, pads=None, auto_pad="NOTSET", group=1,
    output_dtype=None, tf32=0,
):  # fmt: skip
    """x (N, C, ...), weight (M, C / group, kernel ...), bias (M) -> (N, M, ...), of x's type, or `output_dtype`. With `tf32`,
    factors may be rounded to 10 bits of mantissa."""
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
    padded = padded_for(x, moved, 0)
    steps = steps_of(moved)
    each = outputs // group  # channels that a group makes
    channel = [te.reduce_axis((0, own), "rc")] if own > 1 or group == 1 else []

    def formula(*index: Expr) -> Expr:
        n, co, *position = index
        inner: Expr = channel[0] if channel else te.const(0)
        c: Expr = inner
        if group > 1:
            number = co if each == 1 else co // each
            c = number * own + inner if channel else number
        at = tuple(w.index(p, s) for w, p, s in zip(moved, position, steps, strict=True))
        return te.sum(wide(padded[(n, c, *at)]) * wide(weight[(co, inner, *steps)]), axis=[*channel, *steps])

    made = te.compute(
        [images, outputs, *(w.outputs for w in moved)], formula, name="conv", attrs={"tf32": True} if tf32 else None
    )
    return _biased(made, bias, output_dtype or x.dtype)


def _biased(x: te.Tensor, bias: te.Tensor | None, dtype: str) -> te.Tensor:
    """`x` and the bias of each channel, rounded to an element type."""
    if bias is None:
        return narrow(x, dtype)
    return te.compute(x.shape, lambda *i: (x[i] + wide(bias[i[1]])).astype(dtype), name="biased")


@operator("ConvTranspose", sums=True, bias=2, channels=1, halves=1)
def conv_transpose(
    x, weight, bias=None, *, kernel_shape=None, strides=None, dilations=None, pads=None, auto_pad="NOTSET", group=1,
    output_padding=None, output_shape=None,
):  # fmt: skip
    """x (N, C, ...), weight (C, M / group, kernel ...), bias (M) -> (N, M, ...): the sums of each element times the kernel."""
    need("the input", x, dtype="float", ranks=RANKS)
    need("the weight", weight, [shape_of(x)[1], *(None for _ in range(x.ndim - 1))], x.dtype)
    images, channels, *extents = shape_of(x)
    _, each, *kernel = shape_of(weight)
    need("the bias", bias, [each * group], x.dtype)
    if channels % group or (kernel_shape is not None and list(kernel_shape) != kernel):
        raise ValueError(
            f"a weight {list(shape_of(weight))} in {group} group(s) does not fit {channels} channels or kernel_shape"
        )
    steps = [te.reduce_axis((0, k), f"r{n}") for n, k in enumerate(kernel)]
    moved = transposed_windows(extents, kernel, strides, dilations, pads, auto_pad, output_padding, output_shape)
    own = channels // group  # channels that a group reads
    channel = te.reduce_axis((0, own), "rc")
    spread = _spread(x, moved)

    def formula(*index: Expr) -> Expr:
        n, co, *position = index
        c = channel if group == 1 else co // each * own + channel
        at = tuple(p + step * w.dilation for p, w, step in zip(position, moved, steps, strict=True))
        flipped = tuple(w.kernel - 1 - step for w, step in zip(moved, steps, strict=True))
        return te.sum(
            wide(spread[(n, c, *at)]) * wide(weight[(c, co if group == 1 else co % each, *flipped)]), axis=[channel, *steps]
        )

    shape = [images, each * group, *(w.extent for w in moved)]
    return _biased(te.compute(shape, formula, name="conv_transpose"), bias, x.dtype)


def _spread(x: te.Tensor, moved: Sequence[SlidingWindow]) -> te.Tensor:
    """The elements of `x` a stride apart, with zeros between and around, to be convolved with the reversed kernel."""

    def formula(*index: Expr) -> Expr:
        conditions: list[Expr] = []
        position: list[Expr] = []
        for j, w in zip(index[2:], moved, strict=True):
            at = j + (w.before - (w.reach - 1))
            between = [te.equal(at % w.stride, 0)] if w.stride > 1 else []
            conditions += [at >= 0, at < w.stride * (w.outputs - 1) + 1, *between]
            position.append(at // w.stride if w.stride > 1 else at)
        return te.if_then_else(te.all(*conditions), x[(*index[:2], *position)], te.const(0, x.dtype))

    return te.compute([*shape_of(x)[:2], *(w.extent + w.reach - 1 for w in moved)], formula, name="spread")


@operator("Col2Im", 18, operands={1: "image_shape", 2: "block_shape"})
def col2im(x, *, image_shape, block_shape, strides=None, dilations=None, pads=None):
    """x (N, C block ..., windows) -> (N, C, image ...): the elements of all windows added where they lie in the image."""
    need("the input", x, dtype="number", ranks=(3,))
    moved = windows(image_shape, block_shape, strides, dilations, pads)
    images, rows, columns = shape_of(x)
    size, count = prod(block_shape), prod(w.outputs for w in moved)
    if rows % size or columns != count:
        raise ValueError(f"{list(shape_of(x))} are not columns of blocks {list(block_shape)} in {count} places")
    steps = steps_of(moved)

    def formula(*index: Expr) -> Expr:
        n, c, *position = index
        inside: list[Expr] = []
        row: Expr = c
        column: Expr = te.const(0)
        for p, w, step in zip(position, moved, steps, strict=True):
            at = p + w.before - step * w.dilation
            inside += [at >= 0, at // w.stride < w.outputs, te.equal(at % w.stride, 0)]
            row, column = row * w.kernel + step, column * w.outputs + at // w.stride
        element = wide(x[n, row, column])
        return te.sum(te.if_then_else(te.all(*inside), element, te.const(0, element.dtype)), axis=steps)

    return narrow(te.compute([images, rows // size, *image_shape], formula, name="col2im"), x.dtype)
