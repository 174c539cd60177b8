"""Unrolled loops are written out."""

from __future__ import annotations

from tir.ir import Const, For, Kind, PrimFunc, Stmt, Store, annotation, seq
from tir.simplify import simplify_tree
from tir.traverse import map_children, substitute, walk_stmts

MAX_STATEMENTS = 4096  # a larger body is left as a loop: compile time would explode before speed gains
PRAGMA = "pragma_auto_unroll_max_step"


def unroll(func: PrimFunc, target) -> PrimFunc:
    """Write out UNROLLED loops of constant extent, and below a loop annotated `pragma_auto_unroll_max_step: n` every serial
    nest that makes no more than n statements."""

    def visit(s: Stmt, limit: int) -> Stmt:
        match s:
            case For(var, extent, body, kind):
                limit = int(annotation(s.annotations, PRAGMA, limit))
                body = visit(body, limit)
                if not isinstance(extent, Const) or kind not in (Kind.UNROLLED, Kind.SERIAL):
                    return s if body is s.body else s.with_(body=body)
                n = int(extent.value)
                size = n * _size(body)
                wanted = size <= MAX_STATEMENTS if kind is Kind.UNROLLED else limit and size <= limit and not _loops(body)
                if not wanted:
                    return s.with_(body=body, kind=Kind.SERIAL)
                return seq(*(substitute(body, {var: Const(i)}) for i in range(n)))
            case _:
                return map_children(s, lambda c: visit(c, limit) if isinstance(c, Stmt) else c)  # type: ignore[return-value]

    return simplify_tree(func.with_(body=visit(func.body, 0)))  # type: ignore[return-value]


def _size(s: Stmt) -> int:
    return sum(1 for x in walk_stmts(s) if isinstance(x, Store))


def _loops(s: Stmt) -> bool:
    return any(isinstance(x, For) and x.kind is not Kind.VECTORIZED for x in walk_stmts(s))
