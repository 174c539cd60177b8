"""Analysis of blocks by their formulas, never by names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from schedule.annotation_values import NARROW_PAIRS, value_of
from schedule.error import ScheduleError
from schedule.machine import CPU
from schedule.open_schedule import computed_bits, extent
from schedule.primitive import find_block, find_loop, is_parameter
from schedule.rewriting.index_map import IndexMap
from schedule.schedule import Schedule
from tir import dtypes
from tir.analysis.positions import position
from tir.arith.bounds import ranges_of
from tir.arith.polynomial import polynomial, to_expr
from tir.arith.simplify import simplify
from tir.ir import Axis, Binary, Block, Cast, Const, Expr, Iter, Load, Store, Var
from tir.traverse import loads, stored_names, stores, variables

from ..legality.reducer import reducer_of

MIN_REUSES = 8  # least uses of an element for which it pays to keep it near


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reduction of pairs of elements, out[...] = sum of left[...] * right[...], or with other operators than these.

    Axes of `batch` are in both factors and the result, or in the result alone with extent 1. Those of `rows` are in `left` and
    the result, those of one iteration first, of `columns` in `right` and the result, of `reduction` in the factors only. The last
    dimension of the result is an axis of `right`. `narrow_pairs`: the annotation of that name says so of `right`.
    """

    block: str
    store: Store
    left: Load
    right: Load
    batch: tuple[Iter, ...]
    rows: tuple[Iter, ...]
    columns: tuple[Iter, ...]
    reduction: tuple[Iter, ...]
    narrow_pairs: bool = False

    @property
    def vector(self) -> str:
        """The axis that is the last dimension of the result."""
        return next(i.name for i in reversed(self.store.indices) if isinstance(i, Var))

    @property
    def by_columns(self) -> bool:
        """True where the last dimension of the result is one of the columns, the last of them."""
        return bool(self.columns) and self.columns[-1].var.name == self.vector

    @property
    def bits(self) -> int:
        """The width of an element of the result, as it is computed: half precision in 32 bits."""
        return computed_bits(self.store.buffer.dtype)

    @property
    def work(self) -> int:
        """The number of pairs."""
        return size((*self.batch, *self.rows, *self.columns, *self.reduction))

    def threads(self, processor: CPU) -> int:
        """The number of threads that are worth waking for it: one where it is small."""
        return processor.threads(self.work * processor.fma_cycles(self.bits))


def contraction(block: Block, units: bool = False) -> Contraction | None:
    """The block as a sum from 0 of products of two elements, converted to the type of the sum, over constant extents. With
    `units`, the sum may have axes of one element that are in one factor, or in none, beside others that are in both."""
    c = pairing(block, units)
    if c is None:
        return None
    left, right = (x if x.dtype == c.store.buffer.dtype else Cast(c.store.buffer.dtype, x) for x in (c.left, c.right))
    return c if adds_products(block, left, right) else None


def adds_products(block: Block, a: Expr, b: Expr) -> bool:
    """True for a block that adds the products of two values up, from 0, in any order of operands."""
    store, init = stored(block), block.init
    old = Load(store.buffer, store.indices)
    sums = [Binary("+", *terms) for p in (Binary("*", a, b), Binary("*", b, a)) for terms in ((old, p), (p, old))]
    return store.value in sums and isinstance(init, Store) and init.value.is_zero


def pairing(block: Block, units: bool = False) -> Contraction | None:
    """The block as a reduction of any function of two elements over constant extents; `units` as of `contraction`."""
    body = block.body
    if not isinstance(body, Store) or not isinstance(block.init, Store) or block.predicate != Const(True, "bool"):
        return None
    if not regular(block):
        return None
    factors = _factor_loads(body)
    outputs = _stored_axes(body, block)
    if factors is None or not outputs or {it.var.name for it in outputs} != {it.var.name for it in block.spatial}:
        return None
    left, right = factors
    last = outputs[-1].var.name
    if last not in _index_axes(right) or (last in _index_axes(left) and at_axes(right)):
        left, right = right, left
    in_left, in_right = _index_axes(left), _index_axes(right)
    if last not in in_right:
        return None
    groups: dict[tuple[bool, bool], list[Iter]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    reduce_axes = []
    for it in (*outputs, *block.reduction):
        name = it.var.name
        if it.axis is Axis.REDUCE:
            if not (name in in_left and name in in_right) and not (units and extent(it) == 1):
                return None
            reduce_axes.append(it)
        else:
            groups[name in in_left, name in in_right].append(it)
    if size(groups[False, False]) > 1 or not any(it.var.name in in_left & in_right for it in reduce_axes):
        return None
    return Contraction(
        block.name,
        body,
        left,
        right,
        (*groups[False, False], *groups[True, True]),
        tuple(sorted(groups[True, False], key=lambda it: extent(it) > 1)),
        tuple(groups[False, True]),
        tuple(reduce_axes),
        value_of(block, NARROW_PAIRS, False) and right == factors[1],
    )


def regular(block: Block) -> bool:
    """True where the axes of a block have constant extents, and a loop each."""
    return all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in block.iters)


def runs_in_order(block: Block) -> bool:
    """True where the innermost axis of a block alone is ordered, and the axes have constant extents and a loop each."""
    *outer, last = (it.axis for it in block.iters) if block.iters else (None,)
    return last is Axis.OPAQUE and set(outer) <= {Axis.SPATIAL} and regular(block)


def _factor_loads(body: Store) -> tuple[Load, Load] | None:
    """The two loads, from different buffers, that `out = f(out, a, b)` has beside that of its own element."""
    old = Load(body.buffer, body.indices)
    read = list(dict.fromkeys(x for x in loads(body.value) if x != old))
    if len(read) != 2 or len({body.buffer.name, *(x.buffer.name for x in read)}) != 3:
        return None
    return read[0], read[1]


def reused(block: Block, held: int = 0) -> bool:
    """True where a block of constant extents uses all that it reads many times, so that it gains by tiles in caches and
    registers. It does not where it reads at most `held` bytes at each point of the spatial axes that index all of that."""
    read = [x for x in loads(block.body) if x.buffer.name not in stored_names(block.body)]
    used = [_index_axes(x) for x in read]
    least = min((size(it for it in block.iters if it.var.name not in names) for names in used), default=1)
    if least < MIN_REUSES:
        return False
    shared = {it.var.name for it in block.spatial}.intersection(*used)
    sizes = [size(it for it in block.iters if it.var.name in names - shared) for names in used]
    return sum(n * dtypes.nbytes(x.buffer.dtype) for n, x in zip(sizes, read, strict=True)) > held


def _stored_axes(store: Store, block: Block) -> list[Iter] | None:
    """The axes that index a store, all different, but for constants in unit dimensions; None where it has other indices."""
    iters = {it.var.name: it for it in block.iters}
    indices = [i for i, n in zip(store.indices, store.buffer.shape, strict=True) if not (n.is_one and isinstance(i, Const))]
    found = [iters.get(i.name) if isinstance(i, Var) else None for i in indices]
    names = {it.var.name for it in found if it is not None}
    return found if len(names) == len(indices) else None  # type: ignore[return-value]


def _index_axes(load: Load) -> set[str]:
    return variables(*load.indices)


def at_axes(load: Load) -> bool:
    """True where each index of an element is an axis of its own, or a constant."""
    axes = [i for i in load.indices if not isinstance(i, Const)]
    return all(isinstance(i, Var) for i in axes) and len(_index_axes(load)) == len(axes)


def address(block: Block, x: Load | Store) -> Expr:
    """The offset of an element in its buffer, in elements, over the axes of a block."""
    return simplify(to_expr(position(x.buffer, x.indices)), ranges_of([block]))


def last_axis(load: Load) -> str | None:
    """The axis that is the last index of a load, and so walks its memory; None if that index is no axis."""
    index = load.indices[-1] if load.indices else None
    return index.name if isinstance(index, Var) else None


def stride(x: Load, axis: Var) -> int:
    """The largest factor of an axis in the indices of a load, 1 at least."""
    return max([1, *(polynomial(i).get((axis,), 0) for i in x.indices)])


def size(axes: Iterable[Iter]) -> int:
    """The number of points of some axes with constant extents."""
    return prod(map(extent, axes))


def loop_of(it: Iter) -> str:
    """The loop to which an axis is bound alone."""
    assert isinstance(it.binding, Var)
    return it.binding.name


def driven_axes(block: Block) -> dict[str, str]:
    """The axis of a block that each loop drives, by the loops' names."""
    return {loop: it.var.name for it in block.iters for loop in variables(it.binding)}


def divisible(block: Block, reordered: bool = True) -> bool:
    """True where a reduction may be computed in parts, as `rfactor` does, and its elements combined in another order."""
    try:
        reducer_of(block, reordered)
    except ScheduleError:
        return False
    return True


def counted(axes: Sequence[Iter], kept: Iterable[Iter], *groups: Sequence[Iter]) -> IndexMap:
    """The index map from all `axes` to those `kept`, and for each group of axes to a number that counts through them."""
    numbers = [reduce(lambda e, it: e * extent(it) + it.var, group[1:], group[0].var) for group in groups]
    return IndexMap(tuple(it.var for it in axes), (*(it.var for it in kept), *numbers))


def store_last(s: Schedule, block: str, indices: Sequence[Expr], axis: str) -> int:
    """Lay out a block's output, written at `indices`, with the dimension of `axis` last; returns its former number."""
    place = next(n for n, i in enumerate(indices) if isinstance(i, Var) and i.name == axis)
    order = [*(n for n in range(len(indices)) if n != place), place]
    s.transform_layout(block, ("write", 0), IndexMap.identity(len(indices)).permute(*order))
    return place


def transpose_in_squares(s: Schedule, columns: str, rows: str, tall: int, wide: int) -> None:
    """Walk the loops `columns` and `rows` in squares of `tall` by `wide` elements, which are transposed in registers. The vector
    runs over `rows`, which lie far apart: each row of a square is one load along `columns`."""
    _, column = s.split(columns, [None, tall])
    row, lane = s.split(rows, [None, wide])
    s.reorder(row, column, lane)
    s.unroll(column)
    s.vectorize(lane)


def merged(s: Schedule, first: str, second: str, count: int) -> list[str]:
    """Merge the `count` outermost loops of two consecutive blocks, pair by pair; returns the merged loops."""
    return [s.merge(a, b) for a, b in zip(s.get_loops(first)[:count], s.get_loops(second)[:count], strict=True)]


def loop_length(s: Schedule, loop: str) -> int | None:
    """The extent of a loop where it is constant."""
    found = find_loop(s.func, loop).extent
    return int(found.value) if isinstance(found, Const) else None


def is_elementwise(block: Block) -> bool:
    """True where a block computes each element of its output once, from anything, in any order."""
    body, spatial = block.body, all(it.axis is Axis.SPATIAL for it in block.iters)
    return block.init is None and spatial and isinstance(body, Store) and _stored_axes(body, block) is not None


def made_for(s: Schedule, block: str) -> list[str]:
    """The elementwise producers of a block whose results nothing else reads."""
    outputs = s.get_output_blocks()
    found = [p for p in s.get_producers(block) if is_elementwise(find_block(s.func, p))]
    return [p for p in found if s.get_consumers(p) == [block] and p not in outputs]


def stored(block: Block) -> Store:
    """The store that is the body of a block."""
    assert isinstance(block.body, Store)
    return block.body


def epilogue(s: Schedule, block: str, anywhere: bool = False, rows: bool = False) -> str | None:
    """The only consumer of a block, if it is elementwise over the one result of the block; None else. It reads the result at its
    own axes, in order, and writes there, too. With `anywhere` it may write elsewhere; with `rows` it may permute all dimensions
    but the last. A dimension of extent 1 may have any index."""
    consumers = s.get_consumers(block)
    if len(consumers) != 1:
        return None
    consumer, producer = find_block(s.func, consumers[0]), find_block(s.func, block)
    made = stored_names(producer)
    if any(is_parameter(s.func, name) for name in made):
        return None
    if consumer.is_reduction or not isinstance(consumer.body, Store) or len(made) != 1:
        return None
    if not anywhere and not is_elementwise(consumer):
        return None
    place = [it.var for it in consumer.iters] if anywhere else stored(consumer).indices
    read = [x for x in loads(consumer.body) if x.buffer.name in made]
    return consumer.name if all(_same_place(x, place) or (rows and _same_rows(x, place)) for x in read) else None


def fuse_epilogue(s: Schedule, after: str | None, loop: str) -> None:
    """Compute an epilogue, if there is one, in vectors in each iteration of a loop."""
    if after is not None:
        s.reverse_compute_at(after, loop, preserve_unit_loops=True)
        s.vectorize(s.get_loops(after)[-1])


def _same_rows(x: Load, place: Sequence[Expr]) -> bool:
    """True where a load has the indices of a place, all but the last in any order, but for dimensions of extent 1."""
    indices = [i for i, n in zip(x.indices, x.buffer.shape, strict=True) if not n.is_one]
    moved = {i for i in place if isinstance(i, Var)} >= {*indices} and len({*indices}) == len(indices)
    return bool(indices) and moved and all(isinstance(i, Var) for i in indices) and x.indices[-1] == place[-1]


def _same_place(x: Load, place: Sequence[Expr]) -> bool:
    """True where a load has the indices of a place of the same rank, but for dimensions of extent 1."""
    if len(x.indices) != len(place):
        return False
    return all(a == b or n.is_one for a, b, n in zip(x.indices, place, x.buffer.shape, strict=True))


def reuses_data(block: Block) -> bool:
    """True where a reduction reads elements again in other iterations: some operand lacks a spatial axis.

    Ansor (section 4.1, HasDataReuse) also counts blocks without a reduction in which two operands lack an axis (see
    `needs_tiling`). Tiling gains nothing there, as in a normalisation, and keeps producers from being fused row by row.
    """
    return block.is_reduction and lacking(block) > 0


def lacking(block: Block) -> int:
    """The number of buffers read that lack, in all their indices, a spatial axis of more than one iteration."""
    written = stored_names(block)
    spatial = {it.var.name for it in block.spatial if extent(it) > 1}
    used: dict[str, set[str]] = {}
    for load in loads(block.body):
        if load.buffer.name not in written:
            used.setdefault(load.buffer.name, set()).update(variables(*load.indices))
    return sum(not spatial <= axes for axes in used.values())


def walks_memory(block: Block) -> bool:
    """True where the axis of the last dimension written is in the last index of a load, too, which then loads whole vectors. A
    matrix product has one; products with a transposed right operand, or with a vector, have none."""
    store = stores(block.body)[0]
    if not store.indices or not isinstance(store.indices[-1], Var):
        return False
    axis = store.indices[-1].name
    reads = [load for load in loads(block.body) if load.buffer.name != store.buffer.name and load.indices]
    return any(axis in variables(load.indices[-1]) for load in reads)
