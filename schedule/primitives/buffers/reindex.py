"""reindex, reindex_cache_read, reindex_cache_write: a block accesses a buffer through a copy indexed by its own axes."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Ranges
from tir.ir import Axis, Block, Buffer, Const, Expr, Iter, Load, PrimFunc, Store, nest
from tir.traverse import move_accesses, substitute, variables, walk

from ...error import ScheduleError, listing
from ...legality.axis_windows import AxisWindow, windows
from ...legality.dataflow import buffer_of, facts_of, locate
from ...legality.requirements import in_bounds, need_complete, need_only_writer, need_read_later, need_whole_reduction
from ...primitive import BlockName, BufferOfBlock, BufferPlace, find_block, primitive
from ...rewriting.cache_stages import (
    copy_axes,
    need_only_reads,
    need_scope,
    need_stores,
    place_behind,
    place_to_copy,
    proving_part,
    restrict_to_reads,
)
from ...rewriting.edits import Names, edited, unstated, with_buffer
from ...rewriting.index_map import IndexMap, MapOfAxes, parse_index_map
from ...rewriting.layouts import buffer_argument, transformed_layout
from ...rewriting.placement import nest_over_windows, required_windows

CACHE_HINT = "cache_read and cache_write copy a buffer as it is"


@primitive
def reindex(func: PrimFunc, block: BlockName, buffer: BufferOfBlock, place: int | None = None) -> tuple[PrimFunc, str]:
    """Access a buffer through a copy indexed by the axes of the block; returns the name of the copying block.

    The buffer is `("read", n)` or `("write", n)`, number n, from 0, of those that `block` reads or writes, or a name. Copy and
    block are called `A_reindex`, the copy is in the memory of the buffer. The dimensions of the copy are the axes in the indices,
    in the order of the block. An input is copied before the block, an output after it. With `place`, only reads at index number
    `place`, of the different ones that the block reads the buffer at, go through the copy.

    Rewrite   S(i, j): B[i, j] = A[j, i + 1]
           => for ax0: for ax1: A_reindex[ax0, ax1] = A[ax1, ax0 + 1]
              S(i, j): B[i, j] = A_reindex[i, j]
    Legal     if the block accesses the buffer at one place (or only number `place` counts), over its axes alone: no inner loop,
              no load. Reading: it does not write the buffer, nothing writes that between copy and use, and the place is in
              bounds for all axis values. Writing: the block is data parallel or a reduction with its init, and the only
              writer of the buffer, which nothing reads before. All its spatial axes of more than one value occur in the place,
              and it runs over its whole domain, once.
    Example   matmul: s.reindex("C", ("read", 1))
    """
    target = buffer_argument(find_block(func, block), buffer)
    writing = any(type(n) is Store and n.buffer.name == target.name for n in walk(find_block(func, block)))
    if isinstance(buffer, list) and writing and buffer[0] == "read":
        raise ScheduleError(
            f"`{block}` writes `{target.name}` as well as reading it",
            (find_block(func, block), f"writes {target.name}"),
            hint=f"reindex({block!r}, {target.name!r}) is for what it writes",
        )
    wanted = f"{target.name}_reindex"
    if writing and place is not None:
        reason = f"`{block}` writes `{target.name}`: `place` is for what is read"
        raise ScheduleError(reason, (find_block(func, block), "writes it"))
    if writing:
        func, _, copying = _write_through_copy(func, block, target, target.scope, wanted)
    else:
        func, _, copying = _read_through_copy(func, block, target, target.scope, wanted, place)
    return func, copying


@primitive
def reindex_cache_read(
    func: PrimFunc, block: BlockName, read_buffer_index: BufferPlace, storage_scope: str, index_map: MapOfAxes
) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy at `index_map(i, j, ...)` for the block's axes i, j, ...; returns the copying block.

    The index map, as for `transform_layout`, takes all axes of the block, and uses only those in the indices of the buffer.
    Buffer and memory are given as for `cache_read`; copy and block are named after them: `A_shared`. If a tile does not divide an
    extent, the copy is filled up with zeros.

    Rewrite   S(i, j): B[i, j] = A[j, i + 1]
           => for ax0: for ax1: A_shared[ax1 // 4, ax0, ax1 % 4] = A[ax1, ax0 + 1]         # lambda i, j: (j // 4, i, j % 4)
              S(i, j): B[i, j] = A_shared[j // 4, i, j % 4]
    Legal     if `reindex` of this input is legal, and the index map is one to one.
    Example   matmul: s.reindex_cache_read("C", 1, "local", lambda i, j, k: (j, k))
    """
    return _through_cache(func, block, read_buffer_index, storage_scope, index_map, written=False)


@primitive
def reindex_cache_write(
    func: PrimFunc, block: BlockName, write_buffer_index: BufferPlace, storage_scope: str, index_map: MapOfAxes
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy at `index_map(i, j, ...)` for the block's axes i, j, ...; returns the copying block.

    Arguments, names and filling are those of `reindex_cache_read`, for a buffer that `block` writes.

    Rewrite   S(i, j): B[j, i] = f(i, j)
           => S(i, j): B_local[i, j // 4, j % 4] = f(i, j)                                 # lambda i, j: (i, j // 4, j % 4)
              for ax0: for ax1: B[ax1, ax0] = B_local[ax0, ax1 // 4, ax1 % 4]
    Legal     if `reindex` of this output is legal, and the index map is one to one.
    Example   matmul: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i))
    """
    return _through_cache(func, block, write_buffer_index, storage_scope, index_map, written=True)


def _through_cache(
    func: PrimFunc, block: str, index: int | str, storage_scope: str, index_map: MapOfAxes, written: bool
) -> tuple[PrimFunc, str]:
    memory = need_scope(storage_scope)
    user = find_block(func, block)
    target = buffer_of(user, index, written)
    mapping = _map_of_used_axes(func, user, index_map, target)
    func, copy, copying = (_write_through_copy if written else _read_through_copy)(
        func, block, target, storage_scope, f"{target.name}_{memory}"
    )
    # A copy of one element has no axes.
    return transformed_layout(func, copy, mapping, 0) if mapping.inputs else func, copying


def _read_through_copy(
    func: PrimFunc, block: str, source: Buffer, memory: str, wanted: str, number: int | None = None
) -> tuple[PrimFunc, Buffer, str]:
    scope, leaf = locate(func, block)
    reader = leaf.block
    need_only_reads(leaf, source.name)
    place = _access_indices(reader, source, number)
    stand = place_to_copy(scope, [leaf], source.name)
    loops, ranges = stand.loops, stand.ranges
    names = Names.of(func)
    copy, copying, new = _copy_blocks(names, wanted, memory, source, reader, place, back=False)
    if not in_bounds(copying, ranges_of([copying], scope.ranges)):
        raise ScheduleError(
            f"`{block}` reads `{source.name}` at `{', '.join(map(str, place))}`, which may be outside of it",
            (reader, f"reads {source.name}"),
            hint=CACHE_HINT,
        )
    share: dict[str, AxisWindow] = {}
    inner = leaf.inside(loops)
    if loops or scope.block is not None or not _whole(reader, ranges_of(inner, ranges)):
        share = required_windows(copying, accessed(nest(inner, new), ranges, (copy.name,))[0], ranges, scope.written)
    own: dict[str, Expr] = {it.var.name: mine.var for it, mine in zip(_used_axes(reader, place), copying.iters, strict=True)}
    placed = nest_over_windows(copying, share, ranges, names, facts=facts_of(scope, loops))
    placed = restrict_to_reads(scope, placed, source.name, [leaf], loops, ranges, own)
    return with_buffer(edited(func, [(reader, new)], stand.insertion(placed)), scope.block, copy), copy, copying.name


def _write_through_copy(func: PrimFunc, block: str, target: Buffer, memory: str, wanted: str) -> tuple[PrimFunc, Buffer, str]:
    scope, leaf = locate(func, block)
    writer = leaf.block
    need_complete(scope, leaf, "given a copy to write")
    need_whole_reduction(scope, leaf, "its copy is")
    need_only_writer(scope, leaf, "given a copy to write")
    place = _access_indices(writer, target)
    used = _used_axes(writer, place)
    for it in writer.iters:
        if it.axis is Axis.SPATIAL and it not in used and not it.extent.is_one:
            raise ScheduleError(
                f"the axis `{it.var.name}` of `{block}` does not index `{target.name}`",
                (writer, f"writes {target.name}"),
                hint=f"cache_write copies `{target.name}` in its own shape",
            )
    remaining = [r for r in scope.readers(target.name) if r is not leaf]
    need_read_later(remaining, leaf)
    stand = place_behind(scope, leaf, remaining, target.name)
    names = Names.of(func)
    copy, copying, new = _copy_blocks(names, wanted, memory, target, writer, place, back=True)
    with proving_part(leaf, target, stand.loops):
        need_stores(writer)
        finished = windows(writer, stand.loops, leaf.inside(stand.loops))
    share = {mine.var.name: finished[it.var.name] for mine, it in zip(copying.iters, used, strict=True)}
    placed = nest_over_windows(copying, share, stand.ranges, names, facts=facts_of(scope, stand.loops))
    return with_buffer(edited(func, [(writer, new)], stand.insertion(placed)), scope.block, copy), copy, copying.name


def _copy_blocks(
    names: Names, wanted: str, memory: str, buffer: Buffer, block: Block, place: tuple[Expr, ...], back: bool
) -> tuple[Buffer, Block, Block]:
    """A copy of a buffer over the axes in a block's indices `place`, the block that copies to it (or `back`), and its user."""
    used = _used_axes(block, place)
    copy = Buffer(names.buffer(wanted), tuple(it.extent for it in used) or (Const(1),), buffer.dtype, memory)
    indices: tuple[Expr, ...] = tuple(it.var for it in used) or (Const(0),)
    iters = copy_axes(names, [(it.extent, it.var.dtype) for it in used])
    own: dict[str, Expr] = {it.var.name: mine.var for it, mine in zip(used, iters, strict=True)}
    source, target = (Load(b, tuple(substitute(i, own) for i in at)) for b, at in ((buffer, place), (copy, indices)))
    if back:
        source, target = target, source
    copying = Block(names.block(wanted), iters, Store(target.buffer, target.indices, source))
    new = move_accesses(block, lambda b, at: (copy, indices) if b.name == buffer.name and at == place else None)
    return copy, copying, unstated(new, buffer.name)


def _access_indices(block: Block, buffer: Buffer, number: int | None = None) -> tuple[Expr, ...]:
    """The only indices of a block's accesses to a buffer, or those of a number; refuses others than over its axes."""
    places = list(dict.fromkeys(n.indices for n in walk(block) if isinstance(n, (Load, Store)) and n.buffer.name == buffer.name))
    mark = (block, f"uses {buffer.name}")
    if number is not None:
        if not 0 <= number < len(places):
            raise ScheduleError(
                f"`{block.name}` reads `{buffer.name}` at {len(places)} place(s): number {number} does not exist", mark
            )
        places = [places[number]]
    if len(places) > 1:
        texts = listing(f"{buffer.name}[{', '.join(map(str, p))}]" for p in places)
        raise ScheduleError(f"`{block.name}` accesses `{buffer.name}` at several places: {texts}", mark, hint=CACHE_HINT)
    axes = {it.var.name for it in block.iters}
    inner = sorted(v for i in places[0] for v in variables(i) if v not in axes)
    if inner or any(type(n) is Load for i in places[0] for n in walk(i)):
        moving = f"`{inner[0]}`" if inner else "loaded indices"
        raise ScheduleError(f"`{block.name}` accesses `{buffer.name}` at {moving}, not at its axes alone", mark, hint=CACHE_HINT)
    return places[0]


def _whole(block: Block, ranges: Ranges) -> bool:
    """True where the axes of a block reach both ends of their domains."""
    return all(bounds(it.binding, ranges) == (0, it.extent.value - 1) for it in block.iters if isinstance(it.extent, Const))


def _used_axes(block: Block, place: tuple[Expr, ...]) -> list[Iter]:
    return [it for it in block.iters if it.var.name in variables(*place)]


def _map_of_used_axes(func: PrimFunc, block: Block, index_map: MapOfAxes, buffer: Buffer) -> IndexMap:
    """An index map over all axes of a block as a map over those in the indices of a buffer; refuses uses of others."""
    mapping = parse_index_map(index_map, func, [it.extent for it in block.iters])
    used = _used_axes(block, _access_indices(block, buffer))
    by_name = dict(zip([v.name for v in mapping.inputs], block.iters, strict=True))
    for name, it in by_name.items():
        if it not in used and name in variables(*mapping.outputs):
            raise ScheduleError(
                f"the index map uses `{name}`, but `{it.var.name}` does not index `{buffer.name}`",
                (block, f"uses {buffer.name}"),
                hint=f"leave `{name}` out of the result of the index map",
            )
    return IndexMap(tuple(v for v in mapping.inputs if by_name[v.name] in used), mapping.outputs, mapping.separators)
