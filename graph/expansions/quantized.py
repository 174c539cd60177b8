"""Products of quantised numbers: of integers, in int32, without their zero points; and scaled and quantised again."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Value
from .body import Body, attributes, expansion


def shifted(body: Body, x: str, zero: str, shape: Sequence[int] | None) -> str:
    """An integer tensor as int32, less its zero point, if it has one, which is brought into `shape`."""
    wide = body.cast(x, "int32")
    if not zero:
        return wide
    point = body.cast(zero, "int32")
    if shape is not None:
        point = body.add("Reshape", point, body.constant(shape, "int64"))
    return body.add("Sub", wide, point)


def scale_along(body: Body, scale: str, value: Value, shape: Sequence[int]) -> str:
    """A scale, brought into `shape` where it is a vector."""
    return body.add("Reshape", scale, body.constant(shape, "int64")) if len(value.shape) == 1 and value.shape[0] > 1 else scale


def quantised(body: Body, total: str, scales: Sequence[str], result: Sequence[str], output: str) -> None:
    """An int32 times scales, quantised by the scale and the zero point `result`."""
    real = body.cast(total, "float32")
    for scale in scales:
        real = body.add("Mul", real, body.cast(scale, "float32"))
    body.add("QuantizeLinear", real, body.cast(result[0], "float32"), result[1], output=output)


def column(value: Value | None) -> list[int] | None:
    """Where the zero points of rows go: beside the columns. None for one number."""
    return None if value is None or len(value.shape) != 1 or value.shape[0] == 1 else [-1, 1]


@expansion("MatMulInteger", 10)
def matmul_integer(body, node, values):
    a, b, *zeros = [*node.input, "", ""][:4]
    left = shifted(body, a, zeros[0], column(values[2] if zeros[0] else None))
    body.add("MatMul", left, shifted(body, b, zeros[1], None), output=node.output[0])


@expansion("QLinearMatMul", 10)
def qlinear_matmul(body, node, values):
    a, a_scale, a_zero, b, b_scale, b_zero, *result = node.input
    left = shifted(body, a, a_zero, column(values[2]))
    total = body.add("MatMul", left, shifted(body, b, b_zero, None))
    quantised(body, total, [scale_along(body, a_scale, values[1], [-1, 1]), b_scale], result, node.output[0])


@expansion("ConvInteger", 10)
def conv_integer(body, node, values):
    x, w, x_zero, w_zero = [*node.input, "", ""][:4]
    ones = [1] * (len(values[0].shape) - 1)
    per_channel = [-1, *ones] if w_zero and len(values[3].shape) else None
    left, right = shifted(body, x, x_zero, [] if x_zero else None), shifted(body, w, w_zero, per_channel)
    body.add("Conv", left, right, output=node.output[0], **attributes(node))


@expansion("QLinearConv", 10)
def qlinear_conv(body, node, values):
    x, x_scale, x_zero, w, w_scale, w_zero, *result = node.input
    ones = [1] * (len(values[0].shape) - 2)
    per_channel = [-1, 1, *ones] if len(values[5].shape) else None
    operands = [shifted(body, x, x_zero, []), shifted(body, w, w_zero, per_channel), *result[2:]]
    total = body.add("Conv", *operands, **attributes(node))
    quantised(body, total, [x_scale, scale_along(body, w_scale, values[4], [-1, *ones])], result[:2], node.output[0])
