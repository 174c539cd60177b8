"""Transposes on a GPU: squares through shared memory, so that a warp reads and writes neighbours."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome

SCHEDULES = [
    ("ji -> ij", {"i": 33, "j": 40},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("ji -> ij", {"i": 64, "j": 64},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("bji -> bij", {"b": 3, "i": 33, "j": 40},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("nchw -> nhwc", {"n": 1, "c": 40, "h": 7, "w": 9},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("ji -> ij", {"i": 31, "j": 40},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("ji -> ij", {"i": 40, "j": 31},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("jbi -> ibj", {"b": 3, "i": 33, "j": 40},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("ji -> ij", {"i": 64, "j": 64, "kind": "float16"},
     "Y: skip | "
     "A_shared .tv, Y .tv"),
    ("ji ij -> ij", {"i": 33, "j": 40},
     "Y: skip | "
     "A_shared x.t, Y x.t"),
    ("j(i+1) -> ij", {"i": 33, "j": 40},
     "Y: skip | "
     "Y xtv"),
    ("bij -> ibj", {"b": 40, "i": 33, "j": 35},
     "Y: skip | "
     "Y xt"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
