"""Integers that remember their formulas."""

from __future__ import annotations

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.arith.symbolic import Formula, SymbolicChoice, SymbolicInt, choice_to_int, formula, is_fixed, is_one, symbolic_min
from tir.ir import Const, Var, const

NAMED = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min,
    "<": lambda a, b: int(a < b),
}  # fmt: skip
OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, symbolic_min)


def value(number: int, row) -> int:
    """What a number is in a row, by its formula."""

    def computed(f: Formula) -> int:
        match f:
            case ("column", n):
                return row[n]
            case ("const", constant):
                return constant
            case (op, a, b):
                return NAMED[op](computed(a), computed(b))

    return computed(formula(number))


@given(
    st.lists(st.tuples(st.sampled_from(range(len(OPERATORS))), st.integers(0, 9), st.booleans()), max_size=6),
    st.integers(1, 50),
    st.integers(1, 50),
)
def test_arithmetic_computes_and_remembers(steps, first, second):
    """The result is that of plain integers, and its formula gives the same for the witness's row; for another row, what the same
    operations give there."""

    def run(a, b):
        results = [a, b]
        for op, place, swapped in steps:
            x, y = results[-1], results[place % len(results)]
            if swapped:
                x, y = y, x
            if OPERATORS[op] in (operator.floordiv, operator.mod) and int(y) <= 0:
                continue
            results.append(OPERATORS[op](x, y))
        return results[-1]

    got = run(SymbolicInt.column(first, 0), SymbolicInt.column(second, 1))
    assert int(got) == run(first, second) == value(got, (first, second))


def test_a_formula_holds_for_other_rows():
    a, b = SymbolicInt.column(3, 0), SymbolicInt.column(5, 1)
    extent = -(-109 // (a * b))
    assert (extent, value(extent, (7, 13)), value(extent, (1, 4))) == (8, 2, 28)
    assert value(symbolic_min(a * b, 109), (7, 16)) == 109


def test_products_divide_exactly():
    """A product divided by one of its factors is the rest, and by all of them 1, whatever the row."""
    a, b, c = (SymbolicInt.column(n + 2, n) for n in range(3))
    assert formula(a * b * c // (c * a)) == formula(b)
    assert is_fixed(a * b // (b * a)) and a * b // (b * a) == 1
    assert value(a * b // c, (7, 13, 4)) == 22


def test_neutral_operations_leave_the_formula():
    a = SymbolicInt.column(7, 0)
    for same in (a + 0, 0 + a, a - 0, a * 1, 1 * a, a // 1, +a, 0 - (-a), symbolic_min(a, a)):
        assert formula(same) == ("column", 0) and same == 7


def test_one_by_accident_is_no_one():
    assert is_one(1) and not is_one(SymbolicInt.column(1, 0)) and not is_one(2)
    assert SymbolicInt.column(1, 0) == 1 and hash(SymbolicInt.column(7, 0)) == hash(7)


def test_products_of_many_factors():
    a, b = SymbolicInt.column(2, 0), SymbolicInt.column(3, 1)
    assert formula(math.prod([a, b, 4])) == formula(a * b * 4)


def test_formulas_of_many_steps_wait_for_one_another_only_so_long():
    total = SymbolicInt.column(3, 0)
    for _ in range(5000):
        total = total + SymbolicInt.column(1, 1)
    assert total == 5003 and formula(total)[0] == "+"


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        SymbolicInt.column(2, 0) + "a"
    assert SymbolicInt.column(2, 0) + 1.5 == 3.5


def test_index_arithmetic_keeps_formulas():
    """Constants of expressions, and coefficients of polynomials, stay what they are."""
    i, j = Var("i"), Var("j")
    a, b = SymbolicInt.column(3, 0), SymbolicInt.column(5, 1)
    assert formula(const(a).value) == formula(a) and const(True, "int32") == Const(1)
    p = polynomial((i * const(a) + j) * const(b))
    assert formula(p[(i,)]) == formula(a * b) and formula(p[(j,)]) == formula(b)
    quotient = simplify((i * const(a * b) + j) // const(b), {"i": (0, 6), "j": (0, 4)})
    assert formula(polynomial(quotient)[(i,)]) == formula(a)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5), st.data())
def test_what_is_said_of_a_chosen_value_depends_on_the_row(values: list[str], data: st.DataObject) -> None:
    numbers = st.integers(0, len(values) - 1)
    chosen = SymbolicChoice.of(SymbolicInt.column(data.draw(numbers), 2), tuple(values))
    length = choice_to_int(chosen, len)
    assert int(length) == len(values[int(chosen)]) and formula(chosen) == ("column", 2)
    for n in range(len(values)):
        assert value(length, (0, 0, n)) == len(values[n])
    assert choice_to_int("abc", len) == 3
