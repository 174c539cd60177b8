"""blockize: a nest becomes the body of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tir.affine import Interval, Polynomial, add, as_constant, polynomial, split_terms, to_expr
from tir.analysis.regions import iter_ranges
from tir.ir import TRUE, Axis, Binary, Block, Const, Expr, For, Iter, Kind, PrimFunc, Stmt, Var, conjunction, conjuncts, nest
from tir.simplify import bounds, prove, simplify
from tir.traverse import blocks, loads, substitute, variables

from .dataflow import Names
from .error import ScheduleError
from .loops import ranges_of, substitute_loops
from .primitive import path_to_loop, primitive, replace_path
from .window import Unproved, need_distinct


@dataclass(frozen=True, slots=True)
class Division:
    """A binding as `outer * size + inner`, 0 <= inner < size: `outer` over the loops outside, `inner` over those inside."""

    outer: Expr
    inner: Expr
    size: Expr


@primitive
def blockize(func: PrimFunc, target: str, preserve_unit_iters: bool = True) -> tuple[PrimFunc, str]:
    """Make the nest at a loop the body of a new block; returns the name of the block, that of the one inside with `_o` added.

    The iteration variables `v` of the block become `v_o` outside and `v_i` inside, and the init of a reduction becomes one of the
    new block, over the whole tile. Iteration variables of one value only are left out unless `preserve_unit_iters`; where no
    reduce axis is left outside, the init stays inside.

    Rewrite   for i_0: for i_1 in range(f): with T.block("B"): v = i_0 * f + i_1; S(v)
           => for i_0:
                  with T.block("B_o"):
                      v_o = i_0
                      for i_1 in range(f): with T.block("B"): v_i = i_1; S(v_o * f + v_i)
    Legal     if the loop holds nothing but perfectly nested loops and one block, of which each binding is a multiple of some f
              outside plus less than f inside; a condition on both concerns one axis only; and of a reduction with its init the
              loops inside drive spatial or reduce axes, not both.
    Example   matmul: s.blockize("k")
    """
    above = path_to_loop(func, target)
    inner: list[For] = [above[-1]]  # type: ignore[list-item]
    while type(inner[-1].body) is For:
        inner.append(inner[-1].body)
    block = inner[-1].body
    if type(block) is not Block:
        raise ScheduleError(
            f"`{target}` must hold one block in perfectly nested loops, and nothing else",
            (inner[0], "the loop"),
            (inner[-1], "holds something else"),
            hint="decompose_reduction or compute_at afterwards, or choose a loop further inside",
        )
    cut = max((n for n, s in enumerate(above) if type(s) is Block), default=-1)
    outer = [s for s in above[cut + 1 : -1] if type(s) is For]
    ranges: dict[str, Interval] = {}
    for s in above[: cut + 1]:
        if type(s) is Block:
            ranges |= iter_ranges(s)
    ranges |= ranges_of([*outer, *inner])

    divisions = {it.var.name: _divided(it, block, outer, inner, ranges) for it in block.iters}
    names = Names.of(func)
    nested = [*(s for s in above if type(s) is Block), *blocks(block.body)]
    visible = {it.var.name for b in nested if b is not block for it in b.iters}
    outside: list[Iter] = []
    inside: list[Iter] = []
    mapping: dict[str, Expr] = {}
    # A reduction keeps an axis that says so.
    last_reduce = next((it for it in reversed(block.iters) if it.axis is not Axis.SPATIAL), None)
    for it in block.iters:
        d = divisions[it.var.name]
        count = simplify((it.extent + (d.size - 1)) // d.size)
        o, i = (Var(names.axis(f"{it.var.name}_{end}", visible), it.var.dtype) for end in "oi")
        one = Const(1, it.extent.dtype)
        index: Expr | None = None
        if preserve_unit_iters or count != one:
            outside.append(Iter(o, count, it.axis, d.outer))
            index = o * d.size if d.size != one else o
        lonely = it is last_reduce and not any(x.axis is not Axis.SPATIAL for x in (*outside, *inside))
        if preserve_unit_iters or simplify(d.size) != one or lonely:
            inside.append(Iter(i, d.size, it.axis, d.inner))
            index = i if index is None else index + i
        mapping[it.var.name] = Const(0, it.var.dtype) if index is None else index
    axes = {it.var.name: next((x.var for x in outside if x.binding is d.outer), None) for it, d in _pairs(block, divisions)}

    outer_conditions: list[Expr] = []
    inner_conditions: list[Expr] = []
    inner_names = {loop.name for loop in inner}
    for c in conjuncts(block.predicate):
        if not variables(c) & inner_names:
            outer_conditions.append(c)
        else:
            inner_conditions.append(_inside(c, block, divisions, axes, inner_names))
    for x in outside:
        within = x.binding < x.extent
        if not prove(within, ranges, outer_conditions):
            outer_conditions.append(simplify(within))

    # A reduction that is complete within the tile keeps its init.
    split_init = block.init is not None and any(x.axis is not Axis.SPATIAL for x in outside)
    new = substitute_loops(block.with_(iters=(), predicate=TRUE, init=None if split_init else block.init), mapping, ())
    reads = block.reads
    if split_init and reads is not None and block.writes is not None:
        reads = (*(r for r in block.writes if not any(o.buffer.name == r.buffer.name for o in reads)), *reads)
    regions = {
        "reads": None if reads is None else tuple(substitute(r, mapping) for r in reads),
        "writes": None if block.writes is None else tuple(substitute(r, mapping) for r in block.writes),
    }
    new = new.with_(iters=tuple(inside), predicate=conjunction(*inner_conditions), **regions)
    init = None
    if split_init:
        driving = set().union(*(variables(it.binding) for it in block.iters if it.axis is Axis.REDUCE), set())
        for loop in inner:
            if loop.name in driving and loop.kind is Kind.THREAD:
                raise ScheduleError(
                    f"`{loop.name}`, which drives the reduction, is bound to {loop.thread}: threads that reduce need the init",
                    (loop, "drives the reduction"),
                    (block, "the block"),
                    hint="blockize before bind",
                )
        try:
            # Each point once, of the reduction as well: then none of them is started again within the tile.
            need_distinct(block.with_(iters=tuple(it.with_(axis=Axis.SPATIAL) for it in block.iters)), inner, outer)
        except Unproved as reason:
            raise ScheduleError(
                f"it cannot be shown that `{block.name}` visits each of its points once under `{target}`: {reason}",
                (inner[0], "the loop"),
                (block, "starts each of them with its init"),
                hint="decompose_reduction first",
            ) from None
        spatial = [it for it in inside if it.axis is Axis.SPATIAL]
        init = _tile_init(block, inner, divisions, outside, spatial, mapping, inner_conditions, names, ranges)
    name = names.block(f"{block.name}_o")
    result = Block(name, tuple(outside), nest(inner, new), init, conjunction(*outer_conditions))
    return replace_path(func, above, result), name


def _pairs(block: Block, divisions: dict[str, Division]):
    return [(it, divisions[it.var.name]) for it in block.iters]


def _divided(it: Iter, block: Block, outer: Sequence[For], inner: Sequence[For], ranges: dict[str, Interval]) -> Division:
    """The binding of an iteration variable as a number of whole tiles and a place in the tile."""
    inside = {loop.name for loop in inner}
    dtype = it.binding.dtype
    here, there = split_terms(polynomial(it.binding), inside)
    mixed = next((a for m in here for a in m if not isinstance(a, Var) and variables(a) - inside), None)
    if mixed is None:
        mixed = next((to_expr({m: 1}) for m in here if len({a for a in m if variables(a) <= inside}) < len(set(m))), None)
    if mixed is not None:
        raise ScheduleError(
            f"`{it.var.name}` = `{it.binding}` mixes loops inside and outside of `{inner[0].name}` in `{mixed}`",
            (inner[0], "the loop"),
            (block, "the block"),
        )
    if not here:
        return Division(it.binding, Const(0, dtype), Const(1, it.extent.dtype))
    if not there:
        return Division(Const(0, dtype), it.binding, it.extent)
    low, high = bounds(to_expr(here, dtype), ranges)
    weights = 0
    for c in there.values():
        weights = gcd(weights, c)
    if low is None or high is None or low < 0 or high >= weights:
        raise ScheduleError(
            f"`{it.var.name}` = `{it.binding}` is not tiles outside of `{inner[0].name}` and places in a tile inside",
            (inner[0], "the loop"),
            (block, "the block"),
        )
    size = high + 1 if weights % (high + 1) == 0 else weights
    tiles: Polynomial = {m: c // size for m, c in there.items()}
    return Division(to_expr(tiles, dtype), to_expr(here, dtype), Const(size, it.extent.dtype))


def _inside(condition: Expr, block: Block, divisions: dict[str, Division], axes: dict[str, Var | None], inner: set[str]) -> Expr:
    """A condition for the block inside: what loops outside contribute is written in the outer iteration variable of one axis."""
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
                axis = axes[name]
                if axis is None or not tiles or tiles.keys() != there.keys():
                    continue
                factors = {there[m] / tiles[m] for m in tiles}
                if len(factors) == 1 and (factor := factors.pop()).is_integer():
                    total = add({(axis,): int(factor)}, here)
                    rest = int(factor) * constant - offset
                    return Binary(op, to_expr(total, a.dtype), Const(rest, a.dtype))
    raise ScheduleError(
        f"the condition `{condition}` is not one on a single axis, so it cannot be divided",
        (block, "the block"),
        hint="choose factors that divide the extents, or peel the loop first",
    )


def _tile_init(
    block: Block,
    inner: Sequence[For],
    divisions: dict[str, Division],
    outside: Sequence[Iter],
    axes: Sequence[Iter],
    mapping: dict[str, Expr],
    conditions: Sequence[Expr],
    names: Names,
    ranges: dict[str, Interval],
) -> Stmt:
    """The init of the block inside, over the spatial loops of a tile."""
    reducing: set[str] = set()
    placing: set[str] = set()
    for it, d in _pairs(block, divisions):
        (placing if it.axis is Axis.SPATIAL else reducing).update(variables(d.inner))
    for loop in inner:
        if loop.name in reducing and loop.name in placing:
            raise ScheduleError(
                f"`{loop.name}` drives the reduction and spatial axes of `{block.name}`, so the init has no loop of its own",
                (loop, "drives both"),
                (block, "the block"),
                hint="decompose_reduction first",
            )
    zeros: dict[str, Expr] = {loop.name: Const(0, loop.var.dtype) for loop in inner if loop.name in reducing}
    zeros |= {x.var.name: Const(0, x.var.dtype) for x in outside if x.axis is not Axis.SPATIAL}
    for it, d in _pairs(block, divisions):
        if it.axis is not Axis.SPATIAL and as_constant(polynomial(simplify(substitute(d.inner, zeros)))) != 0:
            raise ScheduleError(
                f"the reduction axis `{it.var.name}` never has its first value, so no init runs", (block, "the block")
            )
    first: dict[str, Expr] = dict(zeros)
    kept = []
    for loop in inner:
        if loop.name in reducing:
            continue
        var = Var(names.loop(f"{loop.name}_init"), loop.var.dtype)
        first[loop.name] = var
        kept.append(loop.with_(var=var, extent=substitute(loop.extent, first)))
    starts = {it.var.name: Const(0, it.var.dtype) for it in block.iters if it.axis is not Axis.SPATIAL}
    body = substitute_loops(block.init, {**mapping, **starts}, ())  # type: ignore[arg-type]
    kept_conditions = [simplify(substitute(c, first)) for c in conditions if not variables(c) <= reducing]  # type: ignore[arg-type]
    kept_conditions = [c for c in kept_conditions if not prove(c, ranges)]
    result = Block(
        names.block(f"{block.name}_init"),
        tuple(it.with_(binding=substitute(it.binding, first)) for it in axes),
        body,
        None,
        conjunction(*kept_conditions),
        reads=() if block.reads is not None and not loads(block.init) else None,  # type: ignore[arg-type]
        writes=None if block.writes is None else tuple(substitute(r, {**mapping, **starts}) for r in block.writes),
    )
    return nest(kept, result)
