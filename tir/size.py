"""Numbers that remember how they were computed from the columns of a population, and their evaluation for whole matrices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

Formula = tuple  # ("column", n), ("const", value) or (operation, Formula, Formula)

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": np.minimum,
    "max": np.maximum,
}


class Size(int):
    """An integer with a formula: what arithmetic makes of it has one, too.

    It is a witness: programs that compute with integers run on it unchanged, comparisons included, and what they compute tells
    how it depends on the columns (concolic execution; Sen, Marinov and Agha, "CUTE", ESEC/FSE 2005). The formula holds for the
    other rows as far as the program would have taken the same path with them.
    """

    formula: Formula

    def __new__(cls, value: int, formula: Formula) -> Size:
        self = super().__new__(cls, value)
        self.formula = formula
        return self

    @staticmethod
    def column(value: int, column: int) -> Size:
        """The number in a column, `value` being the witness."""
        return Size(value, ("column", column))

    def __add__(self, other):
        return _apply("+", self, other)

    def __radd__(self, other):
        return _apply("+", other, self)

    def __sub__(self, other):
        return _apply("-", self, other)

    def __rsub__(self, other):
        return _apply("-", other, self)

    def __mul__(self, other):
        return _apply("*", self, other)

    def __rmul__(self, other):
        return _apply("*", other, self)

    def __floordiv__(self, other):
        return _apply("//", self, other)

    def __rfloordiv__(self, other):
        return _apply("//", other, self)

    def __mod__(self, other):
        return _apply("%", self, other)

    def __rmod__(self, other):
        return _apply("%", other, self)

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self

    def __neg__(self):
        return 0 - self

    def __pos__(self):
        return self

    def __abs__(self):
        return self if int(self) >= 0 else -self

    def __index__(self):
        return self


def formula(value: int) -> Formula:
    """How a number depends on the columns; a plain integer is a constant."""
    return value.formula if isinstance(value, Size) else ("const", int(value))


def lesser(a: int, b: int) -> int:
    """min(a, b), also where another row decides otherwise."""
    return _extreme("min", a, b)


def greater(a: int, b: int) -> int:
    """max(a, b), also where another row decides otherwise."""
    return _extreme("max", a, b)


def fixed(n: int) -> bool:
    """Whether a number is the same in every row."""
    return not isinstance(n, Size)


def single(n: int) -> bool:
    """Whether a number is 1, in every row."""
    return n == 1 and fixed(n)


def _extreme(op: str, a: int, b: int) -> int:
    value = min(int(a), int(b)) if op == "min" else max(int(a), int(b))
    if formula(a) == formula(b):
        return a
    return Size(value, (op, formula(a), formula(b))) if isinstance(a, Size) or isinstance(b, Size) else value


def _apply(op: str, a, b):
    if not isinstance(a, int) or not isinstance(b, int):
        return NotImplemented
    value = _OPERATIONS[op](int(a), int(b))
    match op, formula(a), formula(b):
        case ("+", f, ("const", 0)) | ("+", ("const", 0), f) | ("-", f, ("const", 0)):
            return Size(value, f)
        case ("*", f, ("const", 1)) | ("*", ("const", 1), f) | ("//", f, ("const", 1)):
            return Size(value, f)
        case "-", ("const", 0), ("-", ("const", 0), f):
            return Size(value, f)
        case "//", ("*", _, _) as f, g if (quotient := _quotient(f, g)) is not None:
            return Size(value, quotient) if quotient[0] != "const" else value
        case _, f, g:
            return Size(value, (op, f, g))


def _factors(f: Formula) -> list[Formula]:
    return [*_factors(f[1]), *_factors(f[2])] if f[0] == "*" else [f]


def _quotient(f: Formula, g: Formula) -> Formula | None:
    """A product divided by some of its factors; None if it has not got them."""
    rest = _factors(f)
    for factor in _factors(g):
        if factor not in rest:
            return None
        rest.remove(factor)
    return reduce(lambda a, b: ("*", a, b), rest) if rest else ("const", 1)


class Tape:
    """Formulas to be evaluated together; what they share is computed once."""

    def __init__(self) -> None:
        self._places: dict[Formula, int] = {}
        self._steps: list[tuple[str, int, int]] = []

    def place(self, value: int) -> int:
        """Take a number in; returns its place in what `run` gives."""
        return self._place(formula(value))

    def _place(self, f: Formula) -> int:
        if f not in self._places:
            step = (f[0], f[1], 0) if f[0] in ("column", "const") else (f[0], self._place(f[1]), self._place(f[2]))
            self._places[f] = len(self._steps)
            self._steps.append(step)
        return self._places[f]

    def run(self, rows: np.ndarray) -> Sequence[np.ndarray | int]:
        """All numbers, by place, for an (n, columns) integer matrix: int64 vectors of length n, and integers."""
        values: list[np.ndarray | int] = []
        for op, a, b in self._steps:
            match op:
                case "column":
                    values.append(rows[:, a])
                case "const":
                    values.append(a)
                case _:
                    values.append(_OPERATIONS[op](values[a], values[b]))
        return values
