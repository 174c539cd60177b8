"""The status that a kernel returns, and its Python error: no memory, or an integer divided by zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tir import dtypes
from tir.ir import Binary, Buffer, Cast, Const, Expr, Load, PrimFunc
from tir.traverse import divisions

NO_MEMORY = 1
DIVIDED = 2  # an integer was divided by zero; a larger status identifies the division
PLACES = 1 << 15  # most divisions of a kernel with a status of their own; an entry adds the number of its step above


def division_statuses(func: PrimFunc) -> dict[Expr, int]:
    """The statuses of the divisions of a lowered function whose divisor may be zero, the same at each call."""
    found = (n for n in divisions(func.body) if dtypes.is_int(n.dtype) and not (isinstance(n.b, Const) and n.b.value))
    return {e: DIVIDED + 1 + n for n, e in zip(range(PLACES), dict.fromkeys(found), strict=False)}


def failure(lowered: PrimFunc, status: int, arguments: Sequence[Any] = (), name: str = "") -> Exception:
    """The error for a nonzero status of a function; the arguments of its call may be unknown."""
    name = name or lowered.name
    if status == NO_MEMORY:
        return MemoryError(f"{name}: no memory for its temporaries; the results are undefined")
    division = next((e for e, number in division_statuses(lowered).items() if number == status), None)
    what = f"`{division}` divides" if division is not None else "an integer is divided"
    where = _first_zero(division.b, lowered, arguments) if isinstance(division, Binary) else ""
    return ZeroDivisionError(f"{name}: {what} by zero{where}; the results are undefined")


def _first_zero(divisor: Expr, func: PrimFunc, arguments: Sequence[Any]) -> str:
    """The first place where a divisor that is an element of a parameter is 0, in words; empty if unknown."""
    while isinstance(divisor, Cast):
        divisor = divisor.value
    given = {p.name: a for p, a in zip(func.params, arguments, strict=False) if isinstance(p, Buffer)}
    array = given.get(divisor.buffer.name) if isinstance(divisor, Load) else None
    places = np.argwhere(array == 0)[:1] if isinstance(array, np.ndarray) else ()
    return "".join(f"; the first 0 of `{divisor.buffer.name}` is at {tuple(map(int, place))}" for place in places)  # type: ignore[attr-defined]
