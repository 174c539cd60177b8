"""Elementwise blocks: vectors along the memory that is written, squares where an operand lies across, short rows as one."""

from __future__ import annotations

import pytest

from schedule.templates import elementwise
from tests.schedule.templates.patterns import matched, outcome

MATCHES = {
    "ij -> ij",
}  # fmt: skip


def test_what_is_matched():
    assert matched(elementwise.matches).keys() == MATCHES


SCHEDULES = [
    ("ij -> ij", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("ij -> ij", {"i": 7, "j": 33}, "znver4", "Y: elementwise | Y pv"),
    ("ji -> ij", {"i": 33, "j": 40}, "znver2", "Y: elementwise | Y ...uv"),
    ("ji -> ij", {"i": 33, "j": 40}, "znver4", "Y: elementwise | Y ..uv"),
    ("ij -> ij", {"i": 30, "j": 3}, "znver2", "Y: elementwise | Y .v"),
    ("ij -> ij", {"i": 30, "j": 3}, "znver4", "Y: elementwise | Y pv"),
    ("k -> k", {"k": 100}, "znver2", "Y: elementwise | Y .v"),
    ("k -> k", {"k": 100}, "znver4", "Y: elementwise | Y v"),
    ("k -> k", {"k": 5}, "znver2", "Y: elementwise | Y v"),
    ("bji -> bij", {"b": 3, "i": 9, "j": 20}, "znver2", "Y: elementwise | Y ...uv"),
    ("bji -> bij", {"b": 3, "i": 9, "j": 20}, "znver4", "Y: elementwise | Y pv"),
    ("nchw -> nhwc", {"n": 1, "c": 16, "h": 3, "w": 5}, "znver2", "Y: elementwise | Y ..v"),
    ("nchw -> nhwc", {"n": 1, "c": 16, "h": 3, "w": 5}, "znver4", "Y: elementwise | Y pv"),
    ("ij -> ij", {"i": 700, "j": 64}, "znver2", "Y: elementwise | Y .v | non_temporal=Y"),
    ("ij -> ij", {"i": 700, "j": 64}, "znver4", "Y: elementwise | Y pv | non_temporal=Y"),
    ("ij -> ijz", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("i -> ij", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("j(i+1) -> ij", {"i": 17, "j": 19}, "znver2", "Y: elementwise | Y ..uv"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES, ids=str)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected
