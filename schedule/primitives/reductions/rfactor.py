"""rfactor: a reduction becomes partial reductions, and a reduction of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import TRUE, Expr, Select, Var, all_zero, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import For, Stmt, guarded, seq
from tir.traverse import axis_loops, substitute, variables

from ...error import ScheduleError, listing
from ...legality.axis_windows import need_distinct
from ...legality.dataflow import Leaf, locate
from ...legality.iter_map import proving
from ...legality.reducer import Reduction, reducer_of
from ...legality.requirements import drives_both, need_complete, need_whole_reduction
from ...primitive import DEPENDENT_EXTENT_HINT, LoopName, blocks_below, find_loop, primitive
from ...rewriting.clones import in_own_loops
from ...rewriting.edits import Insertion, Names, edited, with_buffer


@dataclass(frozen=True, slots=True)
class Factorisation:
    """A reduction over the loops `chain`, within `outer`, to be factored over `target`.

    `places` are the elements of the partial results, `lane` is the axis that numbers them, and `lets` hold several values that
    are stored at once."""

    block: Block
    target: For
    chain: Sequence[For]
    outer: Sequence[For]
    reducer: Reduction
    places: tuple[Load, ...]
    lane: Var
    lets: tuple[Var, ...]


@primitive
def rfactor(func: PrimFunc, loop: LoopName, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Factor a reduction over a loop into partial results and their reduction; returns the name of the block of partial results.

    The partial results, one for each iteration of `loop`, are kept in a buffer with one more dimension. Its number is
    `factor_axis`; negative ones count from the end. Buffer and block of partial results are called `C_rf`; the block that reduces
    them keeps its name. Source: Suriana, Adams and Kamil, Parallel associative reductions in Halide, CGO 2017.

    Rewrite   for i: for k0: for k1: C[i] = C[i] + f(i, k0 * 4 + k1)               # from 0
           => for i: for k0: for k1: C_rf[k0, i] = C_rf[k0, i] + f(i, k0 * 4 + k1)  # from 0, k0 spatial
              for i: for k0:         C[i] = C[i] + C_rf[k0, i]                      # from 0
    Legal     if the only block below the loop is a reduction with its init, complete in one iteration of the enclosing block. Let
              L be the loops around it that hold nothing else. `loop` drives the reduction or is of extent 1. It is in L, and so
              are all others (of extent above 1) that drive the reduction. Other writers of C thus run before or after both nests.
              None of them drives spatial axes as well, and L visits each point once. The extent of `loop` depends on no other
              loop. No condition concerns both the reduction and loops of other axes. The operation is +, *, min, max, and, or
              with its identity as init, or a reducer of several values. Trials on numbers must not refute that the latter is
              associative (commutative, too, if the order changes), with its init as identity. Floating results differ by
              rounding.
    Example   rows: s.rfactor("k", 0)
    """
    target = find_loop(func, loop)
    block = _only_block(target)
    scope, leaf = locate(func, block.name)
    if not block.is_reduction or block.init is None:
        hint = "rfactor before decompose_reduction" if block.is_reduction else "only what a block adds up can be factored"
        raise ScheduleError(f"`{block.name}` is not a reduction with its init", (block, "the block"), hint=hint)
    need_complete(scope, leaf, "factored")
    need_whole_reduction(scope, leaf, "its partial results are")
    chain = _need_own_nest(leaf, target, _need_reduction_loop(leaf, target))
    if variables(target.extent) - {v.name for v in func.sizes}:
        raise ScheduleError(
            f"the extent of `{loop}` depends on other loops", (target, f"runs over {target.extent}"), hint=DEPENDENT_EXTENT_HINT
        )
    reducer = reducer_of(block, not _keeps_order(block, target, chain))
    axis = _axis_number(block, factor_axis, len(reducer.outputs[0].indices))

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
    kept = {it.var.name for it in block.iters if it.axis is Axis.SPATIAL or target.name not in variables(it.binding)}
    lane = Var(names.axis(f"v_{loop}", kept), target.var.dtype)
    places = tuple(Load(b, (*o.indices[:axis], lane, *o.indices[axis:])) for b, o in zip(partial, reducer.outputs, strict=True))
    lets = tuple(Var(names.loop(f"v_{b.name}"), b.dtype) for b in partial) if len(partial) > 1 else ()
    factoring = Factorisation(block, target, chain, leaf.inside(chain), reducer, places, lane, lets)
    factored = _factored(factoring, names)
    new = edited(func, [(block, factored)], Insertion(chain[0], 1, _combining(factoring, names)))
    for b in partial:
        new = with_buffer(new, scope.block, b)
    return new, factored.name


def _only_block(target: For) -> Block:
    """The only block below a loop; refuses any other number."""
    below = blocks_below(target.body)
    if len(below) != 1:
        raise ScheduleError(
            f"`{target.name}` must have one block below it, not {listing(b.name for b in below)}",
            (target, "the loop"),
            *((b, "below") for b in below),
            hint="choose a loop further inside, and rfactor before decompose_reduction",
        )
    return below[0]


def _need_reduction_loop(leaf: Leaf, target: For) -> set[str]:
    """The loops that drive the reduction; refuses unless `target` is one, or of extent 1, and none drives spatial axes, too."""
    block = leaf.block
    placing, reducing = axis_loops(block, Axis.SPATIAL), axis_loops(block, Axis.REDUCE)
    if (target.name not in reducing and not target.extent.is_one) or target.name in placing:
        what = "drives spatial axes" if target.name in placing else "drives nothing"
        others = [x.name for x in leaf.loops if x.name in reducing - placing]
        raise ScheduleError(
            f"`{target.name}` {what} of `{block.name}`, not its reduction alone",
            (target, what),
            (block, "the block"),
            hint=f"loops of the reduction are {listing(others)}" if others else "rfactor before the loops are fused",
        )
    mixed = next((x for x in leaf.loops if x.name in reducing & placing), None)
    if mixed is not None:
        raise drives_both(block, mixed, "rfactor")
    return reducing


def _need_own_nest(leaf: Leaf, target: For, reducing: set[str]) -> Sequence[For]:
    """The loops that hold only the block, outermost first; refuses unless they visit each point once and include `target` and all
    loops of the reduction."""
    block = leaf.block
    chain, outer = leaf.exclusive_loops, leaf.loops[: len(leaf.loops) - len(leaf.exclusive_loops)]
    if not any(x is target for x in chain):
        raise ScheduleError(
            f"`{block.name}` is not alone below `{target.name}`",
            (target, "the loop"),
            (block, "the block"),
            hint="move what else the loop holds out of it, or choose a loop further inside",
        )
    above = next((x for x in outer if x.name in reducing and not x.extent.is_one), None)
    if above is not None:
        raise ScheduleError(
            f"`{above.name}` drives the reduction, and has more below it than `{block.name}`",
            (above, "drives the reduction"),
            (block, "the block"),
            hint=f"move what else it holds out of `{above.name}` first",
        )
    with proving(f"that `{block.name}` visits each of its points once", (block, "the block")):
        need_distinct(block, chain)
    return chain


def _axis_number(block: Block, factor_axis: int, rank: int) -> int:
    """The number, from the front, of the new dimension of a result of a rank."""
    axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
    if not 0 <= axis <= rank:
        raise ScheduleError(
            f"factor_axis must be from {-rank - 1} to {rank} for a result of rank {rank}, got {factor_axis}", (block, "the block")
        )
    return axis


def _keeps_order(block: Block, target: For, chain: Sequence[For]) -> bool:
    """True where the partial results, one after another, combine the terms in the order of the reduction."""
    reducing = [x for x in chain if x.name in axis_loops(block, Axis.REDUCE) and not x.extent.is_one]
    return target.extent.is_one or (bool(reducing) and reducing[0] is target)


def _replaced_axes(f: Factorisation, names: Names) -> tuple[tuple[Iter, ...], dict[str, Expr], dict[str, Expr]]:
    """The axes of the partial results, the new ones by loop, and the values of the replaced axes.

    Reduction axes that share loops with `target` are replaced by an axis for each loop."""
    reduces = f.block.reduction
    loops = {f.target.name}
    for _ in reduces:  # each may add loops that others share
        loops = loops.union(*(variables(it.binding) for it in reduces if variables(it.binding) & loops))
    gone = [it for it in reduces if variables(it.binding) & loops]
    fresh: dict[str, Expr] = {f.target.name: f.lane}
    iters = [it for it in f.block.iters if it not in gone]
    iters.append(Iter(f.lane, f.target.extent, Axis.SPATIAL, f.target.var))
    for x in f.chain:
        if x.name in loops and x is not f.target:
            v = Var(names.axis(f"v_{x.name}", {it.var.name for it in iters}), x.var.dtype)
            fresh[x.name] = v
            iters.append(Iter(v, x.extent, Axis.REDUCE, x.var))
    return tuple(iters), fresh, {it.var.name: substitute(it.binding, fresh) for it in gone}


def _divided_predicate(f: Factorisation, fresh: dict[str, Expr]) -> tuple[Expr, Expr]:
    """The predicate of the block of partial results, and the guard of its updates alone.

    The init must run for every partial result, so no condition that could exclude its first step may be in the predicate."""
    ranges = ranges_of(f.chain)
    others = [x for x in f.chain if x.name in axis_loops(f.block, Axis.REDUCE) and x is not f.target]
    rest = all_zero(x.var for x in others)
    # A guard is inside of the block, where axes are visible, but no loops.
    fixed = {it.binding.name: it.var for it in f.block.spatial if type(it.binding) is Var}
    seen = {x.name: fixed[x.name] for x in f.outer if x.name in fixed} | fresh
    unseen = {x.name for x in (*f.outer, *f.chain)} - seen.keys()
    kept, guards = [], []
    for c in conjuncts(f.block.predicate):
        reducing = variables(c) & {f.target.name, *rest}
        if not reducing or prove(substitute(c, rest), ranges):
            kept.append(c)
        elif not variables(c) & unseen:
            guards.append(substitute(c, seen))
        else:
            raise ScheduleError(
                f"the condition `{c}` of `{f.block.name}` concerns the reduction and other axes together",
                (f.block, "the block"),
                hint="split by factors that divide the extents, or peel the loop first",
            )
    return conjunction(*kept), conjunction(*guards)


def _factored(f: Factorisation, names: Names) -> Block:
    reducer, places = f.reducer, f.places
    iters, fresh, values = _replaced_axes(f, names)
    predicate, guard = _divided_predicate(f, fresh)
    sources = tuple(substitute(s, values) for s in reducer.sources)
    condition = TRUE if reducer.condition is None else substitute(reducer.condition, values)
    init: Stmt | None = seq(*(reducer.store((p,), [i], ()) for p, i in zip(places, reducer.identities, strict=True)))
    if any(it.axis is Axis.REDUCE for it in iters):
        updated = reducer.combine(places, sources)
        if condition != TRUE:
            updated = [Select(condition, v, p, lazy=True) for v, p in zip(updated, places, strict=True)]
        body = guarded(guard, reducer.store(places, updated, f.lets))
    else:
        init = None
        both = conjunction(guard, condition)
        given: list[Expr] = list(sources)
        if both != TRUE:
            given = [Select(both, s, i, lazy=True) for s, i in zip(sources, reducer.identities, strict=True)]
        body = reducer.store(places, given, f.lets)
    return Block(names.block(f"{f.block.name}_rf"), iters, body, init, predicate, annotations=f.block.annotations)


def _combining(f: Factorisation, names: Names) -> Stmt:
    """The nest that reduces the partial results."""
    block, reducer = f.block, f.reducer
    spatial = block.spatial
    conditions = [c for c in conjuncts(block.predicate) if not variables(c) & axis_loops(block, Axis.REDUCE)]
    lets = tuple(Var(names.loop(v.name), v.dtype) for v in f.lets)
    body = reducer.store(reducer.outputs, reducer.combine(reducer.outputs, f.places), lets)
    iters = (*spatial, Iter(f.lane, f.target.extent, Axis.REDUCE, f.target.var))
    final = Block(block.name, iters, body, block.init, conjunction(*conditions), annotations=block.annotations)
    needed = variables(final.predicate) | axis_loops(final, Axis.SPATIAL, Axis.REDUCE)
    return in_own_loops(final, [x for x in f.chain if x.name in needed], names)
