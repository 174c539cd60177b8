"""Bounds contain every value, and are the least and the largest one where each variable occurs once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir.arith.expressions import RANGES, A, B, C, random_ranges, values
from tir.arith.bounds import bounds, extent_range, ranges_of
from tir.arith.enumeration import evaluate
from tir.ir import Axis, Block, Call, Cast, Const, Evaluate, Expr, For, Iter, Select, Var, binary

ONCE = [  # each variable in it once: nothing that the bounds forget
    A * 3 - B * 2 + C,
    A // 4,
    (A + 7) // 3 * 5 - C % 4,
    7 - A,
    binary("min", A, B) * 2,
    binary("max", A - 3, B * 2) + C,
    (A + 7) * (C + 1),
    Cast("int64", A * 2 + C),
]


@pytest.mark.parametrize("e", ONCE, ids=str)
def test_the_least_and_the_largest_value(e: Expr) -> None:
    rng = np.random.default_rng(0)
    for ranges in (RANGES, *(random_ranges(rng) for _ in range(20))):
        found = evaluate(e, values(set("abc"), ranges))
        low, high = bounds(e, ranges)
        assert low is not None and high is not None and low <= found.min() and found.max() <= high
        assert (low, high) == (found.min(), found.max()) or "* (" in str(e) or "%" in str(e), (ranges, low, high)


def test_what_is_not_known_is_unbounded() -> None:
    assert bounds(A + C, {"a": (0, None)}) == (None, None)
    assert bounds(A + 1, {"a": (0, None)}) == (1, None) and bounds(5 - A, {"a": (0, None)}) == (None, 5)
    assert bounds(A % 7, {}) == (0, 6) and bounds(Cast("uint8", A), {}) == (0, 255)
    assert bounds(Call("bit_and", (Cast("uint8", A), Const(15, "uint8")), "uint8"), {}) == (0, 15)
    assert bounds(Select(A < B, C, C + 3), RANGES) == (0, 8)


def test_bits_of_one_of_two_are_no_more_than_the_longer_has() -> None:
    e = Call("bit_xor", (A, B), "int32")
    for a, b in ((0, 0), (5, 2), (7, 12)):
        ranges = {"a": (0, a), "b": (0, b)}
        found, (low, high) = evaluate(e, values({"a", "b"}, ranges)), bounds(e, ranges)
        assert low == found.min() == 0 and high is not None and found.max() <= high < 2 * max(a, b, 1)
    assert bounds(e, {"a": (-1, 3), "b": (0, 3)}) == (None, None)


def test_ranges_of_loops_and_blocks() -> None:
    """Outermost first: the extent of an inner loop may use the loops around it."""
    n = Var("n")
    block = Block("X", (Iter(Var("v"), Const(5), Axis.SPATIAL, Var("i")),), Evaluate(Const(0)))
    inner = For(Var("j"), Var("i") * 2 + 1, block)
    assert ranges_of((For(Var("i"), Const(7), inner), inner, block)) == {"i": (0, 6), "j": (0, 12), "v": (0, 4)}
    assert ranges_of((For(Var("i"), n, inner), inner)) == {"i": (0, None), "j": (0, None)}
    assert ranges_of((For(Var("i"), n, inner), inner), {"n": (1, 4)}) == {"n": (1, 4), "i": (0, 3), "j": (0, 6)}
    assert extent_range(n - 1, {"n": (None, 3)}) == (0, 1)
