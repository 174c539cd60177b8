"""The order of the unrolled loops around a register tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tir.ir import For, If, Kind, Load, PrimFunc, Stmt, Store, Var, nest
from tir.traverse import iterations, loads, map_statements, nest_at, variables

MAX_ORDERED_LOOPS = 5  # of a nest whose orders are all tried


def order_unrolled(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in unroll(n): for i in unroll(m): r[i, j] = r[i, j] + A[i] * B[j]
              => for i in unroll(m): for j in unroll(n): r[i, j] = r[i, j] + A[i] * B[j]        where m > n

    of all orders of the unrolled loops that index the registers, the one in which the fewest loaded values are live at a time:
    what depends on the inner loops stays in registers for the next round of the outer ones, here n values of B and one of A.
    LLVM does not change the order, and spills accumulators if it has to. Each register sees the same operations in the same
    order, so the numbers stay.
    """

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.UNROLLED:
            return map_statements(s, visit)
        loops = nest_at(s, Kind.UNROLLED)[0]
        body = loops[-1].body
        ordered, new = _ordered(loops, body), visit(body)
        return s if ordered is loops and new is body else nest(ordered, new)

    return func.with_(body=visit(func.body))


def _ordered(loops: Sequence[For], body: Stmt) -> Sequence[For]:
    """The loops in the best order; `loops` itself if that is theirs, or it is not known that they can change places.

    They can where the body is one update of a register that each of them indexes. Other loops keep their places.
    """
    while not isinstance(body, Store):
        match body:
            case For(_, _, inner, Kind.VECTORIZED) | If(_, inner, None):
                body = inner
            case _:
                return loops
    if body.buffer.scope != "register" or not 1 < len(loops) <= MAX_ORDERED_LOOPS:
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

    best = min(itertools.permutations(free), key=lambda places: live(order(places), others))
    return order(best) if live(order(best), others) < live(loops, others) else loops


def live(nest: Sequence[For], values: set[Load]) -> int:
    """The number of loaded values live in an unrolled nest: of each load as many as a later round of some loop uses again."""
    total = 0
    for value in values:
        moving = variables(*value.indices)
        again = next((n for n, x in enumerate(nest) if x.name not in moving), len(nest))
        total += iterations(x for x in nest[again:] if x.name in moving)
    return total
