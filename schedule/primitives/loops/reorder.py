"""reorder: the loops of a nest in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tir.analysis.dependence import (
    ANY,
    GREATER,
    LESS,
    SAME,
    Instances,
    Unit,
    conflict_marks,
    conflicts,
    local_buffers,
    spatial_bindings,
    units,
)
from tir.arith.bounds import bounds, ranges_of
from tir.ir import Axis, Block, Const, For, Kind, PrimFunc, nest
from tir.traverse import loops, loops_in, variables

from ...error import ScheduleError, listing
from ...legality.requirements import in_any_order
from ...primitive import DEPENDENT_EXTENT_HINT, KIND_WORDS, REGISTRY, LoopName, primitive, replace_path
from ...rewriting.loops import reordered


@primitive
def reorder(func: PrimFunc, *ordered_loops: LoopName) -> tuple[PrimFunc, None]:
    """Put loops of one nest into the given order, outermost first, within the places that they have; other loops stay.

    Rewrite   for i: for j: for k: S   =>   for k: for j: for i: S      # reorder("k", "i")
    Legal     if, from the first place to the last, each loop is the whole body of the one before it. No extent depends on a loop
              that comes inside it. Loops that change their order with another are not vectorized; parallel and bound ones
              are legal as such in their new places, too. No two dependent instances of S change their order. Instances of one
              block with different spatial axes are independent. Those of a reduction commute, but the one with all reduction
              axes 0, which runs the init, must come first. Loops of opaque axes stay in order. Instances of different blocks,
              and of statements outside of blocks, that change their order must touch different elements, or only read.
    Example   matmul: s.reorder("k", "i", "j")
    """
    if len(set(ordered_loops)) < len(ordered_loops):
        twice = next(n for n in ordered_loops if ordered_loops.count(n) > 1)
        raise ScheduleError(f"`{twice}` is given twice")
    if not ordered_loops:
        return func, None
    above, chain, order = reordered(func, ordered_loops)
    if all(a is b for a, b in zip(chain, order, strict=True)):
        return func, None

    for n, loop in enumerate(order):
        for inner in order[n + 1 :]:
            if type(loop.extent) is not Const and inner.name in variables(loop.extent):
                raise ScheduleError(
                    f"the extent of `{loop.name}` depends on `{inner.name}`, which would come inside it",
                    (inner, "must stay outside"),
                    (loop, f"runs over {loop.extent}"),
                    hint=DEPENDENT_EXTENT_HINT,
                )
    swapped = list(_swapped(chain, order))
    moved = [loop for loop in chain if any(loop in pair for pair in swapped)]
    marked = {loop.name: loop for loop in moved if loop.kind in (Kind.PARALLEL, Kind.THREAD)}
    if marked:
        plain = [x.with_(kind=Kind.SERIAL, thread="") if x.name in marked else x for x in chain]
        func, _ = reorder(replace_path(func, above, nest(plain, chain[-1].body)), *ordered_loops)
        for name, loop in marked.items():
            func, _ = REGISTRY["bind"](func, name, loop.thread) if loop.thread else REGISTRY["parallel"](func, name)
        return func, None
    for loop in moved:
        if loop.kind not in (Kind.SERIAL, Kind.UNROLLED):
            raise ScheduleError(
                f"`{loop.name}` is {KIND_WORDS[loop.kind]}, which was proved for its present place only",
                (loop, KIND_WORDS[loop.kind]),
                hint="reorder first and mark afterwards",
            )
    _need_independent(func, above, chain, order, swapped)
    return replace_path(func, above, nest(order, chain[-1].body)), None


def _swapped(chain: list[For], order: list[For]) -> Iterator[tuple[For, For]]:
    """The pairs of loops (a, b), each of more than one iteration, with a before b in `chain` and after it in `order`."""
    place = {loop.name: n for n, loop in enumerate(order)}
    for n, a in enumerate(chain):
        for b in chain[n + 1 :]:
            if place[a.name] > place[b.name] and not _has_one_iteration(a) and not _has_one_iteration(b):
                yield a, b


def _has_one_iteration(loop: For) -> bool:
    return loop.extent.is_one


def _need_independent(func: PrimFunc, above, chain: list[For], order: list[For], swapped: list[tuple[For, For]]) -> None:
    """Refuse unless all dependent instances keep their order.

    Two instances change their order exactly if, for some (a, b) in `swapped`, the first has the smaller a and the larger b. They
    agree in the loops before a in the old order, and before b in the new one.
    """
    if not swapped:
        return
    body = chain[-1].body
    parts = units(body)
    around = loops_in(above[:-1])
    below = loops(body)
    relations = [(a, b, _relation(a, b, chain, order)) for a, b in swapped]
    for unit in parts:
        if isinstance(unit.stmt, Block):
            _block_keeps_order(unit, unit.stmt, around, chain, below, relations)
    for n, m, pairs in conflicts(local_buffers(body), parts):
        instances = Instances(around, chain, below, [x.indices for pair in pairs for x in pair])
        for (x, y), (a, b, relation) in product(pairs, relations):
            # Either access may be the first instance.
            mirrored = {k: {LESS: GREATER, GREATER: LESS}.get(v, v) for k, v in relation.items()}
            if not all(instances.distinct(x.indices, y.indices, r) for r in (relation, mirrored)):
                raise ScheduleError(
                    f"cannot prove that no dependence through `{x.buffer.name}` runs against the new order of "
                    f"`{a.name}` and `{b.name}`",
                    (a, "outer loop now"),
                    (b, "would come outside it"),
                    *conflict_marks(parts[n], parts[m], x, y),
                    hint=f"leave `{b.name}` inside `{a.name}`",
                )


def _relation(a: For, b: For, chain: list[For], order: list[For]) -> dict[str, str]:
    """By loop: the relation of two instances that swapping `a` and `b` reorders."""
    relation = dict.fromkeys((x.name for x in chain), ANY)
    for nest_loops, end in ((chain, a), (order, b)):
        names = [x.name for x in nest_loops]
        relation |= dict.fromkeys(names[: names.index(end.name)], SAME)
    return {**relation, a.name: LESS, b.name: GREATER}


def _block_keeps_order(unit: Unit, block: Block, around: list[For], chain: list[For], below: list[For], relations) -> None:
    chained = {loop.name: loop for loop in chain}
    moved = {loop.name for a, b, _ in relations for loop in (a, b)}
    for it in block.iters:
        if it.axis is Axis.OPAQUE:
            driving = sorted(variables(it.binding) & moved)
            if driving:
                raise ScheduleError(
                    f"the axis `{it.var.name}` of block `{block.name}` is opaque, and {listing(driving)} would change its order",
                    (chained[driving[0]], "drives an opaque axis"),
                    (block, "its block"),
                    hint=in_any_order(it),
                )
    if block.init is None:
        return
    reduces = block.reduction
    ranges = ranges_of([*around, *chain, *below])
    # A loop counts for the reduction if any step of it makes some reduction axis nonzero.
    counting: dict[str, bool] = {}
    for name in moved:
        later = {**ranges, name: (1, ranges[name][1])}
        counting[name] = any(name in variables(it.binding) and (bounds(it.binding, later)[0] or 0) >= 1 for it in reduces)
    place = spatial_bindings(block, unit.env)
    instances: Instances | None = None
    for a, b, relation in relations:
        if counting[a.name] and counting[b.name]:
            continue
        instances = instances or Instances(around, chain, below, [place])
        if not instances.distinct(place, place, relation):
            raise ScheduleError(
                f"cannot prove that reduction `{block.name}` still starts with its init once `{b.name}` is outside `{a.name}`",
                (a, "outer loop now"),
                (b, "would come outside it"),
                (block, "runs its init where all reduce axes are 0"),
                hint="decompose_reduction first, or reorder before the loops are fused",
            )
