"""Loop-invariant conditions on the updates of a reduction are hoisted out of their loops."""

from __future__ import annotations

from tir.arith.simplify import wraps
from tir.ir import TRUE, Expr, For, If, Load, PrimFunc, Select, Seq, Stmt, Store, conjunction, conjuncts
from tir.traverse import map_statements, variables


def unswitch(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in range(n): C[i] = if_then_else(c, C[i] + A[k], C[i])
              => if c: for k in range(n): C[i] = C[i] + A[k]

    where c, or a conjunct of it that guards every update in the loop, is an index expression without k. Where c is false, the
    store would only write the old value. In a transposed convolution, whose sum skips the zeros between the elements of an
    image, whole loops disappear: at run time or, where loops around are unrolled, from the code.
    """

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            common = _conditions(s)
            if common:
                return If(conjunction(*common), visit(_without(s, set(common))))
        return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _update(s: Store) -> Select | None:
    """The value of a store that keeps the old element where its condition is false; None for other stores."""
    value = s.value
    if isinstance(value, Select) and value.false_value == Load(s.buffer, s.indices):
        return value
    return None


def _conditions(s: Stmt) -> list[Expr]:
    """The conditions that guard all stores in `s` and are invariant in its loops."""
    match s:
        case Store():
            update = _update(s)
            # A condition that loads or may overflow could have another value elsewhere.
            return [] if update is None else [c for c in conjuncts(update.condition) if not wraps(c)]
        case For(var, _, body):
            return [c for c in _conditions(body) if var.name not in variables(c)]
        case If(_, then, None):
            return _conditions(then)
        case Seq(stmts):
            first, *others = (_conditions(x) for x in stmts)
            return [c for c in first if all(c in o for o in others)]
        case _:
            return []


def _without(s: Stmt, known: set[Expr]) -> Stmt:
    """`s` under the conditions `known`, which its stores no longer test."""
    if isinstance(s, Store):
        update = _update(s)
        if update is None:
            return s
        left = conjunction(*(c for c in conjuncts(update.condition) if c not in known))
        value = update.true_value if left == TRUE else Select(left, update.true_value, update.false_value, lazy=update.lazy)
        return s.with_(value=value)
    return map_statements(s, lambda c: _without(c, known))
