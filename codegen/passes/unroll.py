"""Choice of the loops that the backend unrolls."""

from __future__ import annotations

from typing import NamedTuple

from schedule.annotation_values import value_of
from tir.ir import COMPARISONS, Binary, Const, Expr, For, Kind, Load, PrimFunc, Stmt, Store, Var
from tir.traverse import children, loops, map_statements, walk

MAX_OPERATIONS = 8192  # operations of an unrolled loop; LLVM takes a second or two for these, and its time grows faster
PRAGMA = "pragma_auto_unroll_max_step"


def unroll(func: PrimFunc, target) -> PrimFunc:
    """Leave UNROLLED only on loops of constant extent whose copies hold at most MAX_OPERATIONS.

    Below a loop annotated `pragma_auto_unroll_max_step: n`, serial nests that make no more than n statements are UNROLLED too.
    The backend writes the copies; until then the loop stays one statement, which keeps the passes fast.
    """

    def visit(s: Stmt, limit: int) -> Stmt:
        match s:
            case For(_, extent, body, kind):
                limit = value_of(s, PRAGMA, limit)  # its own annotation, else that of a loop further out
                body = visit(body, limit)
                new = kind
                if kind in (Kind.UNROLLED, Kind.SERIAL):
                    made = size(body).times(int(extent.value)) if isinstance(extent, Const) else None
                    wanted = kind is Kind.UNROLLED or (
                        made and made.statements <= limit and all(x.kind in (Kind.VECTORIZED, Kind.UNROLLED) for x in loops(body))
                    )
                    new = Kind.UNROLLED if wanted and made and made.operations <= MAX_OPERATIONS else Kind.SERIAL
                return s.with_(body=body, kind=new)
            case _:
                return map_statements(s, lambda c: visit(c, limit))

    return func.with_(body=visit(func.body, 0))


class Size(NamedTuple):
    """Stores, and operations: stores, loads and arithmetic, except on indices, most of which is loop-invariant."""

    statements: int
    operations: int

    def times(self, n: int) -> Size:
        return Size(n * self.statements, n * self.operations)


def size(s: Stmt) -> Size:
    """The size of a statement once unrolled loops are written out."""
    match s:
        case Store(_, indices, value):
            return Size(1, 1 + _operations(value) + sum(map(_loaded, indices)))
        case For(_, Const(n), body, Kind.UNROLLED):
            return size(body).times(int(n))
        case _:
            parts = [size(c) for c in children(s) if isinstance(c, Stmt)]
            own = sum(_operations(c) for c in children(s) if isinstance(c, Expr))
            return Size(sum(p.statements for p in parts), own + sum(p.operations for p in parts))


def _operations(e: Expr) -> int:
    match e:
        case Var() | Const():
            return 0
        case Load(_, indices):
            return 1 + sum(map(_loaded, indices))
        case Binary(op, a, b) if op in COMPARISONS and not _loaded(a) and not _loaded(b):  # of indices, as whether one is padding
            return 1
        case _:
            return 1 + sum(_operations(c) for c in children(e) if isinstance(c, Expr))


def _loaded(index: Expr) -> int:
    """The loads in an index."""
    return sum(isinstance(n, Load) for n in walk(index))
