"""Rows on a GPU: threads that reduce together, rows in registers or shared memory."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome, relu
from tir import workloads

PROGRAMS = {
    "softmax": lambda: workloads.make("softmax", (13, 65)).func,
    "softmax of vectors": lambda: workloads.make("softmax", (7, 512)).func,
    "softmax of long rows": lambda: workloads.make("softmax", (2, 9000)).func,
    "layernorm": lambda: workloads.make("layernorm", (9, 256)).func,
    "sums": lambda: by_rule("ik -> i", i=13, k=300),
    "sums and relu": lambda: by_rule("ik -> i", i=13, k=64, after=relu),
    "short sums": lambda: by_rule("ik -> i", i=13, k=31),
    "sums of 32": lambda: by_rule("ik -> i", i=13, k=32),
    "vector": lambda: by_rule("jk k -> j", j=17, k=130),
    "halves": lambda: by_rule("ik -> i", i=13, k=256, kind="float16"),
    "total": lambda: by_rule("k -> x", k=300),
}
SCHEDULES = [
    ("softmax", "sm_90",
     "Y: cross-thread reduction in registers; Y: cross-thread reduction; Y: cross-thread reduction, elements computed again | "
     "X_local xt, top xt, power xt, total xt, Y xt | allow_reciprocal=True"),
    ("softmax of vectors", "sm_90",
     "Y: cross-thread reduction in registers; Y: cross-thread reduction; Y: cross-thread reduction, elements computed again | "
     "X_local xtv, top xtu, power xtv, total xtu, Y xtv | allow_reciprocal=True"),
    ("softmax of long rows", "sm_90",
     "Y: cross-thread reduction in registers; Y: cross-thread reduction; Y: cross-thread reduction, elements computed again | "
     "X_local xtuv, top xtuu, power xtuv, total xtuu, Y xtuv | allow_reciprocal=True"),
    ("layernorm", "sm_90",
     "Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "X_local xttv, total xttu, squares xttu, Y xttv | allow_reciprocal=True x2"),
    ("sums", "sm_90", "Y: cross-thread reduction in registers; Y: cross-thread reduction | Y xtu"),
    ("sums and relu", "sm_90", "Z: cross-thread reduction in registers; Z: cross-thread reduction | Y xttu, Z xt"),
    ("short sums", "sm_90", "Y: skip | Y t., Y_local t | pragma_auto_unroll_max_step=0"),
    ("sums of 32", "sm_90", "Y: cross-thread reduction in registers; Y: cross-thread reduction | Y xttu"),
    ("vector", "sm_90",
     "Y: tiling through shared memory; Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y xtu"),
    ("halves", "sm_90", "Y: cross-thread reduction in registers; Y: cross-thread reduction | Y xttu"),
    ("total", "sm_90", "Y: cross-thread reduction in registers; Y: cross-thread reduction | Y tu"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), SCHEDULES)
def test_schedules(name, target, expected):
    assert gpu_outcome(PROGRAMS[name](), target, roundings=2048) == expected
