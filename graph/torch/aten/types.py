"""torch's rules for element types, and the registration of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply, composite

DOMAIN = "aten"
OTHER_DOMAINS = ("prims.", "quantized_decomposed.", "tir.", "torchao.")
Table = dict[str, Callable[..., Any]]  # composites, by the names of their overloads with spaces between them
NUMBERS = {bool: "bool", int: "int64", float: "float32"}  # the element types that Python's numbers stand for


def aten(*names: str) -> Callable[[Callable], Callable]:
    """Register a composite under some names of ATen's operators, each with its overload."""

    def register(define: Callable) -> Callable:
        for name in names:
            composite(name, domain="" if name.startswith(OTHER_DOMAINS) else DOMAIN)(define)
        return define

    return register


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    return 2 if dtypes.is_float(dtype) else int(dtype != "bool")


def promoted(*operands: Any) -> str:
    """The element type of an operation on tensors and numbers, as `torch.result_type` has it.

    Tensors with dimensions decide, then those without, then numbers: one of a later group counts if it is of a higher category.
    """
    values = [v for v in operands if isinstance(v, Value)]
    groups = [v.dtype for v in values if v.shape], [v.dtype for v in values if not v.shape]
    numbers = [NUMBERS[type(v)] for v in operands if isinstance(v, (bool, int, float))]
    found = ""
    for group in (*groups, numbers):
        if not group:
            continue
        own = reduce(dtypes.promote, group)
        if not found:
            found = own
        elif category(own) > category(found):
            found = dtypes.promote(found, own)
    return found


def floating(dtype: str) -> str:
    """An element type, or float32 for one of no floats."""
    return dtype if dtypes.is_float(dtype) else "float32"


def summed(dtype: str, wanted: str | None) -> str:
    """The element type of a sum or product: the one that is asked for, else int64 for integers."""
    return wanted or (dtype if dtypes.is_float(dtype) else "int64")


def cast(apply: Apply, x: Any, dtype: str) -> Value:
    """A value of an element type for one, or for a number."""
    if not isinstance(x, Value):
        return apply.constant(_within(x, dtype), dtype)
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return apply("Not", apply("Equal", x, apply.constant(0, x.dtype)))
    return apply("Cast", x, to=dtype)


def _within(number: Any, dtype: str) -> Any:
    """A number as an element type holds it: integers wrap around."""
    if dtypes.is_int(dtype) and not dtypes.is_float(dtype) and isinstance(number, (int, float)):
        low, high = map(int, dtypes.limits(dtype))
        return (int(number) - low) % (high - low + 1) + low
    return number


def together(apply: Apply, *operands: Any, dtype: str = "") -> list[Value]:
    """Operands of one element type, by default the one that they promote to."""
    dtype = dtype or promoted(*operands)
    return [cast(apply, v, dtype) for v in operands]


def integers(apply: Apply, numbers: Iterable[int]) -> Value:
    """A constant vector of indices."""
    return apply.constant(np.array(list(numbers), np.int64))


def axis_of(x: Value, dim: int) -> int:
    """A dimension counted from the front; a number has one, too."""
    rank = max(1, len(x.shape))
    if not -rank <= dim < rank:
        raise ValueError(f"dimension {dim} does not exist; the tensor has {rank}")
    return dim % rank


def axes_of(x: Value, dims: Any) -> tuple[int, ...]:
    """Dimensions counted from the front, all where none are given."""
    if isinstance(dims, int):
        dims = [dims]
    return tuple(sorted(axis_of(x, d) for d in dims)) if dims else tuple(range(len(x.shape)))


def pair(numbers: Any, count: int) -> tuple[int, ...]:
    """A number for each of `count` dimensions, for one or as many."""
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return given * count if len(given) == 1 else given
