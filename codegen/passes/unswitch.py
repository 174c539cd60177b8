"""Conditions on the updates of a reduction leave the loops on which they don't depend."""

from __future__ import annotations

from tir.arith.simplify import wraps
from tir.ir import TRUE, Expr, For, If, Load, PrimFunc, Select, Seq, Stmt, Store, conjunction, conjuncts
from tir.traverse import map_statements, variables


def unswitch(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in range(n): C[i] = if_then_else(c, C[i] + A[k], C[i])
              => if c: for k in range(n): C[i] = C[i] + A[k]

    where c, or a part of it that holds for every update in the loop, is made of indices and not of k: nothing is stored where
    what was there would stay. In a transposed convolution, whose sum runs over the elements of an image and skips the zeros
    between them, whole loops disappear, at run time or, where loops around are unrolled, from the code.
    """

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            common = _conditions(s)
            if common:
                return If(conjunction(*common), visit(_without(s, set(common))))
        return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _update(s: Store) -> Select | None:
    """The value of a store that keeps what is there where its condition does not hold."""
    value = s.value
    if isinstance(value, Select) and value.false_value == Load(s.buffer, s.indices):
        return value
    return None


def _conditions(s: Stmt) -> list[Expr]:
    """The conditions under which alone anything is stored in `s`, as far as nothing within `s` decides them."""
    match s:
        case Store():
            update = _update(s)
            # What loads or may overflow could be decided otherwise elsewhere.
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
    """`s` where the conditions `known` hold."""
    if isinstance(s, Store):
        update = _update(s)
        if update is None:
            return s
        left = conjunction(*(c for c in conjuncts(update.condition) if c not in known))
        value = update.true_value if left == TRUE else Select(left, update.true_value, update.false_value, lazy=update.lazy)
        return s.with_(value=value)
    return map_statements(s, lambda c: _without(c, known))
