"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .types import Table, aten, cast, floating, promoted, together

# Operators of ONNX whose names in torch have small letters.
OF_FLOATS = (  # of integers, too, which then are floats
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Expm1", "Log", "Log10", "Log1p", "Log2",
    "Reciprocal", "Sigmoid", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
OF_NUMBERS = ("Abs", "Neg", "Relu")
ROUNDINGS = ("Ceil", "Floor", "Round", "Trunc")  # which leave integers alone
SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}  # ONNX's defaults are those of float32
COMPARISONS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}
FLOAT16_ENDS = 2.0**-25, 65520.0  # numbers up to the first are 0 in float16, from the second on infinite
OF_BITS = ("And", "Or", "Xor")


def _or_of_bools(operator: str, of_bools: str) -> Callable[..., Value]:
    """An operator of two operands of one element type, or another one of bools."""

    def define(apply, x, y):
        a, b = together(apply, x, y)
        return apply(of_bools if a.dtype == "bool" else operator, a, b)

    return define


def _register() -> None:
    for operator in OF_FLOATS:
        aten(operator.lower())(lambda apply, x, operator=operator: apply(operator, cast(apply, x, floating(x.dtype))))
    for operator in OF_NUMBERS:
        aten(operator.lower())(lambda apply, x, operator=operator: x if x.dtype == "bool" else apply(operator, x))
    for operator in ROUNDINGS:
        aten(operator.lower())(lambda apply, x, operator=operator: apply(operator, x) if dtypes.is_float(x.dtype) else x)
    for name, operator in COMPARISONS.items():
        aten(f"{name}.Tensor", f"{name}.Scalar")(lambda apply, x, y, operator=operator: compared(apply, operator, x, y))
    for operator in OF_BITS:
        bitwise, logical = f"bitwise_{operator.lower()}", f"logical_{operator.lower()}"
        aten(f"{bitwise}.Tensor", f"{bitwise}.Scalar", f"{bitwise}.Scalar_Tensor")(_or_of_bools(f"Bitwise{operator}", operator))
        aten(logical)(lambda apply, x, y, operator=operator: apply(operator, *together(apply, x, y, dtype="bool")))


_register()


def compared(apply: Apply, operator: str, x: Any, y: Any) -> Value:
    """A comparison of two operands of one element type; a bool compares as a number."""
    dtype = promoted(x, y)
    if dtype == "bool" and operator != "Equal":
        dtype = "uint8"
    return apply(operator, *together(apply, x, y, dtype=dtype))


@aten("sign", "sgn")
def sign(apply, x):
    """-1, 0 or 1; that of a NaN is 0."""
    if x.dtype == "bool":
        return x
    found = apply("Sign", x)
    return apply("Where", apply("IsNaN", x), apply.constant(0, x.dtype), found) if dtypes.is_float(x.dtype) else found


@aten("isnan")
def is_nan(apply, x):
    return apply("IsNaN", x) if dtypes.is_float(x.dtype) else apply("Xor", *[cast(apply, x, "bool")] * 2)


@aten("isinf")
def is_infinite(apply, x):
    return apply("IsInf", x) if dtypes.is_float(x.dtype) else is_nan(apply, x)


# --- arithmetic --------------------------------------------------------------------------------------------------------


def _beyond_halves(x: Any) -> bool:
    """True for a number whose float16 is 0 or infinite, and for a tensor without dimensions that may be one."""
    if isinstance(x, Value):
        return not x.shape and x.dtype in ("float32", "float64")
    low, high = FLOAT16_ENDS
    return math.isfinite(x) and x != 0 and not low < abs(x) < high


def _scaling(apply: Apply, operator: str, x: Any, y: Any, dtype: str) -> Value:
    """A product or a quotient in an element type, or in float32 where a factor is beyond float16."""
    wide = "float32" if dtype == "float16" and any(map(_beyond_halves, (x, y))) else dtype
    return cast(apply, apply(operator, *together(apply, x, y, dtype=wide)), dtype)


def scaled(apply: Apply, y: Value, alpha: float) -> Value:
    """A product with a number."""
    return y if alpha == 1 else apply("Mul", y, cast(apply, alpha, y.dtype))


@aten("add.Tensor", "add.Scalar")
def add(apply, x, y, alpha=1):
    a, b = together(apply, x, y)
    return apply("Or", a, b) if a.dtype == "bool" else apply("Add", a, scaled(apply, b, alpha))


@aten("sub.Tensor", "sub.Scalar")
def subtract(apply, x, y, alpha=1):
    a, b = together(apply, x, y)
    return apply("Sub", a, scaled(apply, b, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def reverse_subtract(apply, x, y, alpha=1):
    return subtract(apply, y, x, alpha)


@aten("mul.Tensor", "mul.Scalar")
def multiply(apply, x, y):
    dtype = promoted(x, y)
    return _scaling(apply, "And" if dtype == "bool" else "Mul", x, y, dtype)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def divide(apply, x, y):
    return _scaling(apply, "Div", x, y, floating(promoted(x, y)))


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_rounded(apply, x, y, *, rounding_mode=None):
    """A quotient, rounded toward zero or down. One that is rounded down is the exact one."""
    if rounding_mode is None:
        return divide(apply, x, y)
    a, b = together(apply, x, y)
    quotient = apply("Div", a, b)
    if dtypes.is_float(a.dtype):
        return apply("Trunc", quotient) if rounding_mode == "trunc" else _floored(apply, a, b, quotient)
    if rounding_mode == "trunc" or dtypes.TABLE[a.dtype].kind == "uint":
        return quotient
    _, moved = _rest(apply, a, b)
    return apply("Sub", quotient, cast(apply, moved, a.dtype))


def _floored(apply: Apply, a: Value, b: Value, quotient: Value) -> Value:
    """The exact quotient of floats rounded down, as the rounded one may be above it: (a - rest) / b is one but for rounding."""
    rest, moved = _rest(apply, a, b)
    whole = apply("Div", apply("Sub", a, rest), b)
    one = apply.constant(1, a.dtype)
    found = apply("Round", apply("Where", moved, apply("Sub", whole, one), whole))
    return apply("Where", apply("Equal", b, apply.constant(0, b.dtype)), quotient, found)


def _rest(apply: Apply, a: Value, b: Value) -> tuple[Value, Value]:
    """The remainder with the sign of the dividend, and where the divisor has the other sign."""
    zero, rest = apply.constant(0, a.dtype), apply("Mod", a, b, fmod=1)
    other_sign = apply("Xor", apply("Less", rest, zero), apply("Less", b, zero))
    return rest, apply("And", other_sign, apply("Not", apply("Equal", rest, zero)))


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(apply, x, y):
    """The remainder with the sign of the divisor."""
    a, b = together(apply, x, y)
    if not dtypes.is_float(a.dtype):
        return apply("Mod", a, b)
    rest, moved = _rest(apply, a, b)
    return apply("Where", moved, apply("Add", rest, b), rest)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(apply, x, y):
    dtype = promoted(x, y)
    if not isinstance(y, Value) and y == 1:
        return cast(apply, x, dtype)
    return apply("Pow", *together(apply, x, y, dtype=dtype))


@aten("hypot")
def hypotenuse(apply, x, y):
    """sqrt(x^2 + y^2), by the ratio of both, whose square does not overflow."""
    a, b = (apply("Abs", v) for v in together(apply, x, y))
    large, infinite = apply("Max", a, b), apply("Or", apply("IsInf", a), apply("IsInf", b))
    ratio = apply("Div", apply("Min", a, b), large)
    found = apply("Mul", large, apply("Sqrt", apply("Add", apply("Mul", ratio, ratio), apply.constant(1, a.dtype))))
    found = apply("Where", apply("Equal", large, apply.constant(0, a.dtype)), large, found)
    return apply("Where", infinite, apply.constant(math.inf, a.dtype), found)


maximum, minimum = _or_of_bools("Max", "Or"), _or_of_bools("Min", "And")


def _without_nan(chosen: Callable[..., Value]) -> Callable[..., Value]:
    """A choice of two numbers; of a number and a NaN the number."""

    def define(apply, x, y):
        a, b = together(apply, x, y)
        found = chosen(apply, a, b)
        if not dtypes.is_float(a.dtype):
            return found
        return apply("Where", apply("IsNaN", a), b, apply("Where", apply("IsNaN", b), a, found))

    return define


@aten("round.decimals")
def round_decimals(apply, x, *, decimals=0):
    factor = apply.constant(10.0**decimals, x.dtype)
    return apply("Div", apply("Round", apply("Mul", x, factor)), factor)


@aten("clamp")
def clamp(apply, x, min=None, max=None):
    """Numbers as near as bounds allow, NaN where one is. The upper bound decides where they cross."""
    dtype = promoted(x, min, max)
    if any(bound is not None and math.isnan(bound) for bound in (min, max)):
        return apply("Mul", cast(apply, x, dtype), cast(apply, math.nan, dtype))
    low, high = (None if bound is None else _bound(bound, dtype) for bound in (min, max))
    return apply("Clip", cast(apply, x, dtype), min=low, max=high)


def _bound(number: float, dtype: str) -> float | int | None:
    """A bound in an element type; None where all its numbers are within."""
    if dtypes.is_float(dtype):
        return float(number)
    low, high = dtypes.limits(dtype)
    return int(number) if math.isfinite(number) and low <= number <= high else None


@aten("clamp.Tensor")
def clamp_to(apply, x, low=None, high=None):
    bounds = [v for v in (low, high) if v is not None]
    dtype = promoted(x, *bounds)
    if low is not None:
        x = apply("Max", *together(apply, x, low, dtype=dtype))
    return x if high is None else apply("Min", *together(apply, x, high, dtype=dtype))


@aten("lerp.Scalar", "lerp.Tensor")
def interpolated(apply, x, y, weight):
    """x + weight (y - x), or from y where that is nearer, so that both ends are exact."""
    span = subtract(apply, y, x)
    if not isinstance(weight, Value):
        near = abs(weight) < 0.5
        return add(apply, x, multiply(apply, span, weight)) if near else subtract(apply, y, multiply(apply, span, 1 - weight))
    near = compared(apply, "Less", apply("Abs", weight), 0.5)
    from_y = subtract(apply, y, multiply(apply, span, reverse_subtract(apply, weight, 1)))
    return apply("Where", near, add(apply, x, multiply(apply, span, weight)), from_y)


# --- activations -------------------------------------------------------------------------------------------------------


@aten("elu")
def elu(apply, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise ValueError("input_scale other than 1 is not supported")
    return scaled(apply, apply("Elu", x, alpha=float(alpha)), scale)


@aten("prelu", "_prelu_kernel")
def prelu(apply, x, weight):
    """Each channel has a slope, or all have one."""
    if len(x.shape) > 2 and len(weight.shape) == 1 and weight.shape[0] > 1:
        weight = apply("Reshape", weight, shape=(-1, *(1,) * (len(x.shape) - 2)))
    return apply("PRelu", x, weight)


@aten("softplus")
def softplus(apply, x, beta=1, threshold=20):
    """log(1 + e^(beta x)) / beta; beta x above the threshold stays."""
    given = scaled(apply, x, beta)
    result = apply("Softplus", given)
    if beta != 1:
        result = apply("Div", result, cast(apply, beta, x.dtype))
    return apply("Where", compared(apply, "Greater", given, threshold), x, result)


@aten("log_sigmoid")
def log_sigmoid(apply, x):
    return apply("Neg", apply("Softplus", apply("Neg", x)))


@aten("softshrink")
def soft_shrink(apply, x, lambd=0.5):
    """x nearer to 0 by a number, and 0 in between; a NaN stays."""
    found = apply("Shrink", x, bias=float(lambd), lambd=float(lambd))
    return apply("Where", compared(apply, "Greater", apply("Abs", x), lambd), found, apply("Mul", x, cast(apply, 0, x.dtype)))


def _shifted(direction: str) -> Any:
    def shift(apply, x, y):
        """A shift by y bits; by a negative number as by all bits."""
        a, b = together(apply, x, y)
        if dtypes.TABLE[b.dtype].kind == "int":
            all_bits = cast(apply, dtypes.TABLE[b.dtype].bits, b.dtype)
            b = apply("Where", apply("Less", b, cast(apply, 0, b.dtype)), all_bits, b)
        return apply("BitShift", a, b, direction=direction)

    return shift


def _with_term(term: Any) -> Any:
    """x and a factor times a product or quotient, all in the element type to which they promote."""

    def added(apply, x, a, b, *, value=1):
        x, a, b = together(apply, x, a, b)
        return add(apply, x, term(apply, scaled(apply, a, value), b))

    return added


@aten("glu")
def gated(apply, x, dim=-1):
    half, gate = apply("Split", x, axis=dim, num_outputs=2)
    return apply("Mul", half, apply("Sigmoid", gate))


# --- element types -----------------------------------------------------------------------------------------------------


OPERATORS: Table = {
    "ne.Tensor ne.Scalar": lambda apply, x, y: apply("Not", compared(apply, "Equal", x, y)),
    "bitwise_not": lambda apply, x: apply("Not", x) if x.dtype == "bool" else apply("BitwiseNot", x),
    "logical_not": lambda apply, x: apply("Not", cast(apply, x, "bool")),
    "isfinite": lambda apply, x: apply("Not", apply("Or", is_nan(apply, x), is_infinite(apply, x))),
    "floor_divide floor_divide.Scalar": lambda apply, x, y: divide_rounded(apply, x, y, rounding_mode="floor"),
    "fmod.Tensor fmod.Scalar": lambda apply, x, y: apply("Mod", *together(apply, x, y), fmod=1),
    "rsqrt": lambda apply, x: apply("Reciprocal", apply("Sqrt", cast(apply, x, floating(x.dtype)))),
    "exp2": lambda apply, x: apply("Pow", cast(apply, 2, floating(x.dtype)), cast(apply, x, floating(x.dtype))),
    "maximum": maximum,
    "minimum": minimum,
    "fmax": _without_nan(maximum),
    "fmin": _without_nan(minimum),
    "square": lambda apply, x: apply("Mul", x, x),
    "atan2": lambda apply, y, x: apply("Atan2", *together(apply, y, x, dtype=floating(promoted(y, x)))),
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Scalar __lshift__.Tensor": _shifted("LEFT"),
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Scalar __rshift__.Tensor": _shifted("RIGHT"),
    "hardtanh": lambda apply, x, min=-1.0, max=1.0: cast(apply, clamp(apply, x, min, max), x.dtype),
    "clamp_min clamp_min.Tensor": lambda apply, x, low: (
        clamp_to(apply, x, low) if isinstance(low, Value) else clamp(apply, x, low)
    ),
    "clamp_max clamp_max.Tensor": lambda apply, x, high: (
        clamp_to(apply, x, None, high) if isinstance(high, Value) else clamp(apply, x, None, high)
    ),
    "where.self where.ScalarSelf where.ScalarOther where.Scalar": lambda apply, condition, x, y: apply(
        "Where", cast(apply, condition, "bool"), *together(apply, x, y)
    ),
    "masked_fill.Scalar masked_fill.Tensor": lambda apply, x, mask, value: apply("Where", mask, cast(apply, value, x.dtype), x),
    "addcmul": _with_term(multiply),
    "addcdiv": _with_term(divide),
    "celu": lambda apply, x, alpha=1.0: apply("Celu", x, alpha=float(alpha)),
    "mish": lambda apply, x: apply("Mish", x),
    "selu": lambda apply, x: apply("Selu", x, **SELU),
    "gelu": lambda apply, x, *, approximate="none": apply("Gelu", x, approximate=approximate),
    "silu": lambda apply, x: apply("Swish", x),
    "leaky_relu": lambda apply, x, negative_slope=0.01: apply("LeakyRelu", x, alpha=float(negative_slope)),
    "hardsigmoid": lambda apply, x: apply("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "hardswish": lambda apply, x: apply("HardSwish", x),
    "hardshrink": lambda apply, x, lambd=0.5: apply(
        "Where", compared(apply, "LessOrEqual", apply("Abs", x), lambd), apply.constant(0, x.dtype), x
    ),
    "threshold": lambda apply, x, threshold, value: apply(
        "Where", compared(apply, "LessOrEqual", x, threshold), cast(apply, value, x.dtype), x
    ),
    "relu6": lambda apply, x: clamp(apply, x, 0, 6),
    # The result, and a buffer that inference does not read.
    "log_sigmoid_forward": lambda apply, x: (log_sigmoid(apply, x), x),
    # A conversion, of floats to integers toward zero.
    "_to_copy prims.convert_element_type to.dtype": lambda apply, x, dtype=None: cast(apply, x, dtype or x.dtype),
    "view.dtype": lambda apply, x, dtype: apply("BitCast", x, to=dtype),
}
