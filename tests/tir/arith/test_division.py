"""Quotients of polynomials, proved over small integers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tir.arith.division import floordiv
from tir.arith.intervals import Interval, polynomial_bounds
from tir.arith.polynomial import polynomial, to_expr
from tir.arith.simplify import simplify
from tir.ir import Expr, Var

A, B, C = (Var(name) for name in "abc")


@pytest.mark.parametrize(
    ("before", "ranges", "after"),
    [
        # a part that lies within one multiple of a common divisor
        ((A * 32 + B) // 64, {"b": (0, 31)}, A // 2),
        ((A * 6 + B * 2 + C) // 24, {"b": (0, 2), "c": (0, 1)}, A // 4),
        ((A * 4 + B) // 8, {"b": (4, 7)}, (A + 1) // 2),
        ((A * 4 + B) // 8, {"b": (-4, -1)}, (A + 1) // 2 - 1),
        ((A * 4 - B) // 8, {"b": (1, 4)}, (A + 1) // 2 - 1),
        ((A // 2 * 64 + A % 2 * 32 + B) // 64, {"b": (0, 31)}, A // 2),
        # one that does not, or of which nothing is known
        ((A * 4 + B) // 8, {"b": (0, 4)}, (A * 4 + B) // 8),
        ((A * 4 + B) // 8, {}, (A * 4 + B) // 8),
        ((A * 3 + B) // 8, {"b": (0, 2)}, (A * 3 + B) // 8),
    ],
)
def test_quotients(before: Expr, ranges: dict[str, Interval], after: Expr) -> None:
    assert simplify(before, ranges) == after


def test_quotients_are_exact() -> None:
    """Random sums of three variables, negative factors and values included, at every point."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        low, extent = rng.integers(-3, 2, 3), rng.integers(1, 5, 3)
        factors = rng.choice([-4, -2, 1, 2, 3, 4, 6, 8, 12], 3).tolist()
        shift, divisor = int(rng.integers(-9, 9)), int(rng.choice([2, 3, 4, 6, 8, 12, 24]))
        ranges = {name: (int(l), int(l + e - 1)) for name, l, e in zip("abc", low, extent, strict=True)}
        p = polynomial(A * factors[0] + B * factors[1] + C * factors[2] + shift)
        quotient = floordiv(p, divisor, ranges)
        minimum, maximum = polynomial_bounds(quotient, ranges)
        code = compile(str(to_expr(quotient)), "quotient", "eval")
        for point in product(*(range(l, l + e) for l, e in zip(low.tolist(), extent.tolist(), strict=True))):
            exact = (int(np.dot(factors, point)) + shift) // divisor
            found = eval(code, {"min": min, "max": max}, dict(zip("abc", point, strict=True)))
            assert found == exact and minimum is not None and maximum is not None and minimum <= exact <= maximum
