"""Which loops the backend writes out."""

from __future__ import annotations

from tir.ir import Const, For, Kind, PrimFunc, Stmt, Store, annotation
from tir.traverse import children, map_children, walk_stmts

MAX_STATEMENTS = 4096  # a larger body stays a loop: compile time would explode before speed gains
PRAGMA = "pragma_auto_unroll_max_step"


def unroll(func: PrimFunc, target) -> PrimFunc:
    """Leave UNROLLED only on loops that will be written out: those of constant extent whose copies hold few enough statements.

    Below a loop annotated `pragma_auto_unroll_max_step: n`, serial nests that make no more than n statements are UNROLLED too.
    The backend writes the copies; until then the loop stays one statement, which keeps the passes fast.
    """

    def visit(s: Stmt, limit: int) -> Stmt:
        match s:
            case For(_, extent, body, kind):
                limit = _limit(s, limit)
                body = visit(body, limit)
                new = kind
                if kind in (Kind.UNROLLED, Kind.SERIAL):
                    size = int(extent.value) * _size(body) if isinstance(extent, Const) else MAX_STATEMENTS + 1
                    asked = kind is Kind.UNROLLED and size <= MAX_STATEMENTS
                    automatic = kind is Kind.SERIAL and size <= limit and not _serial_loops(body)
                    new = Kind.UNROLLED if asked or automatic else Kind.SERIAL
                return s if body is s.body and new is kind else s.with_(body=body, kind=new)
            case _:
                return map_children(s, lambda c: visit(c, limit) if isinstance(c, Stmt) else c)  # type: ignore[return-value]

    return func.with_(body=visit(func.body, 0))


def _limit(loop: For, outer: int) -> int:
    """The statements that nests below a loop may make: its own annotation, else that of a loop further out."""
    value = annotation(loop.annotations, PRAGMA, outer)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"loop `{loop.name}`: the annotation {PRAGMA} must be an integer from 0 up, got {value!r}")
    return value


def _size(s: Stmt) -> int:
    """The number of stores once unrolled loops are written out."""
    match s:
        case Store():
            return 1
        case For(_, Const(n), body, Kind.UNROLLED):
            return int(n) * _size(body)
        case _:
            return sum(_size(c) for c in children(s) if isinstance(c, Stmt))


def _serial_loops(s: Stmt) -> bool:
    return any(isinstance(x, For) and x.kind not in (Kind.VECTORIZED, Kind.UNROLLED) for x in walk_stmts(s))
