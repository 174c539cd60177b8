"""Transposed convolutions as convolutions."""

from __future__ import annotations

from math import prod

import pytest

from graph import passes
from tests.graph.passes.checks import chain, check, real


@pytest.mark.parametrize(
    ("shape", "weight", "attributes", "operators"),
    [
        ((2, 3, 5, 7), (3, 4, 2, 2), {"strides": [2, 2]}, ["Conv", "Reshape", "Transpose", "Reshape"]),
        ((1, 3, 5, 7), (3, 4, 4, 3), {"strides": [2, 2], "pads": [1, 1, 1, 0]}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        (
            (1, 4, 5, 7), (4, 2, 3, 5), {"strides": [2, 3], "pads": [1, 2, 0, 1], "output_padding": [1, 2], "group": 2},
            ["Conv", "Reshape", "Transpose", "Reshape", "Slice"],
        ),
        ((1, 3, 9), (3, 4, 5), {"strides": [3], "auto_pad": "SAME_UPPER"}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        ((1, 2, 2, 3, 4), (2, 3, 2, 2, 3), {"strides": [1, 2, 2]}, ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"pads": [1, 1, 1, 1]}, ["Conv"]),
        ((1, 3, 1, 1), (3, 4, 4, 4), {"strides": [3, 3]}, ["Conv", "Reshape", "Transpose", "Reshape"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"dilations": [2, 1]}, ["ConvTranspose"]),
        ((1, 3, 5, 7), (3, 4, 3, 3), {"pads": [3, 0, 3, 0]}, ["ConvTranspose"]),
    ],
)  # fmt: skip
def test_transposed_convolutions(shape, weight, attributes, operators):
    given = {"w": real(*weight), "b": real(weight[1] * attributes.get("group", 1))}
    steps = chain(("ConvTranspose _ w b", attributes))
    check(passes.expand_transposed, steps, {"x": real(*shape)}, ["y"], operators, given, roundings=4 * prod(weight))
