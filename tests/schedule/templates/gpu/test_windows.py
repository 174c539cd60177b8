"""Convolutions on a GPU as products of matrices read at computed places; channels are copied last where copies need that."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome, relu

SCHEDULES = [
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 4, "o": 8, "h": 2, "w": 5},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init Vtt, A_global_shared ..tt, B_global_shared ..tt, Y_update .Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 4, "o": 8, "h": 3, "w": 2},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init Vtt, A_global_shared ..tt, B_global_shared .ttv, Y_update .Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 2, "c": 3, "o": 8, "h": 2, "w": 2, "after": relu},
     "Z: skip | "
     "Y_init Vtt, A_global_shared ..tt, B_global_shared ..tt, Y_update .Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 16, "h": 2, "w": 5, "r": 2, "q": 1, "kind": "float16"},
     "Y: windows as matrices, channels last; Y: windows as matrices; Y: tiling through shared memory | "
     "A_shared t, A_global tv, B_shared xtv, B_global xtv, Y_init Vtt, A_global_global_shared ttv, B_global_global_shared "
     "ttv, Y_update Vtt., Y_global Vtt | resident_blocks=2, pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 9, "o": 16, "h": 2, "w": 2, "r": 1, "kind": "float16"},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init Vtt, A_global_shared ..tt, B_global_shared ..tt, Y_update .Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("nchw oc -> nohw", {"n": 1, "c": 16, "o": 16, "h": 2, "w": 5, "kind": "float16"},
     "Y: windows as matrices, channels last; Y: windows as matrices; Y: tiling through shared memory | "
     "A_shared tv, A_global tv, Y_init Vtt, A_global_global_shared ttv, B_global_shared ttv, Y_update Vtt., Y_global Vtt "
     "| resident_blocks=2, pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 4, "o": 4, "h": 1, "w": 4},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init xtt, A_global_shared x..tt, B_global_shared x..tt, Y_update x.tt., Y_global xtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=16"),
    ("nc(w+q) ocq -> now", {"n": 2, "c": 5, "o": 9, "w": 12},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init xVtt, A_global_shared x.tt, B_global_shared x.tt, Y_update xVtt., Y_global xVtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 8, "o": 16, "h": 2, "w": 2, "kind": "float16"},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init Vtt, A_global_shared ..tt, B_global_shared .ttv, Y_update .Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=64"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
