"""reindex, reindex_cache_read, reindex_cache_write: a block accesses a buffer through a copy laid out by its own axes."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.ir import Axis, Block, Buffer, Const, Expr, For, Iter, Load, PrimFunc, Seq, Stmt, Store, Var, const, nest
from tir.simplify import ranges_of
from tir.traverse import substitute, variables, walk

from .copying import need_reads_alone, need_scope, need_stores, place_to_copy, unknown_part, where_read
from .dataflow import Leaf, buffer_of, locate, shared
from .edits import Insertion, Names, edited, parts, with_accesses, with_buffer
from .error import ScheduleError, listing
from .index_map import IndexMap, invert, parse_index_map, place_names
from .layouts import padded, relaid, which
from .placement import laid_out, loops_and_ranges, needed
from .primitive import find_block, primitive
from .requirements import in_bounds, need_complete, need_only_writer, need_read_later
from .window import Unproved, Window, windows

AS_IT_IS = "cache_read and cache_write copy a buffer as it is"


@primitive
def reindex(func: PrimFunc, block: str, buffer: list[str | int] | str) -> tuple[PrimFunc, str]:
    """Access a buffer through a copy indexed by the axes of the block; returns the name of the copying block.

    The buffer is `("read", n)` or `("write", n)`, number n, from 0, of those that `block` reads or writes, or a name. Copy and
    block are called `A_reindex`, the copy is in the memory of the buffer. The dimensions of the copy are those axes that occur in
    the indices, in the order of the block; a block that reads gets its copy before, one that writes is copied from after.

    Rewrite   S(i, j): B[i, j] = A[j, i + 1]
           => for ax0: for ax1: A_reindex[ax0, ax1] = A[ax1, ax0 + 1]
              S(i, j): B[i, j] = A_reindex[i, j]
    Legal     if the block accesses the buffer at one place, over its axes alone (no inner loop, no loaded index). Reading: it
              does not write the buffer, nothing writes it between copy and use, and the place is inside the buffer for all values
              of the axes. Writing: the block is data parallel or a reduction with its init, alone in writing the buffer, which
              nothing reads before; all its spatial axes of more than one value occur in the place; and it runs over its whole
              domain, once.
    Example   matmul: s.reindex("C", ("read", 1))
    """
    target = which(find_block(func, block), buffer)
    writing = any(type(n) is Store and n.buffer.name == target.name for n in walk(find_block(func, block)))
    if isinstance(buffer, list) and writing and buffer[0] == "read":
        raise ScheduleError(
            f"`{block}` writes `{target.name}` as well as reading it",
            (find_block(func, block), f"writes {target.name}"),
            hint=f"reindex({block!r}, {target.name!r}) is for what it writes",
        )
    func, copying, _ = (_write if writing else _read)(func, block, target, target.scope, f"{target.name}_reindex")
    return func, copying


@primitive
def reindex_cache_read(
    func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str, index_map: str
) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy, in it at `index_map(i, j, ...)` for the axes i, j, ...; returns the copying block.

    The index map, as for `transform_layout`, takes all axes of the block, and uses those that occur in the indices of the buffer.
    Buffer and memory are given as for `cache_read`; copy and block are named after them: `A_shared`. Where a tile does not divide
    an extent, the copy is filled up with zeros.

    Rewrite   S(i, j): B[i, j] = A[j, i + 1]
           => for ax0: for ax1: A_shared[ax1 // 4, ax0, ax1 % 4] = A[ax1, ax0 + 1]         # lambda i, j: (j // 4, i, j % 4)
              S(i, j): B[i, j] = A_shared[j // 4, i, j % 4]
    Legal     as `reindex` of what a block reads, if the index map is one to one.
    Example   matmul: s.reindex_cache_read("C", 1, "local", lambda i, j, k: (j, k))
    """
    return _cached(func, block, read_buffer_index, storage_scope, index_map, written=False)


@primitive
def reindex_cache_write(
    func: PrimFunc, block: str, write_buffer_index: int | str, storage_scope: str, index_map: str
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy, in it at `index_map(i, j, ...)` for the axes i, j, ...; returns the copying block.

    Index map, buffer, memory, names and filling are those of `reindex_cache_read`, but that the buffer is one that `block`
    writes.

    Rewrite   S(i, j): B[j, i] = f(i, j)
           => S(i, j): B_local[i, j // 4, j % 4] = f(i, j)                                 # lambda i, j: (i, j // 4, j % 4)
              for ax0: for ax1: B[ax1, ax0] = B_local[ax0, ax1 // 4, ax1 % 4]
    Legal     as `reindex` of what a block writes, if the index map is one to one.
    Example   matmul: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i))
    """
    return _cached(func, block, write_buffer_index, storage_scope, index_map, written=True)


def _cached(
    func: PrimFunc, block: str, index: int | str, storage_scope: str, index_map: str, written: bool
) -> tuple[PrimFunc, str]:
    memory = need_scope(storage_scope)
    user = find_block(func, block)
    target = buffer_of(user, index, written)
    mapping = _mapping(user, index_map, target)
    func, copying, copy = (_write if written else _read)(func, block, target, storage_scope, f"{target.name}_{memory}")
    return _laid_out(func, copy, mapping), copying


def _read(func: PrimFunc, block: str, source: Buffer, memory: str, wanted: str) -> tuple[PrimFunc, str, Buffer]:
    scope, leaf = locate(func, block)
    reader = leaf.block
    need_reads_alone(leaf, source.name)
    place = _place(reader, source)
    used = _used(reader, place)
    stand = place_to_copy(scope, [leaf], source.name)
    loops, ranges = stand.loops, stand.ranges
    names = Names.of(func)
    copy, outputs = _copy(names, wanted, memory, source, used)
    iters, own = _axes(names, used)
    target = tuple(substitute(o, own) for o in outputs)
    value = Load(source, tuple(substitute(i, own) for i in place))
    copying = Block(names.block(wanted), iters, Store(copy, target, value))
    if not in_bounds(copying, ranges_of([copying], scope.ranges)):
        raise ScheduleError(
            f"`{block}` reads `{source.name}` at `{', '.join(map(str, place))}`, which may be outside of it",
            (reader, f"reads {source.name}"),
            hint=AS_IT_IS,
        )
    new = with_accesses(reader, source.name, copy, lambda _: outputs)
    share: dict[str, Window] = {}
    if loops:
        inner = [s for s in leaf.above[len(stand.path) :] if type(s) is For]
        region = accessed(nest(inner, new), ranges, (copy.name,))[0].get(copy.name)
        share = needed(copying, {copy.name: region}, ranges) if region is not None else {}
    placed = laid_out(copying, share, ranges, names)
    if all(p.name != source.name for p in func.buffers):
        placed = where_read(placed, source.name, [leaf], loops, ranges, box=False)
    return (
        with_buffer(edited(func, [(reader, new)], Insertion(stand.path[-1], stand.position, placed)), scope, copy),
        copying.name,
        copy,
    )


def _write(func: PrimFunc, block: str, target: Buffer, memory: str, wanted: str) -> tuple[PrimFunc, str, Buffer]:
    scope, leaf = locate(func, block)
    writer = leaf.block
    need_complete(scope, leaf, "given a copy to write")
    need_only_writer(scope, leaf, "given a copy to write")
    place = _place(writer, target)
    used = _used(writer, place)
    for it in writer.iters:
        if it.axis is Axis.SPATIAL and it not in used and it.extent != Const(1, it.extent.dtype):
            raise ScheduleError(
                f"the axis `{it.var.name}` of `{block}` does not index `{target.name}`",
                (writer, f"writes {target.name}"),
                hint=f"cache_write copies `{target.name}` in its own shape",
            )
    remaining = [r for r in scope.readers(target.name) if r is not leaf]
    need_read_later(remaining, leaf)
    common: tuple[Stmt, ...] = (*leaf.above, writer)
    for r in remaining:
        common = shared(common, r.above)
    if not remaining:
        common = (scope.root,) if type(scope.root) is Seq else ()
    body = common[-1] if common else scope.root
    position = next(n for n, s in enumerate(parts(body)) if leaf.under(s)) + 1
    loops, ranges = loops_and_ranges(common if remaining else (), scope.ranges)

    names = Names.of(func)
    copy, outputs = _copy(names, wanted, memory, target, used)
    iters, own = _axes(names, used)
    source = Load(copy, tuple(substitute(o, own) for o in outputs))
    copying = Block(names.block(wanted), iters, Store(target, tuple(substitute(i, own) for i in place), source))
    placed = laid_out(copying, _finished(leaf, target, loops, own), ranges, names)
    new = with_accesses(writer, target.name, copy, lambda _: outputs)
    return with_buffer(edited(func, [(writer, new)], Insertion(body, position, placed)), scope, copy), copying.name, copy


def _place(block: Block, buffer: Buffer) -> tuple[Expr, ...]:
    """The one place, over the axes of a block, at which it accesses a buffer."""
    places = list(dict.fromkeys(n.indices for n in walk(block) if isinstance(n, (Load, Store)) and n.buffer.name == buffer.name))
    mark = (block, f"uses {buffer.name}")
    if len(places) > 1:
        texts = listing(f"{buffer.name}[{', '.join(map(str, p))}]" for p in places)
        raise ScheduleError(f"`{block.name}` accesses `{buffer.name}` at several places: {texts}", mark, hint=AS_IT_IS)
    axes = {it.var.name for it in block.iters}
    inner = sorted(v for i in places[0] for v in variables(i) if v not in axes)
    if inner or any(type(n) is Load for i in places[0] for n in walk(i)):
        moving = f"`{inner[0]}`" if inner else "loaded indices"
        raise ScheduleError(f"`{block.name}` accesses `{buffer.name}` at {moving}, not at its axes alone", mark, hint=AS_IT_IS)
    return places[0]


def _used(block: Block, place: tuple[Expr, ...]) -> list[Iter]:
    """The axes of a block that occur in indices."""
    return [it for it in block.iters if any(it.var.name in variables(i) for i in place)]


def _mapping(block: Block, index_map: str, buffer: Buffer) -> IndexMap:
    """An index map over all axes of a block, as one over those that occur in the indices of a buffer."""
    mapping = parse_index_map(index_map, len(block.iters))
    used = _used(block, _place(block, buffer))
    by_name = dict(zip([v.name for v in mapping.inputs], block.iters, strict=True))
    for name, it in by_name.items():
        if it not in used and any(name in variables(o) for o in mapping.outputs):
            raise ScheduleError(
                f"the index map uses `{name}`, but `{it.var.name}` does not index `{buffer.name}`",
                (block, f"uses {buffer.name}"),
                hint=f"leave `{name}` out of the result of the index map",
            )
    return IndexMap(tuple(v for v in mapping.inputs if by_name[v.name] in used), mapping.outputs)


def _laid_out(func: PrimFunc, copy: Buffer, mapping: IndexMap) -> PrimFunc:
    """`func` with a copy in the layout of an index map over its dimensions, and 0 where that leaves room."""
    if not mapping.inputs:  # one element, at the place 0
        return func
    names = Names.of(func)
    layout = invert(mapping, copy.shape, place_names(func, names, len(mapping.outputs)))
    if layout.conditions:
        return padded(func, copy, mapping, layout, const(0, copy.dtype), names)
    return relaid(func, copy.name, copy.with_(shape=layout.extents), mapping)


def _copy(names: Names, wanted: str, memory: str, source: Buffer, used: list[Iter]) -> tuple[Buffer, tuple[Expr, ...]]:
    """The copy, and the place in it over the axes of the block."""
    shape = tuple(it.extent for it in used) or (Const(1),)
    return Buffer(names.buffer(wanted), shape, source.dtype, memory), tuple(it.var for it in used) or (Const(0),)


def _axes(names: Names, used: list[Iter]) -> tuple[tuple[Iter, ...], dict[str, Expr]]:
    """Axes for a copying block, and what the axes of the block are there."""
    iters: list[Iter] = []
    own: dict[str, Expr] = {}
    for n, it in enumerate(used):
        v = Var(names.axis(f"v{n}"), it.var.dtype)
        iters.append(Iter(v, it.extent, Axis.SPATIAL, Const(0, it.var.dtype)))
        own[it.var.name] = v
    return tuple(iters), own


def _finished(leaf: Leaf, target: Buffer, loops: list[For], own: dict[str, Expr]) -> dict[str, Window]:
    """The windows of the copying block's axes that are written in an iteration of `loops`."""
    block = leaf.block
    try:
        need_stores(block)
        share = windows(block, loops, leaf.inside(loops))
    except Unproved as reason:
        raise unknown_part(leaf, target, loops, reason) from None
    return {v.name: share[name] for name, v in own.items()}  # type: ignore[attr-defined]
