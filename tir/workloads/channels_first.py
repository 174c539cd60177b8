"""Convolutions of images (N, C, H, W), each followed by relu."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .. import te
from ..ir import PrimFunc
from .workload import Arrays, Bounded, Parameter, Workload, rows_of


def _extent(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _fit(H: int, W: int, KH: int, KW: int, padding: int) -> str:
    if KH > H + 2 * padding or KW > W + 2 * padding:
        return f"a kernel of {KH}x{KW} does not fit the padded image of {H + 2 * padding}x{W + 2 * padding}"
    return ""


def _padded(X: te.Tensor, padding: int, dtype: str) -> te.Tensor:
    if padding == 0:
        return X
    N, C, H, W = X.shape

    def value(n, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        return te.if_then_else(inside, X[n, c, h - padding, w - padding], te.const(0, dtype))

    return te.compute((N, C, H + 2 * padding, W + 2 * padding), value, name="pad")


def _pad(x: np.ndarray, padding: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))


def _windows(x: np.ndarray, KH: int, KW: int, stride: int) -> np.ndarray:
    """A view (..., OH, OW, KH, KW) of what each output of a convolution over the last two axes sees."""
    return sliding_window_view(x, (KH, KW), axis=(-2, -1))[..., ::stride, ::stride, :, :]


def _conv2d_build(dtype: str, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, CI, H, W), dtype, name="X")
    K = te.placeholder((CO, CI, KH, KW), dtype, name="K")
    pad = _padded(X, padding, dtype)
    rc, rh, rw = te.reduce_axis((0, CI), "rc"), te.reduce_axis((0, KH), "rh"), te.reduce_axis((0, KW), "rw")
    shape = (N, CO, _extent(H, KH, stride, padding), _extent(W, KW, stride, padding))

    def value(n, co, oh, ow):
        return te.sum(pad[n, rc, oh * stride + rh, ow * stride + rw] * K[co, rc, rh, rw], axis=[rc, rh, rw])

    conv = te.compute(shape, value, name="conv")
    Y = te.compute(shape, lambda n, co, oh, ow: te.maximum(conv[n, co, oh, ow], te.const(0, dtype)), name="Y")
    return te.create_prim_func([X, K, Y], name="conv2d")


def _conv2d_draw(rng: np.random.Generator, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, CI, H, W)), rng.uniform(-1, 1, (CO, CI, KH, KW))


def _conv2d_numpy(
    dtype: str, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int
) -> Callable[[Arrays, Arrays], None]:
    """Image to columns and one matrix product an image; a pointwise convolution needs no columns."""
    OH, OW = _extent(H, KH, stride, padding), _extent(W, KW, stride, padding)
    padded = np.zeros((CI, H + 2 * padding, W + 2 * padding), dtype)
    interior = padded[:, padding : padding + H, padding : padding + W]
    columns = np.empty((CI, KH, KW, OH, OW), dtype)
    pointwise = KH == KW == stride == 1

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K = inputs
        kernel = K.reshape(CO, CI * KH * KW)
        for image, out in zip(X, outputs[0], strict=True):
            source = image
            if padding:
                interior[...] = image
                source = padded
            if pointwise:
                matrix = source.reshape(CI, OH * OW)
            else:
                columns[...] = np.moveaxis(_windows(source, KH, KW, stride), (3, 4), (1, 2))
                matrix = columns.reshape(CI * KH * KW, OH * OW)
            np.matmul(kernel, matrix, out=out.reshape(CO, OH * OW))
            np.maximum(out, 0, out=out)

    return run


def _conv2d_reference(
    inputs: Arrays, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of length CI·KH·KW; relu enlarges no error."""

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        windows = _windows(_pad(x, padding), KH, KW, stride)
        return np.moveaxis(np.tensordot(windows, kernel, ([1, 4, 5], [1, 2, 3])), 3, 1)

    X, K = inputs
    return (Bounded(np.maximum(convolve(X, K), 0), convolve(np.abs(X), np.abs(K)), CI * KH * KW),)


def _conv2d_flop(N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int) -> int:
    return N * CO * _extent(H, KH, stride, padding) * _extent(W, KW, stride, padding) * (2 * CI * KH * KW + 1)


def _depthwise_build(dtype: str, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, C, H, W), dtype, name="X")
    K = te.placeholder((C, KH, KW), dtype, name="K")
    pad = _padded(X, padding, dtype)
    rh, rw = te.reduce_axis((0, KH), "rh"), te.reduce_axis((0, KW), "rw")
    shape = (N, C, _extent(H, KH, stride, padding), _extent(W, KW, stride, padding))

    def value(n, c, oh, ow):
        return te.sum(pad[n, c, oh * stride + rh, ow * stride + rw] * K[c, rh, rw], axis=[rh, rw])

    conv = te.compute(shape, value, name="conv")
    Y = te.compute(shape, lambda n, c, oh, ow: te.maximum(conv[n, c, oh, ow], te.const(0, dtype)), name="Y")
    return te.create_prim_func([X, K, Y], name="depthwise")


def _depthwise_draw(rng: np.random.Generator, N: int, H: int, W: int, C: int, KH: int, KW: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, C, H, W)), rng.uniform(-1, 1, (C, KH, KW))


def _depthwise_numpy(
    dtype: str, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int
) -> Callable[[Arrays, Arrays], None]:
    """One multiplication and addition of whole planes for each kernel element, some channels at a time."""
    OH, OW = _extent(H, KH, stride, padding), _extent(W, KW, stride, padding)
    groups = list(rows_of(C, OH * OW))
    largest = groups[0].stop
    padded = np.zeros((largest, H + 2 * padding, W + 2 * padding), dtype)
    product = np.empty((largest, OH, OW), dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K = inputs
        for n in range(N):
            for group in groups:
                out, kernel, source = outputs[0][n, group], K[group], X[n, group]
                if padding:
                    padded[: len(source), padding : padding + H, padding : padding + W] = source
                    source = padded[: len(source)]
                windows = _windows(source, KH, KW, stride)
                term = product[: len(out)]
                np.multiply(windows[..., 0, 0], kernel[:, 0, 0, None, None], out=out)
                for i, j in list(np.ndindex(KH, KW))[1:]:
                    np.multiply(windows[..., i, j], kernel[:, i, j, None, None], out=term)
                    np.add(out, term, out=out)
                np.maximum(out, 0, out=out)

    return run


def _depthwise_reference(
    inputs: Arrays, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of length KH·KW; relu enlarges no error."""

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        return np.einsum("nchwij,cij->nchw", _windows(_pad(x, padding), KH, KW, stride), kernel)

    X, K = inputs
    return (Bounded(np.maximum(convolve(X, K), 0), convolve(np.abs(X), np.abs(K)), KH * KW),)


def _depthwise_flop(N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int) -> int:
    return N * C * _extent(H, KH, stride, padding) * _extent(W, KW, stride, padding) * (2 * KH * KW + 1)


def _convolution(*channels: Parameter, size: int) -> tuple[Parameter, ...]:
    return (
        Parameter("N", 1, "number of images"),
        Parameter("H", size, "height of an image"),
        Parameter("W", size, "width of an image"),
        *channels,
        Parameter("KH", 3, "height of the kernel"),
        Parameter("KW", 3, "width of the kernel"),
        Parameter("stride", 1, "stride"),
        Parameter("padding", 1, "padding on each side", least=0),
    )


WORKLOADS = (
    Workload(
        name="conv2d",
        summary="a convolution of NCHW images with zero padding, then relu",
        parameters=_convolution(
            Parameter("CI", 64, "number of input channels"), Parameter("CO", 64, "number of output channels"), size=56
        ),
        build=_conv2d_build,
        draw=_conv2d_draw,
        numpy=_conv2d_numpy,
        reference=_conv2d_reference,
        flop=_conv2d_flop,
        conflict=lambda N, H, W, CI, CO, KH, KW, stride, padding: _fit(H, W, KH, KW, padding),
    ),
    Workload(
        name="depthwise",
        summary="a convolution of each channel with a kernel of its own, with zero padding, then relu",
        parameters=_convolution(Parameter("C", 32, "number of channels"), size=112),
        build=_depthwise_build,
        draw=_depthwise_draw,
        numpy=_depthwise_numpy,
        reference=_depthwise_reference,
        flop=_depthwise_flop,
        conflict=lambda N, H, W, C, KH, KW, stride, padding: _fit(H, W, KH, KW, padding),
    ),
)
