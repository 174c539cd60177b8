"""compute_inline: a producer's formula replaces the reads of its result."""

from __future__ import annotations

from tir.arith.bounds import ranges_of, without_units
from tir.arith.simplify import simplify
from tir.ir import Block, Load, Node, PrimFunc, Stmt, all_zero
from tir.traverse import rewrite, substitute, too_large

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.requirements import (
    conditions_on_axes,
    need_own_temporary,
    need_read_later,
    need_safe_domain,
    need_unchanged_inputs,
    own_axes,
    single_store,
)
from ...primitive import BlockName, primitive
from ...rewriting.edits import edited, unstated, without_buffers


@primitive
def compute_inline(func: PrimFunc, block: BlockName, preserve_unit_iters: bool = False) -> tuple[PrimFunc, None]:
    """Put the formula of a block into the blocks that read its output, and remove the block and its buffer.

    Axes of one iteration become 0 in the formula, unless with `preserve_unit_iters`. Source: Halide, PLDI 2013, section 3.2 (the
    call schedule).

    Rewrite   for i: X[i] = f(i)
              S(X[p])
           => S(f(p))
    Legal     if the block is data parallel, one store to a temporary that it alone writes, at its own axes in any order (or 0).
              Its readers, if any, come after it, and stay small enough to be compiled. Its inputs are final there and unchanged
              until the last use. Its predicate can be dropped: its domain implies it, or every access is in bounds without it.
              No parallel or bound loop that the block leaves contains a writer of its inputs.
    Example   chain: s.compute_inline("B")
    """
    scope, leaf = locate(func, block)
    what = "inlined"
    producer = leaf.block
    if producer.is_reduction:
        raise ScheduleError(
            f"`{block}` is a reduction, and has no single formula to put elsewhere",
            (producer, "reduces"),
            hint=f"compute_at({block!r}, ...) moves a reduction into the loops of its readers",
        )
    need_own_temporary(scope, leaf, what)
    store = single_store(producer)
    places = own_axes(producer, store)
    consumers = [r for r in scope.readers(store.buffer.name) if r is not leaf]
    if not consumers and len(scope.leaves) == 1:
        raise ScheduleError(f"`{block}` is all there is, and cannot be removed", (producer, "never read"))
    need_read_later(consumers, leaf)
    need_unchanged_inputs(scope, leaf, [c.path for c in consumers])
    need_safe_domain(scope, leaf, [c for group in conditions_on_axes(scope, leaf) for c in group], what)

    name = store.buffer.name

    def inlined(stmt: Stmt) -> Stmt:
        ranges = ranges_of([stmt])
        if preserve_unit_iters:
            ranges = without_units(ranges)

        def visit(n: Node) -> Node | None:
            if type(n) is Load and n.buffer.name == name:
                mapping = all_zero(it.var for it in producer.iters)
                mapping |= {v: index for index, v in zip(n.indices, places, strict=True) if v is not None}
                return simplify(substitute(store.value, mapping), ranges)
            return unstated(n, name) if type(n) is Block else None

        return rewrite(stmt, visit)

    readers = [(c.stmt, inlined(c.stmt)) for c in consumers]
    for old, new in readers:
        if excess := too_large(new):
            raise ScheduleError(f"the reader of `{block}` would have {excess}", (old, "reads it"))
    return without_buffers(edited(func, [(producer, None), *readers]), [name]), None
