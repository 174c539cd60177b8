"""Several steps of a loop in one iteration."""

from __future__ import annotations

from schedule.annotation_values import value_of
from tir.arith.simplify import simplify
from tir.ir import Binary, Const, Expr, For, Kind, PrimFunc, Seq, Stmt, Store, seq
from tir.traverse import fresh, map_statements, names, substitute, walk_stmts, with_fresh_loops

from .memory_hints import IN_ORDER, with_steps
from .unroll import PRAGMA, size


def unroll_steps(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in range(n): S(k)
              => for k_0 in range(n // 4): for k_1 in unroll(4): S(k_0 * 4 + k_1)
                 for k in unroll(n % 4): S(n // 4 * 4 + k)

    below a loop annotated `pragma_auto_unroll_max_step: m`, where S has at most m / 4 statements and no jump, and `unroll` has
    left the loop serial, as it makes more than m. The number of steps, here 4, is the largest divisor of n between the most that
    m permits and half of that, if any, or that most if it makes two iterations. Steps are `in_order`: LLVM loads for none before
    the one before it has ended, and keeps nothing that it has loaded for that one. Both would need more registers than a tile
    leaves.
    """
    taken = names(func)

    def visit(s: Stmt, limit: int) -> Stmt:
        if isinstance(s, For):
            limit = value_of(s, PRAGMA, limit)
            count = _steps_per_iteration(s, limit)
            if count > 1:
                return _in_steps(s, count, taken)
        return map_statements(s, lambda c: visit(c, limit))

    return func.with_(body=visit(func.body, 0))


def _steps_per_iteration(loop: For, limit: int) -> int:
    """The number of steps for an iteration; 1 leaves the loop as it is."""
    made = _stores_once_unrolled(loop.body) if limit and loop.kind is Kind.SERIAL else None
    most = limit // made if made else 1
    if not isinstance(loop.extent, Const):
        return most
    n = int(loop.extent.value)
    whole = (count for count in range(most, most // 2, -1) if n % count == 0)
    return next(whole, most if 2 * most <= n else 1) if most < n else 1


def _in_steps(s: For, count: int, taken: set[str]) -> Stmt:
    steps, one = Const(count, s.extent.dtype), Const(1, s.extent.dtype)

    def several(extent: Expr, start: Expr) -> Stmt:
        if extent == one:
            return with_fresh_loops(substitute(s.body, {s.var: start}), taken)
        inner = s.var.with_(name=fresh(taken, f"{s.name}_step"))
        step = with_fresh_loops(substitute(s.body, {s.var: start + inner}), taken)
        if not isinstance(extent, Const):
            return For(inner, extent, step)
        return For(inner, extent, step, Kind.UNROLLED, ((IN_ORDER, True),))

    whole, left = (simplify(Binary(op, s.extent, steps)) for op in ("//", "%"))
    main = s.with_(extent=whole, body=several(steps, s.var * steps), annotations=with_steps(s, count))
    return main if left.is_zero else seq(main, several(left, simplify(whole * steps)))


def _stores_once_unrolled(s: Stmt) -> int | None:
    """The stores of a statement once unrolled, each of a vector or an element; None if it has jumps."""
    for x in walk_stmts(s):
        written = isinstance(x, For) and x.kind in (Kind.UNROLLED, Kind.VECTORIZED) and isinstance(x.extent, Const)
        if not (written or isinstance(x, Store | Seq)):
            return None
    return size(s).statements
