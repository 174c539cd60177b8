"""cache_read: reads of a buffer go through a copy."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.ir import Buffer, PrimFunc
from tir.traverse import replace_buffers
from tir.verify.axes import check_axes

from ...error import ScheduleError
from ...legality.dataflow import BlockScope, Leaf, buffer_of, facts_of, locate
from ...legality.privatisation import writes_all_reads
from ...primitive import BlockName, BufferPlace, primitive
from ...rewriting.cache_stages import (
    CopyPlace,
    copy_block,
    named_readers,
    need_only_reads,
    need_scope,
    place_to_copy,
    readers_behind,
    restrict_to_reads,
)
from ...rewriting.edits import Names, edited, with_buffer
from ...rewriting.placement import nest_over_windows, required_windows


@primitive
def cache_read(
    func: PrimFunc,
    block: BlockName,
    read_buffer_index: BufferPlace,
    storage_scope: str,
    consumer_blocks: list[BlockName] | None = None,
) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy in another memory; returns the name of the copying block.

    The buffer is given by its number among those that `block` reads, from 0, or by name; the memory as for `set_scope`. All
    readers after the place of the copy, in its loops, use the copy, or only `consumer_blocks`. Copy and block are named after the
    buffer and the scope: `A_local`.

    Rewrite   S(A[i])
           => for ax0 in range(N): A_local[ax0] = A[ax0]
              S(A_local[i])
              The copy stands after the last writer of A, or first if nothing writes A. Inside loops that the writer and the
              consumers share, and inside another block, only elements read in their iteration are copied. Of a temporary only
              elements that are read at all are copied.
    Legal     if no consumer writes A, and nothing writes A between the copy and the last use. Writers of A before a consumer
              are before all of them, and later ones in no loop around the copy. Each of `consumer_blocks` must read A; those
              after the loops of the copy read only elements that some iteration has copied. Inside another block whose
              instances write A, the copy reads no element that other instances write.
    Example   chain: s.cache_read("C", "B", "local")
    """
    scope, leaf = locate(func, block)
    memory = need_scope(storage_scope)
    source = buffer_of(leaf.block, read_buffer_index, written=False)
    consumers = scope.readers(source.name)
    if consumer_blocks is None:
        consumers = readers_behind(scope, leaf, source.name)
    else:
        chosen = named_readers(consumers, source.name, consumer_blocks)
        consumers = [r for r in consumers if r in chosen]
        if not consumers:
            raise ScheduleError("`consumer_blocks` is empty; leave it out for all blocks that read the buffer")
    for c in consumers:
        need_only_reads(c, source.name)
    near, place = _copy_place(scope, consumers, source.name)
    names = Names.of(func)
    copy = Buffer(names.buffer(f"{source.name}_{memory}"), source.shape, source.dtype, storage_scope)
    copying = copy_block(names, copy.name, source, copy)
    windows = {}
    if place.loops or scope.block is not None or source.name not in scope.outputs:
        region = accessed(place.path[-1], place.ranges, (source.name,))[0].get(source.name)
        windows = required_windows(copying, {copy.name: region}, place.ranges, scope.written) if region else {}
    placed = nest_over_windows(copying, windows, place.ranges, names, facts=facts_of(scope, place.loops))
    placed = restrict_to_reads(scope, placed, source.name, near, place.loops, place.ranges)
    changes = [(c.stmt, replace_buffers(c.stmt, {source.name: copy})) for c in consumers]
    new = with_buffer(edited(func, changes, place.insertion(placed)), scope.block, copy)
    _need_apart(scope, source.name, new)
    if len(near) < len(consumers):
        after, made = locate(new, copying.name)
        if not all(writes_all_reads(after, made, r, copy.name) for r in after.readers(copy.name)):
            place_to_copy(scope, consumers, source.name)  # is refused
    return new, copying.name


def _need_apart(scope: BlockScope, name: str, result: PrimFunc) -> None:
    """Refuse if an instance of the enclosing block would copy elements that another instance writes."""
    block, writers = scope.block, scope.writers(name)
    if block is None or not writers or any(b.name == name for b in block.allocs):
        return
    known = {f.message for f in check_axes(scope.func, block.name)}
    if found := next((f for f in check_axes(result, block.name) if f.message not in known), None):
        raise ScheduleError(
            f"the copy of `{name}` would have more than an iteration of `{block.name}` reads of it: {found.message}",
            (block, "the enclosing block"),
            (writers[0].stmt, f"writes {name}"),
            hint="do this before blockize",
        )


def _copy_place(scope: BlockScope, consumers: list[Leaf], name: str) -> tuple[list[Leaf], CopyPlace]:
    """The readers that determine the place of a buffer's copy, and the place: all `consumers` if possible.

    Else the consumers after the place in the same loops, if nothing writes the buffer between these and the others."""
    try:
        return consumers, place_to_copy(scope, consumers, name)
    except ScheduleError:
        near = [r for r in readers_behind(scope, consumers[0], name) if r in consumers]
        late = any(near[-1].order < w.order < consumers[-1].order for w in scope.writers(name))
        if late or len(near) == len(consumers):
            raise
        return near, place_to_copy(scope, near, name)
