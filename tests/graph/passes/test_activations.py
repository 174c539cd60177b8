"""Activations that are written out."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (names bfloat16)
import numpy as np
import pytest

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import HALVES, NUMBERS, chain, check, check_halves, real

CUBE = ["Mul x x", "Mul _ x"]
TANH = [*CUBE, "Mul _ cubic", "Add x _", "Mul _ pi", "Tanh _", "Add _ one"]


@pytest.mark.parametrize(("steps", "operator"), [
    (["Div _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ half"], "Gelu"),
    (["Mul _ inverse", "Erf _", "Add one _", "Mul half _", "Mul _ x"], "Gelu"),
    (["Div _ root", "Erf _", "Mul _ x", "Add _ x", "Div _ two"], "Gelu"),
    ([*TANH, "Mul x _", "Mul _ half"], "Gelu"),
    ([*TANH, "Mul half _", "Mul _ x"], "Gelu"),
    (["Add _ three", "Clip _ zero six", "Div _ six"], "HardSigmoid"),
    (["Add _ three", "Clip _ zero six", "Mul x _", "Div _ six"], "HardSwish"),
    (["Add _ three", "Clip _ zero six", "Div _ six", "Mul x _"], "HardSwish"),
    ([("HardSigmoid _", {"alpha": 1 / 6, "beta": 0.5}), "Mul _ x"], "HardSwish"),
    ([("HardSigmoid _", {"alpha": 1 / 6}), "Mul _ x"], "HardSwish"),
    (["Neg _", "Exp _", "Add _ one", "Div one _"], "Sigmoid"),
    (["Neg _", "Exp _", "Add one _", "Reciprocal _"], "Sigmoid"),
])  # fmt: skip
def test_activations(steps, operator):
    nodes = [*chain(*steps), node("Neg", "y", "z")]
    roundings = 2**29 if "alpha" in str(steps) else 256  # attributes are float32
    after = check(passes.recognise_activations, nodes, {"x": real(3, 5)}, ["z"], [operator, "Neg"], NUMBERS, roundings)
    assert after.calls[0].values[0].name == "x"


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("steps", "operator"), [
    (["Div _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ half"], "Gelu"),
    ([*TANH, "Mul x _", "Mul _ half"], "Gelu"),
    (["Add _ three", "Clip _ zero six", "Mul x _", "Div _ six"], "HardSwish"),
])  # fmt: skip
def test_factors_of_halves_are_rounded(steps, operator, dtype):
    numbers = {name: array.astype(np.dtype(dtype)) for name, array in NUMBERS.items()}
    check_halves(passes.recognise_activations, chain(*steps), {"x": real(3, 5)}, [operator], numbers, dtype)
    if operator == "Gelu":
        off = numbers | {"root": np.array(1.45, dtype), "pi": np.array(0.82, dtype)}
        check_halves(passes.recognise_activations, chain(*steps), {"x": real(3, 5)}, None, off, dtype)


@pytest.mark.parametrize("steps", [
    ["Div _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ two"],
    ["Mul _ root", "Erf _", "Add _ one", "Mul x _", "Mul _ half"],
    ["Div _ root", "Tanh _", "Add _ one", "Mul x _", "Mul _ half"],
    ["Add _ three", "Clip _ zero three", "Mul x _", "Div _ six"],
    ["Add _ three", "Clip _ - six", "Mul x _", "Div _ six"],
    ["HardSigmoid _", "Mul _ x"],
    ["Neg _", "Exp _", "Add _ two", "Div one _"],
    ["Div _ root", "Erf _", "Add _ one", "Mul w _", "Mul _ half"],
])  # fmt: skip
def test_what_is_near_an_activation(steps):
    kept = [step.split()[0] for step in steps]
    check(passes.recognise_activations, chain(*steps), {"x": real(3, 5), "w": real(3, 5)}, ["y"], kept, NUMBERS)
