"""The order in which the copies of a register tile are written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from tir.ir import Const, For, If, Kind, Load, PrimFunc, Stmt, Store, Var
from tir.traverse import loads, map_statements, variables

MAX_LOOPS = 5  # of a nest whose orders are all tried


def order_unrolled(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in unroll(n): for i in unroll(m): r[i, j] = r[i, j] + A[i] * B[j]
              => for i in unroll(m): for j in unroll(n): r[i, j] = r[i, j] + A[i] * B[j]        where m > n

    of all orders of the unrolled loops that tell registers apart, the one in which the fewest loaded values are live at a time:
    what depends on the inner loops stays in registers for the next round of the outer ones, here n values of B and one of A.
    LLVM does not change the order, and spills accumulators if it has to. Each register sees the same operations in the same
    order, so the numbers stay.
    """

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.UNROLLED:
            return map_statements(s, visit)
        nest, body = _nest(s)
        ordered, new = _ordered(nest, body), visit(body)
        if ordered is nest and new is body:
            return s
        for loop in reversed(ordered):
            new = loop.with_(body=new)
        return new

    return func.with_(body=visit(func.body))


def _nest(s: For) -> tuple[Sequence[For], Stmt]:
    """The unrolled loops that hold nothing but each other, and what the innermost holds."""
    nest = [s]
    while isinstance(nest[-1].body, For) and nest[-1].body.kind is Kind.UNROLLED:
        nest.append(nest[-1].body)
    return nest, nest[-1].body


def _ordered(nest: Sequence[For], body: Stmt) -> Sequence[For]:
    """The loops in the best order; `nest` itself if that is theirs, or it is not known that they can change places.

    They can where the body is one update of a register that each of them tells apart. Other loops keep their places.
    """
    while not isinstance(body, Store):
        match body:
            case For(_, _, inner, Kind.VECTORIZED) | If(_, inner, None):
                body = inner
            case _:
                return nest
    if body.buffer.scope != "register" or not 1 < len(nest) <= MAX_LOOPS:
        return nest
    read = loads(body.value)
    if any(x.buffer.name == body.buffer.name and x.indices != body.indices for x in read):
        return nest
    told = [i.name for i in body.indices if isinstance(i, Var)]
    free = [n for n, x in enumerate(nest) if told.count(x.name) == 1]
    others = {x for x in read if x.buffer.scope != "register"}

    def order(places: Sequence[int]) -> list[For]:
        moved = dict(zip(free, places, strict=True))
        return [nest[moved.get(n, n)] for n in range(len(nest))]

    best = min(itertools.permutations(free), key=lambda places: live(order(places), others))
    return order(best) if live(order(best), others) < live(nest, others) else nest


def live(nest: Sequence[For], values: set[Load]) -> int:
    """How many loaded values are live at a time when a nest is written out, at most: of each load one, or as many as a later
    round of some loop uses again."""
    total = 0
    for value in values:
        moving = {v for i in value.indices for v in variables(i)}
        again = next((n for n, x in enumerate(nest) if x.name not in moving), len(nest))
        total += prod(int(x.extent.value) for x in nest[again:] if x.name in moving and isinstance(x.extent, Const))
    return total
