"""TopK: runs are sorted by comparisons in vectors, and merged in scans; of many elements only the best blocks are sorted."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

from tir import dtypes, te
from tir.ir import Expr

from .registry import need, operator, scalar, shape_of
from .rows import normal_axes, replaced

# Elements of a block, whose first one decides whether it is searched. Of more, more candidates are sorted at each level: those of
# the top 50 of 50,257 are 200 at each of five levels by blocks of 4, 800 at each of two by blocks of 16.
BLOCK_SIZE = 4
# Elements that are put in order by n * n comparisons in vectors before runs are merged. An element takes as many vectors of
# comparisons as hold a run there, and in each merge a step of about 20 cycles that waits for the step before it.
RUN_SIZE = 64
MIN_BLOCKS_RATIO = 2  # least ratio of blocks to wanted elements for which choosing blocks pays


@operator("TopK", 10, operands={1: "k"})
@operator("TopK", 1, 9)
def top_k(x, *, k, axis=-1, largest=1, sorted=1):
    """The `k` largest, or smallest, elements along an axis in order, and their indices; as in numpy a NaN is the largest."""
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
    if not count:
        return te.compute((*outer, 0), lambda *i: te.const(0), name="none")
    if extent < count * BLOCK_SIZE * MIN_BLOCKS_RATIO:
        return _sorted_positions(x, count, order)
    best = _first_of_fours(x, order)
    chosen = _first_positions(best, count, order)
    ascending = _sorted_positions(chosen, count, _Order(lambda a, b: a < b, te.const(extent)))

    def position(*i: Expr) -> Expr:
        block = chosen[(*i[:-1], _within(ascending[(*i[:-1], i[-1] // BLOCK_SIZE)], count))]
        return _within(block, shape_of(best)[-1]) * BLOCK_SIZE + i[-1] % BLOCK_SIZE

    near = te.compute((*outer, count * BLOCK_SIZE), position, name="near")

    def candidate(*i: Expr) -> Expr:
        return te.if_then_else(near[i] < extent, x[(*i[:-1], _within(near[i], extent))], order.last)

    candidates = te.compute(near.shape, candidate, name="candidates")
    return _gathered(near, _sorted_positions(candidates, count, order))


def _first_of_fours(x: te.Tensor, order: _Order) -> te.Tensor:
    """The first of each four elements along the last axis."""
    *outer, extent = shape_of(x)

    def formula(*i: Expr) -> Expr:
        a, b, c, d = (x[(*i[:-1], te.minimum(i[-1] * 4 + n, extent - 1))] for n in range(4))
        left, right = te.select(order.first(b, a), b, a), te.select(order.first(d, c), d, c)
        return te.select(order.first(right, left), right, left)

    return te.compute((*outer, -(-extent // 4)), formula, name="best")


def _sorted_positions(x: te.Tensor, count: int, order: _Order) -> te.Tensor:
    """As `_first_positions`, of few elements, `count` at least 1.

    Elements are put in order within short runs, then pairs of runs are merged, of which only the first `count` are kept. A step
    of a merge gives the place, in the two runs one after the other, of the next element. The place before it tells how many
    elements were taken from the left run, so that a merge remembers nothing else.
    """
    *outer, extent = shape_of(x)
    size = min(RUN_SIZE, extent)
    runs, span = -(-extent // size), min(size, count)
    x = _padded(x, runs * size, order.last)
    placed = _ordered_runs(te.compute((*outer, runs, size), lambda *i: x[(*i[:-2], i[-2] * size + i[-1])], name="runs"), order)

    def first_index(*i: Expr) -> Expr:
        run = i[-1] // span
        return run * size + _within(placed[(*i[:-1], run, i[-1] % span)], size)

    index = te.compute((*outer, runs * span), first_index, name="index")
    values = _gathered(x, index)
    while runs > 1:
        runs += runs % 2
        values, index = _padded(values, runs * span, order.last), _padded(index, runs * span, te.const(0))
        places = _merged(values, runs // 2, span, min(2 * span, count), order)
        values, index = _gathered(values, places), _gathered(index, places)
        runs, span = runs // 2, min(2 * span, count)
    return index


def _padded(x: te.Tensor, extent: int, fill: Expr) -> te.Tensor:
    """A tensor of so many elements along the last axis, `fill` beyond its own."""
    *outer, own = shape_of(x)
    if own == extent:
        return x

    def element(*i: Expr) -> Expr:
        return te.if_then_else(i[-1] < own, x[(*i[:-1], te.minimum(i[-1], own - 1))], fill)

    return te.compute((*outer, extent), element, name="padded")


def _gathered(x: te.Tensor, index: te.Tensor) -> te.Tensor:
    """The elements at indices along the last axis."""
    return te.compute(index.shape, lambda *i: x[(*i[:-1], _within(index[i], shape_of(x)[-1]))], name="gathered")


def _merged(x: te.Tensor, pairs: int, span: int, kept: int, order: _Order) -> te.Tensor:
    """The indices of the first `kept` elements of each pair of neighbouring runs of `span` elements, in order."""
    *outer, _ = shape_of(x)

    def step(place: te.Tensor, *i: Expr) -> Expr:
        *row, pair, n = i
        previous, base = place[(*row, pair, te.maximum(n - 1, 0))], pair * (2 * span)
        taken = te.select(n >= 1, te.select(previous < span, previous + 1, n + span - 1 - previous), te.const(0))
        a, b = _within(taken, span), _within(n - taken, span) + span
        right_first = order.first(x[(*row, base + b)], x[(*row, base + a)])
        return te.select(te.any(n - taken >= span, te.all(taken < span, te.logical_not(right_first))), a, b)

    places = te.scan((*outer, pairs, kept), step, len(outer) + 1, "int32", "merged")

    def index(*i: Expr) -> Expr:
        pair = i[-1] // kept
        return pair * (2 * span) + _within(places[(*i[:-1], pair, i[-1] % kept)], 2 * span)

    return te.compute((*outer, pairs * kept), index, name="places")


def _ordered_runs(x: te.Tensor, order: _Order) -> te.Tensor:
    """The indices within each run, in order, of the elements [..., runs, elements of a run].

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
        return te.sum(te.select(te.equal(ranks[(*i[:-1], source)], i[-1]), source.var, te.const(0)), axis=source)

    return te.compute(x.shape, index, name="ordered")
