"""Passes on networks of halves: they do what they do in float32, but where float16 might overflow."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (names bfloat16)
import pytest

from graph import passes
from tests.graph.passes.checks import CONV, HALVES, NUMBERS, WEIGHTS, chain, check_halves, real

X = {"x": real(2, 3, 5, 7)}
ROWS = {"x": real(4, 7)}
CASES = [
    (passes.fold_affine, [CONV, ("BatchNormalization _ s o m v", {"epsilon": 0.01})], X, ["Conv"]),
    (passes.fold_affine, [CONV, "Mul _ factor"], X, ["Conv"]),
    (
        passes.fold_affine,
        ["Relu _", ("BatchNormalization _ s o m v", {"epsilon": 0.01})],
        {"x": real(2, 5, 7)},
        ["Relu", "Mul", "Add"],
    ),
    (passes.fold_affine, ["MatMul _ plane", "Mul _ same"], ROWS, ["MatMul"]),
    (passes.expand_powers, ["Pow _ two"], X, ["Mul"]),
    (passes.canonicalise, ["Div _ three"], X, ["Mul"]),
]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("run", "steps", "inputs", "operators"), CASES)
def test_passes_take_halves(run, steps, inputs, operators, dtype):
    check_halves(run, chain(*steps), inputs, operators, NUMBERS | WEIGHTS, dtype)


@pytest.mark.parametrize(("dtype", "operators"), [("float16", ["Mul", "MatMul"]), ("bfloat16", ["MatMul", "Mul"])])
def test_factors_move_where_products_cannot_overflow(dtype, operators):
    check_halves(passes.move_factors, chain("Mul _ half", "MatMul _ plane"), ROWS, operators, NUMBERS | WEIGHTS, dtype)


@pytest.mark.parametrize(("dtype", "gated"), [("float16", "x"), ("bfloat16", "w")])
def test_gates_move_where_weights_cannot_overflow(dtype, gated):
    inputs = {"x": real(1, 7, 5, 9), "g": real(1, 7, 1, 1)}
    given = {"w": real(3, 7, 1, 1), "b": real(3)}
    after = check_halves(passes.move_gates, chain("Mul g _", ("Conv _ w b", {})), inputs, ["Mul", "Conv"], given, dtype)
    assert {v.name for v in after.calls[0].values} == {gated, "g"}
