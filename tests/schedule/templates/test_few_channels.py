"""Convolutions with fewer output channels than lanes: the lanes are channels of the image."""

from __future__ import annotations

import pytest

from schedule.templates import few_channels
from tests.schedule.templates.patterns import check_estimates, matched, outcome, relu

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


# Programs, and on which targets the template suits them.
SUITED = [
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 3, "h": 5, "w": 7}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 8, "o": 3, "h": 5, "w": 7}, (), [True, False, False]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 24, "o": 7, "h": 5, "w": 7}, (), [True, False, False]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 8, "h": 5, "w": 7}, (), [False, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 64, "o": 15, "h": 5, "w": 40}, (), [False, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 16, "o": 16, "h": 5, "w": 7}, (), [False, False, False]),
    ("n(2h+r)(2w+q)c rqoc -> nhwo", {"n": 1, "c": 32, "o": 5, "h": 5, "w": 19}, (), [False, False, False]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(few_channels, rule, about, constants, suits)
