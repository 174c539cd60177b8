"""New layouts of buffers: their accesses, their producer, and their padding."""

from __future__ import annotations

from functools import reduce
from typing import Any

from tir.arith.bounds import ranges_of, without_units
from tir.arith.intervals import Ranges
from tir.arith.simplify import simplify
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import TRUE, Binary, Const, Expr, Select, Unary, Var, as_expr, cast, conjunction, const
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, For, Kind, Stmt, Store, nest
from tir.traverse import loads, map_children, path_where, stores, substitute, walk

from ..error import Mark, ScheduleError
from ..legality.axis_windows import windows
from ..legality.dataflow import Leaf, buffer_of, locate, named_buffer
from ..legality.iter_map import Unproved
from ..legality.requirements import own_axes, single_store
from ..primitive import BufferOfBlock
from .edits import Insertion, Names, edited, statements_of, unstated
from .index_map import IndexMap, Layout, PadValue, function_text, invert, parsed_function, place_names


def transformed_layout(
    func: PrimFunc, target: Buffer, mapping: IndexMap, pad_value: PadValue, *marks: Mark, units: bool = False
) -> PrimFunc:
    """`func` with a temporary in the layout of an index map, padded with `pad_value`, a number or a function of the new indices.

    With `units`, indices keep variables of one value."""
    names = Names.of(func)
    layout = invert(mapping, target.shape, place_names(func, names, len(mapping.outputs)))
    if not layout.conditions:
        return with_layout(
            func, target.name, target.with_(shape=layout.extents, axis_separators=mapping.separators), mapping, units=units
        )
    if pad_value is None:
        raise ScheduleError(f"the index map pads `{target.name}`, but `pad_value` is None", *marks, hint="pad_value=0")
    try:
        if isinstance(pad_value, int | float):
            padding: Expr = const(pad_value, target.dtype)
        else:
            text = function_text(pad_value, lambda: len(layout.places), "`pad_value`")
            inputs, value = parsed_function(text, func, [v.dtype for v in layout.places], "`pad_value`")
            padding = substitute(_padding(value, text, target, *marks), dict(zip(inputs, layout.places, strict=True)))
    except TypeError:
        raise ScheduleError(
            f"`{target.name}` holds {target.dtype}, and cannot be padded with {pad_value!r}",
            *marks,
            hint=f"pad_value is a number that {target.dtype} holds, such as 0",
        ) from None
    return with_padded_layout(func, target, mapping, layout, padding, names, units)


def with_parameter_layout(func: PrimFunc, target: Buffer, mapping: IndexMap, units: bool = False) -> PrimFunc:
    """`func` with a parameter in the layout of an index map: callers pass the new shape, and padding is not written."""
    layout = invert(mapping, target.shape, place_names(func, Names.of(func), len(mapping.outputs)))
    new = target.with_(shape=layout.extents, axis_separators=mapping.separators)
    func = with_layout(func, target.name, new, mapping, units=units)
    return func.with_(params=tuple(new if p == target else p for p in func.params))


def _padding(value: Any, text: str, target: Buffer, *marks: Mark) -> Expr:
    """The padding expression in the buffer's dtype. Refuses loads; TypeError for a value that does not fit."""
    if loads(found := as_expr(value)):
        raise ScheduleError(f"`pad_value` {text!r} reads a buffer", *marks, hint="it is a function of the new indices alone")
    return cast(found, target.dtype) if isinstance(value, Expr) else const(value, target.dtype)


def with_padded_layout(
    func: PrimFunc, target: Buffer, mapping: IndexMap, layout: Layout, padding: Expr, names: Names, units: bool = False
) -> PrimFunc:
    """`func` with a temporary in a larger layout, and `padding` in the additional places."""
    new = target.with_(shape=layout.extents, axis_separators=mapping.separators)
    producer = _producer(func, target)
    if producer is not None:
        leaf, top = producer
        store = single_store(leaf.block)
        back = {v: layout.inverse[n] for n, v in enumerate(own_axes(leaf.block, store)) if v is not None}
        back |= {it.var.name: back.get(it.var.name, Const(0, it.var.dtype)) for it in leaf.block.iters}
        value = simplify(substitute(store.value, back), layout.ranges)
        chosen = Select(conjunction(*layout.conditions), value, padding, lazy=True)
        written = _everywhere(names, layout, leaf.name, Store(new, layout.places, chosen))
        func = edited(func, [(top, written)])
    else:
        outside = [simplify(Unary("not", c)) for c in layout.conditions]
        where = reduce(lambda a, b: Binary("or", a, b), outside)
        written = _everywhere(names, layout, names.block(f"{target.name}_pad"), Store(new, layout.places, padding), where)
        func = edited(func, [], Insertion(*_first_use(func, target.name), written))
    return with_layout(func, target.name, new, mapping, written, units)


def buffer_argument(block: Block, buffer: BufferOfBlock) -> Buffer:
    """The buffer of a block given as `("read", n)`, `("write", n)` or a name."""
    match buffer:
        case [("read" | "write") as kind, index]:
            return buffer_of(block, index, written=kind == "write")
        case str() as name:
            return named_buffer(block, name)
        case _:
            raise ScheduleError(f'a buffer is ("read", number), ("write", number) or a name, got {buffer!r}')


def with_layout(
    func: PrimFunc, name: str, new: Buffer, mapping: IndexMap, but: Stmt | None = None, units: bool = False
) -> PrimFunc:
    """`func` with a buffer in a new layout outside of `but`, stated regions dropped; `units` keeps variables of one value."""

    def visit(n, ranges: Ranges):
        if n is but:
            return n
        match n:
            case Buffer():
                return new if n.name == name else n
            case Block():
                if not any(type(x) is Buffer and x.name == name for x in walk(n)):
                    return n
                n = unstated(n, name)
        inside = ranges_of([n], ranges) if type(n) in (For, Block) else ranges
        n = map_children(n, lambda c: visit(c, inside if isinstance(c, Stmt) else ranges))
        if type(n) in (Load, Store) and n.buffer is new:
            known = without_units(ranges) if units else ranges
            n = n.with_(indices=tuple(simplify(i, known) for i in mapping(n.indices)))
        return n

    return func.with_(body=visit(func.body, {}), allocs=tuple(new if b.name == name else b for b in func.allocs))


def _everywhere(names: Names, layout: Layout, block: str, body: Stmt, predicate: Expr = TRUE) -> Stmt:
    """A block over all places of a layout, under a predicate over these."""
    loops = [Var(names.loop(f"ax{n}"), v.dtype) for n, v in enumerate(layout.places)]
    iters = tuple(Iter(v, e, Axis.SPATIAL, x) for v, e, x in zip(layout.places, layout.extents, loops, strict=True))
    table = {v.name: x for v, x in zip(layout.places, loops, strict=True)}
    return nest(zip(loops, layout.extents, strict=True), Block(block, iters, body, None, substitute(predicate, table)))


def _producer(func: PrimFunc, target: Buffer) -> tuple[Leaf, Stmt] | None:
    """The only writer of a buffer and its nest, if it is alone in that and writes every element once, from other buffers."""
    written = [s for s in stores(func.body) if s.buffer.name == target.name]
    if len(written) != 1:
        return None
    *_, around, _ = path_where(func, lambda s: s is written[0])
    if type(around) is not Block:
        return None
    try:
        _, leaf = locate(func, around.name)
        store = single_store(around)
        axes = {it.var.name: it for it in around.iters}
        for v, dim in zip(own_axes(around, store), target.shape, strict=True):
            if (Const(1, dim.dtype) if v is None else axes[v].extent) != dim:
                return None
        windows(around, (), leaf.loops)
    except (ScheduleError, Unproved):
        return None
    if any(it.axis is not Axis.SPATIAL for it in around.iters) or any(n.buffer.name == target.name for n in loads(around)):
        return None
    if leaf.exclusive_loops != leaf.loops or any(x.kind is not Kind.SERIAL or x.annotations for x in leaf.loops):
        return None
    return leaf, leaf.loops[0] if leaf.loops else leaf.stmt


def _first_use(func: PrimFunc, name: str) -> tuple[Stmt, int]:
    """The body of a buffer's allocation, and the number of the first statement there that uses the buffer."""
    body = func.body
    for s in walk(func.body):
        if (type(s) is Block and any(b.name == name for b in s.allocs)) or (type(s) is Allocate and s.buffer.name == name):
            body = s.body
            break
    used = (n for n, s in enumerate(statements_of(body)) if any(type(x) is Buffer and x.name == name for x in walk(s)))
    return body, next(used)
