"""transform_layout: the elements of a temporary stand in another order, in another shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tir.affine import Interval
from tir.analysis.regions import extent_range
from tir.dtypes import is_float
from tir.ir import (
    TRUE,
    Allocate,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Load,
    Node,
    PrimFunc,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    conjunction,
    nest,
    seq,
)
from tir.simplify import simplify
from tir.traverse import map_children, substitute

from .dataflow import Insertion, Leaf, Names, Scope, buffer_of, edited, locate, parts
from .error import ScheduleError
from .index_map import IndexMap, Layout, invert, parse_index_map
from .primitive import find_block, primitive
from .window import Unproved, windows

N = TypeVar("N", bound=Node)


@primitive
def transform_layout(
    func: PrimFunc, block: str, buffer: list[str | int] | str, index_map: str, pad_value: int | float | None = None
) -> tuple[PrimFunc, None]:
    """Store the element [i, j, ...] of a temporary at [index_map(i, j, ...)], everywhere in the function.

    The buffer is `("read", n)` or `("write", n)`, number n of those that `block` reads or writes, or a name. The index map is a
    function such as `lambda i, j: (i // 16, j, i % 16)`, of quotients and remainders by constants, and of sums that count. Where a
    tile does not divide the extent, the last one is padded with `pad_value`: by the producer, where that writes the whole buffer in
    loops of its own, which then run over the new shape; else by a block of its own, before the first use.

    Rewrite   X = T.alloc_buffer((N,));  S(X[i])
           => X = T.alloc_buffer((ceil(N / 16), 16));  S(X[i // 16, i % 16])
    Legal     if the buffer is no parameter, the index map is one to one, and a `pad_value` is given where there is padding.
    Example   chain: s.transform_layout("C", ("read", 0), lambda i, j: (j, i))
    """
    user = find_block(func, block)
    target = which(user, buffer)
    if any(p.name == target.name for p in func.buffers):
        how = "cache_write" if any(type(s) is Store and s.buffer.name == target.name for s in _accesses(user)) else "cache_read"
        raise ScheduleError(
            f"`{target.name}` is a parameter of the function, and its layout is the caller's",
            (user, f"uses {target.name}"),
            hint=f"{how} makes a copy whose layout is free",
        )
    mapping = parse_index_map(index_map, len(target.shape))
    names = Names.of(func)
    places = [names.axis(f"v{n}") for n in range(len(mapping.outputs))]
    layout = invert(mapping, target.shape, places)
    if layout.conditions and pad_value is None:
        raise ScheduleError(
            f"the index map makes `{target.name}` larger than it is, and there is no `pad_value` for what is added",
            (user, f"uses {target.name}"),
            hint="pad_value=0",
        )
    new = target.with_(shape=layout.extents)
    if not layout.conditions:
        return relaid(func, target.name, new, mapping), None
    padding = Const(float(pad_value) if is_float(target.dtype) else pad_value, target.dtype)  # type: ignore[arg-type]
    if not is_float(target.dtype) and type(pad_value) is float:
        raise ScheduleError(f"`{target.name}` holds {target.dtype}, and cannot be padded with {pad_value!r}", (user, f"uses {target.name}"))
    home, position, writers = _uses(func, target.name)
    producer = _replaceable(func, writers, target)
    if producer is not None:
        old, store, order = producer
        shift = {v: layout.inverse[n] for n, v in enumerate(order)}
        value = Select(conjunction(*layout.conditions), substitute(store.value, shift), padding, lazy=True)
        # The value is computed at the old place of the new element; accesses in it are those of other buffers.
        written = _over_places(names, layout, leaf_name(old), Store(new, layout.places, _simplified(value, layout.ranges)))
        func = edited(func, [(old, written)])
        return relaid(func, target.name, new, mapping, but=written), None
    outside = [simplify(Unary("not", c)) for c in layout.conditions]
    excluded = outside[0]
    for c in outside[1:]:
        excluded = excluded.__class__("or", excluded, c)  # type: ignore[call-arg]
    filling = _over_places(names, layout, names.block(f"{target.name}_pad"), Store(new, layout.places, padding), excluded)
    func = edited(func, [], Insertion(home, position, filling))
    return relaid(func, target.name, new, mapping, but=filling), None
