"""What is written out as other operators, on ONNX's node tests of it."""

from __future__ import annotations

import pytest

from tests.sweeps import one_in

from .conformance import cases, check, operator_of

WRITTEN = ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "Resize")
FOLLOW = ("Attention", "GroupNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss")  # of ONNX's functions
EVERY = 3  # of the tests of an operator, in order of their names, one of so many


def names_by_operator():
    known = cases()
    wanted = {*WRITTEN, *FOLLOW}
    by_operator = {}
    for name in sorted(known):
        if (operator := operator_of(known[name], known)) in wanted and "expanded" not in name:
            by_operator.setdefault(operator, []).append(name)
    return {operator: names[::EVERY] for operator, names in by_operator.items()}


@one_in(3)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("operator", [*WRITTEN, *FOLLOW])
def test_composite(operator, part):
    found = [check(name) for name in names_by_operator()[operator][part::3]]
    assert not [o for o in found if o.result == "wrong"]
    assert sum(o.result == "right" for o in found) > len(found) // 2 or not found
