"""What is timed of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
from search.measure import timing
from tests.codegen.matmul import packed_product


@pytest.mark.parametrize(
    "time", [timing.clock, lambda k, a: timing.samples_of(k, a, 1.0, 0.0, 3, 3), lambda k, a: timing.kernel_sample(k, a, [])]
)
def test_constants_are_prepared_before_the_clock_starts(time, monkeypatch):
    kernel = codegen.build(packed_product(), "llvm -num-cores 1")
    calls = []
    monkeypatch.setattr(type(kernel), "__call__", lambda *_: pytest.fail("a call prepares, too"))
    monkeypatch.setattr(kernel, "prepare", lambda *constants: calls.append("prepare") or type(kernel).prepare(kernel, *constants))
    a, b, c = np.ones((13, 30), "f"), np.ones((30, 70), "f"), np.zeros((13, 70), "f")
    assert time(kernel, [a, b, c])
    assert "prepare" in calls and (c == 30).all()
