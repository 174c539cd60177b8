"""The rules of the simplifier, each proved at every point of small ranges, negative values included."""

from __future__ import annotations

import numpy as np
import pytest

from tir.arith.bounds import bounds
from tir.arith.enumeration import evaluate, grid
from tir.arith.intervals import Ranges
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import COMPARISONS, FALSE, TRUE, Binary, Cast, Const, Expr, Select, Unary, Var, binary
from tir.traverse import variables

A, B, C = (Var(name) for name in "abc")
P = Var("p", "bool")
RANGES: Ranges = {"a": (-7, 9), "b": (-3, 4), "c": (0, 5)}


def values(names: set[str], ranges: Ranges) -> dict[str, np.ndarray]:
    """All points of the ranges; of `p`, both truth values."""
    spans = {n: (0, 1) if n == "p" else ranges[n] for n in sorted(names)}
    points = grid({n: high - low + 1 for n, (low, high) in spans.items()})  # type: ignore[operator]
    return {n: v.astype(bool) if n == "p" else v + spans[n][0] for n, v in points.items()}


def same(before: Expr, after: Expr, ranges: Ranges = RANGES) -> bool:
    at = values(variables(before), ranges)
    return after.dtype == before.dtype and bool(np.all(evaluate(before, at) == evaluate(after, at)))


RULES = [
    # sums and products
    (A + 0, A),
    (A - A, Const(0)),
    (A * 1, A),
    (A * 0, Const(0)),
    ((A + B) * 3 - A * 2, A + B * 3),
    (-(A - B), B - A),
    (A // 4 * 4 + A % 4, A),
    (A // 4 * 8 + A % 4 * 2 + B, A * 2 + B),
    # quotients
    (A // 1, A),
    ((A * 6 + 7) // 3, A * 2 + 2),
    ((A * 4 - 1) // 4, A - 1),
    (A // 2 // 3, A // 6),
    (A % 6 // 2, A // 2 % 3),
    (C // 6, Const(0)),
    ((C - 6) // 6, Const(-1)),
    ((A * 6 + C) // 6, A),
    ((A * 6 + C) // 12, A // 2),
    (Const(-7) // -2, Const(3)),
    # remainders
    (A % 1, Const(0)),
    (A * 6 % 3, Const(0)),
    ((A * 6 + B) % 3, B % 3),
    ((A - 1) % 4, (A + 3) % 4),
    (A % 12 % 4, A % 4),
    (A * 2 % 6, A % 3 * 2),
    (C % 6, C),
    ((C - 6) % 6, C),
    (Const(-7) % -2, Const(-1)),
    # the smaller and the larger of two
    (binary("min", A, A + 1), A),
    (binary("max", A, A + 1), A + 1),
    (binary("min", C, 5), C),
    (binary("max", B, 7), Const(7)),
    (binary("min", A, B), binary("min", A, B)),
    # choices
    (Select(A < 10, B, C), B),
    (Select(A > 9, B, C), C),
    (Select(A > B, C, C + 0), C),
    (Select(A > B, P, TRUE), Select(A > B, P, TRUE)),
    # conversions
    (Cast("int64", Const(5)), Const(5, "int64")),
    (Cast("int64", C // 6), Const(0, "int64")),
    (Cast("float32", Const(5)), Const(5.0, "float32")),
    # conditions
    (Binary("and", P, TRUE), P),
    (Binary("and", P, FALSE), FALSE),
    (Binary("and", P, P), P),
    (Binary("or", P, FALSE), P),
    (Binary("or", P, TRUE), TRUE),
    (Binary("or", P, P), P),
    (Unary("not", Unary("not", P)), P),
    (Unary("not", TRUE), FALSE),
    *((Unary("not", Binary(op, A, B)), Binary(no, A, B)) for op, no in zip(COMPARISONS, ("!=", "==", ">=", ">", "<=", "<"), strict=True)),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), RULES, ids=lambda e: str(e))
def test_rules(before: Expr, after: Expr) -> None:
    assert simplify(before, RANGES) == after
    if before.dtype != "float32":
        assert same(before, after)


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_are_decided_just_where_the_ranges_decide_them(op: str) -> None:
    for bound in range(-9, 12):
        condition = Binary(op, A, Const(bound))
        found = np.unique(evaluate(condition, values({"a"}, RANGES)))
        # of ==, the inside of an interval is not told from its values: both are among them here
        assert simplify(condition, RANGES) == (condition if len(found) > 1 else TRUE if found[0] else FALSE)


def random_expr(rng: np.random.Generator, depth: int) -> Expr:
    """An integer expression whose divisors are constants, of either sign."""
    if depth == 0:
        return [A, B, C, Const(int(rng.integers(-4, 5)))][rng.integers(4)]
    x = random_expr(rng, depth - 1)
    match rng.integers(8):
        case 0:
            return Select(random_condition(rng, depth - 1), x, random_expr(rng, depth - 1))
        case 1 | 2:
            return binary(("//", "%")[rng.integers(2)], x, int(rng.choice([-3, 1, 2, 3, 4, 6])))
        case 3:
            return Unary("neg", x)
        case _:
            return binary(("+", "-", "*", "min", "max", "+")[rng.integers(6)], x, random_expr(rng, rng.integers(depth)))


def random_condition(rng: np.random.Generator, depth: int) -> Expr:
    if depth > 1 and rng.integers(2):
        op = ("and", "or")[rng.integers(2)]
        return Binary(op, random_condition(rng, depth - 1), random_condition(rng, depth - 1))
    condition = Binary(COMPARISONS[rng.integers(6)], random_expr(rng, depth), random_expr(rng, depth))
    return Unary("not", condition) if rng.integers(4) == 0 else condition


def random_ranges(rng: np.random.Generator) -> Ranges:
    low, extent = rng.integers(-6, 3, 3).tolist(), rng.integers(1, 9, 3).tolist()
    return {n: (l, l + e - 1) for n, l, e in zip("abc", low, extent, strict=True)}


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_keep_their_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(400):
        e, ranges = random_expr(rng, int(rng.integers(1, 5))), random_ranges(rng)
        at = values(set("abc"), ranges)
        exact = np.broadcast_to(evaluate(e, at), at["a"].shape)
        for known in (ranges, {}, {"a": (ranges["a"][0], None), "b": (None, ranges["b"][1])}):
            found = simplify(e, known)
            assert np.all(evaluate(found, at) == exact), (str(e), str(found), known)
            low, high = bounds(e, known)
            assert (low is None or low <= exact.min()) and (high is None or exact.max() <= high), (str(e), known)


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


def holds(condition: Expr, a: int) -> bool:
    return bool(evaluate(condition, {"a": np.array(a)}))
