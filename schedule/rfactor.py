"""rfactor: a reduction becomes partial reductions, and a reduction of their results."""

from __future__ import annotations

from tir.ir import (
    TRUE,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Iter,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Var,
    conjunction,
    conjuncts,
    nest,
    seq,
)
from tir.simplify import prove
from tir.traverse import stores, substitute, variables

from .dataflow import Insertion, Leaf, Names, edited, locate, need_complete, need_only_writer, with_buffer
from .error import ScheduleError, listing
from .loops import ranges_of
from .primitive import blocks_below, path_to_loop, primitive
from .reducer import Reducer, reducer_of
from .window import Unproved, need_distinct


@primitive
def rfactor(func: PrimFunc, loop: str, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Factor a reduction over a loop into partial results and their reduction; returns the name of the block of partial results.

    The partial results, one for each iteration of `loop`, are kept in a buffer with one more dimension, number `factor_axis`
    (negative numbers count from behind). It is called `C_rf`, as is the block that makes them; the block that reduces them
    keeps its name.

    Rewrite   for i: for k0: for k1: C[i] = C[i] + f(i, k0 * 4 + k1)               # from 0
           => for i: for k0: for k1: C_rf[k0, i] = C_rf[k0, i] + f(i, k0 * 4 + k1)  # from 0, k0 spatial
              for i: for k0:         C[i] = C[i] + C_rf[k0, i]                      # from 0
    Legal     if the loop drives a reduction and nothing else, of a block with its init that is alone in writing C and alone under
              the loops down to it from the outermost one that has nothing else below; and the operation is recognised: +, *,
              min, max, and, or with its identity as init, or a reducer of several values, taken to be one if small numbers
              don't refute it. Floating results differ by rounding.
    Example   rows: s.rfactor("k", 0)
    """
    path = path_to_loop(func, loop)
    target: For = path[-1]  # type: ignore[assignment]
    below = blocks_below(target.body)
    if len(below) != 1:
        raise ScheduleError(
            f"`{loop}` must have one block below it, not {listing(b.name for b in below)}",
            (target, "the loop"),
            *((b, "below") for b in below),
        )
    block = below[0]
    scope, leaf = locate(func, block.name)
    if not block.is_reduction or block.init is None:
        hint = "rfactor before decompose_reduction" if block.is_reduction else None
        raise ScheduleError(f"`{block.name}` is not a reduction with its init", (block, "the block"), hint=hint)
    need_complete(scope, leaf, "factored")
    need_only_writer(scope, leaf, "factored")
    spatial = [it for it in block.iters if it.axis is Axis.SPATIAL]
    reduces = [it for it in block.iters if it.axis is Axis.REDUCE]
    placing = set().union(*(variables(it.binding) for it in spatial), set())
    driving = set().union(*(variables(it.binding) for it in reduces), set())
    if loop not in driving or loop in placing:
        what = "drives spatial axes" if loop in placing else "drives nothing"
        raise ScheduleError(f"`{loop}` {what} of `{block.name}`, not its reduction alone", (target, what), (block, "the block"))
    mixed = next((x for x in leaf.loops if x.name in driving & placing), None)
    if mixed is not None:
        raise ScheduleError(
            f"`{mixed.name}` drives the reduction and spatial axes of `{block.name}`",
            (mixed, "drives both"),
            (block, "the block"),
        )
    chain, outer = _chain(leaf)
    if not any(x is target for x in chain):
        raise ScheduleError(f"`{block.name}` is not alone below `{loop}`", (target, "the loop"), (block, "the block"))
    above = next((x for x in outer if x.name in driving and x.extent != Const(1, x.extent.dtype)), None)
    if above is not None:
        raise ScheduleError(
            f"`{above.name}` drives the reduction, and has more below it than `{block.name}`",
            (above, "drives the reduction"),
            (block, "the block"),
        )
    try:
        need_distinct(block, chain, outer)
    except Unproved as reason:
        raise ScheduleError(
            f"it cannot be shown that `{block.name}` visits each of its points once: {reason}", (block, "the block")
        ) from None
    rank = len(stores(block.body)[0].indices)
    axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
    if not 0 <= axis <= rank:
        raise ScheduleError(
            f"factor_axis must be from {-rank - 1} to {rank} for a result of rank {rank}, got {factor_axis}", (block, "the block")
        )
    if any(x.name in variables(target.extent) for x in chain):
        raise ScheduleError(f"the extent of `{loop}` depends on other loops", (target, f"runs over {target.extent}"))
    reducer = reducer_of(block, not _keeps_order(reduces, target, chain))

    names = Names.of(func)
    partial = tuple(
        Buffer(
            names.buffer(f"{o.buffer.name}_rf"),
            (*o.buffer.shape[:axis], target.extent, *o.buffer.shape[axis:]),
            o.dtype,
            o.buffer.scope,
        )
        for o in reducer.outputs
    )
    lane = Var(names.axis(f"v_{loop}"), target.var.dtype)
    places = tuple(Load(b, (*o.indices[:axis], lane, *o.indices[axis:])) for b, o in zip(partial, reducer.outputs, strict=True))
    lets = tuple(Var(names.loop(f"v_{b.name}"), b.dtype) for b in partial) if len(partial) > 1 else ()
    factored = _factored(block, target, chain, reducer, places, lane, lets, names)
    placed = _combining(block, target, chain, reducer, places, lane, lets, names)
    new = edited(func, [(block, factored)], Insertion(chain[0], 1, placed))
    for b in partial:
        new = with_buffer(new, scope, b)
    return new, factored.name


def _chain(leaf: Leaf) -> tuple[list[For], list[For]]:
    """The loops that have nothing but the block below, outermost first, and those outside of them."""
    inner: list[For] = []
    for s in reversed(leaf.above):
        if type(s) is not For:
            break
        inner.append(s)
    return inner[::-1], list(leaf.loops[: len(leaf.loops) - len(inner)])


def _keeps_order(reduces: list[Iter], target: For, chain: list[For]) -> bool:
    """Whether the partial results, one after another, take the elements in the order in which the reduction took them."""
    driving = [
        x for x in chain if any(x.name in variables(it.binding) for it in reduces) and x.extent != Const(1, x.extent.dtype)
    ]
    return bool(driving) and driving[0] is target


def _factored(
    block: Block,
    target: For,
    chain: list[For],
    reducer: Reducer,
    places: tuple[Load, ...],
    lane: Var,
    lets: tuple[Var, ...],
    names: Names,
) -> Block:
    """The block of partial results: the axes that the loop drives are replaced by the loops that drive them."""
    touched = [it for it in block.iters if it.axis is Axis.REDUCE and target.name in variables(it.binding)]
    found = {target.name}
    while True:  # all axes that share loops with the factored ones
        loops = set().union(*(variables(it.binding) for it in touched))
        more = [it for it in block.iters if it.axis is Axis.REDUCE and it not in touched and variables(it.binding) & loops]
        if not more:
            break
        touched += more
    found |= loops
    fresh: dict[str, Expr] = {target.name: lane}
    iters = [it for it in block.iters if it not in touched]
    iters.append(Iter(lane, target.extent, Axis.SPATIAL, target.var))
    for x in chain:
        if x.name in found and x is not target:
            v = Var(names.axis(f"v_{x.name}"), x.var.dtype)
            fresh[x.name] = v
            iters.append(Iter(v, x.extent, Axis.REDUCE, x.var))
    values = {it.var.name: substitute(it.binding, fresh) for it in touched}
    sources = [substitute(s, values) for s in reducer.sources]

    # Init must run for every partial result: conditions that could exclude its first instance guard the update alone.
    ranges = ranges_of(chain)
    rest = {
        x.name: Const(0, x.var.dtype)
        for x in chain
        if any(it.axis is Axis.REDUCE and x.name in variables(it.binding) for it in block.iters)
    }
    del rest[target.name]
    kept, guards = [], []
    for c in conjuncts(block.predicate):
        reducing = variables(c) & {target.name, *rest}
        if not reducing or prove(substitute(c, rest), ranges):  # type: ignore[arg-type]
            kept.append(c)
        elif variables(c) & {x.name for x in chain} <= set(fresh):
            guards.append(substitute(c, fresh))
        else:
            raise ScheduleError(
                f"the condition `{c}` of `{block.name}` concerns the reduction and other axes together", (block, "the block")
            )
    guard = conjunction(*guards)  # type: ignore[arg-type]
    condition = TRUE if reducer.condition is None else substitute(reducer.condition, values)

    init: Stmt | None = seq(*(reducer.store((p,), [i], ()) for p, i in zip(places, reducer.identities, strict=True)))
    if any(it.axis is Axis.REDUCE for it in iters):
        updated = reducer.combine(places, tuple(sources))  # type: ignore[arg-type]
        if condition != TRUE:
            updated = [Select(condition, v, p, lazy=True) for v, p in zip(updated, places, strict=True)]  # type: ignore[arg-type]
        body = reducer.store(places, updated, lets)
        body = body if guard == TRUE else If(guard, body)
    else:
        init = None
        both = conjunction(guard, condition)  # type: ignore[arg-type]
        given = (
            sources if both == TRUE else [Select(both, s, i, lazy=True) for s, i in zip(sources, reducer.identities, strict=True)]
        )  # type: ignore[arg-type]
        body = reducer.store(places, given, lets)  # type: ignore[arg-type]
    return Block(names.block(f"{block.name}_rf"), tuple(iters), body, init, conjunction(*kept), annotations=block.annotations)


def _combining(
    block: Block,
    target: For,
    chain: list[For],
    reducer: Reducer,
    places: tuple[Load, ...],
    lane: Var,
    lets: tuple[Var, ...],
    names: Names,
) -> Stmt:
    """The nest that reduces the partial results."""
    spatial = [it for it in block.iters if it.axis is Axis.SPATIAL]
    driving = set().union(*(variables(it.binding) for it in block.iters if it.axis is Axis.REDUCE))
    conditions = [c for c in conjuncts(block.predicate) if not variables(c) & driving]
    needed = set().union(*(variables(it.binding) for it in spatial), *(variables(c) for c in conditions), {target.name})
    kept = [x for x in chain if x.name in needed]
    mapping: dict[str, Expr] = {x.name: Var(names.loop(x.name), x.var.dtype) for x in kept}
    iters = [it.with_(binding=substitute(it.binding, mapping)) for it in spatial]
    iters.append(Iter(lane, target.extent, Axis.REDUCE, mapping[target.name]))
    lets = tuple(Var(names.loop(v.name), v.dtype) for v in lets)
    body = reducer.store(reducer.outputs, reducer.combine(reducer.outputs, places), lets)
    predicate = substitute(conjunction(*conditions), mapping)
    final = Block(block.name, tuple(iters), body, block.init, predicate, annotations=block.annotations)  # type: ignore[arg-type]
    loops = [x.with_(var=mapping[x.name], extent=substitute(x.extent, mapping)) for x in kept]
    return nest(loops, final)
