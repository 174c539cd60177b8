"""The annotations that ask for a software pipeline."""

from __future__ import annotations

import pytest

from codegen.passes.software_pipeline import stage_count
from tir.ir import Const, Evaluate, For, Kind, Var


def loop(**annotations) -> For:
    return For(Var("k"), Const(4), Evaluate(Const(0)), Kind.SERIAL, tuple(annotations.items()))


def test_the_number_of_stages():
    assert stage_count(loop()) == 1 and stage_count(loop(double_buffer=True)) == 2
    assert [stage_count(loop(pipeline_stages=n)) for n in (1, 3, 16)] == [1, 3, 16]


@pytest.mark.parametrize("value", [0, -1, 17, 2.0, True, "2"])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError) as caught:
        stage_count(loop(pipeline_stages=value))
    assert str(caught.value) == f"loop `k`: the annotation pipeline_stages must be an integer from 1 to 16, got {value!r}"
