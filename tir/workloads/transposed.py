"""Transposed convolutions, as in generators of images (Ansor, OSDI 2020, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

import numpy as np

from .. import te
from ..ir import PrimFunc
from .convolutions import padded, parameters
from .workload import Parameter, Shape, sums_of_products


def _shapes(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> tuple[Shape, Shape, Shape]:
    extents = ((size - 1) * stride - 2 * padding + K for size in (H, W))
    return (N, H, W, CI), (K, K, CI, CO), (N, *extents, CO)


def _build(dtype: str, N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> PrimFunc:
    """Between the elements of an image lie `stride - 1` zeros, which the sum leaves out: where an index is no multiple of the
    stride, there is no term."""
    images, kernels, output = _shapes(N, H, W, CI, CO, K, stride, padding)
    X, kernel = te.placeholder(images, dtype, name="X"), te.placeholder(kernels, dtype, name="K")
    border = K - 1 - padding
    front = ceil(border / stride)
    pad = padded(X, ("n", "h", "w", "c"), front, border // stride)
    skipped = front * stride - border
    rh, rw, rc = te.reduce_axis((0, K), "rh"), te.reduce_axis((0, K), "rw"), te.reduce_axis((0, CI), "rc")

    def value(n, h, w, co):
        y, x = h + rh + skipped, w + rw + skipped
        product = pad[n, y // stride, x // stride, rc] * kernel[K - 1 - rh, K - 1 - rw, rc, co]
        if stride == 1:
            return te.sum(product, axis=[rh, rw, rc])
        return te.sum(product, axis=[rh, rw, rc], where=te.all(te.equal(y % stride, 0), te.equal(x % stride, 0)))

    return te.create_prim_func([X, kernel, te.compute(output, value, name="Y")], name="conv2d_transpose")


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


def _flop(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> int:
    """Those on the zeros between the elements included, as in the literature."""
    return 2 * prod(_shapes(N, H, W, CI, CO, K, stride, padding)[2]) * K * K * CI


def _conflict(N: int, H: int, W: int, CI: int, CO: int, K: int, stride: int, padding: int) -> str:
    if padding > K - 1:
        return f"the padding must be less than the extent of the kernel, {K}"
    if min(_shapes(N, H, W, CI, CO, K, stride, padding)[2]) < 1:
        return "nothing is left of the result without its padding"
    return ""


WORKLOADS = (
    sums_of_products(
        name="conv2d_transpose",
        summary="a transposed convolution of images (N, H, W, CI): the gradient of a convolution",
        parameters=(
            *parameters(H=8, W=8, CI=256, CO=128, K=4, stride=2),
            Parameter("padding", 1, "padding that is taken off on each side of the result", least=0),
        ),
        build=_build,
        shapes=_shapes,
        multiply=_scatter,
        terms=lambda N, H, W, CI, CO, K, stride, padding: ceil(K / stride) ** 2 * CI,
        flop=_flop,
        conflict=_conflict,
    ),
)
