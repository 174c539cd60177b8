"""Operators that make each element of elements at the same place, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .registry import operator, shape_of

Formula = Callable[..., Any]


def at(x: te.Tensor, place: Sequence[Expr]) -> Expr:
    """The element of `x` that is broadcast to a place of the result: an extent of 1 is read at 0, missing dimensions lead."""
    own = place[len(place) - x.ndim :]
    return x[tuple(te.const(0) if extent == 1 else i for extent, i in zip(shape_of(x), own, strict=True))]


def elementwise(name: str, formula: Formula, *xs: te.Tensor) -> te.Tensor:
    """The formula of the elements of tensors that are broadcast together; ValueError where their shapes do not fit."""
    try:
        shape = np.broadcast_shapes(*map(shape_of, xs))
    except ValueError:
        raise ValueError(f"shapes {' and '.join(str(list(shape_of(x))) for x in xs)} do not broadcast") from None
    return te.compute(shape, lambda *i: formula(*(at(x, i) for x in xs)), name=name)


def _same_type(*xs: te.Tensor) -> None:
    if len({x.dtype for x in xs}) > 1:
        raise TypeError(f"element types differ: {', '.join(x.dtype for x in xs)}")


def _one(x: Expr) -> Expr:
    return te.const(1, x.dtype)


def _zero(x: Expr) -> Expr:
    return te.const(0, x.dtype)


def _like(x: Expr, value: float) -> Expr:
    return te.const(value, x.dtype)


def _softplus(x: Expr) -> Expr:
    """log(1 + e^x), without overflow."""
    return te.maximum(x, _zero(x)) + te.log(_one(x) + te.exp(-te.abs(x)))


# --- of one tensor -----------------------------------------------------------------------------------------------------


def _unary(name: str, since: int, formula: Formula) -> None:
    label = name.lower()

    @operator(name, since)
    def define(x):
        return elementwise(label, formula, x)


_unary("Abs", 6, te.abs)
_unary("Ceil", 6, te.ceil)
_unary("Erf", 9, te.erf)
_unary("Exp", 6, te.exp)
_unary("Floor", 6, te.floor)
_unary("HardSwish", 14, lambda x: x * te.maximum(_zero(x), te.minimum(_one(x), x * _like(x, 1 / 6) + _like(x, 0.5))))
_unary("Log", 6, te.log)
_unary("Mish", 18, lambda x: x * te.tanh(_softplus(x)))
_unary("Neg", 6, lambda x: -x)
_unary("Not", 1, lambda x: te.equal(x, te.const(False, "bool")))
_unary("Reciprocal", 6, lambda x: _one(x) / x)
_unary("Relu", 6, lambda x: te.maximum(x, _zero(x)))
_unary("Sigmoid", 6, te.sigmoid)
_unary("Softplus", 1, _softplus)
_unary("Softsign", 1, lambda x: x / (_one(x) + te.abs(x)))
_unary("Sqrt", 6, te.sqrt)
_unary("Tanh", 6, te.tanh)


@operator("LeakyRelu", 6)
def leaky_relu(x, *, alpha=0.01):
    return elementwise("leaky_relu", lambda a: te.select(a < _zero(a), a * _like(a, alpha), a), x)


@operator("Elu", 6)
def elu(x, *, alpha=1.0):
    return elementwise("elu", lambda a: te.select(a < _zero(a), (te.exp(a) - _one(a)) * _like(a, alpha), a), x)


@operator("Celu", 12)
def celu(x, *, alpha=1.0):
    def formula(a: Expr) -> Expr:
        return te.select(a < _zero(a), (te.exp(a / _like(a, alpha)) - _one(a)) * _like(a, alpha), a)

    return elementwise("celu", formula, x)


@operator("Selu", 6)
def selu(x, *, alpha=1.6732631921768188, gamma=1.0507010221481323):
    def formula(a: Expr) -> Expr:
        return te.select(a < _zero(a), (te.exp(a) - _one(a)) * _like(a, alpha), a) * _like(a, gamma)

    return elementwise("selu", formula, x)


@operator("ThresholdedRelu", 10)
def thresholded_relu(x, *, alpha=1.0):
    return elementwise("thresholded_relu", lambda a: te.select(a > _like(a, alpha), a, _zero(a)), x)


@operator("HardSigmoid", 6)
def hard_sigmoid(x, *, alpha=0.2, beta=0.5):
    def formula(a: Expr) -> Expr:
        return te.maximum(_zero(a), te.minimum(_one(a), a * _like(a, alpha) + _like(a, beta)))

    return elementwise("hard_sigmoid", formula, x)


@operator("Gelu", 20)
def gelu(x, *, approximate="none"):
    """x times the normal distribution function at x; `tanh` is the approximation by that function."""
    if approximate == "none":
        return elementwise("gelu", lambda a: a * _like(a, 0.5) * (_one(a) + te.erf(a * _like(a, 0.5**0.5))), x)
    if approximate != "tanh":
        raise ValueError(f"approximate must be none or tanh, got {approximate!r}")
    root = (2 / np.pi) ** 0.5

    def formula(a: Expr) -> Expr:
        return a * _like(a, 0.5) * (_one(a) + te.tanh((a + a * a * a * _like(a, 0.044715)) * _like(a, root)))

    return elementwise("gelu", formula, x)


@operator("Clip", 6, operands={1: "min", 2: "max"})
def clip(x, *, min=None, max=None):
    def formula(a: Expr) -> Expr:
        low = a if min is None else te.maximum(a, _like(a, min))
        return low if max is None else te.minimum(low, _like(a, max))

    return elementwise("clip", formula, x)


@operator("Cast", 6)
def cast(x, *, to, saturate=1):
    """Conversion to the element type named `to`; `saturate` concerns 8-bit floats alone."""
    dtypes.check(to)
    return elementwise("cast", lambda a: a.astype(to), x)


# --- of several tensors ------------------------------------------------------------------------------------------------


def _binary(name: str, since: int, formula: Formula) -> None:
    label = name.lower()

    @operator(name, since)
    def define(x, y):
        _same_type(x, y)
        return elementwise(label, formula, x, y)


def _divide(x: Expr, y: Expr) -> Expr:
    """The quotient; of integers truncated toward zero."""
    if dtypes.is_float(x.dtype):
        return x / y
    if dtypes.TABLE[x.dtype].kind == "uint":
        return x // y
    quotient = te.abs(x) // te.abs(y)
    return te.select(te.equal(x < _zero(x), y < _zero(y)), quotient, -quotient)


_binary("Add", 7, lambda x, y: x + y)
_binary("Sub", 7, lambda x, y: x - y)
_binary("Mul", 7, lambda x, y: x * y)
_binary("Div", 7, _divide)
_binary("And", 7, te.all)
_binary("Or", 7, te.any)
_binary("Xor", 7, te.not_equal)
_binary("PRelu", 7, lambda x, slope: te.select(x < _zero(x), x * slope, x))
_binary("Equal", 7, te.equal)
_binary("Less", 7, lambda x, y: x < y)
_binary("LessOrEqual", 12, lambda x, y: x <= y)
_binary("Greater", 7, lambda x, y: x > y)
_binary("GreaterOrEqual", 12, lambda x, y: x >= y)


@operator("Pow", 7)
def power(x, y):
    """x to the power y, in the element type of x."""
    return elementwise("pow", lambda a, b: te.pow(a, b.astype(a.dtype)), x, y)


def _variadic(name: str, since: int, combine: Formula, mean: bool = False) -> None:
    label = name.lower()

    @operator(name, since)
    def define(*xs):
        _same_type(*xs)

        def formula(first: Expr, *others: Expr) -> Expr:
            for other in others:
                first = combine(first, other)
            return first if not mean else first / _like(first, len(xs))

        return elementwise(label, formula, *xs)


_variadic("Sum", 8, lambda x, y: x + y)
_variadic("Mean", 8, lambda x, y: x + y, mean=True)
_variadic("Max", 8, te.maximum)
_variadic("Min", 8, te.minimum)


@operator("Where", 9)
def where(condition, x, y):
    _same_type(x, y)
    return elementwise("where", te.select, condition, x, y)


@operator("BatchNormalization", 7)
def batch_normalization(x, scale, bias, mean, variance, *, epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics that are given, by channel: dimension 1."""
    if training_mode or not spatial:
        raise ValueError("only inference is there, with spatial statistics")
    _same_type(x, scale, bias, mean, variance)
    eps = te.const(epsilon, x.dtype)

    def formula(*i: Expr) -> Expr:
        c = i[1]
        return (x[i] - mean[c]) * (scale[c] / te.sqrt(variance[c] + eps)) + bias[c]

    return te.compute(x.shape, formula, name="batch_norm")
