"""Pooling: windows of each channel without a kernel, and what is none."""

from __future__ import annotations

import pytest

from schedule.templates import pooling
from tests.schedule.templates.patterns import TARGETS, estimate, matched, outcome, relu
from tir import te

MATCHES = {
    "nc(h+r)(w+q) -> nchw": "A channels=nc pixels=hw window=qr vector=w",
    "n(h+r)(w+q)c -> nhwc": "A channels=nc pixels=hw window=qr vector=c",
    "nc(3h+r)(3w+q) -> nchw": "A channels=nc pixels=hw window=qr vector=w",
    "largest of windows": "A channels=nc pixels=hw window=qr vector=w",
}


def test_what_is_matched():
    assert matched(pooling.matches) == MATCHES


SCHEDULES = [
    ("nc(h+r)(w+q) -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, "znver2",
     "Y: pooling | Y ...uuv | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, "znver4",
     "Y: pooling | Y p..uuv | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7, "total": te.max}, "znver2",
     "Y: pooling | Y ....uuv | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7, "total": te.max}, "znver4",
     "Y: pooling | Y p..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 2, "c": 3, "h": 5, "w": 17, "after": relu, "total": te.max}, "znver2",
     "Y: pooling | Y ....uuv, Z ....v | pragma_auto_unroll_max_step=512"),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 2, "c": 3, "h": 5, "w": 17, "after": relu, "total": te.max}, "znver4",
     "Y: pooling | Y p..uuv, Z p..v | pragma_auto_unroll_max_step=512"),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 2, "c": 3, "h": 5, "w": 17, "after": relu, "total": te.max}, "sapphirerapids",
     "Y: pooling | Y p..uuv, Z p..v | pragma_auto_unroll_max_step=512"),
    ("nc(3h+r)(3w+q) -> nchw", {"n": 1, "c": 3, "h": 3, "w": 9}, "znver2",
     "Y: pooling | Y ..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(3h+r)(3w+q) -> nchw", {"n": 1, "c": 3, "h": 3, "w": 9}, "znver4",
     "Y: pooling | Y p.uuv | pragma_auto_unroll_max_step=512"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Worked examples of the formula, on each target: none where the template does not suit.
ESTIMATES = [
    ("nc(h+r)(w+q) -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, (), [359.8, 359.8, 215.5]),
    ("n(h+r)(w+q)c -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7}, (), [1421.4, 887.1, 550.4]),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 1, "c": 3, "h": 20, "w": 33}, (), [2054.2, 1806.8, 1027.1]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "expected"), ESTIMATES)
def test_estimated_cycles(rule, about, constants, expected):
    assert [estimate(pooling, rule, about, name, constants) for name in TARGETS] == expected
