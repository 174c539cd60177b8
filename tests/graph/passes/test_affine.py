"""Scales and shifts after convolutions and products."""

from __future__ import annotations

import pytest

from graph import passes
from tests.graph.models import node
from tests.graph.passes.checks import CONV, NORMED, WEIGHTS, chain, check, real


@pytest.mark.parametrize("steps", [
    [CONV, NORMED],
    [("Conv _ w", {"pads": [1, 1, 1, 1]}), NORMED],
    [CONV, "Mul factor _", "Add _ factor"],
    [("Conv _ w", {"pads": [1, 1, 1, 1]}), "Sub factor _", "Div _ same"],
    [CONV, "Sub _ same", NORMED, "Mul _ same"],
])  # fmt: skip
def test_affine_after_convolutions(steps):
    nodes = chain(*steps, "Relu _")
    after = check(passes.fold_affine, nodes, {"x": real(2, 3, 7, 5)}, ["y"], ["Conv", "Relu"], WEIGHTS, roundings=4 * 27)
    assert after.calls[0].attribute("pads") == (1, 1, 1, 1) and after.calls[0].outputs[0].name == f"s{len(steps) - 1}"


@pytest.mark.parametrize(("steps", "operators"), [
    (["MatMul _ m", "Mul _ row"], ["MatMul"]),
    (["MatMul _ m", "Add row _", "Mul _ row", "Add _ same"], ["MatMul", "Add"]),
    (["MatMul _ m", "Add _ row"], ["MatMul", "Add"]),
    (["MatMul _ m", "Add _ deep", "Mul _ row"], ["MatMul", "Add", "Mul"]),
    ([("Gemm _ m row", {"beta": 0.5, "alpha": 2.0}), "Mul _ row", "Add _ row"], ["Gemm"]),
    ([("Gemm _ t", {"transB": 1}), ("BatchNormalization _ row row row square", {"epsilon": 0.01})], ["Gemm"]),
])  # fmt: skip
def test_affine_after_products(steps, operators):
    constants = {"m": real(4, 7), "t": real(7, 4), "row": WEIGHTS["row"], "same": WEIGHTS["same"], "square": WEIGHTS["row"] ** 2}
    constants["deep"] = real(1, 1, 7)
    check(passes.fold_affine, chain(*steps), {"x": real(3, 4)}, ["y"], operators, constants, roundings=64)


def test_affine_that_stays():
    x, conv = {"x": real(2, 3, 7, 5)}, ["Conv", "Mul", "Add", "Relu"]
    nodes = chain(CONV, NORMED, "Relu _")
    check(passes.fold_affine, nodes, x, ["y", "s0"], conv, WEIGHTS, roundings=64)
    check(passes.fold_affine, [*nodes, node("Neg", "s0", "z")], x, ["y", "z"], [*conv, "Neg"], WEIGHTS, roundings=64)
    check(passes.fold_affine, chain(CONV, "Mul _ plane"), x, ["y"], ["Conv", "Mul"], WEIGHTS)
    check(passes.fold_affine, chain("Relu _", NORMED), {"x": real(2, 5, 7)}, ["y"], ["Relu", "Mul", "Add"], WEIGHTS, roundings=16)
    scale = {"s": WEIGHTS["s"]}
    others = {name: a for name, a in WEIGHTS.items() if name != "s"}
    check(passes.fold_affine, nodes, x | scale, ["y"], ["Conv", "BatchNormalization", "Relu"], others)
