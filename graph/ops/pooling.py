"""Operators that reduce the elements of windows over images, channels first, and of whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tir import dtypes, te
from tir.ir import Expr

from .convolution import RANKS, SlidingWindow, padded_for, steps_of, transposed_windows, windows
from .registry import composite, need, operator, shape_of, wide


def _pool(x: te.Tensor, kernel_shape, strides, dilations, pads, auto_pad: str, ceil_mode: int) -> list[SlidingWindow]:
    need("the input", x, dtype="number", ranks=RANKS)
    return windows(shape_of(x)[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


def _pooled(
    x: te.Tensor, moved: Sequence[SlidingWindow], reducer: Callable[..., Expr], fill: float, name: str, each: Callable[..., Expr]
) -> te.Tensor:
    """The reduction of `each(element)` over windows; elements around the image are `fill`."""
    padded, steps = padded_for(x, moved, fill), steps_of(moved)

    def formula(*index: Expr) -> Expr:
        at = tuple(w.index(p, s) for w, p, s in zip(moved, index[2:], steps, strict=True))
        return reducer(each(padded[(*index[:2], *at)]), axis=steps)

    return te.compute([*shape_of(x)[:2], *(w.outputs for w in moved)], formula, name=name)


@operator("MaxPool", monotone=True, halves=1)
def max_pool(
    x, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0, storage_order=0
):  # fmt: skip
    """The largest elements, and the index of the first by rows of each in `x` as a vector, column-major with `storage_order`."""
    moved = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    low = dtypes.limits(x.dtype)[0]
    top = _pooled(x, moved, te.max, low, "max_pool", lambda e: e)
    padded, steps = padded_for(x, moved, low), steps_of(moved)
    image = shape_of(x)[2:]
    weights = [prod(image[n + 1 :]) for n in range(len(image))]

    def formula(*index: Expr) -> Expr:
        n, c, *position = index
        at = tuple(w.index(p, s) for w, p, s in zip(moved, position, steps, strict=True))
        plane = (n * shape_of(x)[1] + c).astype("int64") * prod(image)
        number = sum(((i - w.before).astype("int64") * m for i, w, m in zip(at, moved, weights, strict=True)), plane)
        inside = [c for i, w in zip(at, moved, strict=True) for c in (i >= w.before, i < w.before + w.extent)]
        hit = te.all(te.equal(padded[(n, c, *at)], top[index]), *inside)
        return te.min(te.select(hit, number, te.const(prod(shape_of(x)) - 1, "int64")), axis=steps)

    first = te.compute(top.shape, formula, name="where")

    def by_columns(*index: Expr) -> Expr:
        digits = (first[index] // m % image[n] * prod(image[:n]) for n, m in enumerate(weights))
        return sum(digits, first[index] // prod(image) * prod(image))

    return top, te.compute(top.shape, by_columns, name="column_major") if storage_order else first


@operator("AveragePool", halves=1)
def average_pool(
    x, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0
):  # fmt: skip
    moved = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    need("the input", x, dtype="float")
    total = _pooled(x, moved, te.sum, 0, "window_sum", wide)
    if not any(w.before or w.needed for w in moved):
        count = te.const(prod(w.kernel for w in moved), total.dtype)
        return te.compute(total.shape, lambda *i: (total[i] / count).astype(x.dtype), name="average_pool")

    def formula(*index: Expr) -> Expr:
        elements: Expr = te.const(1)
        for w, p in zip(moved, index[2:], strict=True):
            elements = elements * w.elements(p, bool(count_include_pad))
        return (total[index] / elements.astype(total.dtype)).astype(x.dtype)

    return te.compute(total.shape, formula, name="average_pool")


def _power(p: int) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """The power of a magnitude, and its root."""
    if p == 1:
        return te.abs, lambda e: e
    if p == 2:
        return lambda e: e * e, te.sqrt
    return lambda e: te.pow(te.abs(e), float(p)), lambda e: te.pow(e, 1 / p)


@operator("LpPool")
def lp_pool(x, *, kernel_shape, p=2, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0):
    """The root of the sum of powers of magnitudes."""
    need("the input", x, dtype="float")
    moved = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    power, root = _power(p)
    total = _pooled(x, moved, te.sum, 0, "window_sum", lambda e: power(wide(e)))
    return te.compute(total.shape, lambda *i: root(total[i]).astype(x.dtype), name="lp_pool")


@operator("MaxUnpool", 9, operands={2: "output_shape"})
def max_unpool(x, indices, *, kernel_shape, strides=None, pads=None, output_shape=None):
    """Zeros with the elements of `x` at the `indices` of a MaxPool."""
    need("the input", x, dtype="float", ranks=RANKS)
    need("the indices", indices, shape_of(x), "int64")
    images, channels, *extents = shape_of(x)
    sizes = [w.extent for w in transposed_windows(extents, kernel_shape, strides, pads=pads)]
    shape = [images, channels, *sizes] if output_shape is None else [int(e) for e in output_shape]
    if len(shape) != x.ndim or shape[:2] != [images, channels]:
        raise ValueError(f"{list(shape)} is no shape for images of {list(shape_of(x))}")
    size = te.const(prod(sizes), "int64")

    def formula(result: te.Tensor, *k: Expr) -> tuple[Sequence[Expr], Expr, Expr]:
        offset = indices[k] - (k[0] * channels + k[1]).astype("int64") * size
        index = [offset // prod(sizes[n + 1 :]) % e for n, e in enumerate(sizes)]
        inside = [i < te.const(e, "int64") for i, e, s in zip(index, shape[2:], sizes, strict=True) if e < s]
        inside += [offset >= te.const(0, "int64"), offset < size]
        return (
            (*k[:2], *(te.minimum(i, te.const(e - 1, "int64")) for i, e in zip(index, shape[2:], strict=True))),
            x[k],
            te.all(*inside),
        )

    zeros = te.compute(shape, lambda *_: te.const(0, x.dtype), name="zeros")
    return te.scatter(zeros, shape_of(x), formula, name="max_unpool")


# --- whole images ------------------------------------------------------------------------------------------------------


def _over_image(name: str, reduction: str) -> None:
    @composite(name)
    def define(apply, x):
        """The reduction of each channel of each image."""
        need("the input", x, ranks=RANKS)
        return apply(reduction, x, axes=tuple(range(2, len(x.shape))))


_over_image("GlobalAveragePool", "ReduceMean")
_over_image("GlobalMaxPool", "ReduceMax")
composite("GlobalLpPool")(lambda apply, x, *, p=2: apply("LpPool", x, kernel_shape=x.shape[2:], p=p))
