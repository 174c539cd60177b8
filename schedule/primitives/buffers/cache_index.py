"""cache_index: the indices at which a block reads are computed before it, and read from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tir.ir import IN_ANY_ORDER, Binary, Block, Buffer, Const, Expr, Load, Node, PrimFunc, Stmt, Store, seq
from tir.traverse import (
    divisions,
    loaded_names,
    loads,
    loops_to,
    map_children,
    move_accesses,
    stored_names,
    substitute,
    tree_size,
    variables,
    walk,
)

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...primitive import BlockName, primitive
from ...rewriting.cache_stages import copy_axes, need_scope
from ...rewriting.edits import Insertion, Names, edited, statements_of, unstated, with_buffer
from ...rewriting.placement import nest_over_windows


@primitive
def cache_index(func: PrimFunc, block: BlockName, storage_scope: str, cse_thresh: int = 0) -> tuple[PrimFunc, list[str]]:
    """Compute the read indices of a block before its nest, and load them; returns the names of the new blocks, one for each
    expression.

    An index counts if it is an arithmetic expression over the axes, not a variable, a constant or a load. Indices of buffers that
    the block writes stay, and so do those of buffers written in a parallel loop around it, to keep independence provable.
    With `cse_thresh` above 0, only expressions that occur so often among indices and their parts count, the largest of them.

    Rewrite   for i, j: S(A[i // 3 + j % 2])
           => for i, j: index_0[i, j] = i // 3 + j % 2
              for i, j: S(A[index_0[i, j]])
    Legal     if the block has such an index, with divisions by nonzero constants only: it is computed for all values of its axes.
    Example   padded_sums: s.cache_index("C", "global")
    """
    scope, leaf = locate(func, block)
    need_scope(storage_scope)
    target = leaf.block
    axes = {it.var.name: it for it in target.iters}
    side_by_side = next((x for x in loops_to(func.body, block) if x.kind in IN_ANY_ORDER), target)
    written = stored_names(side_by_side)
    found = _expressions(target, written, cse_thresh, axes.keys())
    if not found:
        raise ScheduleError(
            f"no index of `{block}` computes anything from its axes",
            (target, "the block"),
            hint="indices that are variables, constants or loaded, or of what is written side by side, are read as they are",
        )
    names = Names.of(func)
    made: list[str] = []
    copies: dict[Node, Load] = {}
    nests: list[Stmt] = []
    for e in found:
        used = [it for name, it in axes.items() if name in variables(e)]
        copy = Buffer(names.buffer(f"index_{len(made)}"), tuple(it.extent for it in used), e.dtype, storage_scope)
        iters = copy_axes(names, [(it.extent, it.var.dtype) for it in used])
        place = tuple(it.var for it in iters)
        value = substitute(e, {it.var: v for it, v in zip(used, place, strict=True)})
        computing = Block(names.block(copy.name), iters, Store(copy, place, value))
        made.append(computing.name)
        nests.append(nest_over_windows(computing, {}, scope.ranges, names, preserve_unit_loops=True))
        copies[e] = Load(copy, tuple(it.var for it in used))

    def replaced(n: Node) -> Node:
        return copies[n] if n in copies else map_children(n, replaced)

    def place_of(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        return None if buffer.name in written else (buffer, tuple(map(replaced, indices)))  # type: ignore[arg-type]

    new = move_accesses(unstated(target, *loaded_names(target)), place_of)
    at = next(n for n, s in enumerate(statements_of(scope.root)) if leaf.under(s))
    func = edited(func, [(target, new)], Insertion(scope.root, at, seq(*nests)))
    for load in copies.values():
        func = with_buffer(func, scope.block, load.buffer)
    return func, made


def _expressions(block: Block, written: Collection[str], cse_thresh: int, axes: Collection[str]) -> list[Expr]:
    """The index expressions of a block's loads that `cache_index` computes, those of `written` buffers excepted, in order."""
    indices = [i for x in loads(block) if x.buffer.name not in written for i in x.indices]
    if not cse_thresh:
        return [*dict.fromkeys(i for i in indices if _computes(i, axes))]
    counts = Counter(e for i in indices for e in walk(i) if isinstance(e, Expr) and _computes(e, axes))
    often = sorted((e for e, count in counts.items() if count >= cse_thresh), key=tree_size, reverse=True)
    return [e for n, e in enumerate(often) if not any(e in walk(larger) for larger in often[:n])]


def _computes(e: Expr, axes: Collection[str]) -> bool:
    """True for an operation on these axes alone that is defined for all their values."""
    return (
        isinstance(e, Binary)
        and not loads(e)
        and set() < variables(e) <= set(axes)
        and all(type(n.b) is Const and n.b.value for n in divisions(e))
    )
