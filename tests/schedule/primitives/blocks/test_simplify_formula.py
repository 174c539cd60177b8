import numpy as np
import pytest

from schedule import Schedule, ScheduleError
from tests.programs import matmul
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.interpreter import run


def formula(make, *shape: int, dtype: str = "float32"):
    shape = shape or (7, 13)
    A = te.placeholder(shape, dtype, name="A")
    return te.create_prim_func([A, te.compute(shape, lambda *i: make(A, *i), name="B")])


def test_indices_and_conditions():
    s = Checked(formula(lambda A, i, j: te.if_then_else(te.all(i >= 0, j < 13), A[i, j // 4 * 4 + j % 4] * 1.0, 0.0)))
    s.simplify_formula("B")
    s.becomes("""
        for i0, i1 in T.grid(7, 13):
            with T.block("B"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                B[v_i0, v_i1] = A[v_i0, v_i1]
    """)


def test_axes_of_one_value_stay():
    s = Checked(formula(lambda A, n, i: A[n, (i // 13) + i] + te.pow(A[n, i], 1.0), 1, 13))
    s.simplify_formula("B")
    s.becomes("""
        for i0, i1 in T.grid(1, 13):
            with T.block("B"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                B[v_i0, v_i1] = A[v_i0, v_i1] + A[v_i0, v_i1]
    """)


NUMBERS = np.array([[0.0, -0.0, 1.5, -2.0, 1.5, np.inf, -np.inf]], "float32")

CHOICES = {
    "a < b, b, a": (lambda a, b: te.select(a < b, b, a), "T.max(A[v_i0, v_i1], A[v_i0, 6 - v_i1])"),
    "a <= b, b, a": (lambda a, b: te.select(a <= b, b, a), "T.max(A[v_i0, 6 - v_i1], A[v_i0, v_i1])"),
    "a > b, a, b": (lambda a, b: te.select(a > b, a, b), "T.max(A[v_i0, 6 - v_i1], A[v_i0, v_i1])"),
    "a >= b, a, b": (lambda a, b: te.select(a >= b, a, b), "T.max(A[v_i0, v_i1], A[v_i0, 6 - v_i1])"),
    "a < b, a, b": (lambda a, b: te.if_then_else(a < b, a, b), "T.min(A[v_i0, 6 - v_i1], A[v_i0, v_i1])"),
    "a <= b, a, b": (lambda a, b: te.select(a <= b, a, b), "T.min(A[v_i0, v_i1], A[v_i0, 6 - v_i1])"),
    "a > b, b, a": (lambda a, b: te.select(a > b, b, a), "T.min(A[v_i0, v_i1], A[v_i0, 6 - v_i1])"),
    "a >= b, b, a": (lambda a, b: te.select(a >= b, b, a), "T.min(A[v_i0, 6 - v_i1], A[v_i0, v_i1])"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_of_the_larger_and_the_smaller(name):
    """The same bits, zeros of both signs among them."""
    choose, result = CHOICES[name]
    s = Schedule(formula(lambda A, i, j: choose(A[i, j], A[i, 6 - j]), 1, 7))
    before = s.func
    s.simplify_formula("B")
    assert f"B[v_i0, v_i1] = {result}" in s.script
    old, new = np.empty_like(NUMBERS), np.empty_like(NUMBERS)
    run(before, NUMBERS, old)
    run(s.func, NUMBERS, new)
    assert old.tobytes() == new.tobytes()


def test_powers():
    s = Schedule(formula(lambda A, i, j: te.pow(A[i, j] - 1.0, 2.0)))
    s.simplify_formula("B")
    assert "B[v_i0, v_i1] = (A[v_i0, v_i1] - T.float32(1.0)) * (A[v_i0, v_i1] - T.float32(1.0))" in s.script


POWERS_OF_TWO = {
    "one": (lambda x: x * 4.0 * 0.25, "A[v_i0, v_i1]"),
    "product": (lambda x: 2.0 * (x * 4.0), "A[v_i0, v_i1] * T.float32(8.0)"),
    "quotient": (lambda x: x / 8.0 * 2.0, "A[v_i0, v_i1] * T.float32(0.25)"),
    "sign": (lambda x: x * -2.0 * 0.5, "-A[v_i0, v_i1]"),
    "others round": (lambda x: x * 4.0 * 0.5 * 3.0, "A[v_i0, v_i1] * T.float32(2.0) * T.float32(3.0)"),
}


@pytest.mark.parametrize("name", POWERS_OF_TWO)
def test_powers_of_two_become_one_factor_where_that_is_asked(name):
    make, simple = POWERS_OF_TWO[name]
    s = Checked(formula(lambda A, i, j: make(A[i, j])))
    with pytest.raises(ScheduleError, match="nothing in `B` can be simplified"):
        s.simplify_formula("B")
    s.simplify_formula("B", factors=True)
    assert f"B[v_i0, v_i1] = {simple}\n" in s.script


@pytest.mark.parametrize("make", [lambda x: x * 0.5, lambda x: x * 3.0 * 5.0, lambda x: x * 2.0**14 * 2.0, lambda x: 0.5 * x])
def test_other_factors_stay(make):
    """One alone, those that round, and those that some type has not."""
    with pytest.raises(ScheduleError, match="nothing in `B` can be simplified"):
        Schedule(formula(lambda A, i, j: make(A[i, j]))).simplify_formula("B", factors=True)


def test_other_choices_stay():
    for make in (lambda a: te.select(a < 0.0, a, 1.0), lambda a: te.select(a.equal(0.0), 0.0, a), lambda a: te.pow(a, 3.0)):
        s = Schedule(formula(lambda A, i, j, make=make: make(A[i, j])))
        with pytest.raises(ScheduleError, match="nothing in `B` can be simplified"):
            s.simplify_formula("B")


def test_refuses_what_is_simple():
    Checked(matmul()).refuses("""
        simplify_formula('C'): nothing in `C` can be simplified
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


def test_a_reduction_over_nothing_keeps_its_init():
    A, k = te.placeholder((7,), name="A"), te.reduce_axis((0, 0), name="k")
    s = Checked(te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i] * 2.0, axis=k), name="C")]))
    s.simplify_formula(s.blockize([s.cache_read("C", "A", "local"), "C"]))
    well_formed(s.func)
    same_numbers(s.before, s.func)
