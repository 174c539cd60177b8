"""Transposed convolutions, as in image generators (Ansor, OSDI 2020, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

import numpy as np

from tir import te
from tir.ir import Expr

from .convolutions import LAST, Convolution, parameters, workload
from .workload import Parameter, Shape


class Transposed(Convolution):
    """The gradient of a convolution, where `padding` is cropped from each side of the result."""

    @property
    def outputs(self) -> Shape:
        return tuple((s - 1) * self.stride - 2 * self.padding + k for s, k in zip(self.image, self.kernel, strict=True))

    @property
    def terms(self) -> int:
        return prod(ceil(k / self.stride) for k in self.kernel) * self.CI

    @property
    def flop(self) -> int:
        """The count includes the operations on the zeros between the elements, as in the literature."""
        return 2 * prod(self.shapes[2]) * prod(self.kernel) * self.CI

    @property
    def conflict(self) -> str:
        if self.padding > self.kernel[0] - 1:
            return f"the padding must be less than the extent of the kernel, {self.kernel[0]}"
        if min(self.shapes[2]) < 1:
            return "nothing is left of the result without its padding"
        return ""

    @property
    def border(self) -> tuple[int, int]:
        skipped = self.kernel[0] - 1 - self.padding
        return ceil(skipped / self.stride), skipped // self.stride

    def meeting(self, place: Expr, step: Expr) -> tuple[Expr, Expr, Expr | None]:
        """`stride - 1` zeros lie between elements of an image; the condition, a multiple of the stride, skips them."""
        last = self.kernel[0] - 1
        at = place + step + (self.border[0] * self.stride - (last - self.padding))
        return at // self.stride, last - step, None if self.stride == 1 else te.equal(at % self.stride, 0)

    def multiply(self, dtype: str) -> Callable[..., None]:
        """A function that multiplies the pixels of an image by the kernel, as matrices, and sums the products of each output."""
        (H, W), K, CI, CO, stride, padding = self.image, self.kernel[0], self.CI, self.CO, self.stride, self.padding
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


WORKLOADS = (
    workload(
        "conv2d_transpose",
        "a transposed convolution of images (N, H, W, CI): the gradient of a convolution",
        lambda N, H, W, CI, CO, K, *more: Transposed(LAST[2], N, (H, W), CI, CO, (K, K), *more),
        (
            *parameters(H=8, W=8, CI=256, CO=128, K=4, stride=2),
            Parameter("padding", 1, "padding that is taken off on each side of the result", minimum=0),
        ),
    ),
)
