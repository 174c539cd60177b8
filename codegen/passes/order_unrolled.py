"""The order of the unrolled loops around a register tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tir.ir import For, If, Kind, Load, PrimFunc, Stmt, Store, Var, nest
from tir.traverse import iterations, loads, map_statements, perfect_nest, variables

MAX_ORDERED_LOOPS = 5  # loops of a nest; their 120 orders are all tried


def order_unrolled(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in unroll(n): for i in unroll(m): r[i, j] = r[i, j] + A[i] * B[j]
              => for i in unroll(m): for j in unroll(n): r[i, j] = r[i, j] + A[i] * B[j]        where m > n

    which, of all orders of the loops that index the registers, has the fewest loaded values live at a time. Operands indexed by
    inner loops stay live for the next iteration of an outer one: here n values of B and one of A. LLVM keeps the order, and may
    spill accumulators. Each register sees the same operations in the same order, so results are bitwise equal.
    """

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.UNROLLED:
            return map_statements(s, visit)
        loops = perfect_nest(s, Kind.UNROLLED)[0]
        body = loops[-1].body
        ordered, new = _ordered(loops, body), visit(body)
        return s if ordered is loops and new is body else nest(ordered, new)

    return func.with_(body=visit(func.body))


def _ordered(loops: Sequence[For], body: Stmt) -> Sequence[For]:
    """The loops in the best order; `loops` itself if that is theirs, or interchange is not known to be legal.

    Legal     where the body is one update of a register. Loops that do not index the register keep their places.
    """
    while not isinstance(body, Store):
        match body:
            case For(_, _, inner, Kind.VECTORIZED) | If(_, inner, None):
                body = inner
            case _:
                return loops
    if body.buffer.scope != "register" or len(loops) > MAX_ORDERED_LOOPS:
        return loops
    read = loads(body.value)
    if any(x.buffer.name == body.buffer.name and x.indices != body.indices for x in read):
        return loops
    indexing = [i.name for i in body.indices if isinstance(i, Var)]
    free = [n for n, x in enumerate(loops) if indexing.count(x.name) == 1]
    others = {x for x in read if x.buffer.scope != "register"}

    def order(places: Sequence[int]) -> list[For]:
        moved = dict(zip(free, places, strict=True))
        return [loops[moved.get(n, n)] for n in range(len(loops))]

    best = [*min(itertools.permutations(free), key=lambda places: live_loads(order(places), others))]
    return loops if best == free else order(best)


def live_loads(nest: Sequence[For], values: set[Load]) -> int:
    """The number of loaded values live in an unrolled nest: of each load, those that a later iteration uses again."""
    total = 0
    for value in values:
        moving = variables(*value.indices)
        again = next((n for n, x in enumerate(nest) if x.name not in moving), len(nest))
        total += iterations(x for x in nest[again:] if x.name in moving)
    return total
