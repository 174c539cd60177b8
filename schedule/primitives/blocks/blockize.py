"""blockize: a nest becomes the body of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Interval
from tir.arith.polynomial import Polynomial, add, polynomial, scale, split_terms, to_expr
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.assumptions import assumptions
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Region
from tir.ir.expressions import TRUE, Binary, Const, Expr, Var, all_zero, cast, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import For, If, Seq, Stmt, nest, seq
from tir.traverse import axis_loops, blocks, perfect_nest, substitute, variables

from ...error import ScheduleError, listing
from ...legality.axis_windows import need_distinct
from ...legality.dataflow import shared
from ...legality.independence import independent_iterations
from ...legality.iter_map import proving
from ...legality.requirements import need_iterations, need_loops_for_init, need_no_threads, need_start_at_0, updated_reads
from ...primitive import (
    DEPENDENT_EXTENT_HINT,
    BlockName,
    LoopName,
    block_at,
    blocks_below,
    loop_at,
    loops_on,
    primitive,
    replace_path,
)
from ...rewriting.clones import in_own_loops, init_block
from ...rewriting.edits import Names, edited, statements_of
from ...rewriting.loops import substitute_loops


@dataclass(frozen=True, slots=True)
class BindingSplit:
    """A binding as `outer * size + inner`, 0 <= inner < size: `outer` over the loops outside, `inner` over those inside."""

    outer: Expr
    inner: Expr
    size: Expr


@dataclass(frozen=True, slots=True)
class TileNest:
    """A block in perfectly nested loops: those of the tile, and those outside; with the ranges of all."""

    block: Block
    outer: Sequence[For]
    inner: Sequence[For]
    ranges: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class SplitAxes:
    """The iteration variables of the blocks outside and inside; by old variable, the outer one (if any), and its value."""

    outside: tuple[Iter, ...]
    inside: tuple[Iter, ...]
    places: dict[str, Var]
    mapping: dict[str, Expr]


@primitive
def blockize(func: PrimFunc, target: LoopName | list[BlockName], preserve_unit_iters: bool = True) -> tuple[PrimFunc, str]:
    """Make the nest at a loop the body of a new block; returns its name, the inner block's with `_o` added.

    The target may also be a list of blocks, held by statements below their innermost common loop. These become the body of
    `outer_B_C_`, whose iteration variables are the loops around that they use.

    The iteration variables `v` of the block become `v_o` outside and `v_i` inside. The init of a reduction moves to the new
    block, over the whole tile. Iteration variables of one value are left out unless `preserve_unit_iters`. If no reduction axis
    is left outside, the init stays inside. Source: TensorIR, ASPLOS 2023, section 3.2.

    Rewrite   for i_0: for i_1 in range(f): with T.block("B"): v = i_0 * f + i_1; S(v)
           => for i_0:
                  with T.block("B_o"):
                      v_o = i_0
                      for i_1 in range(f): with T.block("B"): v_i = i_1; S(v_o * f + v_i)
    Legal     if the loop holds nothing but perfectly nested loops and one block. Each binding is `outer * f + inner` over the
              loops outside and those inside, 0 <= inner < f. No extent inside depends on the loops outside, and a condition on
              both concerns one axis only. If an init moves outside, each loop inside drives spatial or reduction axes, not both;
              in the latter case it is bound to no thread. These loops visit each point once, and the reduction starts where
              they start.
              Several blocks: they stand in neighbouring statements that hold no others. No loop around that is bound to a thread,
              or that may have no iterations, drives a reduction with its init. No extent of the loops that they use depends on
              another loop around. An iteration variable is spatial if the iterations of its loop, and of the used loops around
              it, are independent, as for `parallel`. Else it is opaque.
    Example   matmul: s.blockize("k")
    """
    if isinstance(target, list):
        return _around_blocks(func, target, preserve_unit_iters)
    _, above = loop_at(func, target)
    tile = _tile_nest(above)
    divisions = {it.var.name: _division(it, tile) for it in tile.block.iters}
    names = Names.of(func)
    around = [s for s in above if type(s) is Block]
    visible = {it.var.name for b in (*around, *blocks(tile.block.body)) if b is not tile.block for it in b.iters}
    axes = _split_axes(tile, divisions, preserve_unit_iters, names, visible)
    outer_conditions, inner_conditions = _split_predicate(tile, divisions, axes)
    # A reduction that the tile completes keeps its init.
    split_init = tile.block.init is not None and any(x.axis is Axis.REDUCE for x in axes.outside)
    first: dict[str, Expr] | None = None
    if split_init:
        _need_one_start(tile)
        first = _need_first(tile, divisions, axes)

    block = tile.block
    new = substitute_loops(block.with_(iters=(), predicate=TRUE, init=None if split_init else block.init), axes.mapping, ())
    new = new.with_(
        iters=axes.inside,
        predicate=conjunction(*inner_conditions),
        reads=_substituted(updated_reads(block) if split_init else block.reads, axes.mapping),
        writes=_substituted(block.writes, axes.mapping),
    )
    init = None if first is None else _tile_init(tile, axes, first, inner_conditions, names)
    name = names.block(f"{block.name}_o")
    result = Block(name, axes.outside, nest(tile.inner, new), init, conjunction(*outer_conditions))
    return replace_path(func, above, result), name


def _around_blocks(func: PrimFunc, targets: list[str], preserve_unit_iters: bool) -> tuple[PrimFunc, str]:
    """`func` with a block around the neighbouring statements that hold some blocks, and that block's name."""
    if not targets:
        raise ScheduleError("the list of blocks is empty", hint="give the loop of a nest, or blocks")
    targets = list(dict.fromkeys(targets))
    paths = [block_at(func, name)[1] for name in targets]
    wanted = [p[-1] for p in paths]
    for (*above, _), name in zip(paths, targets, strict=True):
        for holder in (b for b in above if type(b) is Block and b.name in targets):
            raise ScheduleError(f"`{name}` is inside `{holder.name}`", (holder, "in the list, too"), hint="leave one of them out")
    common = paths[0][:-1]
    for p in paths[1:]:
        common = list(shared(common, p))
    if common and type(common[-1]) is If and len(paths) > 1:  # which stands below the loop, with all its branches
        common.pop()
    held = list({id(s): s for s in (p[len(common)] for p in paths)}.values())
    if len(held) > 1 and type(common[-1]) is Block:
        inits = [p[len(common)] is common[-1].init for p in paths]
        starting, computing = (targets[inits.index(x)] for x in (True, False))
        reason = f"`{starting}` is in the init of `{common[-1].name}`, and `{computing}` is not"
        raise ScheduleError(reason, (common[-1], "the block that holds both"), hint="blockize those of the init, or the others")
    around = list(statements_of(common[-1])) if common and type(common[-1]) is Seq else held
    first, last = (f(n for n, s in enumerate(around) if any(s is x for x in held)) for f in (min, max))
    held = around[first : last + 1]
    inside = [b for s in held for b in blocks_below(s)]
    other = next((b for b in inside if not any(b is x for x in wanted)), None)
    if other is not None:
        raise ScheduleError(
            f"`{other.name}` stands among {listing(targets)}, and is not in the list",
            (other, "would be inside, too"),
            hint=f"blockize({[*targets, other.name]}), or move it out",
        )
    for b in inside:
        if b.init is not None:
            need_no_threads(b, loops_on(common), axis_loops(b, Axis.REDUCE))
            need_iterations(b, loops_on(common), ranges_of(common), assumptions(func))
    outer = [x for x in loops_on(common) if x.name in variables(*held)]
    for x in outer:
        if variables(x.extent) & {o.name for o in loops_on(common)}:
            reason = f"the extent of `{x.name}`, which becomes that of an axis, depends on loops outside"
            raise ScheduleError(reason, (x, f"runs over {x.extent}"), hint=DEPENDENT_EXTENT_HINT)
    names = Names.of(func)
    visible = {it.var.name for s in (*common, *held) for b in ([s] if type(s) is Block else blocks(s)) for it in b.iters}
    mapping = all_zero(x.var for x in outer)
    iters: list[Iter] = []
    for x in outer:
        if preserve_unit_iters or not x.extent.is_one:
            var = Var(names.axis(f"v_{x.name}", visible | {it.var.name for it in iters}), x.var.dtype)
            # Independence holds within one iteration of the loops around, so a dependent loop around makes this axis opaque.
            ordered = any(it.axis is Axis.OPAQUE for it in iters)
            axis = Axis.OPAQUE if ordered else _axis_of(common[: common.index(x) + 1])
            iters.append(Iter(var, x.extent, axis, x.var))
            mapping[x.name] = var
    name = names.block(f"outer_{''.join(f'{b.name}_' for b in inside)}")
    result = Block(name, tuple(iters), seq(*(substitute_loops(s, mapping, ()) for s in held)))
    new = seq(*around[:first], result, *around[last + 1 :])
    return edited(func, [(common[-1], new) if common and type(common[-1]) is Seq else (held[0], result)]), name


def _axis_of(above: list[Stmt]) -> Axis:
    """The kind of a new iteration variable driven by the last loop of a path."""
    try:
        independent_iterations(above, "spatial")
    except ScheduleError:
        return Axis.OPAQUE
    return Axis.SPATIAL


def _tile_nest(above: Sequence[Stmt]) -> TileNest:
    """The nest at the end of a path: perfectly nested loops and one block; refuses anything else."""
    inner, block = perfect_nest(above[-1])
    if type(block) is not Block:
        raise ScheduleError(
            f"`{inner[0].name}` must hold one block in perfectly nested loops, and nothing else",
            (inner[0], "the loop"),
            (inner[-1], "holds something else"),
            hint="decompose_reduction or compute_at afterwards, or choose a loop further inside",
        )
    outer = loops_on(above[:-1])
    for x in inner:
        if variables(x.extent) & {o.name for o in outer}:
            reason = f"the extent of `{x.name}`, inside of the block, depends on loops outside"
            raise ScheduleError(reason, (x, f"runs over {x.extent}"), hint=DEPENDENT_EXTENT_HINT)
    around = [s for s in above if type(s) is Block]
    return TileNest(block, outer, inner, ranges_of([*around, *outer, *inner]))


def _split_axes(n: TileNest, divisions: dict[str, BindingSplit], keep_units: bool, names: Names, visible: set[str]) -> SplitAxes:
    outside: list[Iter] = []
    inside: list[Iter] = []
    places: dict[str, Var] = {}
    mapping: dict[str, Expr] = {}
    # A reduction keeps a reduction axis, even of one value.
    last_reduce = next((it for it in reversed(n.block.iters) if it.axis is not Axis.SPATIAL), None)
    for it in n.block.iters:
        d = divisions[it.var.name]
        one = Const(1, it.extent.dtype)
        count = one if d.size == it.extent else simplify((it.extent + (d.size - 1)) // d.size)  # an open extent may be 0
        last = bounds(d.outer, n.ranges)[1]
        if type(count) is Const and last is not None and 0 <= last < count.value:  # loops visit a part of the axis
            count = Const(last + 1, count.dtype)
        taken = visible.union(x.var.name for x in (*outside, *inside))
        o, i = (Var(names.axis(f"{it.var.name}_{end}", taken), it.var.dtype) for end in "oi")
        index: Expr | None = None
        if keep_units or count != one:
            outside.append(Iter(o, count, it.axis, d.outer))
            places[it.var.name] = o
            index = o * d.size if d.size != one else o
        lonely = it is last_reduce and not any(x.axis is not Axis.SPATIAL for x in (*outside, *inside))
        if keep_units or simplify(d.size) != one or lonely:
            inside.append(Iter(i, d.size, it.axis, d.inner))
            index = i if index is None else index + i
        mapping[it.var.name] = Const(0, it.var.dtype) if index is None else index
    return SplitAxes(tuple(outside), tuple(inside), places, mapping)


def _split_predicate(n: TileNest, divisions: dict[str, BindingSplit], axes: SplitAxes) -> tuple[list[Expr], list[Expr]]:
    """The conditions of the block outside, and those of the block inside."""
    inside = {loop.name for loop in n.inner}
    outer_conditions: list[Expr] = []
    inner_conditions: list[Expr] = []
    for c in conjuncts(n.block.predicate):
        if not variables(c) & inside:
            outer_conditions.append(c)
        else:
            inner_conditions.append(_inner_condition(c, n.block, divisions, axes.places, inside))
    for x in axes.outside:
        for within in x.domain:
            if not prove(within, n.ranges, outer_conditions):
                outer_conditions.append(simplify(within))
    return outer_conditions, inner_conditions


def _need_one_start(n: TileNest) -> None:
    """Refuse if the init of the tile could run for a point after its reduction has started."""
    need_no_threads(n.block, n.inner, axis_loops(n.block, Axis.REDUCE))
    what = f"that `{n.block.name}` visits each of its points once under `{n.inner[0].name}`"
    marks = (n.inner[0], "the loop"), (n.block, "starts each of them with its init")
    with proving(what, *marks, hint="decompose_reduction first"):
        # Each point once, over all axes: then no reduction starts again within the tile.
        need_distinct(n.block.with_(iters=tuple(it.with_(axis=Axis.SPATIAL) for it in n.block.iters)), n.inner)


def _substituted(regions: tuple[Region, ...] | None, mapping: dict[str, Expr]) -> tuple[Region, ...] | None:
    return None if regions is None else tuple(substitute(r, mapping) for r in regions)


def _division(it: Iter, n: TileNest) -> BindingSplit:
    """The binding of an iteration variable as a tile number and a place in the tile."""
    inside = {loop.name for loop in n.inner}
    dtype = it.binding.dtype
    here, there = split_terms(polynomial(it.binding), inside)
    mixed = next((a for m in here for a in m if not isinstance(a, Var) and variables(a) - inside), None)
    if mixed is None:
        mixed = next((to_expr({m: 1}) for m in here if len({a for a in m if variables(a) <= inside}) < len(set(m))), None)
    if mixed is not None:
        raise ScheduleError(
            f"`{it.var.name}` = `{it.binding}` mixes loops inside and outside of `{n.inner[0].name}` in `{mixed}`",
            (n.inner[0], "the loop"),
            (n.block, "the block"),
            hint="blockize before the loops are fused, or split them by a factor that divides",
        )
    if not here:
        return BindingSplit(it.binding, Const(0, dtype), Const(1, it.extent.dtype))
    if not there:
        return BindingSplit(Const(0, dtype), it.binding, it.extent)
    low, high = bounds(to_expr(here, dtype), n.ranges)
    weights = gcd(*there.values())
    if low is None or high is None or low < 0 or high >= weights:
        raise ScheduleError(
            f"`{it.var.name}` = `{it.binding}` is not tiles outside of `{n.inner[0].name}` and places in a tile inside",
            (n.inner[0], "the loop"),
            (n.block, "the block"),
            hint=f"reorder first, so that of the loops of `{it.var.name}` those with the smallest steps are inside",
        )
    size = high + 1 if weights % (high + 1) == 0 else weights
    tiles: Polynomial = {m: c // size for m, c in there.items()}
    return BindingSplit(to_expr(tiles, dtype), to_expr(here, dtype), Const(size, it.extent.dtype))


def _inner_condition(
    condition: Expr, block: Block, divisions: dict[str, BindingSplit], places: dict[str, Var], inner: set[str]
) -> Expr:
    """A condition for the block inside, with the outer iteration variable of one axis in place of the loops outside."""
    match condition:
        case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" as op, a, b):
            difference = add(polynomial(a), polynomial(b), -1)
            here, there = split_terms(difference, inner)
            offset = there.pop((), 0)
            if not there:
                return condition
            for name, d in divisions.items():
                tiles = dict(polynomial(d.outer))
                constant = tiles.pop((), 0)
                axis = places.get(name)
                if axis is None or not tiles or tiles.keys() != there.keys():
                    continue
                factor = next(there[m] // tiles[m] for m in tiles)
                if there == scale(tiles, factor):
                    total = add({(cast(axis, a.dtype),): factor}, here)
                    rest = factor * constant - offset
                    return Binary(op, to_expr(total, a.dtype), Const(rest, a.dtype))
    raise ScheduleError(
        f"the condition `{condition}` is not one on a single axis, so it cannot be divided",
        (block, "the block"),
        hint="choose factors that divide the extents, or peel the loop first",
    )


def _need_first(n: TileNest, divisions: dict[str, BindingSplit], axes: SplitAxes) -> dict[str, Expr]:
    """The loops of the tile and the axes outside that drive the reduction, each with its first value, 0.

    Refuses a loop that drives both kinds of axes, and a reduction that does not start there."""
    block = n.block
    placing, reducing = (
        {name for it in block.iters if it.axis is axis for name in variables(divisions[it.var.name].inner)}
        for axis in (Axis.SPATIAL, Axis.REDUCE)
    )
    need_loops_for_init(block, n.inner, reducing, placing)
    zeros = all_zero(loop.var for loop in n.inner if loop.name in reducing)
    zeros |= all_zero(x.var for x in axes.outside if x.axis is Axis.REDUCE)
    need_start_at_0(block, {v: d.inner for v, d in divisions.items()}, zeros, {})
    return zeros


def _tile_init(n: TileNest, axes: SplitAxes, zeros: dict[str, Expr], conditions: Sequence[Expr], names: Names) -> Stmt:
    """The init of the block inside, over the spatial loops of a tile."""
    block = n.block
    assert block.init is not None
    starts = all_zero(it.var for it in block.reduction)
    place = {**axes.mapping, **starts}
    reducing = {loop.name for loop in n.inner if loop.name in zeros}
    left = [simplify(substitute(c, zeros)) for c in conditions if not variables(c) <= reducing]
    init = substitute_loops(block.init, place, ())
    result = init_block(block, axes.inside, left, n.ranges, names).with_(body=init, writes=_substituted(block.writes, place))
    return in_own_loops(result, [x for x in n.inner if x.name not in zeros], names, "_init", zeros)
