"""Factors move behind products."""

from __future__ import annotations

import numpy as np
import pytest

from graph import passes
from graph.reference import evaluate
from tests.graph.passes.checks import NUMBERS, X, chain, check, real


@pytest.mark.parametrize(("steps", "operators"), [
    (["MatMul _ w", "Mul _ two", "Mul three _"], ["MatMul", "Mul"]),
    (["Mul _ two", "MatMul _ w"], ["MatMul", "Mul"]),
    (["Mul _ wide", "MatMul _ w"], ["Mul", "MatMul"]),
    (["Mul _ wide", "Mul _ two"], ["Mul", "Mul"]),
])  # fmt: skip
def test_factors(steps, operators):
    constants = NUMBERS | {"w": real(7, 5), "wide": real(7)}
    check(passes.move_factors, chain(*steps), X, ["y"], operators, constants, roundings=64)


def test_factors_keep_products_of_float16_finite():
    x, w = np.full((1, 4), 200, "float16"), np.full((4, 1), 200, "float16")
    given = {"w": w, "small": np.array(0.125, "float16")}
    after = check(passes.move_factors, chain("Mul _ small", "MatMul _ w"), {"x": x}, ["y"], ["Mul", "MatMul"], given)
    assert np.isfinite(evaluate(after, {"x": x})[0]).all()
