"""Polynomials have the values of their expressions, at every point of small ranges."""

from __future__ import annotations

import numpy as np

from tests.tir.arith.expressions import A, B, C, random_expr, random_ranges, values
from tir.arith.enumeration import evaluate
from tir.arith.polynomial import (
    add,
    affine_index,
    as_constant,
    coefficient,
    constant,
    linear,
    multiply,
    names_in,
    nonpositive,
    plus_constant,
    polynomial,
    scale,
    split_terms,
    to_expr,
)  # fmt: skip
from tir.ir import COMPARISONS, Binary, Const, Var


def test_arithmetic_is_that_of_the_values() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        x, y = random_expr(rng, 3), random_expr(rng, 3)
        at = values(set("abc"), random_ranges(rng))
        p, q, a, b = polynomial(x), polynomial(y), evaluate(x, at), evaluate(y, at)
        factor = int(rng.integers(-3, 4))
        for found, expected in (
            (p, a),
            (add(p, q, factor), a + factor * b),
            (multiply(p, q), a * b),
            (scale(p, factor), factor * a),
        ):
            assert np.all(evaluate(to_expr(found), at) == expected), (str(x), str(y))
            assert all(found.values())  # no term with the coefficient 0
        inner, rest = split_terms(p, {"a"})
        assert add(inner, rest) == p and "a" not in names_in(rest)


def test_forms() -> None:
    assert polynomial((A + B) * (A - B)) == polynomial(A * A - B * B)
    assert as_constant(polynomial(A - A + 7)) == 7 and as_constant({}) == 0 and as_constant(polynomial(A)) is None
    assert linear(polynomial(A * 3 - 2)) == ("a", 3, -2) and linear(polynomial(A + B)) is linear(polynomial(A * A)) is None
    assert coefficient(polynomial(A * 3 + B * C), "a") == 3 and coefficient(polynomial(B), "a") == 0
    assert coefficient(polynomial(A * B), "a") is coefficient(polynomial(A // 2), "a") is None
    assert str(to_expr(polynomial(Const(3) - A + B * 2))) == "b * 2 - a + 3"
    assert polynomial(Var("n", "uint8") + 1) == {(Var("n", "uint8") + 1,): 1}  # it wraps around
    assert constant(0) == scale(polynomial(A), 0) == {}


def test_a_comparison_is_an_excess() -> None:
    """<= 0 exactly where it holds."""
    at = values({"a", "b"}, {"a": (-3, 4), "b": (-2, 3)})
    for op in COMPARISONS:
        p = nonpositive(Binary(op, A * 2, B + 1))
        assert (p is None) == (op in ("==", "!="))
        assert p is None or np.array_equal(evaluate(to_expr(p), at) <= 0, evaluate(Binary(op, A * 2, B + 1), at))


def test_affine_indices_and_sums_with_constants():
    found = [affine_index(index, ["a", "b"]) for index in (A, B + 2 - 5, A * 2, A + B, C + 1, Const(3))]
    assert found == [("a", 0), ("b", -3), None, None, None, None]
    assert [str(plus_constant(A + 2, by)) for by in (0, 3, -2)] == ["a + 2", "a + 5", "a"]
