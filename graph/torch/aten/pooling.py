"""Pooling of images, channels first, with a batch or without."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...ir import Value
from ...ops.registry import Apply
from .moving import of_images, permute, reshaped
from .types import aten, cast, pair


def _window(dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> dict[str, Any]:
    """The attributes of windows; their stride is their size where none is given."""
    pads = pair(padding, dims)
    steps = pair(stride if stride not in ((), []) else kernel, dims)
    return {
        "kernel_shape": pair(kernel, dims), "strides": steps, "dilations": pair(dilation, dims), "pads": (*pads, *pads),
        "ceil_mode": int(ceil_mode),
    }  # fmt: skip


def _largest(apply: Apply, x: Value, dims: int, **window: Any) -> tuple[Value, Value]:
    """The largest elements, and the index of each in its image."""

    def pool(image: Value) -> tuple[Value, Value]:
        top, where = apply("MaxPool", image, **window)
        return top, apply("Mod", where, apply.constant(prod(image.shape[2:]), "int64"))

    return of_images(apply, x, dims, pool)


def _register(dims: int) -> None:
    """The pools of images of so many dimensions."""

    @aten(f"max_pool{dims}d")
    def largest(apply, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        return with_indices(apply, x, kernel, stride, padding, dilation, ceil_mode)[0]

    @aten(f"max_pool{dims}d_with_indices")
    def with_indices(apply, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        return _largest(apply, x, dims, **_window(dims, kernel, stride, padding, dilation, ceil_mode))

    @aten(f"avg_pool{dims}d")
    def average(apply, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        window = _window(dims, kernel, stride, padding, 1, ceil_mode)

        def pool(image: Value) -> Value:
            found = apply("AveragePool", image, count_include_pad=int(count_include_pad), **window)
            if divisor_override is None:
                return found
            if ceil_mode or (any(window["pads"]) and not count_include_pad):
                raise ValueError("divisor_override together with ceil_mode or padding that is not counted is not supported")
            return apply("Mul", found, cast(apply, prod(window["kernel_shape"]) / divisor_override, image.dtype))

        return of_images(apply, x, dims, pool)

    @aten(f"_adaptive_avg_pool{dims}d", f"adaptive_avg_pool{dims}d")
    def adaptive(apply, x, size):
        return of_images(apply, x, dims, lambda image: _adaptive_average(apply, image, pair(size, dims)))


for _dims in (1, 2, 3):
    _register(_dims)


def _adaptive_average(apply: Apply, x: Value, size: tuple[int, ...]) -> Value:
    """The means of as many parts along each dimension as asked for, which overlap where they do not divide it.

    Parts of one size are windows; others are products with matrices of weights, one along each dimension.
    """
    extents = x.shape[2:]
    size = tuple(e if s is None or s < 0 else s for s, e in zip(size, extents, strict=True))
    if all(s == 1 for s in size):
        return apply("GlobalAveragePool", x)
    if all(e % s == 0 for e, s in zip(extents, size, strict=True)):
        kernel = tuple(e // s for e, s in zip(extents, size, strict=True))
        return x if all(k == 1 for k in kernel) else apply("AveragePool", x, kernel_shape=kernel, strides=kernel)
    for axis, (extent, parts) in enumerate(zip(extents, size, strict=True), 2):
        if extent == parts:
            continue
        weights = np.zeros((extent, parts))
        for n in range(parts):
            begin, end = n * extent // parts, -(-(n + 1) * extent // parts)
            weights[begin:end, n] = 1 / (end - begin)
        order = [n for n in range(len(x.shape)) if n != axis] + [axis]
        means = apply("MatMul", permute(apply, x, order), apply.constant(weights, x.dtype))
        x = permute(apply, means, np.argsort(order).tolist())
    return x


@aten("adaptive_max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool3d")
def adaptive_max(apply, x, size):
    """The largest element, and its index, in parts of one size."""
    dims = len(size)
    extents = x.shape[len(x.shape) - dims :]
    if any(s is None or s < 1 or e % s for e, s in zip(extents, size, strict=True)):
        raise ValueError(f"parts of different sizes, {list(extents)} in {list(size)}, are not supported")
    kernel = tuple(e // s for e, s in zip(extents, size, strict=True))
    return _largest(apply, x, dims, kernel_shape=kernel, strides=kernel)


@aten("im2col")
def columns_of_image(apply, x, kernel, dilation, padding, stride):
    """Windows (N, C kernel ..., places): by the indices of their elements in the padded image."""
    kernel, dilation, padding, stride = (pair(v, 2) for v in (kernel, dilation, padding, stride))

    def columns(image: Value) -> Value:
        n, c, h, w = image.shape
        pads = (0, 0, *padding, 0, 0, *padding)
        padded = apply("Pad", image, pads=pads) if any(padding) else image
        height, width = h + 2 * padding[0], w + 2 * padding[1]
        indices = []
        for extent, k, d, s in zip((height, width), kernel, dilation, stride, strict=True):
            places = np.arange(0, extent - d * (k - 1), s)
            indices.append(np.arange(k)[:, None] * d + places)
        flat = indices[0][:, None, :, None] * width + indices[1][None, :, None, :]
        rows = apply("Reshape", padded, shape=(n, c, height * width))
        found = apply("Gather", rows, apply.constant(flat.reshape(prod(kernel), -1).astype(np.int64)), axis=2)
        return reshaped(apply, found, (n, c * prod(kernel), found.shape[-1]))

    return of_images(apply, x, 2, columns)


@aten("col2im")
def image_of_columns(apply, x, size, kernel, dilation, padding, stride):
    pads = pair(padding, 2)

    def image(columns: Value) -> Value:
        return apply(
            "Col2Im", columns, image_shape=tuple(size), block_shape=pair(kernel, 2), strides=pair(stride, 2),
            dilations=pair(dilation, 2), pads=(*pads, *pads),
        )  # fmt: skip

    return of_images(apply, x, 1, image)
