"""Operators that reduce along dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .elementwise import compared
from .moving import reshaped
from .types import aten, axes_of, axis_of, cast, floating, summed


def reduced(apply: Apply, operator: str, x: Value, dims: Any, keepdim: bool = False) -> Value:
    """A reduction along dimensions, all where none are given; of a number, of its only element."""
    axes = axes_of(x, dims)
    if not x.shape:
        return reshaped(apply, apply(operator, reshaped(apply, x, (1,)), axes=(0,), keepdims=1), ())
    return apply(operator, x, axes=axes, keepdims=int(keepdim))


@aten("sum", "sum.dim_IntList")
def total(apply, x, dim=None, keepdim=False, *, dtype=None):
    return reduced(apply, "ReduceSum", cast(apply, x, summed(x.dtype, dtype)), dim, keepdim)


@aten("prod", "prod.dim_int")
def product(apply, x, dim=None, keepdim=False, *, dtype=None):
    return reduced(apply, "ReduceProd", cast(apply, x, summed(x.dtype, dtype)), dim, keepdim)


@aten("mean", "mean.dim")
def mean(apply, x, dim=None, keepdim=False, *, dtype=None):
    return reduced(apply, "ReduceMean", cast(apply, x, dtype or x.dtype), dim, keepdim)


@aten("amax", "max")
def largest(apply, x, dim=(), keepdim=False):
    return reduced(apply, "ReduceMax", x, dim, keepdim)


@aten("amin", "min")
def smallest(apply, x, dim=(), keepdim=False):
    return reduced(apply, "ReduceMin", x, dim, keepdim)


def _index(apply: Apply, operator: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    """The index of the first largest, or smallest, element along a dimension, or in the tensor as a vector."""
    x = cast(apply, x, "uint8") if x.dtype == "bool" else x
    if dim is None or not x.shape:
        found = apply(operator, reshaped(apply, x, (prod(x.shape),)), axis=0, keepdims=0)
        return reshaped(apply, found, (1,) * len(x.shape)) if keepdim else found
    return apply(operator, x, axis=axis_of(x, dim), keepdims=int(keepdim))


@aten("argmax")
def argmax(apply, x, dim=None, keepdim=False):
    return _index(apply, "ArgMax", x, dim, keepdim)


@aten("argmin")
def argmin(apply, x, dim=None, keepdim=False):
    return _index(apply, "ArgMin", x, dim, keepdim)


@aten("max.dim")
def largest_with_index(apply, x, dim, keepdim=False):
    return largest(apply, x, dim, keepdim), _index(apply, "ArgMax", x, dim, keepdim)


@aten("min.dim")
def smallest_with_index(apply, x, dim, keepdim=False):
    return smallest(apply, x, dim, keepdim), _index(apply, "ArgMin", x, dim, keepdim)


@aten("any", "any.dim", "any.dims")
def any_(apply, x, dim=None, keepdim=False):
    return reduced(apply, "ReduceMax", cast(apply, x, "bool"), dim, keepdim)


@aten("all", "all.dim", "all.dims")
def all_(apply, x, dim=None, keepdim=False):
    return reduced(apply, "ReduceMin", cast(apply, x, "bool"), dim, keepdim)


@aten("logsumexp")
def log_sum_exp(apply, x, dim, keepdim=False):
    return reduced(apply, "ReduceLogSumExp", cast(apply, x, floating(x.dtype)), dim, keepdim)


def _variance(apply: Apply, x: Value, dim: Any, correction: float | None, keepdim: bool) -> tuple[Value, Value]:
    """The variance and the mean, those of halves in float32. The sum of squares is divided by the number of elements less the
    correction, 1 by default."""
    axes = axes_of(x, dim)
    x = cast(apply, x, dtypes.computed(x.dtype))
    centre = reduced(apply, "ReduceMean", x, dim, True)
    off = apply("Sub", x, centre)
    count = prod(x.shape[n] for n in axes)
    less = 1 if correction is None else correction
    total = reduced(apply, "ReduceSum", apply("Mul", off, off), dim, keepdim)
    spread = apply("Div", total, apply.constant(float(max(0, count - less)), x.dtype))
    centre = centre if keepdim else reduced(apply, "ReduceMean", x, dim, False)
    return spread, centre


@aten("var.correction")
def variance(apply, x, dim=None, *, correction=None, keepdim=False):
    return cast(apply, _variance(apply, x, dim, correction, keepdim)[0], x.dtype)


@aten("var.dim")
def variance_along(apply, x, dim, unbiased=True, keepdim=False):
    return cast(apply, _variance(apply, x, dim, int(unbiased), keepdim)[0], x.dtype)


@aten("std.correction")
def deviation(apply, x, dim=None, *, correction=None, keepdim=False):
    return cast(apply, apply("Sqrt", _variance(apply, x, dim, correction, keepdim)[0]), x.dtype)


@aten("var_mean.correction")
def variance_and_mean(apply, x, dim=None, *, correction=None, keepdim=False):
    spread, centre = _variance(apply, x, dim, correction, keepdim)
    return cast(apply, spread, x.dtype), cast(apply, centre, x.dtype)


@aten("linalg_vector_norm")
def vector_norm(apply, x, order=2, dim=None, keepdim=False, *, dtype=None):
    x = cast(apply, x, dtype or x.dtype)
    if order in (1, 2):
        return reduced(apply, f"ReduceL{int(order)}", x, dim, keepdim)
    size = apply("Abs", x)
    if order in (float("inf"), float("-inf")):
        return reduced(apply, "ReduceMax" if order > 0 else "ReduceMin", size, dim, keepdim)
    if order == 0:
        there = cast(apply, cast(apply, x, "bool"), x.dtype)
        return reduced(apply, "ReduceSum", there, dim, keepdim)
    powers = reduced(apply, "ReduceSum", apply("Pow", size, apply.constant(order, x.dtype)), dim, keepdim)
    return apply("Pow", powers, apply.constant(1 / order, x.dtype))


@aten("_softmax", "softmax.int")
def softmax(apply, x, dim, half_to_float=False):
    return _along(apply, "Softmax", x, dim, half_to_float)


@aten("_safe_softmax")
def safe_softmax(apply, x, dim, dtype=None):
    """Softmax, but 0 for a row that is minus infinity everywhere."""
    x = cast(apply, x, dtype or x.dtype)
    low = compared(apply, "Equal", x, float("-inf"))
    empty = reduced(apply, "ReduceMin", low, dim, True)
    return apply("Where", empty, apply.constant(0, x.dtype), softmax(apply, x, dim))


@aten("_log_softmax", "log_softmax.int")
def log_softmax(apply, x, dim, half_to_float=False):
    return _along(apply, "LogSoftmax", x, dim, half_to_float)


def _along(apply: Apply, operator: str, x: Value, dim: int, half_to_float: bool | str | None) -> Value:
    x = cast(apply, x, "float32" if half_to_float is True else half_to_float or x.dtype)
    if not x.shape:
        return reshaped(apply, apply(operator, reshaped(apply, x, (1,)), axis=0), ())
    return apply(operator, x, axis=axis_of(x, dim))


def _scan(apply: Apply, operator: str, x: Value, dim: int, dtype: str | None) -> Value:
    x = cast(apply, x, summed(x.dtype, dtype))
    return x if not x.shape else apply(operator, x, axis=axis_of(x, dim))


@aten("cumsum")
def running_sum(apply, x, dim, *, dtype=None):
    return _scan(apply, "CumSum", x, dim, dtype)


@aten("cumprod")
def running_product(apply, x, dim, *, dtype=None):
    return _scan(apply, "CumProd", x, dim, dtype)
