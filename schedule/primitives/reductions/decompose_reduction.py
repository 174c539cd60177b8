"""decompose_reduction: the init of a reduction becomes a block of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tir.arith.bounds import ranges_of
from tir.arith.simplify import simplify
from tir.ir import Axis, Block, For, PrimFunc, all_zero, conjuncts
from tir.traverse import axis_loops, loaded_names, substitute, variables

from ...error import ScheduleError
from ...legality.axis_windows import need_distinct
from ...legality.dataflow import BlockScope, Leaf, locate, loop_around
from ...legality.iter_map import proving
from ...legality.requirements import need_late_readers, need_loops_for_init, need_no_threads, need_start_at_0, updated_reads
from ...primitive import BlockName, LoopName, primitive
from ...rewriting.clones import in_own_loops, init_block
from ...rewriting.edits import Insertion, Names, edited


@primitive
def decompose_reduction(func: PrimFunc, block: BlockName, loop: LoopName) -> tuple[PrimFunc, str]:
    """Move the init of a reduction into a block of its own before a loop; returns the name of that block.

    The new block is named `C_init`, its loops are the spatial ones at and below `loop`, with `_init` added. The block without its
    init is named `C_update`.

    Rewrite   for i: for k: C[i] = 0 first, then C[i] = C[i] + f(i, k)
           => for i_init: C[i_init] = 0
              for i: for k: C[i] = C[i] + f(i, k)
    Legal     if `loop` is around the block, and no loop of extent above 1 outside of it drives the reduction. Each loop from
              `loop` on drives spatial or reduction axes, not both. It drives no opaque one if its extent is above 1, and is bound
              to no thread if it drives the reduction. Together they visit each point once, and the reduction starts where its
              loops start. The other statements under `loop` write neither the output nor inputs of the init. They read the
              output only after the block (of a parameter just the elements that the block writes).
    Example   matmul: s.decompose_reduction("C", "k")
    """
    scope, leaf = locate(func, block)
    reduction = leaf.block
    if reduction.init is None:
        hint = "it has been decomposed already" if reduction.is_reduction else "only a reduction, with T.init(), has one"
        raise ScheduleError(f"`{block}` has no init", (reduction, "no init"), hint=hint)
    place = loop_around(leaf, func, loop)
    target, outer, inner = leaf.loops[place], leaf.loops[:place], leaf.loops[place:]
    reducing = axis_loops(reduction, Axis.REDUCE)
    _need_separate_loops(reduction, target, outer, inner, reducing)
    with proving(f"that `{block}` visits each of its points once under `{loop}`", (target, "the loop"), (reduction, "the block")):
        need_distinct(reduction, inner)
    zeros = all_zero(x.var for x in leaf.loops if x.name in reducing)
    ranges = ranges_of(leaf.loops)
    need_start_at_0(reduction, {it.var.name: it.binding for it in reduction.iters}, zeros, ranges)
    _need_unchanged_source(scope, leaf, target)
    need_late_readers(scope, leaf, target)

    names = Names.of(func)
    at_start = [
        simplify(substitute(c, zeros), ranges) if variables(c) & zeros.keys() else c for c in conjuncts(reduction.predicate)
    ]
    starting = init_block(reduction, reduction.iters, at_start, ranges, names).with_(annotations=reduction.annotations)
    needed = variables(starting.predicate, *(it.binding for it in starting.iters))
    first = in_own_loops(starting, [x for x in inner if x.name in needed], names, "_init", zeros)
    update = reduction.with_(name=names.block(f"{block}_update"), init=None, reads=updated_reads(reduction))
    return edited(func, [(reduction, update)], Insertion(target, 0, first)), starting.name


def _need_separate_loops(reduction: Block, target: For, outer: Sequence[For], inner: Sequence[For], reducing: set[str]) -> None:
    """Refuse a loop outside that drives the reduction, and one inside that drives spatial axes, too, or is bound to a thread."""
    for x in outer:
        if x.name in reducing and not x.extent.is_one:
            raise ScheduleError(
                f"`{x.name}` is outside of `{target.name}` and drives the reduction, so the init would "
                "run in each of its iterations",
                (x, "drives the reduction"),
                (target, "the loop"),
                hint=f"decompose_reduction({reduction.name!r}, {x.name!r})",
            )
    need_no_threads(reduction, inner, reducing)
    need_loops_for_init(reduction, inner, reducing, axis_loops(reduction, Axis.SPATIAL))


def _need_unchanged_source(scope: BlockScope, leaf: Leaf, target: For) -> None:
    """Refuse if another statement under the loop writes inputs of the init."""
    init = leaf.block.init
    started_from = set() if init is None else loaded_names(init)
    for other in scope.leaves_under(target):
        for name in sorted(started_from & other.writes) if other is not leaf else ():
            raise ScheduleError(
                f"{other.quoted} writes `{name}` under `{target.name}`, and the init, which reads it, would come before",
                (target, "the loop"),
                (other.stmt, f"writes {name}"),
                (leaf.stmt, "starts from it"),
                hint=f"choose a loop that is not around {other.quoted}",
            )
