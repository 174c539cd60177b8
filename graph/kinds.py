"""Kinds of calls: their work on each element, read from the loop nest of their definition."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from schedule import Schedule
from schedule.templates import attention, row_normalisation
from schedule.templates.block_analysis import Contraction, at_axes, contraction, stored
from schedule.templates.row_normalisation import is_place, own_row
from tir import dtypes
from tir.arith.polynomial import linear, polynomial
from tir.ir import Axis, Block, Cast, Const, Expr, Load, PrimFunc, Select, Store, Var, const_shape
from tir.traverse import blocks, loads

from .ir import Call, Value
from .ops import function
from .ops.registry import MAX_KNOWN_CALLS


def pointwise(call: Call) -> bool:
    """True where a call computes each element of its only output on its own, without a reduction."""
    return len(call.outputs) == 1 and _block(function(call)) is not None


def elementwise_inputs(call: Call) -> list[Value]:
    """The inputs that each element of the output needs at its own place alone; empty unless the call is one spatial block."""
    return [v for n, v in enumerate(_different(call)) if n in _at_place(function(call))]


def elementwise(call: Call) -> bool:
    """True if each element of the only output comes from elements at its own place, of inputs that are broadcast as in numpy."""
    return len(call.outputs) == 1 and _broadcasts(function(call))


def moves(call: Call) -> bool:
    """True where a call computes nothing: each element of the output is one of an input, or a constant."""
    block = _block(function(call))
    return block is not None and _only_moves(_stored(block))


def copies(call: Call, value: Value) -> bool:
    """True where the only output has the elements of an input at their places, in its type."""
    if len(call.outputs) > 1 or (value.shape, value.dtype) != (call.outputs[0].shape, call.outputs[0].dtype):
        return False
    block = _block(function(call))
    return block is not None and isinstance(_stored(block), Load) and elementwise_inputs(call) == [value]


def affine_indices(call: Call, output: int) -> list[list[int]] | None:
    """For each dimension of the first input, the factors of the axes of an output in the index at which that reads it, and the
    constant; None where the output is no load of that input, or an index is not affine."""
    func = function(call)
    made = [b for b in blocks(func) if isinstance(b.body, Store) and b.body.buffer == func.buffers[output - len(call.outputs)]]
    value = _stored(made[0]) if len(made) == 1 else None
    if not isinstance(value, Load) or value.buffer != func.buffers[0]:
        return None
    found = [polynomial(i) for i in value.indices]
    keys = [*((it.var,) for it in made[0].iters), ()]
    return [[p.get(key, 0) for key in keys] for p in found] if all(p.keys() <= {*keys} for p in found) else None


def widens(call: Call) -> bool:
    """True for a conversion to a wider type."""
    return call.operator == "Cast" and dtypes.bits(call.outputs[0].dtype) > dtypes.bits(call.values[0].dtype)


def picks(call: Call) -> bool:
    """True where a call reads its only input at permuted indices of the output, and at constants: a transpose or a part."""
    return len(call.values) == 1 and _picked_dimensions(function(call)) is not None


def moves_rows(call: Call) -> bool:
    """True where a call `picks` and the last dimension stays the last."""
    picked = _picked_dimensions(function(call)) if len(call.values) == 1 else None
    return picked is not None and picked[-1:] == (len(call.outputs[0].shape) - 1,)


def read_once(call: Call, value: Value) -> bool:
    """True if each element of an input is needed for at most one element of the output, so that the call may compute it."""
    return _different(call).index(value) in _needed_once(function(call))


def is_product(call: Call, rounded: bool = False) -> bool:
    """True where a call is one contraction of two operands read at plain axes, each of which lacks an axis of the result. With
    `rounded`, its results may be converted to another type."""
    return _product(call, rounded) is not None


def left_operand(call: Call, rounded: bool = False) -> Value | None:
    """The left operand of a product if its dimensions are batches, rows and the reduction axis, in this order; else None."""
    c = _product(call, rounded)
    if c is None or not attention.reads_rows(c):
        return None
    return next(v for v, b in zip(_different(call), function(call).buffers, strict=False) if b == c.left.buffer)


def rows_from(call: Call) -> list[Value]:
    """The inputs whose same row alone gives each row of the output, as in softmax; empty if the call does not work by rows."""
    return [v for n, v in enumerate(_different(call)) if n in _by_rows(function(call))] if len(call.outputs) == 1 else []


def work(call: Call) -> int:
    """The number of iterations of a call's blocks."""
    extents = ([it.extent for it in block.iters] for block in blocks(function(call)))
    return sum(prod(int(e.value) for e in own if isinstance(e, Const)) for own in extents)


def _different(call: Call) -> list[Value]:
    return list(dict.fromkeys(call.values))


def _block(func: PrimFunc) -> Block | None:
    """The only block of a function, if it has spatial axes alone and is one store; else None."""
    block, *others = blocks(func)
    fits = not others and all(it.axis is Axis.SPATIAL for it in block.iters) and isinstance(block.body, Store)
    return block if fits else None


def _stored(block: Block) -> Expr:
    assert isinstance(block.body, Store)
    return block.body.value


def _reads(func: PrimFunc, block: Block, number: int) -> list[Load]:
    return [load for load in loads(block.body) if load.buffer == func.buffers[number]]


@lru_cache(MAX_KNOWN_CALLS)
def _at_place(func: PrimFunc) -> frozenset[int]:
    block = _block(func)
    if block is None:
        return frozenset()
    reads = {n: _reads(func, block, n) for n in range(len(func.buffers) - 1)}
    return frozenset(n for n, read in reads.items() if read and all(is_place(load.indices, block.iters) for load in read))


@lru_cache(MAX_KNOWN_CALLS)
def _broadcasts(func: PrimFunc) -> bool:
    block = _block(func)
    if block is None:
        return False
    axes = [it.var for it in block.iters]

    def broadcast(load: Load) -> bool:
        own = axes[len(axes) - len(load.indices) :]
        shape = const_shape(load.buffer)
        return len(load.indices) <= len(axes) and all(
            i == v or (e == 1 and i == Const(0)) for i, v, e in zip(load.indices, own, shape, strict=True)
        )

    return all(broadcast(load) for load in loads(block.body))


def _only_moves(value: Expr) -> bool:
    match value:
        case Load() | Const():
            return True
        case Select(condition, a, b):
            return not loads(condition) and _only_moves(a) and _only_moves(b)
        case _:
            return False


@lru_cache(MAX_KNOWN_CALLS)
def _picked_dimensions(func: PrimFunc) -> tuple[int | None, ...] | None:
    """For each dimension of the input the output's dimension that indexes it, None for a constant; None for other functions."""
    block = _block(func)
    value = None if block is None else _stored(block)
    if block is None or not isinstance(value, Load) or not at_axes(value):
        return None
    axes = [it.var for it in block.iters]
    found = tuple(axes.index(i) if isinstance(i, Var) else None for i in value.indices)
    units = {n for n, it in enumerate(block.iters) if it.extent.is_one}
    return found if {*found} - {None} >= {*range(len(axes))} - units else None


@lru_cache(MAX_KNOWN_CALLS)
def _needed_once(func: PrimFunc) -> frozenset[int]:
    """The numbers of inputs whose elements are needed once at most: by one load, each axis above extent 1 alone in an index."""
    block = _block(func)
    if block is None:
        return frozenset()
    axes = {it.var.name for it in block.iters if not it.extent.is_one}
    found = set()
    for n in range(len(func.buffers) - 1):
        read = _reads(func, block, n)
        if len(read) == 1 and axes <= {p[0] for i in read[0].indices if (p := linear(polynomial(i)))}:
            found.add(n)
    return frozenset(found)


@lru_cache(MAX_KNOWN_CALLS)
def _contraction(func: PrimFunc) -> Contraction | None:
    """The contraction that a function is, perhaps with a conversion of its results."""
    block, *others = blocks(func)
    found = contraction(block)
    if not others or found is None:
        return found
    last = stored(others[-1])
    return found if len(others) == 1 and last.value == Cast(last.buffer.dtype, Load(found.store.buffer, last.indices)) else None


def _product(call: Call, rounded: bool) -> Contraction | None:
    """The contraction that a call is, if it is a product (see `is_product`)."""
    func = function(call)
    c = _contraction(func) if len(call.outputs) == 1 and (rounded or len([*blocks(func)]) == 1) else None
    return c if c is not None and at_axes(c.left) and at_axes(c.right) and c.rows and c.columns else None


@lru_cache(MAX_KNOWN_CALLS)
def _by_rows(func: PrimFunc) -> frozenset[int]:
    *_, last = blocks(func)
    rows = row_normalisation.matches(Schedule(func), last.name)
    if rows is None or len(rows.stages) + 1 < len(blocks(func)):
        return frozenset()
    read = {n: [x for x in blocks(func) if _reads(func, x, n)] for n in range(len(func.buffers) - 1)}
    own = {n for n, readers in read.items() if all(own_row(x, func.buffers[n].name, rows.rank) for x in readers)}
    return frozenset(n for n in own if len(func.buffers[n].shape) == rows.rank + 1)
