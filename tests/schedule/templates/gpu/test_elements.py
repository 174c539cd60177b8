"""Elements on a GPU: one or a few for each thread, neighbours in a warp; sums in registers."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome, relu
from tir import te

SCHEDULES = [
    ("ij -> ij", {"i": 7, "j": 33},
     "Y: skip | "
     "Y t"),
    ("ij -> ij", {"i": 8, "j": 64},
     "Y: skip | "
     "Y tv"),
    ("ij -> ij", {"i": 7, "j": 64, "kind": "float16"},
     "Y: skip | "
     "Y tv"),
    ("ij -> ij", {"i": 7, "j": 62, "kind": "float64"},
     "Y: skip | "
     "Y tv"),
    ("k -> k", {"k": 1},
     "Y: skip | "
     "Y"),
    ("k -> k", {"k": 5000},
     "Y: skip | "
     "Y xtv"),
    ("ki -> i", {"k": 7, "i": 40},
     "Y: skip | "
     "Y t., Y_local t | pragma_auto_unroll_max_step=0"),
    ("ik -> i", {"k": 7, "i": 40, "after": relu},
     "Z: skip | "
     "Y t., Z t | pragma_auto_unroll_max_step=0"),
    ("nc(h+r)(w+q) crq -> nchw", {"n": 1, "c": 3, "h": 4, "w": 8},
     "Y: tiling through shared memory; Y: skip | "
     "Y t.., Y_local t | pragma_auto_unroll_max_step=0"),
    ("nc(2h+r)(2w+q) -> nchw", {"n": 2, "c": 3, "h": 5, "w": 7, "total": te.max},
     "Y: skip | "
     "Y t.., Y_local t | pragma_auto_unroll_max_step=0"),
    ("i -> ij", {"i": 7, "j": 33},
     "Y: skip | "
     "Y t"),
    ("ij -> ij", {"i": 7, "j": 64, "kind": "int8"},
     "Y: skip | "
     "Y tv"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
