"""Products on a GPU: tiles in shared memory, results in registers, whatever their extents."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome, relu

SCHEDULES = [
    ("ik kj -> ij", {"i": 33, "j": 20, "k": 40},
     "Y: tiling through shared memory | "
     "Y_init xVtt, A_shared x.ttv, B_shared x.ttv, Y_update x.Vtt., Y_local xVtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 16, "j": 12, "k": 32, "after": relu},
     "Z: skip | "
     "Y_init Vtt, A_shared .ttv, B_shared .ttv, Y_update .Vtt., Z Vtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 10, "j": 17, "k": 33},
     "Y: tiling through shared memory | "
     "Y_init xVtt, A_shared x..tt, B_shared x..tt, Y_update x.Vtt., Y_local xVtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 17, "j": 10, "k": 16},
     "Y: tiling through shared memory | "
     "Y_init xVtt, A_shared x.tt, B_shared xttv, Y_update xVtt., Y_local xVtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 3, "i": 3, "j": 8, "k": 9},
     "Y: tiling through shared memory | "
     "Y_init xtt, A_shared x.tt, B_shared xttv, Y_update xtt., Y_local xtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=16"),
    ("ik kj -> ij", {"i": 1, "j": 20, "k": 40},
     "Y: tiling through shared memory; Y: skip | "
     "Y t., Y_local t | pragma_auto_unroll_max_step=0"),
    ("ikr krj -> ij", {"i": 3, "j": 8, "k": 7, "r": 3},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init tt, A_global_shared ..tt, B_global_shared .ttv, Y_update .tt., Y_global tt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=16"),
    ("ik kj -> ij", {"i": 7, "j": 5, "k": 1},
     "Y: tiling through shared memory; Y: skip | "
     "Y t, Y_local t | pragma_auto_unroll_max_step=0"),
    ("ik kj -> ij", {"i": 2, "j": 2, "k": 200},
     "Y: tiling through shared memory | "
     "Y_init tt, A_shared ..ttv, B_shared ..ttv, Y_update .tt., Y_local tt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=16"),
    ("jk k -> j", {"j": 17, "k": 130},
     "Y: tiling through shared memory; Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y xtu"),
    ("gik kbj -> gibj", {"g": 2, "b": 3, "i": 3, "j": 4, "k": 6},
     "Y: windows as matrices; Y: tiling through shared memory | "
     "Y_init Vtt, A_global_shared tt, B_global_shared ttv, Y_update Vtt., Y_global Vtt | resident_blocks=2, "
     "pipeline_stages=3, pragma_auto_unroll_max_step=16"),
    ("ik kj -> ij", {"i": 12, "j": 9, "k": 11, "kind": "int32"},
     "Y: tiling through shared memory | "
     "Y_init Vtt, A_shared .tt, B_shared .tt, Y_update Vtt., Y_local Vtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 8, "j": 8, "k": 9, "pair": "(a-b)^2"},
     "Y: tiling through shared memory; Y: skip | "
     "Y t., Y_local t | pragma_auto_unroll_max_step=0"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
