"""Operators that reduce along dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .elementwise import compared
from .moving import reshaped
from .types import Table, aten, axes_of, axis_of, cast, floating, summed


def reduced(apply: Apply, operator: str, x: Value, dims: Any, keepdim: bool = False) -> Value:
    """A reduction along dimensions, all where none are given; of a number, of its only element."""
    axes = axes_of(x, dims)
    if not x.shape:
        return reshaped(apply, apply(operator, reshaped(apply, x, (1,)), axes=(0,), keepdims=1), ())
    return apply(operator, x, axes=axes, keepdims=int(keepdim))


def _reduction(operator: str, typed: Callable[[str, str | None], str]) -> Callable:
    """A reduction of elements cast to a type, which follows from their own and the one that is asked for."""

    def reduction(apply, x, dim=None, keepdim=False, *, dtype=None):
        return reduced(apply, operator, cast(apply, x, typed(x.dtype, dtype)), dim, keepdim)

    return reduction


def extreme(apply: Apply, operator: str, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """The largest or smallest elements along dimensions; a NaN is both."""
    found = reduced(apply, operator, x, dim, keepdim)
    if not dtypes.is_float(x.dtype):
        return found
    spoilt = reduced(apply, "ReduceMax", apply("IsNaN", x), dim, keepdim)
    return apply("Where", spoilt, cast(apply, math.nan, x.dtype), found)


def _index(apply: Apply, operator: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    """The index of the first largest, or smallest, element along a dimension, or in the tensor as a vector; of the first NaN."""
    if dtypes.is_float(x.dtype):
        spoilt = apply("IsNaN", x)
        first = _index(apply, "ArgMax", spoilt, dim, keepdim)
        return apply(
            "Where", reduced(apply, "ReduceMax", spoilt, dim, keepdim), first, _index_of(apply, operator, x, dim, keepdim)
        )
    return _index_of(apply, operator, x, dim, keepdim)


def _index_of(apply: Apply, operator: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    x = cast(apply, x, "uint8") if x.dtype == "bool" else x
    if dim is None or not x.shape:
        found = apply(operator, reshaped(apply, x, (prod(x.shape),)), axis=0, keepdims=0)
        return reshaped(apply, found, (1,) * len(x.shape)) if keepdim else found
    return apply(operator, x, axis=axis_of(x, dim), keepdims=int(keepdim))


def _variance(apply: Apply, x: Value, dim: Any, correction: float | None, keepdim: bool) -> tuple[Value, Value]:
    """The variance, by the number of elements less the correction (default 1), and the mean; those of halves in float32."""
    axes = axes_of(x, dim)
    x = cast(apply, x, dtypes.computed(x.dtype))
    centre = reduced(apply, "ReduceMean", x, dim, True)
    off = apply("Sub", x, centre)
    count = prod(x.shape[n] for n in axes) if x.shape else 1
    less = 1 if correction is None else correction
    total = reduced(apply, "ReduceSum", apply("Mul", off, off), dim, keepdim)
    spread = apply("Div", total, apply.constant(float(max(0, count - less)), x.dtype))
    centre = centre if keepdim else reduced(apply, "ReduceMean", x, dim, False)
    return spread, centre


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
        return extreme(apply, "ReduceMax" if order > 0 else "ReduceMin", size, dim, keepdim)
    if order == 0:
        there = cast(apply, cast(apply, x, "bool"), x.dtype)
        return reduced(apply, "ReduceSum", there, dim, keepdim)
    powers = reduced(apply, "ReduceSum", apply("Pow", size, apply.constant(order, x.dtype)), dim, keepdim)
    return apply("Pow", powers, apply.constant(1 / order, x.dtype))


def softmax(apply, x, dim, half_to_float=False):
    return _along(apply, "Softmax", x, dim, half_to_float)


@aten("_safe_softmax")
def safe_softmax(apply, x, dim, dtype=None):
    """Softmax, but 0 for a row that is minus infinity everywhere."""
    x = cast(apply, x, dtype or x.dtype)
    low = compared(apply, "Equal", x, float("-inf"))
    empty = reduced(apply, "ReduceMin", low, dim, True)
    return apply("Where", empty, apply.constant(0, x.dtype), softmax(apply, x, dim))


def _along(apply: Apply, operator: str, x: Value, dim: int, half_to_float: bool | str | None) -> Value:
    x = cast(apply, x, "float32" if half_to_float is True else half_to_float or x.dtype)
    if not x.shape:
        return reshaped(apply, apply(operator, reshaped(apply, x, (1,)), axis=0), ())
    return apply(operator, x, axis=axis_of(x, dim))


def _scan(apply: Apply, operator: str, x: Value, dim: int, dtype: str | None) -> Value:
    x = cast(apply, x, summed(x.dtype, dtype))
    return x if not x.shape else apply(operator, x, axis=axis_of(x, dim))


def running_sum(apply, x, dim, *, dtype=None):
    return _scan(apply, "CumSum", x, dim, dtype)


def _spread(apply: Apply, x: Value, dim: Any, correction: float | None, keepdim: bool, root: bool = False) -> Value:
    """The variance, or its root, in the type of the elements."""
    spread, _ = _variance(apply, x, dim, correction, keepdim)
    return cast(apply, apply("Sqrt", spread) if root else spread, x.dtype)


def _with_index(operator: str, place: str) -> Callable:
    return lambda apply, x, dim, keepdim=False: (extreme(apply, operator, x, dim, keepdim), _index(apply, place, x, dim, keepdim))


OPERATORS: Table = {
    "sum sum.dim_IntList": _reduction("ReduceSum", summed),
    "prod prod.dim_int": _reduction("ReduceProd", summed),
    "mean mean.dim": _reduction("ReduceMean", lambda own, wanted: wanted or own),
    "amax max": lambda apply, x, dim=None, keepdim=False: extreme(apply, "ReduceMax", x, dim, keepdim),
    "amin min": lambda apply, x, dim=None, keepdim=False: extreme(apply, "ReduceMin", x, dim, keepdim),
    "any any.dim any.dims": _reduction("ReduceMax", lambda *_: "bool"),
    "all all.dim all.dims": _reduction("ReduceMin", lambda *_: "bool"),
    "logsumexp": _reduction("ReduceLogSumExp", lambda own, _: floating(own)),
    "argmax": lambda apply, x, dim=None, keepdim=False: _index(apply, "ArgMax", x, dim, keepdim),
    "argmin": lambda apply, x, dim=None, keepdim=False: _index(apply, "ArgMin", x, dim, keepdim),
    "max.dim": _with_index("ReduceMax", "ArgMax"),
    "min.dim": _with_index("ReduceMin", "ArgMin"),
    "var.correction": lambda apply, x, dim=None, *, correction=None, keepdim=False: _spread(apply, x, dim, correction, keepdim),
    "var.dim": lambda apply, x, dim, unbiased=True, keepdim=False: _spread(apply, x, dim, int(unbiased), keepdim),
    "std.correction": lambda apply, x, dim=None, *, correction=None, keepdim=False: _spread(
        apply, x, dim, correction, keepdim, root=True
    ),
    "_softmax softmax.int": softmax,
    "_log_softmax log_softmax.int": lambda apply, x, dim, half_to_float=False: _along(apply, "LogSoftmax", x, dim, half_to_float),
    "cumsum": running_sum,
    "cumprod": lambda apply, x, dim, *, dtype=None: _scan(apply, "CumProd", x, dim, dtype),
}
