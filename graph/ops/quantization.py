"""Numbers as integers: (integer - zero point) * scale."""

from __future__ import annotations

from collections.abc import Sequence

from tir import dtypes, te
from tir.ir import Expr

from .registry import need, operator, shape_of
from .rows import normal_axes

INTEGERS = ("int8", "uint8", "int16", "uint16")


class Parameters:
    """A scale, or a zero point, of a tensor: one number, one for each index along an axis, or one for each block along it."""

    def __init__(self, what: str, given: te.Tensor, x: te.Tensor, axis: int, block: int):
        self.given, self.block = given, block
        self.scalar = not given.ndim or (shape_of(given) == (1,) and not block)
        self.axis = 0 if self.scalar else normal_axes([axis], x.ndim)[0]
        extents = list(shape_of(x))
        if block:
            extents[self.axis] = -(-extents[self.axis] // block)
            need(what, given, extents)
        elif not self.scalar:
            need(what, given, [extents[self.axis]])

    def at(self, i: Sequence[Expr]) -> Expr:
        """The one for a place of the tensor."""
        if self.scalar:
            return self.given[tuple(te.const(0) for _ in range(self.given.ndim))]
        if self.block:
            return self.given[(*i[: self.axis], i[self.axis] // self.block, *i[self.axis + 1 :])]
        return self.given[i[self.axis]]


@operator("QuantizeLinear", 10)
def quantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, saturate=1, output_dtype=None, precision=None):
    """x / scale, rounded to even, + zero point, as the closest integer of the type of the zero point, `output_dtype`, or uint8.

    The quotient is in the type `precision`, if that is given. `saturate` concerns 8-bit floats alone."""
    need("the scale", scale, dtype="float")
    need("the input", x, dtype="number")
    kind = zero_point.dtype if zero_point is not None else output_dtype or "uint8"
    if kind not in INTEGERS or (output_dtype or kind) != kind:
        raise TypeError(f"results are {', '.join(INTEGERS)}, got {kind}{f' and {output_dtype}' if output_dtype else ''}")
    scales = Parameters("the scale", scale, x, axis, block_size)
    zeros = None if zero_point is None else Parameters("the zero point", zero_point, x, axis, block_size)
    if zero_point is not None and shape_of(zero_point) != shape_of(scale):
        raise ValueError(f"scale and zero point differ: {list(shape_of(scale))} and {list(shape_of(zero_point))}")
    low, high = (te.const(float(limit), "float32") for limit in dtypes.limits(kind))
    real = precision or ("float32" if not dtypes.is_float(x.dtype) else dtypes.promote(x.dtype, scale.dtype))

    def formula(*i: Expr) -> Expr:
        number: Expr = te.nearbyint((x[i].astype(real) / scales.at(i).astype(real)).astype("float32"))
        if zeros is not None:
            number = number + zeros.at(i).astype("float32")
        return te.minimum(te.maximum(number, low), high).astype(kind)

    return te.compute(x.shape, formula, name="quantize")


@operator("DequantizeLinear", 10)
def dequantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=None):
    """(x - zero point) * scale, in the type of the scale, or `output_dtype`."""
    need("the scale", scale, dtype="float")
    need("the input", x, dtype="integer")
    need("the zero point", zero_point, shape_of(scale), x.dtype)
    scales = Parameters("the scale", scale, x, axis, block_size)
    zeros = None if zero_point is None else Parameters("the zero point", zero_point, x, axis, block_size)
    kind, real = output_dtype or scale.dtype, dtypes.promote("float32", scale.dtype)

    def formula(*i: Expr) -> Expr:
        number = x[i].astype("int32")
        if zeros is not None:
            number = number - zeros.at(i).astype("int32")
        return (number.astype(real) * scales.at(i).astype(real)).astype(kind)

    return te.compute(x.shape, formula, name="dequantize")
