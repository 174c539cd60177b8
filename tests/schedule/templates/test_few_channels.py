"""Convolutions with fewer output channels than lanes: the lanes are channels of the image."""

from __future__ import annotations

import pytest

from schedule.templates import few_channels
from tests.schedule.templates.patterns import TARGETS, estimate, matched, outcome, relu

MATCHES = {
    "iik kj -> ij": "A pixels=i channels=j sum=k",
    "n(h+r)(w+q)c rqco -> nhwo": "A pixels=nhw channels=o sum=cqr",
    "z(h+r)(w+q)c rqco -> zhwo": "A pixels=zhw channels=o sum=cqr",
    "transposed": "A pixels=nhw channels=o sum=cqr hr%2 wq%2",
    "transposed, one class": "A pixels=nhw channels=o sum=cqr hr%2",
}


def test_what_is_matched():
    assert matched(few_channels.matches) == MATCHES


SCHEDULES = [
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 3, "h": 5, "w": 7}, "znver2",
     "Y: narrow convolution | B_global ...., Y_rf .....uuv, Y ..... | combine_lanes=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 3, "h": 5, "w": 7}, "znver4",
     "Y: narrow convolution | B_global ...., Y_rf p..uuv, Y p... | combine_lanes=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 32, "o": 5, "h": 3, "w": 11, "after": relu}, "znver2",
     "Y: narrow convolution | B_global ...., Y_rf ......uuv, Y ......, Z ....v | combine_lanes=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 32, "o": 5, "h": 3, "w": 11, "after": relu}, "znver4",
     "Y: narrow convolution | B_global ...., Y_rf p...uuv, Y p..., Z p.v | combine_lanes=True"),
    ("n(2h+r)(2w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 2, "h": 5, "w": 4, "kinds": ("float16", "float16")}, "znver2",
     "Y: narrow convolution | B_global ...., A_global ..v, Y_rf ....uuv, Y .... | combine_lanes=True"),
    ("n(2h+r)(2w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 2, "h": 5, "w": 4, "kinds": ("float16", "float16")}, "znver4",
     "Y: narrow convolution | B_global ...., A_global pv, Y_rf p..uuv, Y p... | combine_lanes=True"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Worked examples of the formula, on each target: none where the template does not suit.
ESTIMATES = [
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 3, "h": 5, "w": 7}, (), [1715.0, 1580.0, 902.5]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 8, "o": 3, "h": 5, "w": 7}, (), [1017.5, None, None]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 24, "o": 7, "h": 5, "w": 7}, (), [6615.0, None, None]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 8, "h": 5, "w": 7}, (), [None, 5220.0, 3060.0]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 64, "o": 15, "h": 5, "w": 40}, (), [None, 186800.0, 122200.0]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 16, "h": 5, "w": 7}, (), [None, None, None]),
    ("n(2h+r)(2w+q)c rqoc -> nhwo", {"n": 1, "c": 32, "o": 5, "h": 5, "w": 19}, (), [None, None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "expected"), ESTIMATES)
def test_estimated_cycles(rule, about, constants, expected):
    assert [estimate(few_channels, rule, about, name, constants) for name in TARGETS] == expected
