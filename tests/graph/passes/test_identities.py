"""Calls that change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import chain, check, real


def test_identities():
    nodes = [
        node("Identity", "x", "a"), node("Dropout", "a", "b"), node("Relu", "b", "c"), node("Reshape", "c s", "d"),
        node("Unsqueeze", "d zero", "e"), node("Cast", "e", "f", to=11),
        node("Flatten", "f", "h"), node("Squeeze", "e zero", "i"), node("Neg", "i", "y"), node("Exp", "h", "z"),
    ]  # fmt: skip
    constants = {"s": np.array([21]), "zero": np.array([0])}
    after = check(
        passes.remove_identities,
        nodes,
        {"x": real(3, 7)},
        ["y", "z"],
        ["Relu", "Reshape", "Reshape", "Reshape", "Reshape", "Neg", "Exp"],
        constants,
    )
    views = [c for c in after.calls if c.operator == "Reshape"]
    assert {c.values[0].name for c in views} == {"c"}, "each is a view of what was computed"
    after = check(
        lambda g: passes.remove_unread(passes.remove_identities(g)),
        nodes,
        {"x": real(3, 7)},
        ["y", "z"],
        ["Relu", "Reshape", "Reshape", "Neg", "Exp"],
        constants,
    )


@pytest.mark.parametrize(
    "what",
    [
        node("Transpose", "x", "a", perm=[0, 1, 2]), node("Concat", "x", "a", axis=1), node("Sum", "x", "a"),
        node("Cast", "x", "a", to=11), node("Expand", "x ones", "a"), node("Slice", "x zero high", "a"), node("Pad", "x none", "a"),
    ],
    ids=lambda n: n.op_type,
)  # fmt: skip
def test_what_changes_nothing(what):
    constants = {"ones": np.array([1, 1, 1]), "zero": np.array([0]), "high": np.array([99]), "none": np.zeros(6, "int64")}
    check(passes.remove_identities, [what, node("Relu", "a", "y")], {"x": real(3, 5, 3)}, ["y"], ["Relu"], constants)


@pytest.mark.parametrize("step", ["Add _ zeros", "Add zeros _", "Sub _ zeros", "Mul _ ones", "Mul ones _", "Div _ ones"])
def test_neutral_operands(step):
    constants = {"zeros": np.full((5, 1), 0.0 if "Sub" in step else -0.0), "ones": np.ones((3, 5, 3))}
    check(passes.remove_identities, chain(step, "Relu _"), {"x": real(3, 5, 3)}, ["y"], ["Relu"], constants)


@pytest.mark.parametrize("step", ["Sub zeros _", "Div ones _", "Add _ ones", "Add _ wide", "Add _ zeros", "Sub _ minus"])
def test_operands_that_are_not_neutral(step):
    constants = {
        "zeros": np.zeros((5, 1)), "ones": np.ones((3, 5, 3)), "wide": np.full((2, 3, 5, 3), -0.0), "minus": np.full((5, 1), -0.0),
    }  # fmt: skip
    check(passes.remove_identities, chain(step, "Relu _"), {"x": real(3, 5, 3)}, ["y"], [step.split()[0], "Relu"], constants)


@pytest.mark.parametrize(
    ("dtype", "operators"), [("float32", ["MatMul", "Reciprocal"]), ("float16", ["MatMul", "Add", "Reciprocal"])]
)
def test_zero_added_to_what_may_be_negative_zero(dtype, operators):
    """A sum begins with 0, so it is -0 only where it is rounded once more: of float16 in which the product below is too small."""
    x, w = np.full((3, 1), 6e-8, dtype), np.full((1, 5), -0.25, dtype)
    steps = chain("MatMul _ w", "Add _ zeros", "Reciprocal _")
    check(passes.remove_identities, steps, {"x": x}, ["y"], operators, {"w": w, "zeros": np.zeros(5, dtype)})


@pytest.mark.parametrize("what", [
    node("Transpose", "x", "a"),
    node("Slice", "x last lowest zero minus", "a"),
    node("Sum", "x x", "a"),
    node("Relu", "x", "a"),
], ids=lambda n: n.op_type)  # fmt: skip
def test_what_changes_something(what):
    constants = {"last": np.array([-1]), "lowest": np.array([-99]), "zero": np.array([0]), "minus": np.array([-1])}
    check(passes.remove_identities, [what, node("Neg", "a", "y")], {"x": real(3, 5, 3)}, ["y"], [what.op_type, "Neg"], constants)


def test_an_identity_that_is_an_output_stays():
    check(
        passes.remove_identities, [node("Relu", "x", "a"), node("Identity", "a", "y")], {"x": real(3)}, ["y"], ["Relu", "Reshape"]
    )
