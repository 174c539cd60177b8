"""Convolutions of each channel by itself: register tiles that slide along rows of the image, in any layout."""

from __future__ import annotations

import pytest

from schedule.templates import depthwise
from tests.schedule.templates.patterns import check_estimates, matched, outcome, relu

MATCHES = {
    "i(j+k) kj -> ij": "A channels=j pixels=i window=k vector=j weights",
    "n(h+r)(w+q)(o/5) rqo -> nhwo": "A channels=o pixels=nhw window=qr vector=o weights",
    "n(h+r)(w+q)(5(o/5)+c) rqco -> nhwo": "A channels=o pixels=nhw window=cqr vector=o weights",
    "n(o/5)(h+r)(w+q) orq -> nohw": "A channels=o pixels=nhw window=qr vector=w weights",
    "n(h+r)(w+q)(o/1) rqo -> nhwo": "A channels=o pixels=nhw window=qr vector=o weights",
    "nc(h+r)(w+q) crq -> nchw": "A channels=c pixels=nhw window=qr vector=w weights",
    "n(h+r)(w+q)c rqc -> nhwc": "A channels=c pixels=nhw window=qr vector=c weights",
    "nc(2h+r)(2w+q) crq -> nchw": "A channels=c pixels=nhw window=qr vector=w weights",
    "nc(w+q) cq -> ncw": "A channels=c pixels=nw window=q vector=w weights",
}


def test_what_is_matched():
    assert matched(depthwise.matches) == MATCHES


SCHEDULES = [
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, "znver2",
     "Y: depthwise convolution | Y ...uuv | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, "znver4",
     "Y: depthwise convolution | Y p..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, "sapphirerapids",
     "Y: depthwise convolution | Y p..uuv | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7}, "znver2",
     "Y: depthwise convolution | Y ....uuv | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7}, "znver4",
     "Y: depthwise convolution | Y p..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(2h+r)(2w+q) crq -> nchw", {"n": 1, "c": 3, "h": 5, "w": 17, "after": relu}, "znver2",
     "Y: depthwise convolution | Y ...uuv, Z ...v | pragma_auto_unroll_max_step=512"),
    ("nc(2h+r)(2w+q) crq -> nchw", {"n": 1, "c": 3, "h": 5, "w": 17, "after": relu}, "znver4",
     "Y: depthwise convolution | Y p..uuv, Z p..v | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 2, "c": 2, "h": 7, "w": 12, "r": 5, "q": 1}, "znver2",
     "Y: depthwise convolution | Y ..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 2, "c": 2, "h": 7, "w": 12, "r": 5, "q": 1}, "znver4",
     "Y: depthwise convolution | Y puuv | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 16, "h": 6, "w": 5, "after": relu}, "znver2",
     "Y: depthwise convolution | Y ...uuv, Z ...v | pragma_auto_unroll_max_step=512"),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 16, "h": 6, "w": 5, "after": relu}, "znver4",
     "Y: depthwise convolution | Y p.uuv, Z p.v | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 4, "w": 8, "kinds": ("float16", "float16")}, "znver2",
     "Y: depthwise convolution | B_global .v, Y ..uuv | pragma_auto_unroll_max_step=512"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 4, "w": 8, "kinds": ("float16", "float16")}, "znver4",
     "Y: depthwise convolution | B_global v, Y p.uuv | pragma_auto_unroll_max_step=512"),
    ("nc(w+q) cq -> ncw", {"n": 2, "c": 5, "w": 19}, "znver2",
     "Y: depthwise convolution | Y ...uv | pragma_auto_unroll_max_step=512"),
    ("nc(w+q) cq -> ncw", {"n": 2, "c": 5, "w": 19}, "znver4",
     "Y: depthwise convolution | Y p..uv | pragma_auto_unroll_max_step=512"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Programs, and on which targets the template suits them.
SUITED = [
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 9, "w": 19}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 19, "h": 9, "w": 7}, (), [True, True, True]),
    ("nc(2h+r)(2w+q) crq -> nchw", {"n": 1, "c": 3, "h": 20, "w": 33}, (), [True, True, True]),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 30, "w": 13}, (), [True, True, True]),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 14, "w": 8, "r": 5, "q": 5}, (), [True, True, True]),
    ("nc(3h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 14, "w": 12}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 12, "h": 29, "w": 7}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqc -> nhwc", {"n": 1, "c": 16, "h": 15, "w": 7}, (), [True, True, True]),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 15, "w": 16}, (), [True, True, True]),
    ("nc(h+2r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 15, "w": 17}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(depthwise, rule, about, constants, suits)
