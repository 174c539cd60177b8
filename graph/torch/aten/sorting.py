"""Operators that put elements in order."""

from __future__ import annotations

from ...ir import Value
from ...ops.registry import Apply
from .moving import reshaped
from .types import Table, aten, axis_of, cast


def _first(apply: Apply, x: Value, count: int, dim: int, largest: bool) -> tuple[Value, Value]:
    """The first elements along a dimension in order, and their indices."""
    if not x.shape:
        values, indices = _first(apply, reshaped(apply, x, (1,)), count, 0, largest)
        return reshaped(apply, values, ()), reshaped(apply, indices, ())
    given = cast(apply, x, "uint8") if x.dtype == "bool" else x
    values, indices = apply("TopK", given, k=count, axis=axis_of(x, dim), largest=int(largest))
    return cast(apply, values, x.dtype), indices


@aten("sort")
def sort(apply, x, dim=-1, descending=False):
    return _first(apply, x, x.shape[axis_of(x, dim)] if x.shape else 1, dim, descending)


OPERATORS: Table = {
    "topk": lambda apply, x, k, dim=-1, largest=True, sorted=True: _first(apply, x, k, dim, largest),
    "sort.stable": lambda apply, x, *, stable=None, dim=-1, descending=False: sort(apply, x, dim, descending),
    "argsort": lambda apply, x, dim=-1, descending=False: sort(apply, x, dim, descending)[1],
}
