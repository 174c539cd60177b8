"""A temporary that parts of a program use, each for itself, becomes one for each part."""

from __future__ import annotations

from tir.analysis.context import Context, accesses
from tir.analysis.write_before_read import lives
from tir.arith.injectivity import determined
from tir.arith.intervals import Ranges
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.ir import IN_ANY_ORDER, Allocate, Buffer, For, Kind, PrimFunc, Stmt, Store
from tir.traverse import accessed_names, fresh, map_statements, move_accesses, names, substatements

from .free_variables import size_ranges


def separate_lives(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   t = alloc(n); for i in parallel: S(t); for j in parallel: Q(t)
              => t = alloc(n); t_1 = alloc(n); for i in parallel: S(t); for j in parallel: Q(t_1)

    Only where S and Q write what they read of it, and where iterations that run in any order write the same elements: each of
    them needs its own, which the passes that follow give to a temporary of one loop.
    """
    taken = names(func)
    sizes = size_ranges(func.params)

    def separated(body: Stmt, buffer: Buffer) -> tuple[Stmt, list[Buffer]]:
        """A statement in which a buffer lives, and the buffers that it then has."""
        made = [buffer]
        if not written_together(body, buffer, sizes):
            return body, made
        whole = {id(x) for x in lives(body, buffer, sizes)}

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


def written_together(s: Stmt, buffer: Buffer, outer: Ranges) -> bool:
    """True where iterations of a loop in `s` that run in any order, of which each has no buffer anyway, may write one element of
    the buffer."""
    for x, around in accesses(s, Context()):
        if type(x) is not Store or x.buffer.name != buffer.name:
            continue
        ranges = {**outer, **around.ranges(outer)}
        place = [polynomial(simplify(around.closed(i), ranges)) for i in x.indices]
        for n, loop in enumerate(around.loops):
            known = {*outer, *(y.name for y in around.loops[:n])}
            if loop.kind in IN_ANY_ORDER and not loop.extent.is_one and loop.name not in determined(place, known, ranges):
                return True
    return False
