"""write_in_place: a block writes its results to the buffer that they would be copied to."""

from __future__ import annotations

from tir.arith.simplify import simplify
from tir.ir import Expr, Load, PrimFunc, Stmt
from tir.traverse import substitute

from ...error import ScheduleError
from ...legality.dataflow import BlockScope, Leaf, locate
from ...legality.requirements import need_complete, own_loops, single_store
from ...primitive import BlockName, primitive
from ...rewriting.edits import edited, with_accesses, without_buffers
from ...rewriting.index_map import IndexMap, invert


@primitive
def write_in_place(func: PrimFunc, block: BlockName) -> tuple[PrimFunc, None]:
    """Replace a temporary by the buffer that a block copies it to, and remove both: the inverse of `cache_write`, and of
    `reindex` of an output.

    Rewrite   S: B_reindex[i, j] = f(i, j)
              for ax0: for ax1: B[ax1, ax0] = B_reindex[ax0, ax1]
           => S: B[j, i] = f(i, j)
    Legal     if the block, in loops of its own, copies each element of a temporary once, and no two to one element. Nothing else
              uses the temporary after it, reads the target before it, or writes the target.
    Example   matmul: s.write_in_place(s.reindex("C", ("write", 0)))
    """
    scope, leaf = locate(func, block)
    need_complete(scope, leaf, "undone")
    copying = leaf.block
    store = single_store(copying)
    source = store.value
    marks = ((copying, "the block"),)
    if type(source) is not Load:
        reason = f"`{block}` computes `{store.value}`, and copies no temporary"
        raise ScheduleError(reason, *marks, hint=f"reverse_compute_inline({block!r}) puts its formula into the block before it")
    old = source.buffer
    _need_whole(leaf, source)
    _need_only_copied(scope, leaf, old.name, store.buffer.name)
    axes = [it.var for it in copying.iters]
    invert(
        IndexMap(tuple(axes), store.indices),
        [it.extent for it in copying.iters],
        [f"place {n}" for n in range(len(store.indices))],
    )
    used = [x for x in scope.leaves if x is not leaf and old.name in x.reads | x.writes]

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(i, dict(zip(axes, indices, strict=True)))) for i in store.indices)

    changes: list[tuple[Stmt, Stmt | None]] = [(copying, None)]
    changes += [(x.stmt, with_accesses(x.stmt, {old.name: (store.buffer, place)})) for x in used]
    return without_buffers(edited(func, changes), [old.name]), None


def _need_whole(leaf: Leaf, source: Load) -> None:
    """Refuse a block unless it copies a whole buffer, whose dimensions are its axes in order."""
    block = leaf.block
    own_loops(leaf)
    if source.indices != tuple(it.var for it in block.iters) or source.buffer.shape != tuple(it.extent for it in block.iters):
        raise ScheduleError(
            f"the axes of `{block.name}` are not the dimensions of `{source.buffer.name}`, in their order",
            (block, f"reads {source.buffer.name}"),
            hint="transform_block_layout reorders the axes of a block",
        )


def _need_only_copied(scope: BlockScope, leaf: Leaf, old: str, new: str) -> None:
    """Refuse a temporary used outside or after the copy, and a target that is read before it or written elsewhere."""
    if old in scope.outputs:
        reason = f"`{old}` is used outside, so it must stay"
        raise ScheduleError(reason, (leaf.stmt, f"reads {old}"), hint="only what is a temporary of the function or block can go")
    for x in scope.leaves:
        if x is leaf:
            continue
        late, early = old in x.reads | x.writes and x.order > leaf.order, new in x.reads | x.writes and x.order < leaf.order
        if late or early or new in x.writes:
            name, when = (old, "after") if late else (new, "before" if early else "after")
            raise ScheduleError(
                f"{x.quoted} uses `{name}` {when} {leaf.quoted} copies",
                (leaf.stmt, "the block"),
                (x.stmt, f"uses {name}"),
                hint=f"only what is read of `{new}` later may stay",
            )
