"""cache_write: writes of a buffer go through a copy."""

from __future__ import annotations

from tir.analysis.regions import accessed, block_regions
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import ranges_of
from tir.ir import Axis, Block, Buffer, If, PrimFunc
from tir.traverse import foreign_calls, replace_buffers, stores, written_by

from ...error import ScheduleError
from ...legality.dataflow import BlockScope, Leaf, buffer_of, facts_of, locate
from ...legality.iter_map import Unproved
from ...legality.privatisation import writes_all_reads
from ...legality.requirements import need_complete, need_only_writer, need_read_later, need_whole_reduction
from ...primitive import BlockName, BufferPlace, primitive
from ...rewriting.cache_stages import (
    copy_block,
    copy_nest,
    named_readers,
    need_scope,
    place_behind,
    proving_part,
    restrict_to_reads,
    written_part,
)
from ...rewriting.edits import Insertion, Names, edited, with_buffer
from ...rewriting.placement import nest_over_windows, required_windows
from .cache_inplace import through_copy


@primitive
def cache_write(
    func: PrimFunc,
    block: BlockName,
    write_buffer_index: BufferPlace,
    storage_scope: str,
    consumer_blocks: list[BlockName] | None = None,
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy in another memory; returns the name of the copying block.

    The buffer is given by its number among those that `block` writes, from 0, or by name; the memory as for `set_scope`. Readers
    still read the buffer, except `consumer_blocks`, which read the copy. Copy and block are named after the buffer and the scope:
    `C_local`.

    Rewrite   S: C[i] = f(i)
           => S: C_local[i] = f(i)
              for ax0 in range(N): C[ax0] = C_local[ax0]
              The copying block stands after the nest of `block`, under the same `if`. Inside loops shared with readers of C, and
              inside a block, it copies the part that is finished in their iteration, under the block's conditions on its axes.
              The copy of a reduction without an init, such as the one inside of a blockized one, starts from C, if C is used
              outside of the enclosing block.
    Legal     if the block is data parallel, a reduction with or without its init, or reads of C only elements that it has
              written before. It alone writes C, nothing reads C before it, and all copied elements are written. For that, the
              block runs over its whole domain, or where conditions on its axes hold. Each spatial axis indexes one dimension of
              C, the same in all stores, perhaps with a tile for each value and an offset from outside.
              Else C is a temporary whose readers share no loop with the block, and is copied as far as it is read. Each of
              `consumer_blocks` must read C, and, if C had values before, only elements that the block has written by then.
              Results of foreign calls are copied as by `cache_inplace`.
    Example   matmul: s.cache_write("C", 0, "local")
    """
    scope, leaf = locate(func, block, under_conditions=True)
    memory = need_scope(storage_scope)
    producer = leaf.block
    target = buffer_of(producer, write_buffer_index, written=True)
    if target.name in set().union(*(written_by(s.call) for s in foreign_calls(producer))):
        need_only_writer(scope, leaf, "given a copy to write")
        func, _, back = through_copy(func, scope, leaf, target, storage_scope)
        return func, back
    updating = _updates(producer, target)
    if not updating:
        if not _reads_own_writes(scope, leaf):
            need_complete(scope, leaf, "given a copy to write")
        need_whole_reduction(scope, leaf, "its copy is")
    need_only_writer(scope, leaf, "given a copy to write")
    readers = [r for r in scope.readers(target.name) if r is not leaf]
    need_read_later(readers, leaf)
    moved = named_readers(readers, target.name, consumer_blocks or ())
    guard = next((n for n, s in reversed([*enumerate(leaf.above)]) if type(s) is If), None)
    branch = None if guard is None else leaf.path[guard + 1]
    for r in moved:
        certain = branch is None or r.under(branch)
        if target.name in scope.outputs and not (certain and writes_all_reads(scope, leaf, r, target.name)):
            raise ScheduleError(
                f"{r.quoted} may read elements of `{target.name}` that `{block}` has not written by then, and the copy lacks",
                (producer, f"writes {target.name}"),
                (r.stmt, f"reads {target.name}"),
                hint=f"leave `{r.name}` out of consumer_blocks: it then reads `{target.name}` itself",
            )
    remaining = [r for r in readers if r not in moved]
    place = place_behind(scope, leaf, remaining, target.name)
    loops, ranges, facts = place.loops, place.ranges, facts_of(scope, place.loops)
    names = Names.of(func)
    copy = Buffer(names.buffer(f"{target.name}_{memory}"), target.shape, target.dtype, storage_scope)
    copying = copy_block(names, copy.name, copy, target)
    # A buffer of this scope is copied as far as it is read; parts of one from outside may belong to other instances.
    own = scope.block is None or any(b.name == target.name for b in scope.block.allocs)
    with proving_part(leaf, target, loops):
        try:
            part = written_part(scope, leaf, target, copying, loops)
            placed = copy_nest(copying, part, ranges, names, facts)
        except Unproved:
            if loops or updating or branch is not None or not own or not readers or target.name in scope.outputs:
                raise
            read = accessed(scope.root, scope.ranges, (target.name,))[0] if scope.block else {}  # by an instance of the block
            placed = nest_over_windows(copying, required_windows(copying, read, ranges, scope.written), ranges, names)
            placed = restrict_to_reads(scope, placed, target.name, readers, (), ranges)
    insertions = [place.insertion(placed)]
    if updating and target.name in scope.outputs:  # else nothing has written it before
        first = copy_block(names, f"{copy.name}_start", target, copy)
        start = copy_nest(first, part, ranges, names, facts)
        insertions.append(Insertion(place.path[-1], place.position - 1, start))
    changes = [(x.stmt, replace_buffers(x.stmt, {target.name: copy})) for x in (leaf, *moved)]
    return with_buffer(edited(func, changes, *insertions), scope.block, copy), copying.name


def _reads_own_writes(scope: BlockScope, leaf: Leaf) -> bool:
    """True where a block without an init reads from its outputs, and only elements written before in the same instance."""
    block, ranges = leaf.block, ranges_of([leaf.block], scope.ranges)
    itself = {s.buffer.name: s.buffer for s in stores(block) if s.buffer.name in leaf.reads}
    plain = block.init is None and all(it.axis is not Axis.OPAQUE for it in block.iters)
    return plain and bool(itself) and all(writes_before_reads(block.body, b, ranges) for b in itself.values())


def _updates(block: Block, target: Buffer) -> bool:
    """True where a block continues a reduction without its init, and reads the region of a buffer that it writes."""
    if block.init is not None or not block.is_reduction or any(it.axis is Axis.OPAQUE for it in block.iters):
        return False
    reads, writes = block_regions(block.with_(reads=None, writes=None))
    return target.name in reads and reads[target.name] == writes[target.name]
