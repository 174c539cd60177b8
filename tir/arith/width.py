"""Detection of indices that need more than the 64 bits in which machines compute them."""

from __future__ import annotations

from collections.abc import Mapping

from .. import dtypes
from ..ir import Binary, Block, Cast, Const, Expr, For, Let, Node, Select, Stmt, Unary, Var
from ..traverse import children

Sizes = Mapping[str, int | None]  # of variables: the largest absolute value, None where that is not known

LIMIT = 2**63  # the first number that 64 bits do not hold


class TooWide(ArithmeticError):
    """An index that 64 bits may not hold."""


def check_width(n: Node, sizes: Sizes) -> None:
    """Raise TooWide for an index in a statement that 64 bits may not hold, unless that depends on symbolic sizes."""
    inside = dict(sizes)
    for var, extent in _bound(n):
        inside[var.name] = largest_magnitude(extent, sizes)
    for c in children(n):
        if isinstance(c, Stmt):
            check_width(c, inside)
        elif isinstance(c, Expr):
            largest_magnitude(c, inside)


def _bound(n: Node) -> list[tuple[Var, Expr]]:
    """The variables that a statement binds, each with its extent or value."""
    match n:
        case For(var, extent) | Let(var, extent):
            return [(var, extent)]
        case Block(iters=iters):
            return [(it.var, it.extent) for it in iters]
    return []


def largest_magnitude(e: Expr, sizes: Sizes) -> int | None:
    """The largest absolute value that an integer expression may have; None if that is not known. Raises TooWide."""
    match e:
        case Const(value):
            return abs(int(value)) if dtypes.is_int(e.dtype) else None
        case Var(name):
            return sizes.get(name)
    parts = [largest_magnitude(c, sizes) for c in children(e) if isinstance(c, Expr)]
    found = None
    match e, parts:
        case Binary("*", _, _), [int(a), int(b)]:
            found = a * b
        case Binary("+" | "-", _, _), [int(a), int(b)]:
            found = a + b
        case (Binary("//", _, _), [int(a), _]) | (Unary("neg", _), [int(a)]):
            found = a
        case Binary("%", _, _), [_, int(b)]:
            found = max(b - 1, 0)
        case (Binary("min" | "max", _, _), [int(a), int(b)]) | (Select(), [_, int(a), int(b)]):
            found = max(a, b)
        case Cast(dtype, _), [int(a)] if dtypes.is_int(dtype):
            found = min(a, int(dtypes.limits(dtype)[1]) + 1)
    if found is not None and found >= LIMIT and e.dtype in ("int32", "int64"):
        raise TooWide(f"`{e}` may be as large as {found}, and indices are computed in 64 bits")
    return found
