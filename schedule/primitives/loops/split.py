"""split: one loop becomes a nest."""

from __future__ import annotations

import math
from functools import reduce
from typing import cast

from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Block, Const, Expr, For, If, PrimFunc, Seq, Stmt, Var, conjunction, nest

from ...error import ScheduleError
from ...primitive import blocks_below, fixed_factors, fresh_names, loop_at, need_serial, primitive, replace_path
from ...rewriting.loops import substitute_loops


@primitive
def split(func: PrimFunc, loop: str, factors: list[int | None], preserve_unit_iters: bool = True) -> tuple[PrimFunc, list[str]]:
    """Divide a serial loop into a nest of `len(factors)` loops; returns their names, outermost first.

    The factors are the extents of the new loops, outermost first. One may be None: it becomes the extent divided by the product
    of the others, rounded up. Without `preserve_unit_iters`, bindings have 0 for the variables of new loops of extent 1.

    Rewrite   for i in range(N): S(i)
           => for i_0, i_1 in T.grid(ceil(N / f), f):
                  S(i_0 * f + i_1)      # where i_0 * f + i_1 < N, unless that is proved
    Legal     if the loop is serial and not annotated, and the factors, each at least 1, have a product of at least N (where N is
              no constant, one must be None): the iterations and their order are unchanged. The condition joins the predicate of
              each block below; statements that are in no block get an `if`.
    Example   matmul: s.split("j", [None, 4])
    """
    target, above = loop_at(func, loop)
    need_serial(target, "split")
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

    if type(extent) is Const:
        inferred: Expr = Const(-(-extent.value // product), extent.dtype)
    else:
        inferred = simplify((extent + (product - 1)) // product)
    variables = [Var(n, target.var.dtype) for n in fresh_names(func, *(f"{loop}_{n}" for n in range(len(factors))))]
    extents = [inferred if f is None else Const(f, extent.dtype) for f in factors]
    parts = [For(v, e, target.body) for v, e in zip(variables, extents, strict=True)]
    around = [*(s for s in above[:-1] if type(s) is For), *parts]
    first, *others = parts
    index = simplify(reduce(lambda index, part: index * part.extent + part.var, others, cast(Expr, first.var)))
    covered = prove(index < extent, ranges_of(around))
    folded = () if preserve_unit_iters else [p.name for p in parts if p.extent == Const(1, extent.dtype)]
    body = substitute_loops(target.body, {loop: index}, around, folded)
    if not covered:
        body = _guard(body, simplify(index < extent))
    return replace_path(func, above, nest(parts, body)), [v.name for v in variables]


def _guard(stmt: Stmt, condition: Expr) -> Stmt:
    """`stmt` where `condition` holds: in the predicates of its blocks, and as an `if` around what has none."""
    match stmt:
        case Block():
            return stmt.with_(predicate=conjunction(stmt.predicate, condition))
        case Seq(stmts):
            return Seq(tuple(_guard(s, condition) for s in stmts))
        case For() if blocks_below(stmt):
            return stmt.with_(body=_guard(stmt.body, condition))
        case _:
            return If(condition, stmt)
