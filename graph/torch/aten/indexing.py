"""Operators that read or write elements at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .making import filled
from .moving import expand, permute, reshaped
from .reductions import running_sum
from .types import Table, aten, axis_of, cast, integers


@aten("index_select")
def index_select(apply, x, dim, index):
    if not x.shape:
        return x
    return apply("Gather", x, reshaped(apply, index, (prod(index.shape),)), axis=axis_of(x, dim))


@aten("gather")
def gather(apply, x, dim, index, *, sparse_grad=False):
    if not x.shape:
        return expand(apply, x, index.shape)
    if not index.shape:
        return reshaped(apply, gather(apply, x, dim, reshaped(apply, index, (1,))), ())
    return apply("GatherElements", x, index, axis=axis_of(x, dim))


class Indexed:
    """A tensor whose indexed dimensions come first, and its indices as the rows of a matrix.

    Where the indexed dimensions are next to each other, those of the indices stand in their place in the result, else first.
    """

    def __init__(self, apply: Apply, x: Value, indices: Sequence[Value | None]):
        self.apply = apply
        given = [(n, i) for n, i in enumerate(indices) if i is not None]
        if any(i.dtype in ("bool", "uint8") for _, i in given):
            raise ValueError("an index of conditions gives a shape that depends on data")
        self.axes = [n for n, _ in given]
        self.rest = [n for n in range(len(x.shape)) if n not in self.axes]
        self.shape = np.broadcast_shapes(*(i.shape for _, i in given))
        self.order = [*self.axes, *self.rest]
        self.x = permute(apply, x, self.order)
        columns = [reshaped(apply, expand(apply, cast(apply, i, "int64"), self.shape), (*self.shape, 1)) for _, i in given]
        self.rows = columns[0] if len(columns) == 1 else apply("Concat", *columns, axis=len(self.shape))
        near = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.place = self.axes[0] if near else 0

    def result(self, value: Value) -> Value:
        """A value of the indices' dimensions and the other ones, with the former in their place."""
        rank, before = len(self.shape), self.place
        order = [*range(rank, rank + before), *range(rank), *range(rank + before, len(value.shape))]
        return permute(self.apply, value, order)

    def updates(self, value: Value) -> Value:
        """The inverse of `result`: a value with its dimensions back in the order of the rows."""
        shape = (*(self.x.shape[len(self.axes) + n] for n in range(self.place)), *self.shape)
        whole = expand(self.apply, value, (*shape, *self.x.shape[len(self.axes) + self.place :]))
        rank, before = len(self.shape), self.place
        order = [*range(before, before + rank), *range(before), *range(before + rank, len(whole.shape))]
        return permute(self.apply, whole, order)

    def restored(self, value: Value) -> Value:
        """A value like `x` with the dimensions in their first order."""
        return permute(self.apply, value, np.argsort(self.order).tolist())


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(apply, x, indices):
    """The elements at indices, which broadcast together, one for each dimension that has one."""
    found = Indexed(apply, x, indices)
    if len(found.axes) == 1:
        (axis,) = found.axes
        return apply("Gather", x, indices[axis], axis=axis)
    return found.result(apply("GatherND", found.x, found.rows))


@aten("index_put", "_unsafe_index_put")
def index_put(apply, x, indices, values, accumulate=False):
    """`x` with other elements at indices, added where `accumulate` says so."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == "bool":
        if prod(values.shape) != 1 or accumulate:
            raise ValueError("values for an index of conditions must be one number")
        mask = reshaped(apply, indices[0], (*indices[0].shape, *(1,) * (len(x.shape) - len(indices[0].shape))))
        return apply("Where", mask, reshaped(apply, cast(apply, values, x.dtype), ()), x)
    found = Indexed(apply, x, indices)
    updates = found.updates(cast(apply, values, x.dtype))
    return found.restored(apply("ScatterND", found.x, found.rows, updates, reduction="add" if accumulate else "none"))


def _scattered(apply: Apply, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    if not x.shape:
        one = [reshaped(apply, v, (1,)) for v in (x, index, source)]
        return reshaped(apply, _scattered(apply, one[0], 0, one[1], one[2], reduction), ())
    if source.shape != index.shape:  # of which only the first elements count
        starts = (0,) * len(index.shape)
        source = apply("Slice", source, starts=starts, ends=index.shape, axes=tuple(range(len(index.shape))))
    return apply("ScatterElements", x, index, cast(apply, source, x.dtype), axis=axis_of(x, dim), reduction=reduction)


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_reduced(apply, x, dim, index, source, *, reduce):
    source = source if isinstance(source, Value) else filled(apply, index.shape, source, x.dtype)
    return _scattered(apply, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


@aten("index_add")
def index_add(apply, x, dim, index, source, *, alpha=1):
    source = source if alpha == 1 else apply("Mul", source, cast(apply, alpha, source.dtype))
    axis = axis_of(x, dim)
    shape = [-1 if n == axis else 1 for n in range(len(source.shape))]
    return _scattered(apply, x, dim, expand(apply, apply("Reshape", index, shape=tuple(shape)), source.shape), source, "add")


REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


@aten("scatter_reduce.two")
def scatter_reduce(apply, x, dim, index, source, reduce, *, include_self=True):
    """`x` reduced with the elements of a source at indices; without `include_self` only these count where there are some."""
    if reduce == "mean" and not dtypes.is_float(x.dtype):
        raise ValueError("means of integers are not supported")
    ones = filled(apply, index.shape, 1, x.dtype)
    counts = _scattered(apply, filled(apply, x.shape, int(include_self), x.dtype), dim, index, ones, "add")
    base = x
    if not include_self:
        low, high = dtypes.limits(x.dtype)
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]
        base = apply("Where", apply("Equal", counts, apply.constant(0, x.dtype)), x, apply.constant(neutral, x.dtype))
    found = _scattered(apply, base, dim, index, source, REDUCTIONS[reduce])
    return apply("Div", found, apply("Max", counts, apply.constant(1, x.dtype))) if reduce == "mean" else found


@aten("masked_scatter")
def masked_scatter(apply, x, mask, source):
    """`x` with the elements of `source`, in order, where a mask holds."""
    mask = expand(apply, mask, x.shape)
    flat = reshaped(apply, mask, (prod(x.shape),))
    number = apply("Sub", running_sum(apply, flat, 0), apply.constant(1, "int64"))
    last = prod(source.shape) - 1
    near = apply("Clip", number, min=0, max=max(0, last))
    chosen = apply("Gather", reshaped(apply, source, (prod(source.shape),)), near, axis=0)
    return apply("Where", mask, reshaped(apply, chosen, x.shape), x)


@aten("one_hot")
def one_hot(apply, x, classes):
    if classes < 1:
        raise ValueError("the number of classes depends on data")
    return apply("OneHot", x, integers(apply, (0, 1)), depth=classes, axis=-1)


OPERATORS: Table = {
    "embedding": lambda apply, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False: apply(
        "Gather", weight, indices, axis=0
    ),
    "take": lambda apply, x, index: apply("Gather", reshaped(apply, x, (prod(x.shape),)), index, axis=0),
    "scatter.src": lambda apply, x, dim, index, source: _scattered(apply, x, dim, index, source, "none"),
    "scatter.value": lambda apply, x, dim, index, value: _scattered(
        apply, x, dim, index, filled(apply, index.shape, value, x.dtype), "none"
    ),
    "scatter_add": lambda apply, x, dim, index, source: _scattered(apply, x, dim, index, source, "add"),
}
