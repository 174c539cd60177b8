"""Transposed convolutions, as in generators of images (Ansor, OSDI 2020, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from .. import te
from ..ir import PrimFunc
from .padding import padded
from .workload import Arrays, Bounded, Parameter, Workload


def _extent(size: int, K: int, stride: int, padding: int) -> int:
    return (size - 1) * stride - 2 * padding + K


def _build(dtype: str, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> PrimFunc:
    """Between the elements of an image lie `stride - 1` zeros, which the sum leaves out: where an index is no multiple of the
    stride, there is no term."""
    X = te.placeholder((N, H, W, CI), dtype, name="X")
    kernel = te.placeholder((K, K, CI, CO), dtype, name="K")
    border = K - 1 - padding
    front = ceil(border / stride)
    pad = padded(X, ("n", "h", "w", "c"), front, border // stride, dtype)
    skipped = front * stride - border
    rh, rw, rc = te.reduce_axis((0, K), "rh"), te.reduce_axis((0, K), "rw"), te.reduce_axis((0, CI), "rc")

    def value(n, h, w, co):
        y, x = h + rh + skipped, w + rw + skipped
        product = pad[n, y // stride, x // stride, rc] * kernel[K - 1 - rh, K - 1 - rw, rc, co]
        if stride == 1:
            return te.sum(product, axis=[rh, rw, rc])
        return te.sum(product, axis=[rh, rw, rc], where=te.all(te.equal(y % stride, 0), te.equal(x % stride, 0)))

    shape = (N, _extent(H, K, stride, padding), _extent(W, K, stride, padding), CO)
    return te.create_prim_func([X, kernel, te.compute(shape, value, name="Y")], name="conv2d_transpose")


def _draw(rng: np.random.Generator, N: int, H: int, W: int, CI: int, CO: int, K: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, H, W, CI)), rng.uniform(-1, 1, (K, K, CI, CO))


def _scatter(dtype: str, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> Callable[..., None]:
    """A matrix product gives what each pixel adds to each of the outputs around it."""
    products = np.empty((H, W, K, K, CO), dtype)
    whole = np.empty(((H - 1) * stride + K, (W - 1) * stride + K, CO), dtype)
    inner = whole[padding : whole.shape[0] - padding, padding : whole.shape[1] - padding]

    def run(X: np.ndarray, kernel: np.ndarray, out: np.ndarray) -> None:
        matrix = np.ascontiguousarray(np.moveaxis(kernel, 2, 0)).reshape(CI, K * K * CO)
        for image, result in zip(X, out, strict=True):
            np.matmul(image.reshape(H * W, CI), matrix, out=products.reshape(H * W, K * K * CO))
            whole.fill(0)
            for i, j in np.ndindex(K, K):
                part = whole[i : i + (H - 1) * stride + 1 : stride, j : j + (W - 1) * stride + 1 : stride]
                np.add(part, products[:, :, i, j], out=part)
            result[...] = inner

    return run


def _numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
    scatter = _scatter(dtype, *sizes)
    return lambda inputs, outputs: scatter(*inputs, outputs[0])


def _reference(
    inputs: Arrays, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of up to ceil(K / stride)² CI terms."""
    scatter = _scatter("float64", N, H, W, CI, CO, K, stride, padding)
    value, scale = (np.empty((N, _extent(H, K, stride, padding), _extent(W, K, stride, padding), CO)) for _ in range(2))
    scatter(*inputs, value)
    scatter(*map(np.abs, inputs), scale)
    return (Bounded(value, scale, ceil(K / stride) ** 2 * CI),)


def _flop(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> int:
    """Those on the zeros between the elements included, as in the literature."""
    return 2 * N * _extent(H, K, stride, padding) * _extent(W, K, stride, padding) * K * K * CI * CO


def _conflict(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> str:
    if padding > K - 1:
        return f"the padding must be less than the extent of the kernel, {K}"
    if min(_extent(H, K, stride, padding), _extent(W, K, stride, padding)) < 1:
        return "nothing is left of the result without its padding"
    return ""


WORKLOADS = (
    Workload(
        name="conv2d_transpose",
        summary="a transposed convolution of images (N, H, W, CI): the gradient of a convolution",
        parameters=(
            Parameter("N", 1, "number of images"),
            Parameter("H", 8, "height of an image"),
            Parameter("W", 8, "width of an image"),
            Parameter("CI", 256, "number of input channels"),
            Parameter("CO", 128, "number of output channels"),
            Parameter("K", 4, "height and width of the kernel"),
            Parameter("stride", 2, "stride"),
            Parameter("padding", 1, "padding that is taken off on each side of the result", least=0),
        ),
        build=_build,
        draw=_draw,
        numpy=_numpy,
        reference=_reference,
        flop=_flop,
        conflict=_conflict,
    ),
)
