"""Operators that reduce along axes: sums and their like, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, prod
from typing import Any, NamedTuple

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
    """Register an operator that gives the index along an axis of the largest, or the smallest, element."""
    label = name.lower()

    @operator(name)
    def define(x, *, axis=0, keepdims=1, select_last_index=0):
        need("the input", x, dtype="number")
        return arg_extreme(x, axis, reducer, bool(keepdims), bool(select_last_index), label)


def arg_extreme(x: te.Tensor, axis: int, reducer: Callable[..., Expr], keepdims: bool, last: bool, name: str) -> te.Tensor:
    """The index along an axis of the element that a reducer picks: the first of several, or the last."""
    rows = Rows(x, [axis])
    (along,) = rows.axes
    if not rows.count and 0 not in replaced(shape_of(x), along):
        raise ValueError(f"there is no element to choose along axis {axis} of {list(shape_of(x))}")
    top = rows.reduce(reducer, lambda *i: x[i], "top")
    nowhere, pick = (te.const(0, "int64"), te.max) if last else (te.const(shape_of(x)[along] - 1, "int64"), te.min)

    def index(*i: Expr) -> Expr:
        return te.select(te.equal(x[i], top[rows.outer(i)]), i[along].astype("int64"), nowhere)

    return rows.reduce(pick, index, name, keepdims)


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


# Elements of a block, whose first one decides whether it is searched. The top 50 of 50,257 took 0.28 ms by blocks of 16, of which
# 800 elements were sorted at each level, and take 0.13 ms by those of 4 (Zen 4).
BLOCK_SIZE = 4
# Elements that are put in order by n * n comparisons in vectors before runs are merged. Sorting 2,000 takes 0.28 ms by merges
# alone, 0.18 ms after runs of 32 and 0.16 ms after runs of 64 (Zen 4).
RUN = 64
MIN_BLOCKS_RATIO = 2  # least ratio of blocks to wanted elements for which choosing blocks pays


@operator("TopK", 10, operands={1: "k"})
@operator("TopK", 1, 9)
def top_k(x, *, k, axis=-1, largest=1, sorted=1):
    """The `k` largest, or smallest, elements along an axis in order, and their indices. Equal elements keep their order, and a
    NaN is larger than all numbers, as in numpy."""
    need("the input", x, dtype="number")
    (along,) = normal_axes([axis], x.ndim)
    extent, count = shape_of(x)[along], int(scalar("k", k))
    if not 0 <= count <= extent:
        raise ValueError(f"k must be from 0 to {extent}, got {count}")

    floating = dtypes.is_float(x.dtype)

    def first(a: Expr, b: Expr) -> Expr:
        if not floating:
            return a > b if largest else a < b
        return te.all(te.logical_not(a <= b), te.equal(b, b)) if largest else te.all(te.logical_not(a >= b), te.equal(a, a))

    rows = te.compute((*replaced(shape_of(x), along), extent), lambda *i: x[(*i[:along], i[-1], *i[along:-1])], name="rows")
    extremes = (te.const(-inf, x.dtype), te.const(nan, x.dtype)) if floating else (te.min_value(x.dtype), te.max_value(x.dtype))
    positions = _first_positions(rows, count, _Order(first, extremes[not largest]))
    shape = replaced(shape_of(x), along, count)
    indices = te.compute(shape, lambda *i: positions[(*replaced(i, along), i[along])].astype("int64"), name="indices")
    return te.compute(shape, lambda *i: x[replaced(i, along, _within(indices[i], extent))], name="top_k"), indices


def _within(position: Expr, extent: int) -> Expr:
    """A computed index clamped to an extent in which it lies, so that this is provable."""
    return te.minimum(te.maximum(position, te.const(0, position.dtype)), te.const(extent - 1, position.dtype))


class _Order(NamedTuple):
    """An order of elements: whether one comes before another that it does not equal, and a value that comes before none."""

    first: Callable[[Expr, Expr], Expr]
    last: Expr


def _first_positions(x: te.Tensor, count: int, order: _Order) -> te.Tensor:
    """The indices of the first `count` elements along the last axis, in order; of equal ones the first.

    Of many elements only the blocks are searched whose first elements are the first `count` of all blocks': an element of
    another block comes after these.
    """
    *outer, extent = shape_of(x)
    if not count or extent < count * BLOCK_SIZE * MIN_BLOCKS_RATIO:
        return _sorted_positions(x, count, order)
    best = _first_of_fours(x, order)
    chosen = _first_positions(best, count, order)
    ascending = _sorted_positions(chosen, count, _Order(lambda a, b: a < b, te.const(extent)))

    def position(*i: Expr) -> Expr:
        block = chosen[(*i[:-1], _within(ascending[(*i[:-1], i[-1] // BLOCK_SIZE)], count))]
        return _within(block, shape_of(best)[-1]) * BLOCK_SIZE + i[-1] % BLOCK_SIZE

    near = te.compute((*outer, count * BLOCK_SIZE), position, name="near")
    values = te.compute(near.shape, lambda *i: _element(x, (*i[:-1], near[i]), order), name="candidates")
    found = _sorted_positions(values, count, order)
    return te.compute(found.shape, lambda *i: near[(*i[:-1], _within(found[i], count * BLOCK_SIZE))], name="first")


def _element(x: te.Tensor, i: Sequence[Expr], order: _Order) -> Expr:
    """An element, or what comes last where its index is beyond the last axis."""
    extent = shape_of(x)[-1]
    return te.if_then_else(i[-1] < extent, x[(*i[:-1], te.minimum(i[-1], extent - 1))], order.last)


def _first_of_fours(x: te.Tensor, order: _Order) -> te.Tensor:
    """The first of each four elements along the last axis."""
    *outer, extent = shape_of(x)

    def formula(*i: Expr) -> Expr:
        a, b, c, d = (x[(*i[:-1], te.minimum(i[-1] * 4 + n, extent - 1))] for n in range(4))
        left, right = te.select(order.first(b, a), b, a), te.select(order.first(d, c), d, c)
        return te.select(order.first(right, left), right, left)

    return te.compute((*outer, -(-extent // 4)), formula, name="best")


def _sorted_positions(x: te.Tensor, count: int, order: _Order) -> te.Tensor:
    """As `_first_positions`, of few elements.

    Elements are put in order within short runs, then pairs of runs are merged in one scan, of which a step takes the next
    element of two runs. Its result has the element's index, and above 32 bits the number of elements taken from the left run.
    """
    *outer, extent = shape_of(x)
    size = min(RUN, extent)
    runs = -(-extent // size)
    levels, padded = (runs - 1).bit_length(), runs * size
    x = te.compute((*outer, padded), lambda *i: _element(x, i, order), name="padded") if padded > extent else x
    ordered = _ordered_runs(te.compute((*outer, runs, size), lambda *i: x[(*i[:-2], i[-2] * size + i[-1])], name="runs"), order)
    if not levels:
        return te.compute((*outer, count), lambda *i: ordered[(*i[:-1], 0, i[-1])], name="sorted")
    high, low = te.const(32, "int64"), te.const((1 << 32) - 1, "int64")
    shift = size.bit_length()  # of two runs

    def merging(result: te.Tensor, *i: Expr) -> Expr:
        *row, step = i
        level, n = step // padded, step % padded
        base, span = te.shl(te.shr(n, level + shift), level + shift), te.shl(te.const(size), level)
        number = n - base
        taken = te.select(number >= 1, te.shr(result[(*row, te.maximum(step - 1, 0))], high).astype("int32"), te.const(0))
        starts = base + taken, base + span + (number - taken)

        def index(start: Expr) -> Expr:
            there = _within(start, padded)
            merged = te.bit_and(result[(*row, te.maximum((level - 1) * padded, 0) + there)], low).astype("int32")
            return _within(te.if_then_else(level >= 1, merged, ordered[(*row, there // size, there % size)]), padded)

        a, b = map(index, starts)
        over = te.any(number - taken >= span, starts[1] >= padded)
        left = te.any(over, te.all(taken < span, te.logical_not(order.first(x[(*row, b)], x[(*row, a)]))))
        return te.bit_or(te.shl((taken + left.astype("int32")).astype("int64"), high), te.select(left, a, b).astype("int64"))

    merged = te.scan((*outer, levels * padded), merging, len(outer), "int64", "merged")

    def result(*i: Expr) -> Expr:
        return te.bit_and(merged[(*i[:-1], i[-1] + (levels - 1) * padded)], low).astype("int32")

    return te.compute((*outer, count), result, name="sorted")


def _ordered_runs(x: te.Tensor, order: _Order) -> te.Tensor:
    """The indices among all elements of those of [..., runs, elements of a run], in their order within each run.

    The place of an element in its run is the number of the run's elements that come before it, counted in vectors.
    """
    size = shape_of(x)[-1]
    other, source = te.reduce_axis((0, size), "other"), te.reduce_axis((0, size), "source")

    def rank(*i: Expr) -> Expr:
        here, there = x[i], x[(*i[:-1], other)]
        equal_before = te.all(te.logical_not(order.first(here, there)), other < i[-1])
        return te.sum(te.any(order.first(there, here), equal_before).astype("int32"), axis=other)

    ranks = te.compute(x.shape, rank, name="ranks")

    def index(*i: Expr) -> Expr:
        here = te.equal(ranks[(*i[:-1], source)], i[-1])
        return te.sum(te.select(here, i[-2] * size + source, te.const(0)), axis=source)

    return te.compute(x.shape, index, name="ordered")


def _softmax(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """exp(x - max) / sum(exp(x - max)) along axes; of halves the sum is made in float32."""
    need("the input", x, dtype="float")
    rows = Rows(x, axes)
    top = rows.reduce(te.max, lambda *i: x[i], "top")
    power = te.compute(x.shape, lambda *i: te.exp(wide(x[i]) - wide(top[rows.outer(i)])), name="power")
    total = rows.reduce(te.sum, lambda *i: power[i], "sum")
    return te.compute(x.shape, lambda *i: (power[i] / total[rows.outer(i)]).astype(x.dtype), name="softmax")


def _log_softmax(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """x - max - log(sum(exp(x - max))) along axes; of halves in float32."""
    need("the input", x, dtype="float")
    rows = Rows(x, axes)
    top = rows.reduce(te.max, lambda *i: x[i], "top")
    total = rows.reduce(te.sum, lambda *i: te.exp(wide(x[i]) - wide(top[rows.outer(i)])), "sum")

    def formula(*i: Expr) -> Expr:
        return (wide(x[i]) - wide(top[rows.outer(i)]) - te.log(total[rows.outer(i)])).astype(x.dtype)

    return te.compute(x.shape, formula, name="log_softmax")


def _along_axes(name: str, define: Callable[[te.Tensor, Sequence[int]], te.Tensor]) -> None:
    """Register an operator along one axis; before version 13 along all axes from `axis` on."""

    @operator(name, 13)
    def along_one(x, *, axis=-1):
        return define(x, [axis])

    @operator(name, 1, 12)
    def along_all(x, *, axis=1):
        (first,) = normal_axes([axis], x.ndim)
        return define(x, range(first, x.ndim))


def _hardmax(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """1 at the first largest element along axes, 0 elsewhere."""
    need("the input", x, dtype="float")
    rows = Rows(x, axes)
    top = rows.reduce(te.max, lambda *i: x[i], "top")

    def number(*i: Expr) -> Expr:
        """The place along the axes, row by row."""
        found: Expr = te.const(0)
        for n in rows.axes:
            found = found * shape_of(x)[n] + i[n]
        return found

    def first(*i: Expr) -> Expr:
        return te.select(te.equal(x[i], top[rows.outer(i)]), number(*i), te.const(rows.count - 1))

    where = rows.reduce(te.min, first, "where")
    one, zero = te.const(1, x.dtype), te.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: te.select(te.equal(number(*i), where[rows.outer(i)]), one, zero), name="hardmax")


_along_axes("Hardmax", _hardmax)
_along_axes("Softmax", _softmax)
_along_axes("LogSoftmax", _log_softmax)
