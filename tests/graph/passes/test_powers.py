"""Powers that are products."""

from __future__ import annotations

import numpy as np

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import check, real


def test_powers():
    nodes = [node("Pow", "x two", "a"), node("Pow", "a three", "b"), node("Pow", "b half", "c"), node("Pow", "c odd", "y")]
    constants = {"two": np.array(2.0), "three": np.array([3.0]), "half": np.array(0.5), "odd": np.array(1.7)}
    x = {"x": real(3, 5, low=0.5)}
    check(passes.expand_powers, nodes, x, ["y"], ["Mul", "Mul", "Mul", "Pow", "Pow"], constants, roundings=64)
    check(passes.expand_powers, [node("Pow", "x wide", "y")], x, ["y"], ["Pow"], {"wide": np.full((1, 1, 1), 2.0)})
    check(passes.expand_powers, [node("Pow", "x twos", "y")], x, ["y"], ["Pow"], {"twos": np.full(5, 2.0)})


def test_powers_of_integers():
    """Of an exponent of floats the power is rounded in float64, so it is no product."""
    x, constants = {"x": np.arange(-7, 8, dtype="int8")}, {"three": np.array(3), "real": np.array(3.0)}
    check(passes.expand_powers, [node("Pow", "x three", "y")], x, ["y"], ["Mul", "Mul"], constants)
    check(passes.expand_powers, [node("Pow", "x real", "y")], x, ["y"], ["Pow"], constants)
