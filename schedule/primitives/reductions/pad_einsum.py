"""pad_einsum: a sum of products, and its temporaries, with rounded-up extents."""

from __future__ import annotations

from tir.arith.simplify import simplify
from tir.ir import Axis, Binary, Block, Buffer, Cast, Const, Expr, Load, PrimFunc, Store, Var, const
from tir.traverse import replace_buffers, variables

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.reducer import accumulation
from ...legality.requirements import need_complete, need_temporary, own_loops
from ...primitive import BlockName, find_block, is_parameter, primitive
from ...rewriting.edits import Names, edited, with_extents
from ...rewriting.index_map import IndexMap, Layout, place_names
from ...rewriting.layouts import with_padded_layout
from ..buffers.cache_read import cache_read
from ..buffers.cache_write import cache_write


@primitive
def pad_einsum(func: PrimFunc, block: BlockName, padding: list[int]) -> tuple[PrimFunc, None]:
    """Round the extent of each axis of a sum of products up to a multiple of a number, `padding[n]` for axis number n.

    The loops of the block get the rounded extents, and the temporaries that it reads and writes the rounded shapes. Elements read
    beyond the old shape are 0, so that sums do not change; those written there are not used. `cache_read` and `cache_write` first
    make copies of parameters in global memory.

    Rewrite   for i in range(7): for k in range(5): C[i] = C[i] + A[i, k] * B[k]
           => for i in range(8): for k in range(8): C[i] = C[i] + A[i, k] * B[k]           # padding [4, 8]; A, B padded by 0
    Legal     if the block is alone in serial loops that are not annotated, one for each axis, without a predicate. From 0 it adds
              a product of elements, perhaps cast: one of each buffer, and none of its output. Each index with a padded axis is
              that axis, as long as the dimension. Its output has no other writer. Padded reduction axes index every factor,
              and padded spatial axes the output.
    Example   matmul: s.pad_einsum("C", [4, 4, 4])
    """
    scope, leaf = locate(func, block)
    target = leaf.block
    mark = (target, "the block")
    if len(padding) != len(target.iters) or any(p < 1 for p in padding):
        raise ScheduleError(f"`padding` must be {len(target.iters)} positive integers, one for each axis, got {padding}", mark)
    need_complete(scope, leaf, "padded")
    own_loops(leaf)
    output, factors = _einsum_factors(target)
    sizes: dict[str, tuple[Expr, Expr]] = {}  # by axis: the extent, and the rounded one
    for it, p in zip(target.iters, padding, strict=True):
        rounded = simplify((it.extent + (p - 1)) // p * p)
        if rounded != simplify(it.extent):
            sizes[it.var.name] = (it.extent, rounded)
    reducing = [it.var.name for it in target.iters if it.axis is not Axis.SPATIAL and it.var.name in sizes]
    for f in factors:
        lacking = next((v for v in reducing if all(i != Var(v, i.dtype) for i in f.indices)), None)
        if lacking is not None:
            raise ScheduleError(
                f"`{f}` does not depend on `{lacking}`, so products may not be 0 where that is padded",
                mark,
                hint=f"1 in `padding` leaves `{lacking}` as it is",
            )
    for it in target.iters:
        if it.axis is Axis.SPATIAL and it.var.name in sizes and all(i != it.var for i in output.indices):
            where = Load(output.buffer, output.indices)
            raise ScheduleError(
                f"`{where}`, which it writes, does not depend on `{it.var.name}`, which would be padded",
                mark,
                hint=f"1 in `padding` leaves `{it.var.name}` as it is",
            )
    grown = {f.buffer.name: (f.buffer, _padded_shape(target, f, sizes)) for f in factors}
    written = output.buffer.with_(shape=_padded_shape(target, output, sizes))
    passed = [b.name for b, shape in grown.values() if shape != b.shape and is_parameter(func, b.name)]
    returned = written != output.buffer and is_parameter(func, written.name)
    if passed or returned:
        for name in passed:
            func, _ = cache_read(func, block, name, "global", [block])
        if returned:
            func, _ = cache_write(func, block, written.name, "global")
        return pad_einsum(func, block, padding)
    if written != output.buffer:
        need_temporary(scope, leaf, "padded")

    # The axes grow first, so that their indices are not simplified by the old extent (an extent of 1 makes them 0).
    func = _with_padded_axes(replace_buffers(func, {written.name: written}), target, {v: size for v, (_, size) in sizes.items()})
    for buffer, shape in grown.values():
        if shape != buffer.shape:
            func = _with_padded_buffer(func, buffer, shape)
    return func, None


def _einsum_factors(block: Block) -> tuple[Store, list[Load]]:
    """The store of a block that sums products from 0, and the factors; refuses any other block."""
    refused = ScheduleError(
        f"`{block.name}` does not add a product of elements to what was 0",
        (block, "the block"),
        hint="it must be C[...] = C[...] + A[...] * B[...], from T.init() with 0",
    )
    found = accumulation(block)
    if found is None or found.op != "+" or type(found.start) is not Const or found.start.value != 0:
        raise refused
    factors: list[Load] = []
    stack = [found.added]
    while stack:
        match stack.pop():
            case Binary("*", a, b):
                stack += [b, a]
            case Cast(_, value):
                stack.append(value)
            case Load() as load:
                factors.append(load)
            case _:
                raise refused
    places = {f.buffer.name: f.indices for f in factors}
    if any(places[f.buffer.name] != f.indices for f in factors) or found.store.buffer.name in places:
        raise refused
    return found.store, factors


def _padded_shape(block: Block, access: Load | Store, sizes: dict[str, tuple[Expr, Expr]]) -> tuple[Expr, ...]:
    """The shape of a buffer with the padded extents of the axes that index it."""
    axes = {it.var for it in block.iters}
    shape: list[Expr] = []
    mark = (block, f"accesses {access.buffer.name}")
    for index, dim in zip(access.indices, access.buffer.shape, strict=True):
        if not variables(index) & sizes.keys():
            shape.append(dim)
            continue
        if type(index) is not Var or index not in axes:
            raise ScheduleError(
                f"`{block.name}` accesses `{access.buffer.name}` at `{index}`, which is no axis of its own",
                mark,
                hint=f"reindex({block.name!r}, {access.buffer.name!r}) makes a copy indexed by the axes",
            )
        extent, size = sizes.get(index.name, (dim, dim))
        if extent != dim:
            raise ScheduleError(
                f"`{access.buffer.name}` has {dim} elements along `{index}`, which has {extent} values",
                mark,
                hint=f"reindex({block.name!r}, {access.buffer.name!r}) makes a copy of the shape of the axes",
            )
        shape.append(size)
    return tuple(shape)


def _with_padded_buffer(func: PrimFunc, buffer: Buffer, shape: tuple[Expr, ...]) -> PrimFunc:
    """`func` with a temporary of a larger shape, 0 in the added part."""
    names = Names.of(func)
    places = tuple(Var(v, dim.dtype) for v, dim in zip(place_names(func, names, len(shape)), shape, strict=True))
    conditions = tuple(v < dim for v, dim, size in zip(places, buffer.shape, shape, strict=True) if dim != size)
    layout = Layout(places, shape, places, conditions, tuple(frozenset({v.name}) for v in places))
    return with_padded_layout(func, buffer, IndexMap(places, places), layout, const(0, buffer.dtype), names)


def _with_padded_axes(func: PrimFunc, block: Block, sizes: dict[str, Expr]) -> PrimFunc:
    """`func` with new extents of the axes of a block, and of their loops."""
    loops = {v: sizes[it.var.name] for it in block.iters if it.var.name in sizes for v in variables(it.binding)}
    current = find_block(func, block.name)
    iters = tuple(it.with_(extent=sizes.get(it.var.name, it.extent)) for it in current.iters)
    return with_extents(edited(func, [(current, current.with_(iters=iters))]), loops)
