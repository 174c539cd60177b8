"""Products of halves on tensor cores: fragments in registers of warps, from tiles in shared memory."""

from __future__ import annotations

import pytest

from tests.schedule.templates.patterns import by_rule, gpu_outcome, relu

SCHEDULES = [
    ("ik kj -> ij", {"i": 16, "j": 32, "k": 16, "kind": "float16"},
     "Y: tiling for tensor cores | "
     "Y_init t..., A_shared ttv, B_shared ttv, A_shared_warp_o t, load t.., B_shared_warp_o t, load_1 t.., Y_update_o t., "
     "mma t...., Y_warp t.. | resident_blocks=2, pipeline_stages=4, instruction=ldmatrix_16x16_f16 x2, "
     "instruction=mma_m16n8k16_f16_f16"),
    ("ik jk -> ij", {"i": 17, "j": 8, "k": 20, "kinds": ("float16", "float16")},
     "Y: tiling through shared memory | "
     "Y_init xVtt, A_shared x.ttv, B_shared x.ttv, Y_update x.Vtt., Y_local xVtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 2, "i": 16, "j": 16, "k": 16, "kind": "float16", "after": relu},
     "Z: skip | "
     "Y_init x..., A_shared xtv, B_shared xtv, A_shared_warp_o x, load x.., B_shared_warp_o x, load_1 x.., Y_update_o x., "
     "mma x...., Z x.. | resident_blocks=2, pipeline_stages=4, instruction=ldmatrix_16x16_f16 x2, "
     "instruction=mma_m16n8k16_f16_f16"),
    ("ik kj -> ij", {"i": 4, "j": 32, "k": 32, "kind": "float16"},
     "Y: tiling through shared memory | "
     "Y_init xVtt, A_shared x.ttv, B_shared x.ttv, Y_update x.Vtt., Y_local xVtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 16, "j": 16, "k": 16, "kinds": ("bfloat16", "bfloat16")},
     "Y: tiling for tensor cores | "
     "Y_init ..., A_shared tv, B_shared tv, A_shared_warp_o, load .., B_shared_warp_o, load_1 .., Y_update_o ., mma ...., "
     "Y_warp .. | resident_blocks=2, pipeline_stages=4, instruction=ldmatrix_16x16_bf16 x2, "
     "instruction=mma_m16n8k16_bf16_f32"),
    ("ik kj -> ij", {"i": 10, "j": 8, "k": 9, "kind": "float64"},
     "Y: tiling through shared memory | "
     "Y_init Vtt, A_shared .tt, B_shared ttv, Y_update Vtt., Y_local Vtt | resident_blocks=2, pipeline_stages=3, "
     "pragma_auto_unroll_max_step=64"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "expected"), SCHEDULES)
def test_schedules(rule, about, expected):
    assert gpu_outcome(by_rule(rule, **about)) == expected
