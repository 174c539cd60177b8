"""Annotations that name buffers which their loop does not access."""

import re

import pytest

import codegen
from schedule import Schedule
from tests.codegen.harness import ONE
from tests.programs import elementwise


@pytest.mark.parametrize(("key", "value", "message"), [
    ("non_temporal", "A", "loop `i0`: non_temporal names `A`, which is not written there; `B` is"),
    ("non_temporal", ["B", "z"], "loop `i0`: non_temporal names `z`, which is not written there; `B` is"),
    ("prefetch", ["z", 1], "loop `i0`: prefetch names `z`, which is not accessed there; `A`, `B` is"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(key, value, message):
    s = Schedule(elementwise(7, 13))
    s.annotate("i0", key, value)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        codegen.build(s.func, ONE)
