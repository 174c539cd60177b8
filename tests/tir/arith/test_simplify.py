"""The rules of the simplifier, each proved at every point of small ranges, negative values included."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir.arith.expressions import RANGES, A, B, C, P, random_expr, random_ranges, values
from tir.arith.bounds import bounds
from tir.arith.enumeration import evaluate
from tir.arith.intervals import Ranges
from tir.arith.simplify import simplify
from tir.ir import COMPARISONS, FALSE, TRUE, Binary, Cast, Const, Expr, Select, Unary, binary
from tir.traverse import variables


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
    ((A * 2 + B) // 9 * 9 + (A * 2 + B) // 3 % 3 * 3 + (A * 2 + B) % 3, A * 2 + B),
    ((A * 6 + B) // 9 * 9 + (A * 6 + B) // 3 % 3 * 3 + B % 3, A * 6 + B),  # (A * 6 + B) // 3 is A * 2 + B // 3
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
