"""A temporary with several live ranges becomes one temporary for each."""

from __future__ import annotations

from tir.analysis.context import Context, accesses
from tir.analysis.write_before_read import live_ranges
from tir.arith.injectivity import determined
from tir.arith.intervals import Ranges
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.ir import IN_ANY_ORDER, Allocate, Buffer, For, Kind, Load, PrimFunc, Stmt, Store
from tir.traverse import accessed_names, fresh, map_statements, move_accesses, names, substatements

from .free_variables import scalar_ranges


def separate_lives(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   t = alloc(n); for i in parallel: S(t); for j in parallel: Q(t)
              => t = alloc(n); t_1 = alloc(n); for i in parallel: S(t); for j in parallel: Q(t_1)

    Legal     where S and Q write each element of t before they read it.

    Done only where unordered iterations write the same elements: each needs a copy, which later passes give to a temporary of
    one loop.
    """
    taken = names(func)
    sizes = scalar_ranges(func.params)

    def separated(body: Stmt, buffer: Buffer) -> tuple[Stmt, list[Buffer]]:
        """A statement with the live ranges of a buffer separated, and their buffers."""
        made = [buffer]
        if not iterations_conflict(body, buffer, sizes):
            return body, made
        whole = {id(x) for x in live_ranges(body, buffer, sizes)}

        def visit(s: Stmt, own: Buffer) -> Stmt:
            users = [x for x in substatements(s) if buffer.name in accessed_names(x)]
            kernel = isinstance(s, For) and s.kind is Kind.THREAD and buffer.scope != "global"  # its threads have their own
            if kernel or not users or not all(id(x) in whole for x in users):
                return s if own is buffer else move_accesses(s, lambda b, at: (own, at) if b.name == buffer.name else None)
            given = {id(users[0]): own}
            for x in users[1:]:
                made.append(buffer.with_(name=fresh(taken, buffer.name)))
                given[id(x)] = made[-1]
            return map_statements(s, lambda x: visit(x, given[id(x)]) if id(x) in given else x)

        return visit(body, buffer), made

    def inside(s: Stmt) -> Stmt:
        new = map_statements(s, inside)
        if not isinstance(new, Allocate):
            return new
        body, made = separated(new.body, new.buffer)
        for b in made:
            body = Allocate(b, body)
        return body

    body, allocs = inside(func.body), []
    for buffer in func.allocs:
        body, made = separated(body, buffer)
        allocs += made
    return func.with_(body=body, allocs=tuple(allocs))


def iterations_conflict(s: Stmt, buffer: Buffer, outer: Ranges) -> bool:
    """True where unordered iterations of a loop in `s` may access one element of the buffer, and one of them writes it. Only
    dimensions that all accesses in the loop index alike tell iterations apart."""
    found: dict[int, list[tuple[Load | Store, Context]]] = {}
    for x, around in accesses(s, only=(buffer.name,)):
        for loop in around.loops if x.buffer.name == buffer.name else ():
            if loop.kind in IN_ANY_ORDER and not loop.extent.is_one:
                found.setdefault(id(loop), []).append((x, around))
    return any(_may_meet(group, number, outer) for number, group in found.items() if any(type(x) is Store for x, _ in group))


def _may_meet(group: list[tuple[Load | Store, Context]], number: int, outer: Ranges) -> bool:
    """True where iterations of the loop whose `id` is `number`, around all accesses, may access one element."""
    _, around = group[0]
    place = next(n for n, x in enumerate(around.loops) if id(x) == number)
    known = {*outer, *(x.name for x in around.loops[:place])}
    ranges = {**outer}
    for _, c in group:
        ranges |= c.ranges(outer)
    rows = [[polynomial(simplify(c.closed(i), ranges)) for i in x.indices] for x, c in group]
    alike = [dim[0] for dim in zip(*rows, strict=True) if all(p == dim[0] for p in dim)]
    return around.loops[place].name not in determined(alike, known, ranges)
