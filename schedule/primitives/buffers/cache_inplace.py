"""cache_inplace: updates of a buffer go to a copy."""

from __future__ import annotations

from functools import reduce

from tir.analysis.regions import accessed, union
from tir.ir import Block, Buffer, Kind, PrimFunc, Stmt
from tir.traverse import loops_in, replace_buffers, stores

from ...error import ScheduleError
from ...legality.dataflow import BlockScope, Leaf, buffer_of, facts_of, locate
from ...primitive import KIND_WORDS, BlockName, BufferPlace, is_parameter, primitive
from ...rewriting.cache_stages import copy_block, copy_nest, need_scope, place_behind, proving_part, written_part
from ...rewriting.edits import Insertion, Names, edited, statements_of, with_buffer
from ...rewriting.placement import nest_over_windows, required_windows


@primitive
def cache_inplace(
    func: PrimFunc, block: BlockName, read_buffer_index: BufferPlace, storage_scope: str
) -> tuple[PrimFunc, list[str]]:
    """Update a buffer in a copy in another memory; returns the names of the blocks that copy it there, and back.

    The buffer is given by its number among those that `block` reads, from 0, or by name; the memory as for `set_scope`. Copy and
    blocks are named after the buffer and the scope: `C_local`, `C_local_start`.

    Rewrite   S: C[i] = f(C[i])
           => for ax0 in range(N): C_local[ax0] = C[ax0]
              S: C_local[i] = f(C_local[i])
              for ax0 in range(N): C[ax0] = C_local[ax0]
              The copying blocks stand before and after the nest of `block`. Inside loops shared with others, and inside a block,
              they copy only elements used in their iteration.
    Legal     if the block reads and writes the buffer, which is a parameter or has other writers, and loops around both copies
              are serial. Inside of another block, the indices of its stores are as for `cache_write`.
    Example   matmul: s.decompose_reduction("C", "k"); s.cache_inplace("C_update", "C", "local")
    """
    scope, leaf = locate(func, block, under_conditions=True)
    need_scope(storage_scope)
    target = buffer_of(leaf.block, read_buffer_index, written=False)
    if target.name not in leaf.writes:
        reason = f"`{block}` does not write `{target.name}`"
        raise ScheduleError(reason, (leaf.stmt, f"reads {target.name}"), hint="cache_read copies what is only read")
    writers = [sum(s.buffer.name == target.name for s in stores(body)) for body in (func.body, leaf.stmt)]
    if writers[0] == writers[1] and not is_parameter(func, target.name):
        reason = f"nothing but `{block}` writes `{target.name}`, so there is nothing to copy"
        raise ScheduleError(reason, (leaf.stmt, f"writes {target.name}"), hint="cache_write copies what is written")
    func, start, back = through_copy(func, scope, leaf, target, storage_scope)
    return func, [start, back]


def through_copy(func: PrimFunc, scope: BlockScope, leaf: Leaf, target: Buffer, storage_scope: str) -> tuple[PrimFunc, str, str]:
    """`func` with a block that uses a copy of a buffer, filled before and copied back after its nest; both blocks' names."""
    others = [x for x in scope.leaves if x is not leaf and target.name in x.reads | x.writes]
    place = place_behind(scope, leaf, others, target.name)
    beside = next((x for x in (*loops_in(scope.around), *place.loops) if x.kind is not Kind.SERIAL), None)
    if beside is not None:
        raise ScheduleError(
            f"iterations of `{beside.name}`, which is {KIND_WORDS[beside.kind]}, may copy back what others have updated",
            (beside, "around both copies"),
            (leaf.stmt, f"updates {target.name}"),
            hint="do this before loops are marked",
        )
    names = Names.of(func)
    copy = Buffer(names.buffer(f"{target.name}_{need_scope(storage_scope)}"), target.shape, target.dtype, storage_scope)
    back = copy_block(names, copy.name, copy, target)
    start = copy_block(names, f"{copy.name}_start", target, copy)
    nest = statements_of(place.path[-1])[place.position - 1]
    used = [regions[target.name] for regions in accessed(nest, place.ranges, (target.name,)) if target.name in regions]
    region = reduce(union, used)
    facts = facts_of(scope, place.loops)

    def placed(copying: Block, written: Buffer) -> Stmt:
        windows = required_windows(copying, {written.name: region}, place.ranges, scope.written)
        return nest_over_windows(copying, windows, place.ranges, names, facts=facts)

    filled = placed(start, copy)
    if scope.block is None:
        copied_back = placed(back, target)
    else:  # neighbouring elements may belong to other instances
        with proving_part(leaf, target, place.loops):
            part = written_part(scope, leaf, target, back, place.loops)
        copied_back = copy_nest(back, part, place.ranges, names, facts)
    insertions = [Insertion(place.path[-1], place.position - 1, filled), place.insertion(copied_back)]
    func = edited(func, [(leaf.stmt, replace_buffers(leaf.stmt, {target.name: copy}))], *insertions)
    return with_buffer(func, scope.block, copy), start.name, back.name
