"""Convolutions of capsules: each pixel and channel is a small matrix, and products are matrix products (Ansor, OSDI 2020,
appendix C)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import te
from ..ir import PrimFunc
from .padding import extent, named, padded, reach, windows
from .workload import Arrays, Bounded, Parameter, Workload

SIDE = 4  # rows and columns of a capsule


def _build(dtype: str, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, H, W, SIDE, SIDE, CI), dtype, name="X")
    kernel = te.placeholder((K, K, SIDE, SIDE, CI, CO), dtype, name="K")
    pad = padded(X, ("n", "h", "w", "ci", "cj", "c"), padding, padding, dtype)
    rh, rw = te.reduce_axis((0, K), "rh"), te.reduce_axis((0, K), "rw")
    rk, rc = te.reduce_axis((0, SIDE), "rk"), te.reduce_axis((0, CI), "rc")

    def value(n, h, w, ci, cj, co):
        product = pad[n, h * stride + rh, w * stride + rw, ci, rk, rc] * kernel[rh, rw, rk, cj, rc, co]
        return te.sum(product, axis=[rh, rw, rk, rc])

    shape = (N, extent(H, K, stride, padding), extent(W, K, stride, padding), SIDE, SIDE, CO)
    Y = te.compute(shape, named(("n", "h", "w", "ci", "cj", "co"), value), name="Y")
    return te.create_prim_func([X, kernel, Y], name="capsule")


def _draw(rng: np.random.Generator, N: int, H: int, W: int, CI: int, CO: int, K: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, H, W, SIDE, SIDE, CI)), rng.uniform(-1, 1, (K, K, SIDE, SIDE, CI, CO))


def _columns(dtype: str, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> Callable[..., None]:
    """Windows to columns, a row of each capsule apart, and a matrix product for each image."""
    OH, OW = extent(H, K, stride, padding), extent(W, K, stride, padding)
    source = np.zeros((H + 2 * padding, W + 2 * padding, SIDE, SIDE, CI), dtype)
    columns = np.empty((OH, OW, SIDE, K, K, SIDE, CI), dtype)
    terms = K * K * SIDE * CI

    def run(X: np.ndarray, kernel: np.ndarray, out: np.ndarray) -> None:
        matrix = np.ascontiguousarray(np.swapaxes(kernel, 3, 4)).reshape(terms, SIDE * CO)
        for image, result in zip(X, out, strict=True):
            source[padding : padding + H, padding : padding + W] = image
            columns[...] = np.moveaxis(windows(source, 2, K, stride), (5, 6), (3, 4))
            np.matmul(columns.reshape(-1, terms), matrix, out=result.reshape(-1, SIDE * CO))

    return run


def _numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
    columns = _columns(dtype, *sizes)
    return lambda inputs, outputs: columns(*inputs, outputs[0])


def _reference(
    inputs: Arrays, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of 4·K·K·CI terms."""
    columns = _columns("float64", N, H, W, CI, CO, K, stride, padding)
    shape = (N, extent(H, K, stride, padding), extent(W, K, stride, padding), SIDE, SIDE, CO)
    value, scale = np.empty(shape), np.empty(shape)
    columns(*inputs, value)
    columns(*map(np.abs, inputs), scale)
    return (Bounded(value, scale, SIDE * K * K * CI),)


def _flop(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> int:
    return 2 * N * extent(H, K, stride, padding) * extent(W, K, stride, padding) * SIDE**3 * CI * CO * K * K


def _conflict(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> str:
    if reach(K, 1) > min(H, W) + 2 * padding:
        return f"a kernel of {K}x{K} does not fit the padded image of {H + 2 * padding}x{W + 2 * padding}"
    return ""


WORKLOADS = (
    Workload(
        name="capsule",
        summary="a convolution of images (N, H, W, 4, 4, CI), of which each element is a matrix of 4 by 4",
        parameters=(
            Parameter("N", 1, "number of images"),
            Parameter("H", 8, "height of an image"),
            Parameter("W", 8, "width of an image"),
            Parameter("CI", 32, "number of input channels"),
            Parameter("CO", 32, "number of output channels"),
            Parameter("K", 3, "height and width of the kernel"),
            Parameter("stride", 1, "stride"),
            Parameter("padding", 1, "padding on each side", least=0),
        ),
        build=_build,
        draw=_draw,
        numpy=_numpy,
        reference=_reference,
        flop=_flop,
        conflict=_conflict,
    ),
)
