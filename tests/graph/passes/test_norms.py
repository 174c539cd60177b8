"""Normalizations and softmax that are written out."""

from __future__ import annotations

import numpy as np
import pytest

from graph import passes
from tests.graph.passes.checks import NUMBERS, chain, check, real

DEVIATION = ["ReduceMean _ last", "Sub x _", "Mul _ _", "ReduceMean _ last", "Add _ tiny", "Sqrt _"]


@pytest.mark.parametrize(("steps", "operators"), [
    ([*DEVIATION, "Div s1 _"], ["LayerNormalization"]),
    ([*DEVIATION, "Reciprocal _", "Mul s1 _", "Mul _ row", "Add row _"], ["LayerNormalization"]),
    ([*DEVIATION, "Div s1 _", "Add _ row", "Relu _"], ["LayerNormalization", "Relu"]),
    (["Mul _ _", *DEVIATION[3:], "Div one _", "Mul x _", "Mul row _"], ["RMSNormalization"]),
    (["Mul _ _", *DEVIATION[3:5], "Pow _ minus", "Mul x _"], ["RMSNormalization"]),
    (["Mul _ _", *DEVIATION[3:], "Div x _", "Mul _ row", "Add _ row"], ["RMSNormalization", "Add"]),
    ([*DEVIATION, "Div x _"], ["ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div"]),
    (["ReduceMax _ last", "Sub x _", "Exp _", "ReduceSum _ last", "Div s2 _", "Neg _"], ["Softmax", "Neg"]),
    (["ReduceMax _ last", "Sub x _", "Exp _", "ReduceSum _ first", "Div s2 _"], ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]),
])  # fmt: skip
def test_norms(steps, operators):
    constants = NUMBERS | {"row": real(5, low=0.5), "last": np.array([-1]), "first": np.array([0])}
    check(passes.recognise_norms, chain(*steps), {"x": real(3, 4, 5)}, ["y"], operators, constants, roundings=64)
