"""Pooling: windows of each channel without a kernel, and what is none."""

from __future__ import annotations

import pytest

from schedule.templates import pooling
from tests.schedule.templates.patterns import check_estimates, matched, outcome, relu
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


# Programs, and on which targets the template suits them.
SUITED = [
    ("nc(h+r)(w+q) -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, (), [True, True, True]),
    ("n(h+r)(w+q)c -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7}, (), [True, True, True]),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 1, "c": 3, "h": 20, "w": 33}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(pooling, rule, about, constants, suits)
