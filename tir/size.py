"""Numbers that remember how they were computed from the columns of a population."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

Formula = tuple  # ("column", n), ("const", value) or (operation, Formula, Formula)

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
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
    if formula(a) == formula(b):
        return a
    value = min(int(a), int(b))
    return Size(value, ("min", formula(a), formula(b))) if isinstance(a, Size) or isinstance(b, Size) else value


def less(a: int, b: int) -> int:
    """1 where a < b, else 0, also where another row decides otherwise."""
    value = int(int(a) < int(b))
    return Size(value, ("<", formula(a), formula(b))) if isinstance(a, Size) or isinstance(b, Size) else value


def vanishing(n: int) -> bool:
    """Whether a number is a multiple of what `less` says, so that it is 0 in some rows."""
    return any(f[0] == "<" for f in _factors(formula(n)))


def fixed(n: int) -> bool:
    """Whether a number is the same in every row."""
    return not isinstance(n, Size)


def single(n: int) -> bool:
    """Whether a number is 1, in every row."""
    return n == 1 and fixed(n)


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
        case _, ("const", x), ("const", y):
            return Size(value, ("const", _OPERATIONS[op](x, y)))
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
