"""Reductions whose partial results are combined across the lanes of vectors."""

from __future__ import annotations

from schedule.legality.reducer import updated
from tir import dtypes
from tir.ir import Binary, Const, Expr, For, If, Kind, Load, PrimFunc, Stmt, Store, annotation, seq
from tir.traverse import loads, map_statements, names, substitute, variables, with_fresh_loops

from .split_vectors import MAX_CHUNKS, widest_bits

ANNOTATION = "combine_lanes"


def combine_lanes(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in serial(n, {"combine_lanes": True}): C[c] = C[c] + X(k)
              => for k in vectorized(n): C[c] = C[c] + X(k)

    where c does not depend on k and the operator is one of `updated`; the update may stand under conditions. The backend computes
    X for all lanes and combines them in pairs. A vector of several registers is combined register by register first,

    Rewrite   for k in vectorized(4 * w): C[c] = C[c] + X(k)
              => for k in vectorized(w): C[c] = C[c] + ((X(k) + X(k + w)) + (X(k + 2 * w) + X(k + 3 * w)))

    The annotation permits another order in which floats are combined. A loop with any other body stays serial. For a maximum of
    floats the first X(k) of each pair becomes max(-inf, X(k)), never NaN: `max` of a NaN and a number is its first argument, and
    would lose the number.
    """

    taken = names(func)

    def visit(s: Stmt) -> Stmt:
        match s:
            case For(var, Const(), body, Kind.SERIAL) if annotation(s.annotations, ANNOTATION):
                update = _only_statement(body)
                if isinstance(update, Store) and _combines(update, var.name, body):
                    return by_registers(s.with_(kind=Kind.VECTORIZED), target.lanes(widest_bits(body)), taken)
        return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _combines(update: Store, loop: str, body: Stmt) -> bool:
    """True where a store updates one element in all iterations of a loop, whose body reads nothing else of that buffer."""
    stays = loop not in variables(*update.indices)
    return updated(update) is not None and stays and sum(x.buffer.name == update.buffer.name for x in loads(body)) == 1


def by_registers(loop: For, lanes: int, taken: set[str]) -> Stmt:
    """A vectorised loop that combines its registers of `lanes` elements first; its remainder is a loop of its own."""
    assert isinstance(loop.extent, Const)
    update, k, n = loop.body, loop.var, int(loop.extent.value)
    count, rest = divmod(n, lanes)
    if not isinstance(update, Store) or not 1 < count <= MAX_CHUNKS:
        return loop.with_(body=_passing_over_nan(loop.body))
    found = updated(update)
    assert found is not None
    op, operand = found
    parts = [substitute(operand, {k: k + i * lanes}) if i else operand for i in range(count)]
    parts = [_without_nan(op, x) if i % 2 == 0 and i + 1 < count else x for i, x in enumerate(parts)]
    while len(parts) > 1:
        pairs = [Binary(op, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    old = Load(update.buffer, update.indices)
    whole = loop.with_(extent=Const(lanes), body=update.with_(value=Binary(op, old, parts[0])))
    last = _passing_over_nan(substitute(update, {k: k + count * lanes}))
    tail = with_fresh_loops(loop.with_(extent=Const(rest), body=last), taken)
    return seq(whole, tail) if rest else whole


def _passing_over_nan(s: Stmt) -> Stmt:
    """An update, which may stand under conditions, with its operand as `_without_nan` has it."""
    if isinstance(s, If):
        return s.with_(then=_passing_over_nan(s.then))
    assert isinstance(s, Store)
    found = updated(s)
    assert found is not None
    op, operand = found
    return s.with_(value=Binary(op, Load(s.buffer, s.indices), _without_nan(op, operand)))


def _without_nan(op: str, operand: Expr) -> Expr:
    """An operand; for a minimum or maximum of floats with the identity in place of NaN, as `max` of both is the first."""
    if op not in ("min", "max") or not dtypes.is_float(operand.dtype):
        return operand
    low, high = dtypes.limits(operand.dtype)
    return Binary(op, Const(high if op == "min" else low, operand.dtype), operand)


def _only_statement(s: Stmt) -> Stmt:
    """The statement under the conditions of `s`."""
    while isinstance(s, If) and s.orelse is None:
        s = s.then
    return s
