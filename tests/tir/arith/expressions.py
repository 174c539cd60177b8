"""Integer expressions over small ranges, and all points of these, for tests that compare with enumeration."""

from __future__ import annotations

import numpy as np

from tir.arith.enumeration import grid
from tir.arith.intervals import Ranges
from tir.ir import COMPARISONS, Binary, Const, Expr, Select, Unary, Var, binary

A, B, C = (Var(name) for name in "abc")
P = Var("p", "bool")
RANGES: Ranges = {"a": (-7, 9), "b": (-3, 4), "c": (0, 5)}


def values(names: set[str], ranges: Ranges) -> dict[str, np.ndarray]:
    """All points of the ranges; of `p`, both truth values."""
    spans = {n: (0, 1) if n == "p" else ranges[n] for n in sorted(names)}
    points = grid({n: high - low + 1 for n, (low, high) in spans.items()})  # type: ignore[operator]
    return {n: v.astype(bool) if n == "p" else v + spans[n][0] for n, v in points.items()}


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
