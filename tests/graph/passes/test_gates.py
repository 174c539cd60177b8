"""Gates of channels move to the weights."""

from __future__ import annotations

import pytest

from graph import passes
from tests.graph.passes.checks import chain, check, real


@pytest.mark.parametrize(("changes", "moves"), [
    ({}, True),
    ({"g": (1, 1, 1, 1)}, False),  # one number for all channels
    ({"x": (2, 7, 5, 3), "g": (2, 7, 1, 1)}, False),  # images with gates of their own
    ({"w": (40, 7, 1, 1)}, False),  # weights that are not much smaller than the image
    ({"w": (2, 7, 3, 3), "pads": [1, 1, 1, 1]}, False),  # with zeros around the image
    ({"outputs": ["y", "s0"]}, False),
])  # fmt: skip
def test_gates(changes, moves):
    shapes = {"x": (1, 7, 5, 9), "g": (1, 7, 1, 1), "w": (3, 7, 1, 1), "b": (3,)} | changes
    inputs = {name: real(*shapes[name]) for name in ("x", "g")}
    given = {"w": real(*shapes["w"]), "b": real(shapes["w"][0])}
    nodes = chain("Mul g _", ("Conv _ w b", {"pads": changes.get("pads", [0] * 4)}))
    after = check(passes.move_gates, nodes, inputs, changes.get("outputs", ["y"]), ["Mul", "Conv"], given, roundings=4 * 7 * 9)
    assert (after.calls[-1].inputs[0] == after.inputs[0]) == moves
