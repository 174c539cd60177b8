"""Long sums on a GPU, in parts where results are few: products as batches, other reductions in two stages."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome

SCHEDULES = [
    ("ik kj -> ij", {"i": 2, "j": 4, "k": 1300},
     "Y: split sum in 5; Y: split sum in 2; Y: split sum in 10; Y: tiling through shared memory | "
     "Y_rf_init xtt, A_global_global_shared x.ttv, B_global_global_shared x..ttv, Y_rf_update x.tt., Y_global_rf_global "
     "xtt, Y t., Y_global t | resident_blocks=2, pipeline_stages=3, pragma_auto_unroll_max_step=16, "
     "pragma_auto_unroll_max_step=0"),
    ("ik kj -> ij", {"i": 3, "j": 2, "k": 511},
     "Y: tiling through shared memory | "
     "Y_init tt, A_shared ..tt, B_shared ..ttv, Y_update .tt., Y_local tt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=16"),
    ("ik jk -> ij", {"i": 3, "j": 2, "k": 512},
     "Y: split sum in 2; Y: split sum in 4; Y: tiling through shared memory; Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y_rf_init xtt, A_global_global_shared x..ttv, B_global_global_shared x..ttv, Y_rf_update x.tt., Y_global_rf_global "
     "xtt, Y t., Y_global t | resident_blocks=2, pipeline_stages=3, pragma_auto_unroll_max_step=16, "
     "pragma_auto_unroll_max_step=0"),
    ("k -> x", {"k": 60000},
     "Y: sum in stages; Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y_rf xtuu, Y ., Y_local | pragma_auto_unroll_max_step=0"),
    ("ki -> i", {"k": 3000, "i": 7},
     "Y: sum in stages; Y: skip | "
     "Y_rf xt., Y_rf_local xt, Y t., Y_local t | pragma_auto_unroll_max_step=0 x2"),
    ("ik -> i", {"i": 2, "k": 33000},
     "Y: sum in stages; Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y_rf xtuu, Y t., Y_local t | pragma_auto_unroll_max_step=0"),
    ("k -> x", {"k": 8191},
     "Y: cross-thread reduction in registers; Y: cross-thread reduction | "
     "Y tu"),
    ("ki -> i", {"k": 129, "i": 5},
     "Y: skip | "
     "Y t., Y_local t | pragma_auto_unroll_max_step=0"),
    ("kri -> i", {"k": 40, "r": 90, "i": 5},
     "Y: sum in stages; Y: skip | "
     "Y_rf t., Y_rf_local t, Y t., Y_local t | pragma_auto_unroll_max_step=0 x2"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
