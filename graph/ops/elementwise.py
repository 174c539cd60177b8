"""Elementwise operators, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from tir import dtypes, te
from tir.ir import Expr
from tir.te.elementwise import toward_zero

from .narrow_types import NARROW, narrowed
from .registry import NEWEST, composite, element, function_name, need, operator, shape_of, wide

Formula = Callable[..., Any]


def at(x: te.Tensor, position: Sequence[Expr]) -> Expr:
    """The element of `x` that is broadcast to a place of the result: an extent of 1 is read at 0, missing dimensions lead."""
    own = position[len(position) - x.ndim :]
    return x[tuple(te.const(0) if extent == 1 else i for extent, i in zip(shape_of(x), own, strict=True))]


def broadcast(*xs: te.Tensor) -> tuple[int, ...]:
    """The shape to which tensors broadcast; ValueError where they do not."""
    try:
        return np.broadcast_shapes(*map(shape_of, xs))
    except ValueError:
        raise ValueError(f"shapes {' and '.join(str(list(shape_of(x))) for x in xs)} do not broadcast") from None


def elementwise(name: str, formula: Formula, *xs: te.Tensor) -> te.Tensor:
    """The formula of the elements of tensors that are broadcast together; ValueError where their shapes do not fit."""
    return te.compute(broadcast(*xs), lambda *i: formula(*(at(x, i) for x in xs)), name=name)


def rounded_once(formula: Formula) -> Formula:
    """A formula of halves computed in float32, its result rounded to their type; of other elements the formula itself."""

    def once(*elements: Expr) -> Expr:
        result = formula(*map(wide, elements))
        half = next((e.dtype for e in elements if dtypes.is_half(e.dtype)), None)
        return result.astype(half) if half and dtypes.is_float(result.dtype) else result

    return once


def same_type(*xs: te.Tensor, dtype: str | None = None) -> None:
    """Refuse tensors of different element types, or of a kind that is not `dtype` (see `need`)."""
    for number, x in enumerate(xs):
        need(f"input {number}", x, dtype=dtype)
    if len({x.dtype for x in xs}) > 1:
        raise TypeError(f"element types differ: {', '.join(x.dtype for x in xs)}")


def one(x: Expr) -> Expr:
    return te.const(1, x.dtype)


def zero(x: Expr) -> Expr:
    return te.const(0, x.dtype)


def like(x: Expr, value: float) -> Expr:
    return te.const(value, x.dtype)


def _or_nan(chosen: Formula) -> Formula:
    """A choice of two numbers, or a NaN where one is."""
    return lambda x, y: te.select(te.isnan(y), y, chosen(x, y)) if dtypes.is_float(x.dtype) else chosen(x, y)


larger, smaller = _or_nan(te.maximum), _or_nan(te.minimum)


def unary(name: str, since: int, formula: Formula, dtype: str | None = "float", called: str = "") -> None:
    """Register an operator by the formula of an element, whose keywords are its attributes. Functions call it `called`."""
    _register(name, since, formula, "x", partial(need, "the input", dtype=dtype), called)


def _register(name: str, since: int, formula: Formula, letters: str, check: Formula, called: str, **properties: Any) -> None:
    def define(*xs, **attributes):
        check(*xs)
        return elementwise(called or function_name(name), rounded_once(partial(formula, **attributes)), *xs)

    attributes = [p for p in signature(formula).parameters.values() if p.kind is p.KEYWORD_ONLY]
    define.__signature__ = Signature([*(Parameter(x, Parameter.POSITIONAL_ONLY) for x in letters), *attributes])  # type: ignore
    operator(name, since, **properties)(define)


# --- of one tensor -----------------------------------------------------------------------------------------------------


def _sign(x: Expr) -> Expr:
    negative = te.const(-1, x.dtype) if dtypes.TABLE[x.dtype].kind != "uint" else zero(x)
    return te.select(x > zero(x), one(x), te.select(x < zero(x), negative, x))


def _ones(dtype: str) -> int:
    """The integer with every bit set."""
    return -1 if dtypes.TABLE[dtype].kind == "int" else int(dtypes.limits(dtype)[1])


unary("Abs", 1, lambda x: x if dtypes.TABLE[x.dtype].kind == "uint" else te.abs(x), "number")
unary("Neg", 1, lambda x: -x, "number")
unary("Sign", 9, _sign, "number")
unary("Reciprocal", 1, lambda x: one(x) / x)
unary("Round", 11, te.nearbyint)
# Operators whose formula is the function of that name in `te`, by their first version.
for _name, _since in {
    "Acos": 7, "Acosh": 9, "Asin": 7, "Asinh": 9, "Atan": 7, "Atanh": 9, "Ceil": 1, "Cos": 7, "Cosh": 9, "Erf": 9, "Exp": 1,
    "Expm1": NEWEST, "Floor": 1, "Log": 1, "Log10": NEWEST, "Log1p": NEWEST, "Log2": NEWEST, "Sin": 7, "Sinh": 9, "Sqrt": 1,
    "Tan": 7, "Tanh": 1, "Trunc": NEWEST,
}.items():  # fmt: skip
    unary(_name, _since, getattr(te, _name.lower()))
unary("Not", 1, te.logical_not, "bool")
unary("BitwiseNot", 18, lambda x: te.bit_xor(x, like(x, _ones(x.dtype))), "integer")
unary("IsNaN", 9, lambda x: te.not_equal(x, x))


def _is_infinite(x: Expr, *, detect_negative=1, detect_positive=1) -> Expr:
    signs = [sign for sign, asked in ((1, detect_positive), (-1, detect_negative)) if asked]
    return te.any(*(te.equal(x, like(x, sign * float("inf"))) for sign in signs)) if signs else te.const(False, "bool")


unary("IsInf", 10, _is_infinite, called="is_inf")


@operator("Clip", operands={1: "min", 2: "max"})
def clip(x, min=None, max=None):
    need("the input", x, dtype="number")
    low, high = element("min", min, x.dtype), element("max", max, x.dtype)

    def formula(a: Expr) -> Expr:
        clipped = a if low is None else te.maximum(a, low)
        return clipped if high is None else te.minimum(clipped, high)

    return elementwise("clip", formula, x)


@operator("Cast")
def cast(x, *, to, saturate=1, round_mode="up"):
    """Conversion to the element type named `to`; `saturate` concerns 8-bit floats alone."""
    if to in NARROW:
        return elementwise("cast", lambda a: narrowed(a, to, bool(saturate)), x)
    dtypes.check(to)
    return elementwise("cast", lambda a: a.astype(to), x)


@composite("CastLike", 15)
def cast_like(apply, x, target, *, saturate=1, round_mode="up"):
    return apply("Cast", x, to=apply.dtype(target), saturate=saturate)


# --- of several tensors ------------------------------------------------------------------------------------------------


def _binary(name: str, since: int, formula: Formula, dtype: str | None = "number", called: str = "", **properties: Any) -> None:
    _register(name, since, formula, "xy", partial(same_type, dtype=dtype), called, **properties)


def _divide(x: Expr, y: Expr) -> Expr:
    """The quotient; of integers rounded toward zero."""
    return x / y if dtypes.is_float(x.dtype) else toward_zero("//", x, y)


_binary("Add", 7, lambda x, y: x + y, commutative=True, neutral=-0.0)
_binary("Sub", 7, lambda x, y: x - y, neutral=0.0)
_binary("Mul", 7, lambda x, y: x * y, commutative=True, neutral=1.0)
_binary("Div", 7, _divide, neutral=1.0)
_binary("And", 7, te.all, "bool", commutative=True, neutral=True)
_binary("Or", 7, te.any, "bool", commutative=True, neutral=False)
_binary("Xor", 7, te.not_equal, "bool", commutative=True, neutral=False)
_binary("Equal", 7, te.equal, None, commutative=True)
_binary("Less", 7, lambda x, y: x < y)
_binary("LessOrEqual", 12, lambda x, y: x <= y)
_binary("Greater", 7, lambda x, y: x > y)
_binary("GreaterOrEqual", 12, lambda x, y: x >= y)
_binary("BitwiseAnd", 18, te.bit_and, "integer", commutative=True)
_binary("BitwiseOr", 18, te.bit_or, "integer", commutative=True, neutral=0)
_binary("BitwiseXor", 18, te.bit_xor, "integer", commutative=True, neutral=0)


def _shift(x: Expr, y: Expr, *, direction) -> Expr:
    """A shift of x by y bits. By the width of the type or more it gives 0, to the right -1 for negative numbers."""
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction must be LEFT or RIGHT, got {direction!r}")
    last = like(y, dtypes.bits(x.dtype) - 1)
    near = te.minimum(y, last)
    if direction == "RIGHT" and dtypes.TABLE[x.dtype].kind == "int":
        return te.shr(x, near)
    return te.select(y > last, zero(x), (te.shl if direction == "LEFT" else te.shr)(x, near))


def _remainder(x: Expr, y: Expr, *, fmod=0) -> Expr:
    """The remainder with the sign of the divisor, or, with `fmod`, with that of the dividend."""
    if not fmod:
        return x % y
    return te.fmod(x, y) if dtypes.is_float(x.dtype) else toward_zero("%", x, y)


_binary("Atan2", NEWEST, te.atan2, "float")
_binary("BitShift", 11, _shift, "integer", "bit_shift")
_binary("Mod", 10, _remainder)


@operator("PRelu", 7)
def prelu(x, slope):
    need("the slope", slope, dtype=x.dtype, broadcast=shape_of(x))
    need("the input", x, dtype="number")
    return elementwise("prelu", lambda a, s: te.select(a < zero(a), a * s, a), x, slope)


@operator("Pow", 7)
def power(x, y):
    """x to the power y, in the element type of x. Integers to powers of integers are exact, as products that wrap around."""
    need("the base", x, dtype="number")
    need("the exponent", y, dtype="number")
    if dtypes.is_float(x.dtype):
        return elementwise("pow", lambda a, b: te.pow(wide(a), b.astype(dtypes.computed(a.dtype))).astype(a.dtype), x, y)
    if dtypes.is_float(y.dtype):
        return elementwise("pow", lambda a, b: te.pow(a.astype("float64"), b.astype("float64")).astype(a.dtype), x, y)
    units = (1, -1) if dtypes.TABLE[x.dtype].kind == "int" else (1,)

    def whole(*i: Expr) -> Expr:
        """1; 0 where the power is a fraction, which is truncated."""
        a, b = at(x, i), at(y, i)
        return te.select(te.all(b < zero(b), *(te.not_equal(a, like(a, unit)) for unit in units)), zero(a), one(a))

    def squared(power: te.Tensor, k: Expr, *i: Expr) -> tuple[Sequence[Expr], Expr, bool]:
        """The power by one more bit of the exponent, from the left. Of a negative one, of base 1 or -1, the last bit counts."""
        a, b = at(x, i), at(y, i)
        bit = te.bit_and(te.shr(b, like(b, bits - 1) - k.astype(b.dtype)), one(b))
        return i, power[i] * power[i] * te.select(te.equal(bit, zero(b)), one(a), a), True

    bits, shape = dtypes.bits(y.dtype), broadcast(x, y)
    return te.scatter(te.compute(shape, whole, name="whole"), (bits, *shape), squared, name="pow")


def _variadic(name: str, combine: Formula, dtype: str = "float", mean: bool = False) -> None:
    @operator(name)
    def define(*xs):
        same_type(*xs, dtype=dtype)

        def formula(first: Expr, *others: Expr) -> Expr:
            for other in others:
                first = combine(first, other)
            return first if not mean else first / like(first, len(xs))

        return elementwise(function_name(name), rounded_once(formula), *xs)


_variadic("Sum", lambda x, y: x + y)
_variadic("Mean", lambda x, y: x + y, mean=True)
_variadic("Max", larger, "number")
_variadic("Min", smaller, "number")


@operator("Where", 9)
def where(condition, x, y):
    need("the condition", condition, dtype="bool")
    same_type(x, y)
    return elementwise("where", te.select, condition, x, y)
