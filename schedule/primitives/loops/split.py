"""split: one loop becomes a nest."""

from __future__ import annotations

import math
from functools import reduce
from typing import cast

from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.assumptions import assumptions, divides
from tir.ir import NOTHING, Axis, Binary, Block, Const, Expr, For, If, PrimFunc, Seq, Stmt, Var, conjunction, is_script_name, nest
from tir.nearest import no_such
from tir.traverse import axis_loops, loaded_names, loads, loops, loops_in, rewrite_statements, stored_names, substitute

from ...error import ScheduleError
from ...legality.independence import independent_iterations
from ...primitive import (
    LoopName,
    blocks_below,
    constant_extent,
    fixed_factors,
    fresh_names,
    loop_at,
    need_serial,
    primitive,
    replace_path,
)
from ...rewriting.loops import substitute_loops
from .loop_partition import loop_partition

TAILS = ("guard", "perfect", "cut", "overlap")


@primitive
def split(
    func: PrimFunc,
    loop: LoopName,
    factors: list[int | None],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
    tail: str = "guard",
    names: list[str] | None = None,
) -> tuple[PrimFunc, list[str]]:
    """Divide a serial loop into a nest of `len(factors)` loops; returns their names, outermost first.

    The factors are the extents of the new loops, outermost first. One may be None: it becomes the extent divided by the product
    of the others, rounded up. Without `preserve_unit_iters`, bindings have 0 for the variables of new loops of extent 1. The new
    loops are called `names`, or `i_0`, `i_1`, ... after the loop `i`. `tail` is for iterations that fill no whole tile. "guard"
    puts a condition into the nest, and "perfect" refuses them. "cut" adds a loop for them after the nest, the last one returned.
    "overlap" lets the last tile end at N, so that it repeats iterations of the one before. `disable_predication` turns "guard"
    into "perfect". Source of the tails: Exo, PLDI 2022.

    Rewrite   for i in range(N): S(i)
           => for i_0, i_1 in T.grid(ceil(N / f), f):
                  S(i_0 * f + i_1)      # where i_0 * f + i_1 < N, unless that is proved
    Legal     if the loop is serial and not annotated, and the factors, each at least 1, have a product of at least N. If N is
              symbolic, or 0, one factor must be None. The iterations and their order are unchanged. The condition joins the
              predicate of each block below; statements outside of blocks get an `if`. It is left out if f provably divides N,
              perhaps by `assume`.
              "cut": if N is a constant, one factor None, there is a whole tile, and `loop_partition` of the loop is legal.
              "overlap": if N is a constant, the factors are [None, f] with f <= N, and the iterations are independent, as for
              `parallel`. They may run again: nothing below reads a buffer written below. Only a reduction with its init, all of
              its loops below, may read its own results.
    Example   matmul: s.split("j", [None, 4])
    """
    target, above = loop_at(func, loop)
    need_serial(target, "split")
    if tail not in TAILS:
        raise ScheduleError(no_such("tail strategy", tail, TAILS))
    if disable_predication and tail == "guard":
        tail = "perfect"
    known = fixed_factors(factors, example=f"split({loop!r}, [None, 4])")
    product, extent = math.prod(known), target.extent
    if len(known) == len(factors):
        if type(extent) is not Const:
            raise ScheduleError(
                f"the extent of `{loop}` is not a constant, so one factor must be None",
                (target, f"runs over {extent}"),
                hint=f"split({loop!r}, {[None, *factors[1:]]})",
            )
        if product < extent.value:
            raise ScheduleError(
                f"the factors make {product} iterations, but `{loop}` has {extent.value}",
                (target, f"{extent.value} iterations"),
                hint="make one factor None, and it is inferred",
            )
        if extent.is_zero:  # under a condition that never holds, a reduction over nothing would lose its init
            raise ScheduleError(
                f"`{loop}` has no iterations, and the factors make {product}",
                (target, "no iterations"),
                hint=f"split({loop!r}, {[None, *factors[1:]]})",
            )
    if tail == "cut" and constant_extent(target) % product:
        return _with_rest_after(func, target, factors, product, preserve_unit_iters, names)

    if type(extent) is Const:
        inferred: Expr = Const(-(-extent.value // product), extent.dtype)
    elif divides(product, extent, assumptions(func)):
        inferred = simplify(extent // product)
    else:
        inferred = simplify((extent + (product - 1)) // product)
    wanted = fresh_names(func, *(f"{loop}_{n}" for n in range(len(factors))))
    if names is not None:
        wanted = _checked_names(func, names, [loop], len(factors))
    variables = [Var(n, target.var.dtype) for n in wanted]
    extents = [inferred if f is None else Const(f, extent.dtype) for f in factors]
    parts = [For(v, e, target.body) for v, e in zip(variables, extents, strict=True)]
    around = [*loops_in(above[:-1]), *parts]
    first, *others = parts
    index = simplify(reduce(lambda index, part: index * part.extent + part.var, others, cast(Expr, first.var)))
    covered = prove(index < extent, ranges_of(around), [x.var < x.extent for x in parts if type(x.extent) is not Const])
    if tail == "perfect" and not covered:
        raise ScheduleError(
            f"it is not shown that {product} divides the {extent} iterations of `{loop}`",
            (target, f"{extent} iterations"),
            hint='tail="guard", "cut" or "overlap" says what becomes of those that fill no whole tile',
        )
    if tail == "overlap" and not covered:
        index = _overlapping(target, above, factors, parts)
        covered = True
    folded = () if preserve_unit_iters else [p.name for p in parts if p.extent.is_one]
    body = substitute_loops(target.body, {loop: index}, around, folded)
    if not covered:
        body = _guard(body, simplify(index < extent))
    return replace_path(func, above, nest(parts, body)), wanted


def _checked_names(func: PrimFunc, given: list[str], replaced: list[str], count: int) -> list[str]:
    """The given names of new loops; refuses names that are taken, except by the replaced loops."""
    if len(given) != count or len(set(given)) < count:
        raise ScheduleError(f"`names` must be {count} different names, one for each new loop, got {given}")
    strange = next((n for n in given if not is_script_name(n) or (n not in replaced and fresh_names(func, n) != [n])), None)
    if strange is not None:
        why = "is taken" if is_script_name(strange) else "cannot be said in a script"
        raise ScheduleError(f"the name `{strange}` {why}", hint=f"`{fresh_names(func, f'{replaced[0]}_0')[0]}` is free")
    return given


def _with_rest_after(
    func: PrimFunc, target: For, factors: list[int | None], product: int, preserve_unit_iters: bool, names: list[str] | None
) -> tuple[PrimFunc, list[str]]:
    """`func` with the loop in whole tiles, and a loop after them for the rest; the names of all new loops."""
    loop, extent = target.name, constant_extent(target)
    whole = extent // product
    if None not in factors or not whole:
        raise ScheduleError(
            f"the {extent} iterations of `{loop}` cannot be cut into whole tiles of {product}",
            (target, f"{extent} iterations"),
            hint='make one factor None and the others smaller, or leave tail="guard"',
        )
    func, (main, rest) = loop_partition(func, loop, [whole * product, None], preserve_unit_iters)
    sizes: list[int | None] = [whole if f is None else f for f in factors]
    func, made = split(func, main, sizes, preserve_unit_iters)
    made = [*made, rest]
    if names is None:
        return func, made
    wanted = _checked_names(func, names, made, len(made))
    return substitute(func, {old: Var(new, target.var.dtype) for old, new in zip(made, wanted, strict=True)}), wanted


def _overlapping(target: For, above: list[Stmt], factors: list[int | None], parts: list[For]) -> Expr:
    """The index of a loop in tiles, the last of them moved back to end with the loop; refuses unless iterations may run again."""
    extent, tile = constant_extent(target), parts[-1].extent
    if len(factors) != 2 or factors[0] is not None or not isinstance(factors[1], int) or factors[1] > extent:
        raise ScheduleError(
            f"tiles overlap where the factors are [None, f], f at most the {extent} iterations of `{target.name}`, got {factors}",
            (target, f"{extent} iterations"),
        )
    independent_iterations(above, "run again in overlapping tiles")
    below = {x.name for x in loops(target.body)}
    written = stored_names(target.body)
    outside = rewrite_statements(target.body, lambda s: NOTHING if type(s) is Block else s)
    for b in (*blocks_below(target.body), outside):
        own: frozenset[str] = frozenset()
        if type(b) is Block and b.init is not None and axis_loops(b, Axis.REDUCE) <= below:
            own = stored_names(b.init)
        again = sorted(written & loaded_names(b) - own)
        if again:
            name = f"`{b.name}`" if type(b) is Block else "a statement outside of blocks"
            raise ScheduleError(
                f"{name} reads what is written under `{target.name}`, so an iteration that runs again may find other values",
                (target, "would overlap"),
                (b, f"reads {again[0]}"),
                hint='tail="guard" or tail="cut" runs each iteration once',
            )
    first, second = parts
    last = Const(extent - factors[1], target.var.dtype)
    return Binary("+", Binary("min", first.var * tile, last), second.var)


def _guard(stmt: Stmt, condition: Expr) -> Stmt:
    """`stmt` under a condition, which joins the predicates of its blocks, and is an `if` around other statements.

    A predicate that reads memory gets an `if`, too: its loads may be out of bounds where the condition does not hold."""
    match stmt:
        case Block() if not loads(stmt.predicate):
            return stmt.with_(predicate=conjunction(stmt.predicate, condition))
        case Seq(stmts):
            return Seq(tuple(_guard(s, condition) for s in stmts))
        case For() if blocks_below(stmt):
            return stmt.with_(body=_guard(stmt.body, condition))
        case _:
            return If(condition, stmt)
