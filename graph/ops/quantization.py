"""Numbers as integers: (integer - zero point) * scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from schedule.annotation_values import NARROW_PAIRS
from tir import dtypes, te
from tir.ir import Expr

from ..ir import Value
from .narrow_types import NARROW, held_as, narrowed
from .registry import NEWEST, Apply, composite, need, operator, shape_of
from .rows import normal_axes, replaced

INTEGERS = ("int8", "uint8", "int16", "uint16")


class QuantizationParameter:
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
        """The scale or the zero point at a place of the tensor."""
        if self.scalar:
            return self.given[tuple(te.const(0) for _ in range(self.given.ndim))]
        if self.block:
            return self.given[replaced(i, self.axis, i[self.axis] // self.block)]
        return self.given[i[self.axis]]


def _alike(a: te.Tensor, b: te.Tensor) -> bool:
    """True where two parameters have one shape, or each is one number."""
    return shape_of(a) == shape_of(b) or prod(shape_of(a)) == prod(shape_of(b)) == 1


@operator("QuantizeLinear", 10)
def quantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, saturate=1, output_dtype=None, precision=None):
    """x / scale, rounded to even, + zero point, as the closest integer of the type of the zero point, `output_dtype`, or uint8.

    The quotient is in the type `precision`, if that is given. `saturate` concerns 8-bit floats alone."""
    need("the scale", scale, dtype="float")
    need("the input", x, dtype="number")
    kind = output_dtype or ("uint8" if zero_point is None else zero_point.dtype)
    if kind not in (*INTEGERS, *NARROW) or (zero_point is not None and zero_point.dtype != held_as(kind)):
        also = "" if zero_point is None else f" and {zero_point.dtype}"
        raise TypeError(f"results are {', '.join((*INTEGERS, *NARROW))}, got {kind}{also}")
    scales = QuantizationParameter("the scale", scale, x, axis, block_size)
    zeros = None if zero_point is None else QuantizationParameter("the zero point", zero_point, x, axis, block_size)
    if zero_point is not None and not _alike(zero_point, scale):
        raise ValueError(f"scale and zero point differ: {list(shape_of(scale))} and {list(shape_of(zero_point))}")
    real = precision or ("float32" if not dtypes.is_float(x.dtype) else dtypes.promote(x.dtype, scale.dtype))

    def formula(*i: Expr) -> Expr:
        quotient = (x[i].astype(real) / scales.at(i).astype(real)).astype("float32")
        zero = None if zeros is None else zeros.at(i).astype("float32")
        if held_as(kind) == "float32":
            return narrowed(quotient if zero is None else quotient + zero, kind, bool(saturate))
        return _closest(quotient, zero, kind)

    return te.compute(x.shape, formula, name="quantize")


def _closest(number: Expr, zero: Expr | None, kind: str) -> Expr:
    """A float32, rounded to even, + a zero point, as the closest integer of a type, which may be narrow."""
    low, high = _limits(kind)
    shifted = te.nearbyint(number) if zero is None else te.nearbyint(number) + zero
    return te.minimum(te.maximum(shifted, te.const(low, "float32")), te.const(high, "float32")).astype(held_as(kind))


def _limits(kind: str) -> tuple[float, float]:
    """The smallest and the largest integer of a type."""
    low, high = (NARROW[kind].low, NARROW[kind].high) if kind in NARROW else dtypes.limits(kind)
    return float(low), float(high)


@operator("QuantizeByFactor", NEWEST)
def quantize_by_factor(x, factor=None, *, zero, to, low=-inf, high=inf):
    """x * factor, clipped to `low` and `high`, rounded to even, + zero, in the type `to`: QuantizeLinear by a known scale."""
    need("the input", x, dtype="float")
    need("the factor", factor, (), x.dtype)
    least, largest = (limit - zero for limit in _limits(to))
    low, high = (te.const(min(max(limit, least), largest), "float32") for limit in (min(low, high), high))

    def formula(*i: Expr) -> Expr:
        number = (x[i] if factor is None else x[i] * factor[()]).astype("float32")
        clipped = te.minimum(te.maximum(number, low), high)
        return (te.nearbyint(clipped).astype("int32") + zero).astype(to)

    return te.compute(x.shape, formula, name="quantize")


@operator("DequantizeLinear", 10)
def dequantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=None):
    """(x - zero point) * scale, in the type of the scale, or `output_dtype`."""
    need("the scale", scale, dtype="float")
    need("the input", x, dtype=x.dtype if x.dtype == "float32" else "integer")  # which may hold floats of 8 bits
    need("the zero point", zero_point, None if zero_point is None or _alike(zero_point, scale) else shape_of(scale), x.dtype)
    scales = QuantizationParameter("the scale", scale, x, axis, block_size)
    zeros = None if zero_point is None else QuantizationParameter("the zero point", zero_point, x, axis, block_size)
    kind, real = output_dtype or scale.dtype, dtypes.promote("float32", scale.dtype)

    def formula(*i: Expr) -> Expr:
        exact = "int32" if dtypes.is_int(x.dtype) else x.dtype
        number = x[i].astype(exact)
        if zeros is not None:
            number = number - zeros.at(i).astype(exact)
        return (number.astype(real) * scales.at(i).astype(real)).astype(kind)

    return te.compute(x.shape, formula, name="dequantize")


def pairs_attrs(narrow: bool) -> dict[str, bool]:
    """The annotations of a sum of products by integers of 8 bits."""
    return {NARROW_PAIRS: True} if narrow else {}


@operator("IntegerProduct", NEWEST)
def integer_product(a, b, *, narrow_pairs=False):
    """a (..., M, K) times b (..., K, N), integers of 8 bits, of any signs, in int32: the sums that processors have instructions
    for. With `narrow_pairs`, products by neighbouring rows of b add up within 16 bits, two by two."""
    *batch, rows, steps = shape_of(a)
    for what, x, shape in (("the left operand", a, (*batch, rows, steps)), ("the right operand", b, (*batch, steps, None))):
        need(what, x, shape, x.dtype if x.dtype in ("int8", "uint8") else "int8", range(2, 8))
    k = te.reduce_axis((0, steps), "k")

    def formula(*i: Expr) -> Expr:
        *at, row, column = i
        return te.sum(a[(*at, row, k)].astype("int32") * b[(*at, k, column)].astype("int32"), axis=k)

    return te.compute((*batch, rows, shape_of(b)[-1]), formula, name="matmul", attrs=pairs_attrs(narrow_pairs))


# --- products of quantised numbers: composites of integers, in int32, without their zero points ------------------------


def _shifted(apply: Apply, x: Value, zero: Value | None, shape: Sequence[int] | None = None) -> Value:
    """An integer tensor as int32, less its zero point, if any, reshaped to `shape`."""
    wide = apply("Cast", x, to="int32")
    if zero is None:
        return wide
    point = apply("Cast", zero, to="int32")
    return apply("Sub", wide, point if shape is None else apply("Reshape", point, shape=tuple(shape)))


def _along(value: Value | None, shape: Sequence[int]) -> Sequence[int] | None:
    """The shape for scales or zero points along an axis; None for a single number."""
    return shape if value is not None and len(value.shape) == 1 and value.shape[0] > 1 else None


def _quantised(
    apply: Apply, total: Value, scales: Sequence[tuple[Value, Sequence[int] | None]], scale: Value, zero: Value
) -> Value:
    """An int32 tensor times scales, each reshaped, quantised by a scale and a zero point."""
    real = apply("Cast", total, to="float32")
    for factor, shape in scales:
        shaped = factor if shape is None else apply("Reshape", factor, shape=tuple(shape))
        real = apply("Mul", real, apply("Cast", shaped, to="float32"))
    return apply("QuantizeLinear", real, apply("Cast", scale, to="float32"), zero)


@composite("MatMulInteger", 10)
def matmul_integer(apply, a, b, a_zero=None, b_zero=None):
    return apply("MatMul", _shifted(apply, a, a_zero, _along(a_zero, (-1, 1))), _shifted(apply, b, b_zero))


@composite("QLinearMatMul", 10)
def qlinear_matmul(apply, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero):
    total = matmul_integer(apply, a, b, a_zero, b_zero)
    return _quantised(apply, total, [(a_scale, _along(a_scale, (-1, 1))), (b_scale, None)], scale, zero)


@composite("ConvInteger", 10)
def conv_integer(apply, x, w, x_zero=None, w_zero=None, **window):
    ones = (1,) * (len(x.shape) - 1)
    return apply("Conv", _shifted(apply, x, x_zero, ()), _shifted(apply, w, w_zero, _along(w_zero, (-1, *ones))), **window)


@composite("QLinearConv", 10)
def qlinear_conv(apply, x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias=None, **window):
    ones = (1,) * (len(x.shape) - 2)
    operands = _shifted(apply, x, x_zero, ()), _shifted(apply, w, w_zero, _along(w_zero, (-1, 1, *ones)))
    total = apply("Conv", *operands, bias, **window)
    return _quantised(apply, total, [(x_scale, None), (w_scale, _along(w_scale, (-1, *ones)))], scale, zero)
