"""Tiles of shared memory loaded one step ahead."""

from __future__ import annotations

from tir.ir import (
    Allocate,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    Load,
    Seq,
    Stmt,
    Store,
    annotated,
    annotation,
    seq,
)
from tir.traverse import loads, map_children, rewrite, stores, substitute, walk_stmts

from .gpu_kernels import SHARED
from .gpu_sync import BARRIER

DOUBLE = "double_buffer"  # an annotation of a loop
ASYNCHRONOUS = "asynchronous"  # of a vectorised loop whose copies need not be there before the next barrier


def double_buffer(body: Stmt) -> Stmt:
    """Rewrite   for k in range(n): load tile k; use the tile          # annotated `double_buffer`
              => load tile 0;  for k in range(n): if k + 1 < n: load tile k + 1;  use tile k

    with two tiles that take turns. The tiles are those that the loop allocates in shared memory; the statements that load them
    come first and read nothing that the loop makes. A loop that is not of this form stays as it is.
    """

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, lambda c: visit(c) if isinstance(c, Stmt) else c)  # type: ignore[assignment]
        if isinstance(s, For) and s.kind is Kind.SERIAL and annotation(s.annotations, DOUBLE):
            return _ahead(s) or s
        return s

    return visit(body)


def _ahead(loop: For) -> Stmt | None:
    tiles, inner = _unallocated(loop.body)
    if not tiles or not isinstance(inner, Seq) or not isinstance(loop.extent, Const) or int(loop.extent.value) < 2:
        return None
    names = {b.name for b in tiles}
    first: list[Stmt] = []
    made = {s.buffer.name for s in stores(inner)}
    for s in inner.stmts:
        if not {x.buffer.name for x in stores(s)} <= names or {x.buffer.name for x in loads(s)} & made:
            break
        first.append(s)
    rest = inner.stmts[len(first) :]
    if not first or not rest or any(x.buffer.name in names for s in rest for x in stores(s)):
        return None
    wide = {b.name: b.with_(shape=(Const(2), *b.shape)) for b in tiles}

    def at(s: Stmt, half: Expr) -> Stmt:
        def change(n):
            if isinstance(n, Load | Store) and n.buffer.name in wide:
                return n.with_(buffer=wide[n.buffer.name], indices=(half, *n.indices))
            return None

        return rewrite(s, change)

    turn = loop.var % 2

    def load(k: Expr) -> Stmt:
        body = at(seq(*first), turn)
        body = rewrite(body, lambda n: _asynchronous(n) if isinstance(n, For) and n.kind is Kind.VECTORIZED else None)
        return substitute(body, {loop.var: k})

    ahead = If(loop.var + 1 < loop.extent, load(loop.var + 1))
    body: Stmt = seq(load(Const(0, loop.var.dtype)), loop.with_(body=seq(ahead, *(at(s, turn) for s in rest))))
    for b in reversed(tiles):
        body = Allocate(wide[b.name], body)
    return body


def _unallocated(s: Stmt) -> tuple[list[Buffer], Stmt]:
    """The shared buffers that `s` allocates around all or some of its statements, and `s` without."""
    match s:
        case Allocate(buffer, body) if buffer.scope in SHARED:
            tiles, body = _unallocated(body)
            return [buffer, *tiles], body
        case Seq(stmts):
            parts = [_unallocated(x) for x in stmts]
            return [b for tiles, _ in parts for b in tiles], seq(*(x for _, x in parts))
        case _:
            return [], s


def _asynchronous(loop: For) -> For:
    return loop.with_(annotations=annotated(loop.annotations, ASYNCHRONOUS, True))


def settle(body: Stmt, capable: bool) -> Stmt:
    """Copies stay asynchronous only where the target is `capable` of it and barriers follow in which they can be waited for."""
    loops = [s for s in walk_stmts(body) if isinstance(s, For) and annotation(s.annotations, DOUBLE)]

    def waits(loop: For) -> bool:
        head = loop.body.stmts[0] if isinstance(loop.body, Seq) else loop.body
        return isinstance(head, Evaluate) and isinstance(head.value, Call) and head.value.op == BARRIER

    if capable and loops and all(waits(loop) for loop in loops):
        return body

    def change(n):
        if isinstance(n, For) and annotation(n.annotations, ASYNCHRONOUS):
            return n.with_(annotations=tuple(a for a in n.annotations if a[0] != ASYNCHRONOUS))
        return None

    return rewrite(body, change)
