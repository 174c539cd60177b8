"""Enumeration: integer expressions evaluated over arrays of values of their variables, for proofs by exhaustion."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..ir import Binary, Call, Cast, Const, Expr, Select, Unary, Var
from ..traverse import variables
from .width import TooWide, largest_magnitude

# The operators of integer expressions, on Python's numbers.
PYTHON_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min, "max": max,
    "and": lambda a, b: bool(a and b), "or": lambda a, b: bool(a or b), "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ON_ARRAYS = PYTHON_OPERATORS | {"min": np.minimum, "max": np.maximum, "and": np.logical_and, "or": np.logical_or}


def grid(counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """All combinations of the values 0 .. count - 1 of the variables, as one array for each variable."""
    axes = np.meshgrid(*(np.arange(n) for n in counts.values()), indexing="ij")
    return {name: a.reshape(-1) for name, a in zip(counts, axes, strict=True)} if counts else {}


MAX_SPARSITY = 16  # places a row: with more, distinct rows are found by sorting, not by marking their places


class UnknownValue(ValueError):
    """An expression whose value is not known before the program runs."""


def evaluate(e: Expr, values: Mapping[str, Any]) -> np.ndarray:
    """The exact value of an integer or boolean expression over arrays of values of its variables (or over integers).

    Raises UnknownValue where it has loads, floats, unknown variables or a division by zero, or needs more than 64 bits.
    """
    used = [(name, values[name]) for name in variables(e) if name in values]
    try:
        largest_magnitude(e, {name: max(int(np.max(v, initial=0)), -int(np.min(v, initial=0))) for name, v in used})
    except TooWide as error:
        raise UnknownValue(str(error)) from None
    return _evaluated(e, values)


def _evaluated(e: Expr, values: Mapping[str, Any]) -> np.ndarray:
    match e:
        case Const(value) if not dtypes.is_float(e.dtype):
            return np.asarray(value)
        case Var(name) if name in values:
            return values[name]
        case Cast("int32" | "int64", value) if not dtypes.is_float(value.dtype):
            return np.asarray(_evaluated(value, values)).astype(np.int64)
        case Cast("int8" | "int16" | "uint8" | "uint16" | "uint32" as dtype, value) if not dtypes.is_float(value.dtype):
            return np.asarray(_evaluated(value, values)).astype(dtype).astype(np.int64)
        case Unary("not", a):
            return np.logical_not(_evaluated(a, values))
        case Unary("neg", a):
            return np.negative(_evaluated(a, values))
        case Call("bit_xor", (a, b)):
            return np.bitwise_xor(_evaluated(a, values), _evaluated(b, values))
        case Select(c, t, f):
            return np.where(_evaluated(c, values), _evaluated(t, values), _evaluated(f, values))
        case Binary(op, a, b) if op in _ON_ARRAYS:
            x, y = _evaluated(a, values), _evaluated(b, values)
            if op in ("//", "%") and not np.all(y):
                raise UnknownValue(f"`{e}` divides by zero")
            return _ON_ARRAYS[op](x, y)
        case _:
            raise UnknownValue(f"`{e}` is not made of variables and constants")


def as_rows(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The matrix of `count` rows that these columns are."""
    return np.stack(columns, axis=1) if columns else np.empty((count, 0), np.int64)


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of an integer matrix, sorted, and each row's index; much faster than `np.unique(axis=0)`."""
    if not len(rows) or not rows.shape[1]:
        return rows[:1], np.zeros(len(rows), np.int64)
    columns = rows.T.astype(np.int64, order="C")  # a column after the other: reductions over the rows are several times as fast
    low = [int(c.min()) for c in columns]
    spans = [int(c.max()) - least + 1 for c, least in zip(columns, low, strict=True)]
    if prod(spans) >= 2**62:
        found, place = np.unique(rows, axis=0, return_inverse=True)
        return found, place.reshape(-1)
    key = columns[0] - low[0]
    for column, least, span in zip(columns[1:], low[1:], spans[1:], strict=True):
        key = key * span + (column - least)
    if prod(spans) <= MAX_SPARSITY * len(rows):
        row_of = np.full(prod(spans), -1)
        row_of[key] = np.arange(len(rows))
        taken = row_of >= 0
        return rows[row_of[taken]], (np.cumsum(taken) - 1)[key]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], place.reshape(-1)


# --- iterations --------------------------------------------------------------------------------------------------------

MAX_POINTS = 100_000  # iterations to try at once where no proof is found
MAX_ALL_POINTS = 4_000_000  # iterations to try one after another: about a second


@dataclass(frozen=True)
class Points:
    """Iterations, as an array of values for each variable. `whole`: none is left out; `certain`: all of them happen."""

    values: dict[str, np.ndarray]
    whole: bool
    certain: bool
    count: int

    def __len__(self) -> int:
        return self.count

    def evaluate(self, exprs: Iterable[Expr]) -> list[np.ndarray] | None:
        """The value of each expression at every point; None where one is not known before the program runs."""
        try:
            return [np.broadcast_to(evaluate(e, self.values), len(self)) for e in exprs]
        except UnknownValue:
            return None

    def at(self, n: int, names: Iterable[str]) -> str:
        """The variables at point `n`, as text."""
        return ", ".join(f"{name}={int(self.values[name][n])}" for name in names if name in self.values)


def enumerate_points(
    extents: Mapping[str, int | None], needed: set[str], conditions: Sequence[Expr], limit: int = MAX_POINTS
) -> Points | None:
    """The needed loops' iterations in which the conditions hold; the two ends above `limit`. None for a symbolic extent."""
    full = _needed_extents(extents, needed, conditions)
    if full is None:
        return None
    sizes = dict(full)
    while prod(sizes.values()) > limit:
        largest = max(sizes, key=lambda name: sizes[name])
        sizes[largest] = (sizes[largest] + 1) // 2
    values = grid(sizes)
    whole = full == sizes
    if not whole:  # the last iterations too, where mistakes are most likely
        values = {n: np.concatenate([v, v + (full[n] - sizes[n])]) for n, v in values.items()}
    return _reached(values, conditions, whole)


def enumerate_all(extents: Mapping[str, int | None], needed: set[str], conditions: Sequence[Expr]) -> Iterator[Points]:
    """The iterations of `enumerate_points`; where it leaves some out, then all in parts, if there are at most MAX_ALL_POINTS.
    The last part is `whole` if none is left out. Yields nothing if an extent is symbolic."""
    points = enumerate_points(extents, needed, conditions)
    if points is None:
        return
    yield points
    full = _needed_extents(extents, needed, conditions) or {}
    total = prod(full.values())
    if not points.whole and total <= MAX_ALL_POINTS:
        for first in range(0, total, MAX_POINTS):
            numbers = np.arange(first, min(first + MAX_POINTS, total))
            values = dict(zip(full, np.unravel_index(numbers, tuple(full.values())), strict=True))
            yield _reached(values, conditions, whole=numbers[-1] == total - 1)


def _needed_extents(extents: Mapping[str, int | None], needed: set[str], conditions: Sequence[Expr]) -> dict[str, int] | None:
    """The extents of the loops in `needed` or in the conditions; None if one is symbolic."""
    used = needed | variables(*conditions)
    found = {name: extent for name, extent in extents.items() if name in used}
    return None if None in found.values() else found  # type: ignore[return-value]


def _reached(values: dict[str, np.ndarray], conditions: Sequence[Expr], whole: bool) -> Points:
    """The iterations among `values` in which the conditions hold."""
    keep, certain = np.ones(len(next(iter(values.values()))) if values else 1, bool), True
    for c in conditions:
        try:
            keep &= evaluate(c, values)
        except UnknownValue:
            certain = False
    return Points({n: v[keep] for n, v in values.items()}, whole, certain, int(np.count_nonzero(keep)))
