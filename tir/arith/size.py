"""Numbers that remember how they were computed from the columns of a population."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

from .points import ON_NUMBERS

WAITING = 100  # formulas that wait for one another at most: to make one of them is a recursion
Formula = tuple  # ("column", n), ("const", value) or (operation, Formula, Formula)


_WAITING = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def _operator(op: str, of: Callable[[str, int, int], int]) -> tuple[Callable[[Size, Any], Any], Callable[[Size, Any], Any]]:
    """The methods of an operation on numbers: with the Size to the left, and to the right."""
    return (
        lambda self, other: of(op, self, other) if isinstance(other, int) else NotImplemented,
        lambda self, other: of(op, other, self) if isinstance(other, int) else NotImplemented,
    )


def _later(op: str, a: int, b: int) -> Size:
    """A result whose formula waits until it is asked for, or until too many wait below it; what 0 is added to, or what is
    multiplied by 1, as it is."""
    neutral = 1 if op == "*" else 0
    if type(b) is int and b == neutral and type(a) is Size:
        return a
    if type(a) is int and a == neutral and type(b) is Size and op != "-":
        return b
    self = int.__new__(Size, _WAITING[op](a, b))
    self._made = op, a, b
    below = 0
    for x in (a, b):
        if isinstance(x, Size) and x._depth > below and "formula" not in x.__dict__:
            below = x._depth
    self._depth = 1 + below
    if self._depth >= WAITING:
        formula(self)
    return self


def _apply(op: str, a: int, b: int) -> int:
    """A quotient or a remainder; a plain number where it is found to be the same in every row."""
    value = ON_NUMBERS[op](int(a), int(b))
    f, g = formula(a), formula(b)
    known = _simplified(op, f, g)
    return value if known[0] == "const" and "const" not in (f[0], g[0]) else Size(value, known)


class Size(int):
    """An integer with a formula: what arithmetic makes of it has one, too.

    It is a witness: programs that compute with integers run on it unchanged, comparisons included, and what they compute tells
    how it depends on the columns (concolic execution; Sen, Marinov and Agha, "CUTE", ESEC/FSE 2005). The formula holds for the
    other rows as far as the program would have taken the same path with them.
    """

    _made: tuple[str, int, int] | None = None  # what the formula is made from when it is first asked for
    _depth = 0  # of the formulas that wait below this one

    def __new__(cls, value: int, formula: Formula) -> Size:
        self = super().__new__(cls, value)
        self.formula = formula
        return self

    @cached_property
    def formula(self) -> Formula:
        assert self._made is not None
        op, a, b = self._made
        return _simplified(op, formula(a), formula(b))

    @staticmethod
    def column(value: int, column: int) -> Size:
        """The number in a column, `value` being the witness."""
        return Size(value, ("column", column))

    # Most sums and products only serve a comparison, so their formulas wait.
    __add__, __radd__ = _operator("+", _later)
    __sub__, __rsub__ = _operator("-", _later)
    __mul__, __rmul__ = _operator("*", _later)
    __floordiv__, __rfloordiv__ = _operator("//", _apply)
    __mod__, __rmod__ = _operator("%", _apply)

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


class Chosen(Size):
    """The number of one of a few values of any kind, by a column: what stands in a program where rows differ in something that is
    no number."""

    values: tuple[Any, ...]

    @staticmethod
    def of(number: Size, values: tuple[Any, ...]) -> Chosen:
        """The value whose number stands in a column."""
        self = Chosen(int(number), number.formula)
        self.values = values
        return self

    def told(self, tell: Callable[[Any], int]) -> int:
        """What `tell` says of the value."""
        result: int = tell(self.values[0])
        for n, (before, value) in enumerate(pairwise(self.values), 1):
            result = result + (tell(value) - tell(before)) * (1 - less(self, n))
        return result


def mapped(value: Any, of: Callable[[Any], Any]) -> Any:
    """What a function makes of a value, of which rows may choose different ones."""
    return Chosen.of(value, tuple(map(of, value.values))) if isinstance(value, Chosen) else of(value)


def told(value: Any, tell: Callable[[Any], int]) -> int:
    """What `tell` says of a value, of which rows may choose different ones."""
    return value.told(tell) if isinstance(value, Chosen) else tell(value)


def formula(value: int) -> Formula:
    """How a number depends on the columns; a plain integer is a constant."""
    return value.formula if isinstance(value, Size) else ("const", int(value))


def columns_of(f: Formula) -> tuple[int, ...]:
    """The columns in a formula, in the order in which it has them."""
    match f:
        case ("column", n):
            return (n,)
        case ("const", _):
            return ()
        case (_, a, b):
            return (*columns_of(a), *columns_of(b))
    raise ValueError(f"no formula: {f!r}")


def value_of(f: Formula, number: Callable[[int], int]) -> int:
    """The value of a formula, given the number of each column."""
    match f:
        case ("column", n):
            return number(n)
        case ("const", value):
            return value
        case (op, a, b):
            operation = {"min": lesser, "<": less}.get(op, ON_NUMBERS[op])
            return operation(value_of(a, number), value_of(b, number))
    raise ValueError(f"no formula: {f!r}")


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


def _simplified(op: str, f: Formula, g: Formula) -> Formula:
    """The formula of an operation on two."""
    match op, f, g:
        case ("+", f, ("const", 0)) | ("+", ("const", 0), f) | ("-", f, ("const", 0)):
            return f
        case ("*", f, ("const", 1)) | ("*", ("const", 1), f) | ("//", f, ("const", 1)):
            return f
        case "-", ("const", 0), ("-", ("const", 0), f):
            return f
        case "//", ("*", _, _) as f, g if (quotient := _quotient(f, g)) is not None:
            return quotient
        case _, ("const", x), ("const", y):
            return ("const", ON_NUMBERS[op](x, y))
        case _, f, g:
            return (op, f, g)


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
