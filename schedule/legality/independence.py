"""Independence of the iterations of a loop: threads or lanes may run them in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tir.analysis.conflicts import Conflict, first_conflict, within
from tir.analysis.context import Access, Context, accesses
from tir.analysis.dependence import (
    GREATER,
    LESS,
    Indices,
    Instances,
    Unit,
    conflict_marks,
    conflicts,
    local_buffers,
    spatial_bindings,
    units,
)
from tir.analysis.program_points import constant_extents
from tir.arith.injectivity import tried_injective
from tir.arith.polynomial import polynomial, to_expr
from tir.ir import NOT_SPATIAL, NOTHING, Axis, Block, For, Kind, Stmt, Store, Var, conjuncts
from tir.traverse import axis_loops, has_foreign_calls, loops, loops_in, perfect_nest, stores, substitute, variables

from ..error import ScheduleError
from ..primitive import KIND_WORDS, last_loop
from .iter_map import limited_sums
from .requirements import in_any_order

MAX_ENUMERATED_POINTS = 1 << 20  # instances


def need_markable(loop: For, kind: Kind, *others: Kind) -> None:
    """Refuse a loop that is neither serial nor of `kind` or one of `others`."""
    if loop.kind not in (Kind.SERIAL, kind, *others):
        reason = f"`{loop.name}` is already {KIND_WORDS[loop.kind]}"
        raise ScheduleError(reason, (loop, KIND_WORDS[loop.kind]), hint=f"serial({loop.name!r}) takes the mark away")


def need_no_lanes(above: list[Stmt], hint: str) -> None:
    """Refuse the last loop of a path where a loop around it is vectorized."""
    *outside, loop = loops_in(above)
    around = next((s for s in outside if s.kind is Kind.VECTORIZED), None)
    if around is not None:
        reason = f"`{loop.name}` is inside the vectorized loop `{around.name}`"
        raise ScheduleError(reason, (around, "vectorized"), (loop, "inside it"), hint=hint)


def independent_iterations(above: list[Stmt], how: str, private: Callable[[], set[str]] = set) -> None:
    """Refuse the last loop of a path unless its iterations are independent; `how` is a participle: `vectorized`.

    `private` gives the buffers that each iteration has its own copy of; it is called only if all else fails.
    """
    loop = last_loop(above)
    if loop.extent.is_one or _has_disjoint_iterations(above):
        return
    around = loops_in(above[:-1])
    below = loops(loop.body)
    parts = units(loop.body)
    local = local_buffers(loop.body)
    private = cache(private)
    clashes = [(parts[n], parts[m], x, y) for n, m, pairs in conflicts(local, parts) for x, y in pairs]
    places = [spatial_bindings(u.stmt, u.env) if isinstance(u.stmt, Block) else () for u in parts]
    instances = Instances(around, [loop], below, [*places, *(a.indices for _, _, x, y in clashes for a in (x, y))])
    for unit, place in zip(parts, places, strict=True):
        if isinstance(unit.stmt, Block):
            _need_spatial_block(unit, place, loop, instances, lambda: local | private(), how)
    for first, second, x, y in clashes:
        for relation in (LESS,) if x is y else (LESS, GREATER):
            if not instances.distinct(x.indices, y.indices, {loop.name: relation}) and x.buffer.name not in private():
                raise _race(loop, first, second, x, y, instances, how)


def _stated_apart(unit: Unit, loop: For, instances: Instances) -> bool:
    """True where the stated write regions of a block are disjoint in any two iterations of the loop."""
    block = unit.stmt
    assert isinstance(block, Block) and block.writes is not None
    places = {it.var.name: substitute(it.binding, unit.env) for it in block.iters}
    for region in block.writes:
        within = [For(Var(f"{region.buffer.name}.{n}", r.extent.dtype), r.extent, NOTHING) for n, r in enumerate(region.ranges)]
        element = tuple(substitute(r.min, places) + x.var for r, x in zip(region.ranges, within, strict=True))
        pairs = Instances(instances.around, [loop], [*instances.below_loops, *within], [element])
        if not pairs.distinct(element, element, {loop.name: LESS}):
            return False
    return True


def _need_spatial_block(
    unit: Unit, place: Indices, loop: For, instances: Instances, own: Callable[[], set[str]], how: str
) -> None:
    """Refuse unless iterations of the loop run different spatial instances of the block, or write only their `own` buffers."""
    block = unit.stmt
    assert isinstance(block, Block)
    for it in block.iters:
        if it.axis is not Axis.SPATIAL and loop.name in variables(it.binding):
            if it.axis is Axis.REDUCE:
                word, note = "reduction", "accumulates over it"
                hint = f"rfactor({loop.name!r}, 0) gives each iteration its own partial result"
                if how == "vectorized":
                    hint = "reorder a spatial loop to the inside and vectorize that, or rfactor this one"
            else:
                word, note, hint = "opaque", "needs the order of its iterations", in_any_order(it)
            raise ScheduleError(
                f"`{loop.name}` drives the {word} axis `{it.var.name}` of `{block.name}`, so its iterations depend on each other",
                (loop, f"cannot be {how}"),
                (block, note),
                hint=hint,
            )
    distinct = instances.distinct(place, place, {loop.name: LESS}) or _distinct_within_guards(unit, place, loop, instances)
    same = {
        n.buffer.name
        for n, at in accesses(block, Context(bindings=unit.env))
        if type(n) is Store and loop.name not in variables(*map(at.closed, (*n.indices, *at.conditions, *at.otherwise)))
    }  # of a condition on the loop: one iteration may do it
    if distinct and block.writes is not None and has_foreign_calls(block.body) and _stated_apart(unit, loop, instances):
        return
    left = same if distinct else {a.buffer.name for a in unit.accesses}
    written = [a for a in unit.accesses if a.is_store and a.buffer.name in left and a.buffer.name not in own()]
    if not written:
        return
    if distinct or loop.name not in variables(*place):
        note, hint = f"does not depend on `{loop.name}`", f"choose a loop that drives a spatial axis of `{block.name}`"
        if distinct:
            note, hint = f"its spatial axes do, what it writes does not depend on `{loop.name}`", "make a block that verifies"
        raise ScheduleError(
            f"every iteration of `{loop.name}` writes the same elements of `{written[0].buffer.name}`",
            (loop, f"cannot be {how}"),
            (block, note),
            hint=f"{hint}, or compute the block outside this loop",
        )
    raise _race(loop, unit, unit, written[0], written[0], instances, how)


def _distinct_within_guards(unit: Unit, place: Indices, loop: For, instances: Instances) -> bool:
    """True if instances in different iterations differ in a spatial axis, each limited sum (`limited_sums`) as one number."""
    block, names = unit.stmt, {x.name for x in instances.below_loops}
    assert isinstance(block, Block)
    conditions = conjuncts(substitute(block.predicate, unit.env))
    places, limited, _ = limited_sums([polynomial(e) for e in place], conditions, names)
    whole = tuple(map(to_expr, places))
    below = [*instances.below_loops, *(number for number, _ in limited)]
    return bool(limited) and Instances(instances.around, [loop], below, [whole]).distinct(whole, whole, {loop.name: LESS})


def _race(loop: For, first: Unit, second: Unit, x: Access, y: Access, instances: Instances, how: str) -> ScheduleError:
    def witness() -> str | None:
        placed = [within(a, [loop, *instances.below_loops], instances.around) for a in (x, y)]
        found = first_conflict(placed, constant_extents(placed[0].loops[:1]), {outer.name: 1 for outer in instances.around})
        if not isinstance(found, Conflict):
            return None
        i, j, element = found.first[loop.name], found.second[loop.name], found.access.at(found.element)
        if found.access.is_store:
            return f"{loop.name} = {min(i, j)} and {loop.name} = {max(i, j)} both write {element}"
        (i, verb), (j, other) = sorted([(i, "writes"), (j, found.access.verb)])
        return f"{loop.name} = {i} {verb} {element}, {loop.name} = {j} {other} it"

    return ScheduleError(
        f"cannot prove that different iterations of `{loop.name}` touch different elements of `{x.buffer.name}`",
        (loop, f"cannot be {how}"),
        *conflict_marks(first, second, x, y),
        witness=witness,
        hint="choose another loop, or put the two into loops of their own",
    )


def _has_disjoint_iterations(path: list[Stmt]) -> bool:
    """True if the last loop of a path holds one block, whose instances in different iterations differ in a spatial axis.

    All store indices use the axes that the loop drives. Instances are enumerated: fused and split loops are beyond algebra."""
    loop = last_loop(path)
    chain, inner = perfect_nest(loop)
    if type(inner) is not Block or loop.name in axis_loops(inner, *NOT_SPATIAL):
        return False
    driven = {it.var.name for it in inner.iters if loop.name in variables(it.binding)}
    if not all(driven <= variables(*s.indices) for s in stores(inner)):
        return False
    below = {x.name for x in chain}
    places = [it.binding for it in inner.spatial]
    return tried_injective({loop.name}, below, places, (*loops_in(path), *chain), MAX_ENUMERATED_POINTS)
