"""Equal ways to write a program: the same mathematics with other axes, indices and formulas.

    for name, func in wordings(base).items(): ...

Each way rewrites a function, and finds out for itself whether it can. Arrays hold the same elements in the same order, but may
have another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from schedule import Schedule
from schedule.legality.reducer import accumulation
from schedule.primitive import find_block
from tir.arith.simplify import simplify
from tir.ir import (
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    Expr,
    Iter,
    Load,
    PrimFunc,
    Select,
    Store,
    Unary,
    Var,
    const_shape,
    nest,
    seq,
)  # fmt: skip
from tir.traverse import blocks, loads, move_accesses, replace_buffers, rewrite, stores, substitute, walk

Way = Callable[[PrimFunc], PrimFunc | None]

WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def note(function: Way) -> Way:
        WAYS[name] = function
        return function

    return note


def wordings(func: PrimFunc) -> dict[str, PrimFunc]:
    """The other ways to write a function that there are, by name."""
    made = ((name, change(func)) for name, change in WAYS.items())
    return {name: other for name, other in made if other is not None}


# --- the axes of a sum -------------------------------------------------------------------------------------------------------


@way("sum backwards")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    if b is None:
        return None
    turned = {it.var: simplify(it.extent - 1) - it.var for it in _reduce_axes(b) if it.extent != Const(1)}
    return _with_block(func, b, b.with_(body=substitute(b.body, turned)))


@way("an axis of the sum as two")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    found = next(((it, n) for it in _reduce_axes(b)[::-1] if (n := _divisor(it))), None) if b is not None else None
    return None if b is None or found is None else _split(func, b, *found)


@way("the sum as one axis")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    axes = [it for it in _reduce_axes(b) if it.extent != Const(1)] if b is not None else []
    return None if b is None or len(axes) < 2 else _fused(func, b, axes)


# --- the axes of the result --------------------------------------------------------------------------------------------------


@way("an axis of the result as two")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _last(func)
    found = next(((it, n) for it in _spatial(b) if (n := _divisor(it))), None)
    return None if found is None or any(isinstance(n, Select) for n in walk(b.body)) else _split(func, b, *found)


@way("a result with a dimension of one element")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _last(func)
    assert isinstance(b.body, Store)
    unit = Iter(Var("v_one"), Const(1), Axis.SPATIAL, Var("one"))
    shape = (*b.body.buffer.shape, Const(1))
    reshaped = _reshaped(func, b.body.buffer, shape, lambda at: (*at, unit.var))
    b = _last(reshaped)
    return _with_block(reshaped, b, b.with_(iters=(*_spatial(b), unit, *_reduce_axes(b))))


@way("a flat result")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _last(func)
    assert isinstance(b.body, Store)
    lengths = const_shape(b.body.buffer)
    axes = {it.var: it for it in _spatial(b)}
    if len(lengths) < 2 or not all(isinstance(i, Var) and i in axes for i in b.body.indices) or not b.is_reduction:
        return None
    ordered = [axes[i] for i in b.body.indices if isinstance(i, Var)]
    flat = _reshaped(func, b.body.buffer, (Const(prod(lengths)),), lambda at: (_number(at, lengths),))
    return _fused(flat, _last(flat), ordered)


# --- operands ----------------------------------------------------------------------------------------------------------------


@way("an operand with a dimension as two")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    for x in _operands(func, b):
        for n, (i, length) in enumerate(zip(x.indices, const_shape(x.buffer), strict=True)):
            factor = next((f for f in (2, 3, 5, 7) if length % f == 0 and length > f), None)
            if isinstance(i, Var) and factor is not None and _used_once(func, x.buffer):
                shape = (*x.buffer.shape[:n], Const(length // factor), Const(factor), *x.buffer.shape[n + 1 :])

                def place(at: Sequence[Expr], n=n, factor=factor) -> tuple[Expr, ...]:
                    return (*at[:n], at[n] // factor, at[n] % factor, *at[n + 1 :])

                return _reshaped(func, x.buffer, shape, place)
    return None


@way("an operand with a dimension of one element")
def _(func: PrimFunc) -> PrimFunc | None:
    for x in _operands(func, _reduction(func)):
        if _used_once(func, x.buffer):
            return _reshaped(func, x.buffer, (*x.buffer.shape, Const(1)), lambda at: (*at, Const(0)))
    return None


@way("an operand with two dimensions as one")
def _(func: PrimFunc) -> PrimFunc | None:
    for x in _operands(func, _reduction(func)):
        if len(x.indices) > 1 and all(isinstance(i, Var) for i in x.indices[-2:]) and _used_once(func, x.buffer):
            *others, (rows, columns) = *x.buffer.shape[:-2], x.buffer.shape[-2:]
            shape = (*others, simplify(rows * columns))
            return _reshaped(func, x.buffer, shape, lambda at, n=columns: (*at[:-2], at[-2] * n + at[-1]))
    return None


@way("padding in the sum")
def _(func: PrimFunc) -> PrimFunc | None:
    return _padding_read(func)


@way("padding around what is summed")
def _(func: PrimFunc) -> PrimFunc | None:
    found = _padded_term(func)
    return None if found is None else _adding(*found)


@way("padding left out of the sum")
def _(func: PrimFunc) -> PrimFunc | None:
    found = _padded_term(func)
    if found is None:
        return None
    made, b, term = found
    store = b.body
    assert isinstance(store, Store) and isinstance(term, Select)
    old = Load(store.buffer, store.indices)
    value = Select(term.condition, Binary("+", old, term.true_value), old, lazy=True)
    return _with_block(made, b, b.with_(body=store.with_(value=value)))


# --- formulas ----------------------------------------------------------------------------------------------------------------


@way("operands exchanged")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    found = accumulation(b) if b is not None else None
    if b is None or found is None or not isinstance(found.added, Binary) or found.added.op not in "+*":
        return None
    added = found.added
    return _adding(func, b, Binary(added.op, added.b, added.a))


@way("a factor in the sum")
def _(func: PrimFunc) -> PrimFunc | None:
    return _scaled(func, lambda e: Binary("*", e, Const(2.0, e.dtype)), lambda e: Binary("*", e, Const(0.5, e.dtype)))


@way("a negative in the sum")
def _(func: PrimFunc) -> PrimFunc | None:
    return _scaled(func, lambda e: Unary("neg", e), lambda e: Unary("neg", e))


@way("a stage of its own before the sum")
def _(func: PrimFunc) -> PrimFunc | None:
    b = _reduction(func)
    found = accumulation(b) if b is not None else None
    if b is None or found is None or not isinstance(found.added, Binary):
        return None
    stage = Buffer("stage", tuple(it.extent for it in b.iters), found.added.dtype)
    iters = tuple(Iter(it.var, it.extent, Axis.SPATIAL, Var(f"s{n}")) for n, it in enumerate(b.iters))
    place = tuple(it.var for it in b.iters)
    before = Block("stage", iters, Store(stage, place, found.added))
    made = _adding(func, b, Load(stage, place))
    assert made is not None
    body = _inserted(made, b.name, nest([(Var(f"s{n}"), it.extent) for n, it in enumerate(iters)], before))
    return made.with_(body=body, allocs=(*made.allocs, stage))


@way("squares as powers")
def _(func: PrimFunc) -> PrimFunc | None:
    def visit(n: Any) -> Any:
        square = isinstance(n, Binary) and n.op == "*" and n.a == n.b and n.dtype.startswith("float")
        return Call("pow", (n.a, Const(2.0, n.dtype)), n.dtype) if square else None

    return _changed(func, visit)


@way("maxima and minima by choices")
def _(func: PrimFunc) -> PrimFunc | None:
    def visit(n: Any) -> Any:
        if not (isinstance(n, Binary) and n.op in ("min", "max") and n.dtype.startswith("float")):
            return None
        return Select(Binary("<" if n.op == "max" else ">", n.a, n.b), n.b, n.a)

    return _changed(func, visit)


# --- parts of functions ------------------------------------------------------------------------------------------------------


def _reduction(func: PrimFunc) -> Block | None:
    """The reduction of the most iterations."""
    found = [b for b in blocks(func) if b.is_reduction and isinstance(b.body, Store) and b.init is not None]
    return max(found, key=lambda b: prod(it.extent.value for it in b.iters), default=None)  # type: ignore[attr-defined]


def _last(func: PrimFunc) -> Block:
    return blocks(func)[-1]


def _reduce_axes(b: Block) -> list[Iter]:
    return [it for it in b.iters if it.axis is Axis.REDUCE]


def _spatial(b: Block) -> list[Iter]:
    return [it for it in b.iters if it.axis is Axis.SPATIAL]


def _divisor(it: Iter) -> int | None:
    """A number by which an axis can be split in two."""
    length = it.extent.value  # type: ignore[attr-defined]
    return next((n for n in (4, 8, 3, 5, 7, 2) if length % n == 0 and length > n), None)


def _operands(func: PrimFunc, b: Block | None) -> list[Load]:
    """The elements of parameters that a block reads."""
    read = set(func.buffers) - {x.buffer for x in stores(b.body)} if b is not None else set()
    return [] if b is None else [x for x in dict.fromkeys(loads(b.body)) if x.buffer in read]


def _used_once(func: PrimFunc, buffer: Buffer) -> bool:
    return sum(x.buffer == buffer for b in blocks(func) for x in dict.fromkeys(loads(b.body))) == 1


def _with_block(func: PrimFunc, old: Block, new: Block) -> PrimFunc:
    """A function with a block in place of another one, in loops of its axes."""
    loops = tuple(it.with_(binding=Var(f"{new.name}_{it.var.name}", it.var.dtype)) for it in new.iters)
    around = nest([(it.binding, it.extent) for it in loops], new.with_(iters=loops))
    parts = [around if any(b is old for b in blocks(s)) else s for s in getattr(func.body, "stmts", (func.body,))]
    return func.with_(body=seq(*parts))


def _inserted(func: PrimFunc, block: str, stmt: Any) -> Any:
    """The body of a function with a statement before the nest of a block."""
    parts: list[Any] = []
    for s in getattr(func.body, "stmts", (func.body,)):
        parts += [stmt, s] if any(b.name == block for b in blocks(s)) else [s]
    return seq(*parts)


def _split(func: PrimFunc, b: Block, it: Iter, factor: int) -> PrimFunc:
    """A block with an axis as two."""
    outer, inner = Var(f"{it.var.name}_o"), Var(f"{it.var.name}_i")
    new = [Iter(outer, simplify(it.extent // factor), it.axis, outer), Iter(inner, Const(factor), it.axis, inner)]
    iters = tuple(x for old in b.iters for x in (new if old is it else [old]))
    whole = {it.var: outer * factor + inner}
    init = None if b.init is None else substitute(b.init, whole)
    return _with_block(func, b, b.with_(iters=iters, body=substitute(b.body, whole), init=init))


def _fused(func: PrimFunc, b: Block, axes: list[Iter]) -> PrimFunc:
    """A block with some axes as one, of which they are the digits."""
    flat = Var("v_flat")
    lengths = [it.extent.value for it in axes]  # type: ignore[attr-defined]
    number = Iter(flat, Const(prod(lengths)), axes[0].axis, flat)
    digits: dict[Var, Expr] = {}
    for n, it in enumerate(axes):
        rest = prod(lengths[n + 1 :])
        digit: Expr = flat // rest if rest > 1 else flat
        digits[it.var] = digit % lengths[n] if n else digit
    iters = tuple(x for it in b.iters for x in ([number] if it is axes[0] else [] if it in axes else [it]))
    init = None if b.init is None else _simplified(substitute(b.init, digits), flat, number)
    return _with_block(func, b, b.with_(iters=iters, body=_simplified(substitute(b.body, digits), flat, number), init=init))


def _simplified(stmt: Any, flat: Var, number: Iter) -> Any:
    """A statement that writes at the flat axis where it writes at all of its digits."""
    ranges = {flat.name: (0, number.extent.value - 1)}  # type: ignore[attr-defined]

    def visit(n: Any) -> Any:
        if isinstance(n, Store | Load) and len(n.indices) == 1:
            return n.with_(indices=(simplify(n.indices[0], ranges),))
        return None

    return rewrite(stmt, visit)


def _number(at: Sequence[Expr], lengths: Sequence[int]) -> Expr:
    result: Expr = Const(0)
    for i, n in zip(at, lengths, strict=True):
        result = result * n + i
    return simplify(result)


def _reshaped(
    func: PrimFunc, buffer: Buffer, shape: tuple[Expr, ...], place: Callable[[Sequence[Expr]], tuple[Expr, ...]]
) -> PrimFunc:
    """A function whose parameter has another shape."""
    new = buffer.with_(shape=shape)
    moved = move_accesses(func.body, lambda old, at: (new, place(at)) if old.name == buffer.name else None)
    return replace_buffers(func.with_(body=moved), {buffer.name: new})


def _adding(func: PrimFunc, b: Block, added: Expr) -> PrimFunc | None:
    """A function of which a block adds up something else."""
    found = accumulation(b)
    if found is None:
        return None
    value = found.store.value
    assert isinstance(value, Binary)
    new = value.with_(a=added) if value.a == found.added else value.with_(b=added)
    return _with_block(func, b, b.with_(body=found.store.with_(value=new)))


def _scaled(func: PrimFunc, inside: Callable[[Expr], Expr], outside: Callable[[Expr], Expr]) -> PrimFunc | None:
    """A sum of changed elements; the last block, or one of its own, makes up for the change where the sum is read."""
    b = _reduction(func)
    found = accumulation(b) if b is not None else None
    if b is None or found is None or found.op != "+" or not found.added.dtype.startswith("float"):
        return None
    name = found.store.buffer.name
    if any(p.name == name for p in func.buffers):
        return _scaled_output(func, b, inside, outside)
    made = _adding(func, b, inside(found.added))
    assert made is not None

    def visit(n: Any) -> Any:
        return outside(n) if isinstance(n, Load) and n.buffer.name == name else None

    for other in [x for x in blocks(made) if x.name != b.name and any(y.buffer.name == name for y in loads(x.body))]:
        made = _with_block(made, other, other.with_(body=rewrite(other.body, visit)))
    return made


def _scaled_output(func: PrimFunc, b: Block, inside: Callable[[Expr], Expr], outside: Callable[[Expr], Expr]) -> PrimFunc | None:
    found = accumulation(b)
    assert found is not None
    result = found.store.buffer
    total = replace(result, name="total")
    made = _adding(func, b, inside(found.added))
    assert made is not None
    made = made.with_(body=move_accesses(made.body, lambda old, at: (total, at) if old.name == result.name else None))
    iters = tuple(Iter(Var(f"v{n}"), length, Axis.SPATIAL, Var(f"t{n}")) for n, length in enumerate(result.shape))
    place = tuple(it.var for it in iters)
    last = Block("scaled", iters, Store(result, place, outside(Load(total, place))))
    around = nest([(it.binding, it.extent) for it in iters], last)
    return made.with_(body=seq(made.body, around), allocs=(*made.allocs, total))


def _padding_read(func: PrimFunc) -> PrimFunc | None:
    """A function whose sum reads what it pads itself."""
    b = _reduction(func)
    s = Schedule(func)
    for name in s.get_producers(b.name) if b is not None else []:
        match find_block(func, name).body:
            case Store(_, _, Select(_, Load(), Const(0))):
                s.compute_inline(name)
                return s.func
    return None


def _padded_term(func: PrimFunc) -> tuple[PrimFunc, Block, Expr] | None:
    """A function whose sum reads what it pads itself, its sum, and the product that is added, chosen as its padded factor is."""
    made = _padding_read(func)
    b = _reduction(made) if made is not None else None
    found = accumulation(b) if b is not None else None
    if made is None or b is None or found is None:
        return None
    match found.added:
        case Binary("*", Select(condition, value, Const(0)), other):
            return made, b, Select(condition, Binary("*", value, other), Const(0.0, value.dtype), lazy=True)
    return None


def _changed(func: PrimFunc, visit: Callable[[Any], Any]) -> PrimFunc | None:
    """A function with formulas rewritten; None where nothing changed."""
    new = func
    for b in blocks(func):
        body = rewrite(b.body, visit)
        new = _with_block(new, b, b.with_(body=body)) if body != b.body else new
    return new if new != func else None
