"""What is proved holds at every point; what follows by a sum of facts is proved."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sweeps import one_in
from tests.tir.arith.expressions import RANGES, A, B, C, random_condition, random_expr, random_ranges, values
from tir.arith.bounds import bounds
from tir.arith.enumeration import evaluate
from tir.arith.polynomial import to_expr
from tir.arith.prove import constant_difference, nonnegative, provably_equal, prove
from tir.arith.simplify import simplify
from tir.ir import COMPARISONS, Binary, Buffer, Const, Load, Var


@one_in(2)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_holds(seed: int) -> None:
    """Whatever facts are given: where all of them hold, so does what they prove."""
    rng = np.random.default_rng(seed)
    proved = 0
    for _ in range(600):
        goal, facts, ranges = random_condition(rng, 2), [random_condition(rng, 2) for _ in range(2)], random_ranges(rng)
        at = values(set("abc"), ranges)
        truth, *given = (np.broadcast_to(evaluate(c, at), at["a"].shape) for c in (goal, *facts))
        assert np.all(evaluate(simplify(goal, ranges), at) == truth), str(goal)
        if prove(goal, ranges, facts):
            proved += 1
            assert np.all(truth | ~np.logical_and(*given)), (str(goal), [str(f) for f in facts], ranges)
    assert proved > 20


@one_in(3)
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("c", [1, 2, 3])
def test_a_quotient_is_bounded_by_what_is_divided(op: str, c: int) -> None:
    """A bound on a // c is proved from the least bounds on a that imply it, and from no weaker ones; `a` may be negative."""
    a = Var("a")
    for bound in range(-4, 5):
        goal = Binary(op, Binary("//", a, Const(c)), Const(bound))
        for limit in range(-12, 13):
            fact = Binary("<" if op in "<=" else ">=", a, Const(limit))
            at = [n for n in range(-40, 41) if holds(fact, n)]
            assert prove(goal, {}, [fact]) == all(holds(goal, n) for n in at), (str(goal), str(fact))


@one_in(2)
@pytest.mark.parametrize("factor", [-3, 2, 3])
@pytest.mark.parametrize("c", [3, 7])
def test_quotients_in_sums_are_bounded_by_what_is_divided(factor: int, c: int) -> None:
    """A row of a window, a // c * stride + b % size: its least and its greatest are proved, and nothing better."""
    row = (A * 4 + B) // c * factor + C % 3
    for limit in range(-8, 9):
        for fact, at in (
            (A * 4 + B < limit, np.arange(limit - 40, limit)), (A * 4 + B >= limit, np.arange(limit, limit + 40)),
        ):  # fmt: skip
            rows = at // c * factor
            low, high = int(rows.min()), int(rows.max()) + 2
            below = (factor > 0) == (fact.op == "<")
            bounds = [row <= high, row <= high - 1] if below else [row >= low, row >= low + 1]
            assert [prove(bound, {}, [fact]) for bound in bounds] == [True, False], (str(row), str(fact))


def holds(condition: Expr, a: int) -> bool:
    return bool(evaluate(condition, {"a": np.array(a)}))


@pytest.mark.parametrize("seed", range(2))
def test_polynomials_of_comparisons(seed: int) -> None:
    """They are all >= 0 exactly where the comparison holds."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(200):
        op = COMPARISONS[rng.integers(6)]
        condition = Binary(op, random_expr(rng, 2), random_expr(rng, 2))
        polynomials = nonnegative(condition)
        at = values(set("abc"), random_ranges(rng))
        if polynomials:
            found += 1
            holds = np.logical_and.reduce([np.broadcast_to(evaluate(to_expr(p), at) >= 0, at["a"].shape) for p in polynomials])
            assert np.array_equal(holds, np.broadcast_to(evaluate(condition, at), at["a"].shape)), str(condition)
        assert bool(polynomials) == (op != "!=")
    assert found > 100


def test_sums_of_facts() -> None:
    """Of two, each with a factor."""
    facts = (A + B * 4 < 32, B >= 0, C <= 2)
    assert prove(A < 32, {}, facts) and not prove(A < 31, {}, facts) and not prove(A >= 0, {}, facts)
    assert prove(A + B * 4 + C < 34, {}, facts) and not prove(A + B * 4 + C < 33, {}, facts)


def test_equal_forms() -> None:
    assert provably_equal(A // 4 * 4 + A % 4, A) and provably_equal((A * 6 + C) // 6, A, RANGES)
    assert not provably_equal((A * 6 + C) // 6, A) and not provably_equal(A, B)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_what_may_wrap_around_proves_nothing(dtype: str) -> None:
    """An element of an array may be the largest number of its type, and one more the least; elements themselves are ordered."""
    element = Load(Buffer("I", (Const(8),), dtype), (Var("a"),))
    one, nine = Const(1, dtype), Const(9, dtype)
    for fact, goal in (
        (element >= one, element + one >= one),
        (element >= one, element * nine >= one),
        (element + one < nine, element < nine),
        (element - one >= one, element >= one),
        (element >= one, -element < one),
    ):
        assert not prove(goal, {}, [fact])
    assert prove(element < nine, {}, [element < Const(8, dtype)]) and prove(element >= one, {}, [element.equal(nine)])
    clipped = Binary("min", Binary("max", element - one, one), nine)
    assert prove(clipped >= one, {}) and prove(clipped <= nine, {}) and not prove(clipped >= nine, {})
    assert bounds(element - one, {}) == ((0, 255) if dtype == "uint8" else (None, None))
    assert bounds(clipped, {}) == (1, 9)


def test_constant_differences():
    assert [constant_difference(A * 4 + B + 3, B + A * 4), constant_difference(A, A), constant_difference(A, B)] == [3, 0, None]
