"""Reductions whose partial results are combined across the lanes of vectors."""

from __future__ import annotations

from tir.ir import Binary, Const, Expr, For, If, Kind, Load, PrimFunc, Stmt, Store, annotation
from tir.traverse import map_statements, variables

ANNOTATION = "combine_lanes"
OPERATORS = ("+", "*", "min", "max")


def combine_lanes(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in serial(n, {"combine_lanes": True}): C[c] = C[c] + X(k)
              => for k in vectorized(n): C[c] = C[c] + X(k)

    where c does not depend on k and the operator is + * min or max; the update may stand under conditions. The backend computes X
    for all lanes and combines them in pairs. The annotation is the schedule's leave to change the order in which floats are
    combined; a loop whose body is anything else than one such update stays serial.
    """

    def visit(s: Stmt) -> Stmt:
        match s:
            case For(var, Const(), body, Kind.SERIAL) if annotation(s.annotations, ANNOTATION):
                update = _only_statement(body)
                if isinstance(update, Store) and updated(update) and not any(var.name in variables(i) for i in update.indices):
                    return s.with_(kind=Kind.VECTORIZED)
        return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _only_statement(s: Stmt) -> Stmt:
    """What stands under the conditions of `s`."""
    while isinstance(s, If) and s.orelse is None:
        s = s.then
    return s


def updated(s: Store) -> tuple[str, Expr] | None:
    """The operator and the operand of an update `C[c] = C[c] op operand`, either way round; None for any other store."""
    match s.value:
        case Binary(op, Load(buffer, indices), operand) if op in OPERATORS and buffer == s.buffer and indices == s.indices:
            return op, operand
        case Binary(op, operand, Load(buffer, indices)) if op in OPERATORS and buffer == s.buffer and indices == s.indices:
            return op, operand
    return None
