"""Reducers, and the reductions that they make of expressions and axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..ir import TRUE, Const, Expr, as_expr, binary, cast, const, node
from .elementwise import all, any, as_condition, equal, maximum, minimum, select
from .variables import ReduceAxis, as_tuple


@dataclass(frozen=True)
class Reducer:
    """A commutative, associative operation on one or several values, with its identity. Call it on expressions and axes."""

    name: str
    combine: Callable  # (accumulated..., new...) -> value or tuple of values
    identity: Callable  # (dtype...) -> value or tuple of values

    def __call__(self, expr, axis=None, where=None):
        """The reduction of `expr` (an expression, or a tuple of them for a reducer of several values) over `axis`.

        `axis` is a `reduce_axis`, or several; `where`, a bool expression, leaves out the iterations for which it is false.
        Raises TypeError where an axis is something else, or none is given, and ValueError where two have one name.
        """
        sources, axes = tuple(map(as_expr, as_tuple(expr))), reduce_axes(self.name, axis)
        identities = as_tuple(self.identity(*(s.dtype for s in sources)))
        if len(identities) != len(sources):
            raise TypeError(f"{self.name}: {len(sources)} value(s) to reduce, but the identity has {len(identities)}")
        try:
            identities = tuple(cast(as_expr(v, s.dtype), s.dtype) for v, s in zip(identities, sources, strict=True))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{self.name}: the identity of a dtype must be a number of that dtype; {error}") from None
        condition = TRUE if where is None else as_condition(where)
        results = tuple(Reduce(self, sources, identities, axes, condition, i) for i in range(len(sources)))
        return results if isinstance(expr, (tuple, list)) else results[0]


def reduce_axes(name: str, axis: Any) -> tuple[ReduceAxis, ...]:
    if axis is None:
        raise TypeError(f"{name}: an axis to reduce over is missing: k = te.reduce_axis((0, n)), then axis=k")
    axes = as_tuple(axis)
    for a in axes:
        if not isinstance(a, ReduceAxis):
            raise TypeError(f"{name}: axis must be a te.reduce_axis, as te.reduce_axis((0, n)) makes, got {a!r}")
    if not axes:
        raise TypeError(f"{name}: at least one axis is needed")
    names = [a.var.name for a in axes]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise ValueError(f"{name}: two axes are named `{twice}`; give each its own: te.reduce_axis((0, n), name='k')")
    return axes


@node
class Reduce(Expr):
    """Value `index` of a reduction."""

    reducer: Reducer
    sources: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    axes: tuple[ReduceAxis, ...]
    condition: Expr
    index: int

    @property
    def dtype(self) -> str:
        return self.sources[self.index].dtype

    def text(self, show: Callable[[Expr], str]) -> str:
        return f"{self.reducer.name}({show(self.sources[self.index])}, axis=[{', '.join(map(show, self.axes))}])"


def parts_of(value: Expr) -> tuple[Expr, ...]:
    return (*value.sources, value.condition) if isinstance(value, Reduce) else (value,)


def comm_reducer(fcombine: Callable, fidentity: Callable, name: str = "reduce") -> Reducer:
    """A reducer of your own: `fcombine(x, y)` on values (or tuples of values), `fidentity(dtype)` its neutral element.

    For several values at once, as in argmax, both take and return tuples: `fcombine((i, x), (j, y))`, `fidentity(dt_i, dt_x)`.
    The operation must be commutative and associative; schedules reorder it.
    """
    for what, function in (("fcombine", fcombine), ("fidentity", fidentity)):
        if not callable(function):
            raise TypeError(f"comm_reducer {name}: {what} must be a function, got {function!r}")
    return Reducer(name, fcombine, fidentity)


def _neutral(name: str, value: int) -> Callable:
    """An identity for the reducer `name`: `value` in any dtype of numbers."""

    def identity(dtype: str) -> Const:
        if dtype == "bool":
            raise TypeError(f"{name} needs numbers, got bool; use .astype('int32'), or te.max for any and te.min for all")
        return const(value, dtype)

    return identity


def _first(better: str) -> Callable:
    """A combiner of pairs (index, value) that keeps the `better` value, of equal ones that of the smaller index."""

    def combine(x, y):
        taken = any(binary(better, x[1], y[1]), all(equal(x[1], y[1]), x[0] < y[0]))
        return select(taken, x[0], y[0]), select(taken, x[1], y[1])

    return combine


def _no_index(dtype: str) -> Const:
    """The identity of an index: the largest number of its dtype."""
    return const(dtypes.limits(dtype)[1], dtype)


sum = comm_reducer(lambda x, y: x + y, _neutral("sum", 0), name="sum")
prod = comm_reducer(lambda x, y: x * y, _neutral("prod", 1), name="prod")
max = comm_reducer(maximum, lambda dtype: const(dtypes.limits(dtype)[0], dtype), name="max")
min = comm_reducer(minimum, lambda dtype: const(dtypes.limits(dtype)[1], dtype), name="min")
# Of pairs (index, value): `te.argmax((k, A[i, k]), axis=k)`; of equal values the first.
argmax = comm_reducer(_first(">"), lambda index, value: (_no_index(index), const(dtypes.limits(value)[0], value)), name="argmax")
argmin = comm_reducer(_first("<"), lambda index, value: (_no_index(index), const(dtypes.limits(value)[1], value)), name="argmin")


def mean(expr, axis=None, where=None) -> Expr:
    """The mean of a float over `axis`, a `reduce_axis` or several; `where` leaves out the iterations for which it is false.

    The sum and the division are blocks of their own. Halves are summed in float32. Raises TypeError for other dtypes.
    """
    value, axes = as_expr(expr), reduce_axes("mean", axis)
    if not dtypes.is_float(value.dtype):
        raise TypeError(f"mean needs a floating argument, got {value.dtype}; use .astype('float32')")
    wide = dtypes.computed(value.dtype)
    if where is None:
        count = math.prod((cast(a.extent, wide) for a in axes), start=const(1.0, wide))
    else:
        count = sum(cast(as_condition(where), wide), axes)
    return cast(sum(cast(value, wide), axes, where) / count, value.dtype)
