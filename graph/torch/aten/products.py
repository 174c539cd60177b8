"""Products of matrices, and convolutions."""

from __future__ import annotations

from typing import Any

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .elementwise import scaled
from .moving import reshaped
from .types import Table, aten, pair


@aten("addmm", "addmv", "baddbmm")
def add_product(apply, bias, a, b, *, beta=1, alpha=1):
    """beta bias + alpha a b, with the bias broadcast."""
    product = apply("MatMul", a, b)
    if beta == 0:
        return scaled(apply, product, alpha)
    return apply("Add", scaled(apply, product, alpha), scaled(apply, bias, beta))


@aten("linear")
def linear(apply, x, weight, bias=None):
    order = tuple(range(len(weight.shape)))[::-1]
    product = apply("MatMul", x, apply("Transpose", weight, perm=order) if len(order) > 1 else weight)
    return product if bias is None else apply("Add", product, bias)


@aten("convolution", "_convolution")
def convolution(
    apply: Apply, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *flags: bool,
) -> Value:  # fmt: skip
    """A convolution, or a transposed one, of images of any number of dimensions; without a batch, of one image."""
    n = len(weight.shape) - 2
    if len(x.shape) == n + 1:
        image = reshaped(apply, x, (1, *x.shape))
        found = convolution(apply, image, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return reshaped(apply, found, found.shape[1:])
    pads = pair(padding, n)
    window: dict[str, Any] = {"strides": pair(stride, n), "dilations": pair(dilation, n), "pads": (*pads, *pads), "group": groups}
    if not dtypes.is_float(x.dtype):
        raise TypeError(f"the input must be of floats, got {x.dtype}")
    if transposed:
        return apply("ConvTranspose", x, weight, bias, output_padding=pair(output_padding, n), **window)
    return apply("Conv", x, weight, bias, **window)


OPERATORS: Table = {
    "mm bmm matmul mv dot": lambda apply, a, b: apply("MatMul", a, b),
    "einsum": lambda apply, equation, tensors: apply("Einsum", *tensors, equation=equation),
    "outer": lambda apply, a, b: apply("Mul", reshaped(apply, a, (*a.shape, 1)), b),
    "conv1d conv2d conv3d": lambda apply, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1: convolution(
        apply, x, weight, bias, stride, padding, dilation, False, 0, groups
    ),
}
