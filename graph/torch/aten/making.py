"""Operators that make tensors of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Value
from ...ops.registry import Apply
from .moving import expand
from .types import NUMBERS, aten, cast


def filled(apply: Apply, shape: Any, number: Any, dtype: str) -> Value:
    """One number in all places of a shape."""
    return expand(apply, cast(apply, number, dtype), tuple(shape))


@aten("full", "new_full")
def full(apply, *operands, dtype=None):
    *like, shape, number = operands
    return filled(apply, shape, number, dtype or (like[0].dtype if like else NUMBERS[type(number)]))


@aten("full_like", "fill.Scalar", "fill.Tensor")
def full_like(apply, x, number, *, dtype=None):
    return filled(apply, x.shape, number, dtype or x.dtype)


@aten("zeros", "empty.memory_format", "empty_strided", "empty")
def zeros(apply, shape, stride=None, *, dtype="float32"):
    return filled(apply, shape, 0, dtype or "float32")


@aten("zeros_like", "empty_like")
def zeros_like(apply, x, *, dtype=None):
    return filled(apply, x.shape, 0, dtype or x.dtype)


@aten("new_zeros", "new_empty", "new_empty_strided")
def new_zeros(apply, x, shape, stride=None, *, dtype=None):
    return filled(apply, shape, 0, dtype or x.dtype)


@aten("ones")
def ones(apply, shape, *, dtype="float32"):
    return filled(apply, shape, 1, dtype or "float32")


@aten("ones_like")
def ones_like(apply, x, *, dtype=None):
    return filled(apply, x.shape, 1, dtype or x.dtype)


@aten("new_ones")
def new_ones(apply, x, shape, *, dtype=None):
    return filled(apply, shape, 1, dtype or x.dtype)


@aten("scalar_tensor")
def scalar_tensor(apply, number, *, dtype=None):
    return cast(apply, number, dtype or "float32")


@aten("arange.start_step", "arange.start", "arange")
def arange(apply, *bounds, dtype=None):
    numbers = np.arange(*bounds)
    whole = all(isinstance(b, int) for b in bounds)
    return apply.constant(numbers.astype(np.float64), dtype or ("int64" if whole else "float32"))


@aten("prims.iota")
def iota(apply, length, *, start, step, dtype, requires_grad=False):
    return apply.constant(start + step * np.arange(length), dtype)


@aten("eye", "eye.m")
def eye(apply, rows, columns=None, *, dtype="float32"):
    return apply.constant(np.eye(rows, columns), dtype or "float32")


@aten("linspace")
def linspace(apply, start, end, steps, *, dtype="float32"):
    return apply.constant(np.linspace(start, end, steps), dtype or "float32")
