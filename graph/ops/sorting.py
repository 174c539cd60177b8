"""TopK: runs are sorted by comparisons in vectors, and merged in one scan; of many elements only the best blocks are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import NamedTuple

from tir import dtypes, te
from tir.ir import Expr

from .registry import need, operator, scalar, shape_of
from .rows import normal_axes, replaced

# Elements of a block, whose first one decides whether it is searched. The top 50 of 50,257 took 0.28 ms by blocks of 16, of which
# 800 elements were sorted at each level, and take 0.13 ms by those of 4 (Zen 4).
BLOCK_SIZE = 4
# Elements that are put in order by n * n comparisons in vectors before runs are merged. Sorting 2,000 takes 0.28 ms by merges
# alone, 0.18 ms after runs of 32 and 0.16 ms after runs of 64 (Zen 4).
RUN_SIZE = 64
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
    size = min(RUN_SIZE, extent)
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
