"""Operators that make tensors of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir import Value
from ...ops.registry import Apply
from .moving import expand
from .types import NUMBERS, Table, aten, cast


def filled(apply: Apply, shape: Any, number: Any, dtype: str) -> Value:
    """One number in all places of a shape."""
    return expand(apply, cast(apply, number, dtype), tuple(shape))


@aten("full", "new_full")
def full(apply, *operands, dtype=None):
    *like, shape, number = operands
    return filled(apply, shape, number, dtype or (like[0].dtype if like else NUMBERS[type(number)]))


@aten("arange.start_step", "arange.start", "arange")
def arange(apply, *bounds, dtype=None):
    numbers = np.arange(*bounds)
    whole = all(isinstance(b, int) for b in bounds)
    return apply.constant(numbers.astype(np.float64), dtype or ("int64" if whole else "float32"))


def _filling(number: float, like: bool = False) -> Callable:
    """Tensors of a number, of a shape, or of that and the element type of a tensor."""
    if like:
        return lambda apply, x, shape=None, stride=None, *, dtype=None: filled(
            apply, x.shape if shape is None else shape, number, dtype or x.dtype
        )
    return lambda apply, shape, stride=None, *, dtype=None: filled(apply, shape, number, dtype or "float32")


OPERATORS: Table = {
    "full_like fill.Scalar fill.Tensor": lambda apply, x, number, *, dtype=None: filled(apply, x.shape, number, dtype or x.dtype),
    "zeros empty.memory_format empty_strided empty": _filling(0),
    "zeros_like empty_like new_zeros new_empty new_empty_strided": _filling(0, like=True),
    "ones": _filling(1),
    "ones_like new_ones": _filling(1, like=True),
    "scalar_tensor": lambda apply, number, *, dtype=None: cast(apply, number, dtype or "float32"),
    "prims.iota": lambda apply, length, *, start, step, dtype, requires_grad=False: apply.constant(
        start + step * np.arange(length), dtype
    ),
    "eye eye.m": lambda apply, rows, columns=None, *, dtype=None: apply.constant(np.eye(rows, columns), dtype or "float32"),
    "linspace": lambda apply, start, end, steps, *, dtype=None: apply.constant(
        np.linspace(start, end, steps), dtype or "float32"
    ),
}
