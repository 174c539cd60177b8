"""Symbolic integers: integers that carry their formula over the columns of a population."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

from .enumeration import PYTHON_OPERATORS

MAX_PENDING_FORMULAS = 100  # in one chain: a formula is built by recursion over its operands
Formula = tuple  # ("column", n), ("const", value) or (operation, Formula, Formula)
_Operator = Callable[["SymbolicInt", Any], Any]

_INT_OPERATORS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def _methods(op: str, apply: Callable[[str, int, int], int]) -> tuple[_Operator, _Operator]:
    """The methods of a binary operator: for a SymbolicInt as the left operand, and as the right one."""
    return (
        lambda self, other: apply(op, self, other) if isinstance(other, int) else NotImplemented,
        lambda self, other: apply(op, other, self) if isinstance(other, int) else NotImplemented,
    )


def _deferred(op: str, a: int, b: int) -> SymbolicInt:
    """`a op b`, whose formula is built on first use, or above MAX_PENDING_FORMULAS. x + 0 and x * 1 are x."""
    neutral = 1 if op == "*" else 0
    if type(b) is int and b == neutral and type(a) is SymbolicInt:
        return a
    if type(a) is int and a == neutral and type(b) is SymbolicInt and op != "-":
        return b
    self = int.__new__(SymbolicInt, _INT_OPERATORS[op](a, b))
    self._operation = op, a, b
    below = 0
    for x in (a, b):
        if isinstance(x, SymbolicInt) and x._depth > below and "formula" not in x.__dict__:
            below = x._depth
    self._depth = 1 + below
    if self._depth >= MAX_PENDING_FORMULAS:
        formula(self)
    return self


def _division(op: str, a: int, b: int) -> int:
    """`a // b` or `a % b`; a plain integer where the formula simplifies to a constant."""
    value = PYTHON_OPERATORS[op](int(a), int(b))
    f, g = formula(a), formula(b)
    simplified = _simplified(op, f, g)
    return value if simplified[0] == "const" and "const" not in (f[0], g[0]) else SymbolicInt(value, simplified)


class SymbolicInt(int):
    """An integer with a formula; the results of arithmetic on it have one, too.

    The integer is a witness: a program on integers runs on it unchanged, comparisons included. The formulas of its results say
    how they depend on the columns (concolic execution; Sen, Marinov and Agha, "CUTE", ESEC/FSE 2005). A formula holds for the
    candidates with which the program takes the same path.
    """

    _operation: tuple[str, int, int] | None = None  # from which the formula is built on first use
    _depth = 0  # the longest chain of operations without a formula that ends here

    def __new__(cls, value: int, formula: Formula) -> SymbolicInt:
        self = super().__new__(cls, value)
        self.formula = formula
        return self

    @cached_property
    def formula(self) -> Formula:
        assert self._operation is not None
        op, a, b = self._operation
        return _simplified(op, formula(a), formula(b))

    @staticmethod
    def column(value: int, column: int) -> SymbolicInt:
        """The integer in a column, with `value` as its witness."""
        return SymbolicInt(value, ("column", column))

    # The formulas of sums and products are deferred: most serve a single comparison and are never used.
    __add__, __radd__ = _methods("+", _deferred)
    __sub__, __rsub__ = _methods("-", _deferred)
    __mul__, __rmul__ = _methods("*", _deferred)
    __floordiv__, __rfloordiv__ = _methods("//", _division)
    __mod__, __rmod__ = _methods("%", _division)

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


class SymbolicChoice(SymbolicInt):
    """A choice among `values` of any type, by an index in a column."""

    values: tuple[Any, ...]

    @staticmethod
    def of(index: SymbolicInt, values: tuple[Any, ...]) -> SymbolicChoice:
        """`values[index]`."""
        self = SymbolicChoice(int(index), index.formula)
        self.values = values
        return self

    def to_int(self, of: Callable[[Any], int]) -> int:
        """`of` applied to the chosen value."""
        result: int = of(self.values[0])
        for n, (before, value) in enumerate(pairwise(self.values), 1):
            result = result + (of(value) - of(before)) * (1 - symbolic_less(self, n))
        return result


def map_choice(value: Any, of: Callable[[Any], Any]) -> Any:
    """`of(value)`; for a SymbolicChoice, the choice among the results of `of` on its values."""
    return SymbolicChoice.of(value, tuple(map(of, value.values))) if isinstance(value, SymbolicChoice) else of(value)


def choice_to_int(value: Any, of: Callable[[Any], int]) -> int:
    """`of(value)`, an integer; for a SymbolicChoice, a symbolic integer."""
    return value.to_int(of) if isinstance(value, SymbolicChoice) else of(value)


def formula(value: int) -> Formula:
    """The formula of an integer over the columns; a plain integer is a constant."""
    return value.formula if isinstance(value, SymbolicInt) else ("const", int(value))


def columns_of(f: Formula) -> tuple[int, ...]:
    """The columns in a formula, from left to right, repetitions included."""
    match f:
        case ("column", n):
            return (n,)
        case ("const", _):
            return ()
        case (_, a, b):
            return (*columns_of(a), *columns_of(b))
    raise ValueError(f"no formula: {f!r}")


def evaluate_formula(f: Formula, number: Callable[[int], int]) -> int:
    """The value of a formula, where `number(n)` is the integer in column n."""
    match f:
        case ("column", n):
            return number(n)
        case ("const", value):
            return value
        case (op, a, b):
            operation = {"min": symbolic_min, "<": symbolic_less}.get(op, PYTHON_OPERATORS[op])
            return operation(evaluate_formula(a, number), evaluate_formula(b, number))
    raise ValueError(f"no formula: {f!r}")


def symbolic_min(a: int, b: int) -> int:
    """min(a, b), with a formula that holds for all candidates, whichever operand is the smaller one."""
    return a if formula(a) == formula(b) else _with_formula(min(int(a), int(b)), "min", a, b)


def symbolic_less(a: int, b: int) -> int:
    """1 where a < b, else 0, with a formula that holds for all candidates."""
    return _with_formula(int(int(a) < int(b)), "<", a, b)


def _with_formula(value: int, op: str, a: int, b: int) -> int:
    plain = is_fixed(a) and is_fixed(b)
    return value if plain else SymbolicInt(value, (op, formula(a), formula(b)))


def may_be_zero(n: int) -> bool:
    """True where an integer has a factor made by `symbolic_less`, and so may be 0 for some candidates."""
    return any(f[0] == "<" for f in _factors(formula(n)))


def is_fixed(n: int) -> bool:
    """True where an integer is the same for all candidates."""
    return not isinstance(n, SymbolicInt)


def is_one(n: int) -> bool:
    """True where an integer is 1 for all candidates."""
    return n == 1 and is_fixed(n)


def _simplified(op: str, f: Formula, g: Formula) -> Formula:
    """The formula `f op g`, simplified."""
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
            return ("const", PYTHON_OPERATORS[op](x, y))
        case _, f, g:
            return (op, f, g)


def _factors(f: Formula) -> list[Formula]:
    return [*_factors(f[1]), *_factors(f[2])] if f[0] == "*" else [f]


def _quotient(f: Formula, g: Formula) -> Formula | None:
    """The product f divided by the factors of g; None if f lacks one."""
    rest = _factors(f)
    for factor in _factors(g):
        if factor not in rest:
            return None
        rest.remove(factor)
    return reduce(lambda a, b: ("*", a, b), rest) if rest else ("const", 1)
