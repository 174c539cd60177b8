"""Operators along axes: sums and other reductions, positions of extremes, running sums, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tir import dtypes, te
from tir.ir import Expr

from ..ir import Value
from .registry import composite, narrow, need, operator, scalar, shape_of, wide


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front, in ascending order. Raises ValueError for one that does not exist, or is named twice."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} does not exist; the tensor has {rank} dimension(s)")
    found = sorted(axis % rank for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis is named twice in {list(axes)}")
    return found


def replaced(index: Sequence[Any], along: int, *others: Any) -> tuple[Any, ...]:
    """The indices, or extents, with others in place of the one along an axis."""
    return (*index[:along], *others, *index[along + 1 :])


class Rows:
    """The elements of a tensor along some axes: those that are reduced, for each place along the others."""

    def __init__(self, x: te.Tensor, axes: Sequence[int]):
        self.x, self.axes = x, normal_axes(axes, x.ndim)
        self.kept = [n for n in range(x.ndim) if n not in self.axes]
        self.count = prod(shape_of(x)[n] for n in self.axes)

    def reduce(self, reducer: Callable[..., Expr], formula: Callable[..., Expr], name: str, keepdims: bool = False) -> te.Tensor:
        """The reduction of `formula(place)`, a function of indices of the tensor; reduced axes stay with extent 1, or go."""
        shape = shape_of(self.x)
        steps = {n: te.reduce_axis((0, shape[n]), f"r{n}") for n in self.axes}

        def value(*index: Expr) -> Expr:
            own = iter(n for i, n in enumerate(index) if not keepdims or i in self.kept)
            position = tuple(steps[n] if n in steps else next(own) for n in range(len(shape)))
            return reducer(formula(*position), axis=[*steps.values()])

        kept = [1 if n in steps else e for n, e in enumerate(shape) if keepdims or n not in steps]
        return te.compute(kept, value, name=name)

    def outer(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices along the axes that are kept."""
        return tuple(index[n] for n in self.kept)


def _same(value: Expr) -> Expr:
    return value


def _reduction(
    name: str,
    reducer: Callable[..., Expr],
    each: Callable[[Expr], Expr] = _same,
    last: Callable[..., Expr] | None = None,
    dtype: str | None = "number",
    halves: int = 1,
) -> None:
    """Register an operator that reduces `each(element)`, then applies `last(result, count)`. Halves are reduced in float32."""
    label = name.lower()

    @operator(name, operands={1: "axes"}, halves=halves)
    def define(x, *, axes=None, keepdims=1, noop_with_empty_axes=0):
        need("the input", x, dtype=dtype)
        rows = Rows(x, axes or ([] if noop_with_empty_axes else range(x.ndim)))
        count = te.const(rows.count, dtypes.computed(x.dtype))
        if not rows.axes:
            only = te.compute(x.shape, lambda *i: (last or _first)(each(wide(x[i])), count), name="copy")
            return narrow(only, x.dtype)
        result = rows.reduce(reducer, lambda *i: each(wide(x[i])), label, bool(keepdims))
        if last is not None:
            total = result
            result = te.compute(total.shape, lambda *i: last(total[i], count), name=f"{label}_last")
        return narrow(result, x.dtype)


def _first(value: Expr, _: Expr) -> Expr:
    return value


def _root(value: Expr, _: Expr) -> Expr:
    """The square root; of integers computed in float64 and truncated."""
    return te.sqrt(value) if dtypes.is_float(value.dtype) else te.sqrt(value.astype("float64")).astype(value.dtype)


_reduction("ReduceSum", te.sum)
_reduction("ReduceMean", te.sum, last=lambda total, count: total / count, dtype="float")
_reduction("ReduceMax", te.max, dtype=None)
_reduction("ReduceMin", te.min, dtype=None)
_reduction("ReduceProd", te.prod, halves=0)
_reduction("ReduceL1", te.sum, each=te.abs)
_reduction("ReduceL2", te.sum, each=lambda x: x * x, last=_root)
_reduction("ReduceSumSquare", te.sum, each=lambda x: x * x)
_reduction("ReduceLogSum", te.sum, last=lambda total, _: te.log(total), dtype="float")


@operator("ReduceLogSumExp", operands={1: "axes"}, halves=1)
def reduce_log_sum_exp(x, *, axes=None, keepdims=1, noop_with_empty_axes=0):
    """max + log(sum(exp(x - max))), which does not overflow."""
    need("the input", x, dtype="float")
    rows = Rows(x, axes or ([] if noop_with_empty_axes else range(x.ndim)))
    if not rows.axes:
        return te.compute(x.shape, lambda *i: x[i], name="copy")
    top = rows.reduce(te.max, lambda *i: wide(x[i]), "top")
    infinite = te.const(float("inf"), top.dtype)
    finite = te.compute(
        top.shape, lambda *i: te.select(te.equal(te.abs(top[i]), infinite), te.const(0, top.dtype), top[i]), name="finite"
    )
    total = rows.reduce(te.sum, lambda *i: te.exp(wide(x[i]) - finite[rows.outer(i)]), "total", bool(keepdims))

    def formula(*i: Expr) -> Expr:
        return te.log(total[i]) + finite[tuple(i[n] for n in rows.kept) if keepdims else i]

    return narrow(te.compute(total.shape, formula, name="log_sum_exp"), x.dtype)


def _arg_extreme(name: str, reducer: Callable[..., Expr]) -> None:
    """Register an operator of the index of the largest or smallest element along an axis: of several the first, or the last."""
    label = name.lower()

    @operator(name)
    def define(x, *, axis=0, keepdims=1, select_last_index=0):
        need("the input", x, dtype="number")
        rows = Rows(x, [axis])
        (along,) = rows.axes
        if not rows.count and 0 not in replaced(shape_of(x), along):
            raise ValueError(f"there is no element to choose along axis {axis} of {list(shape_of(x))}")
        top = rows.reduce(reducer, lambda *i: x[i], "top")
        pick, other = (te.max, 0) if select_last_index else (te.min, rows.count - 1)
        nowhere = te.const(other, "int64")

        def index(*i: Expr) -> Expr:
            return te.select(te.equal(x[i], top[rows.outer(i)]), i[along].astype("int64"), nowhere)

        return rows.reduce(pick, index, label, bool(keepdims))


_arg_extreme("ArgMax", te.max)
_arg_extreme("ArgMin", te.min)


def _scan(name: str, since: int, combine: Callable[[Expr, Expr], Expr], neutral: int) -> None:
    """Register an operator that combines the elements up to each along an axis, `exclusive` of itself, or in `reverse`."""
    label = name.lower()

    @operator(name, since, operands={1: "axis"})
    def define(x, *, axis, exclusive=0, reverse=0):
        need("the input", x, dtype="number")
        (along,) = normal_axes([int(scalar("the axis", axis))], x.ndim)
        last, kind = shape_of(x)[along] - 1, dtypes.computed(x.dtype)

        def running(total: te.Tensor, *i: Expr) -> Expr:
            element = wide(x[replaced(i, along, last - i[along] if reverse else i[along])])
            return te.if_then_else(i[along] >= 1, combine(total[replaced(i, along, i[along] - 1)], element), element)

        total = te.scan(x.shape, running, along, kind, label)

        def formula(*i: Expr) -> Expr:
            number = last - i[along] if reverse else i[along]
            if not exclusive:
                return total[replaced(i, along, number)].astype(x.dtype)
            before = te.if_then_else(number >= 1, total[replaced(i, along, number - 1)], te.const(neutral, kind))
            return before.astype(x.dtype)

        return te.compute(x.shape, formula, name="last") if exclusive or reverse else narrow(total, x.dtype)

    @composite(name, since)
    def along_any(apply, x, axis, **attributes):
        """The result along an axis that is not constant, chosen from those along each axis."""
        if not isinstance(axis, Value) or prod(axis.shape) != 1:
            raise ValueError("the axis must be one number")
        rank = len(x.shape)
        found = apply(name, x, axis=0, **attributes)
        for n in range(1, rank):
            names = (apply("Equal", axis, apply.constant(position, axis.dtype)) for position in (n, n - rank))
            found = apply("Where", apply("Or", *names), apply(name, x, axis=n, **attributes), found)
        return found


_scan("CumSum", 11, lambda x, y: x + y, 0)
_scan("CumProd", 26, lambda x, y: x * y, 1)


def _softmax(x: te.Tensor, rows: Rows, top: te.Tensor) -> te.Tensor:
    """exp(x - max) / sum(exp(x - max)); of halves the sum is made in float32."""
    power = te.compute(x.shape, lambda *i: te.exp(wide(x[i]) - wide(top[rows.outer(i)])), name="power")
    total = rows.reduce(te.sum, lambda *i: power[i], "sum")
    return te.compute(x.shape, lambda *i: (power[i] / total[rows.outer(i)]).astype(x.dtype), name="softmax")


def _log_softmax(x: te.Tensor, rows: Rows, top: te.Tensor) -> te.Tensor:
    """x - max - log(sum(exp(x - max))); of halves in float32."""
    total = rows.reduce(te.sum, lambda *i: te.exp(wide(x[i]) - wide(top[rows.outer(i)])), "sum")

    def formula(*i: Expr) -> Expr:
        return (wide(x[i]) - wide(top[rows.outer(i)]) - te.log(total[rows.outer(i)])).astype(x.dtype)

    return te.compute(x.shape, formula, name="log_softmax")


def _hardmax(x: te.Tensor, rows: Rows, top: te.Tensor) -> te.Tensor:
    """1 at the first largest element, 0 elsewhere."""
    (along,) = rows.axes

    def first(*i: Expr) -> Expr:
        return te.select(te.equal(x[i], top[rows.outer(i)]), i[along], te.const(rows.count - 1))

    where = rows.reduce(te.min, first, "where")
    one, zero = te.const(1, x.dtype), te.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: te.select(te.equal(i[along], where[rows.outer(i)]), one, zero), name="hardmax")


def _along_axis(name: str, result: Callable[[te.Tensor, Rows, te.Tensor], te.Tensor]) -> None:
    """Register an operator along one axis, by its result for a tensor, its rows and the largest element of each; before version
    13 it is along all axes from `axis` on, as the columns of a matrix."""

    @operator(name, 13)
    def define(x, *, axis=-1):
        need("the input", x, dtype="float")
        rows = Rows(x, [axis])
        return result(x, rows, rows.reduce(te.max, lambda *i: x[i], "top"))

    @composite(name, 1, 12)
    def along_all(apply, x, *, axis=1):
        (first,) = normal_axes([axis], len(x.shape))
        if first == len(x.shape) - 1:
            return apply(name, x, axis=first)
        rows = apply("Reshape", x, shape=(prod(x.shape[:first]), prod(x.shape[first:])), allowzero=1)
        return apply("Reshape", apply(name, rows, axis=1), shape=x.shape, allowzero=1)


_along_axis("Hardmax", _hardmax)
_along_axis("Softmax", _softmax)
_along_axis("LogSoftmax", _log_softmax)
