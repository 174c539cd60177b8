"""Attention on a GPU: one kernel, the scores in registers."""

from __future__ import annotations

import pytest

from tests import programs
from tests.schedule.templates.patterns import gpu_outcome

PROGRAMS = {
    "attention": lambda: programs.attention(1, 19, 16),
    "a page of keys": lambda: programs.attention(1, 16, 16, keys=40),
    "chain": lambda: programs.chained_matmuls(20, 13, 31, 17),
    "wide": lambda: programs.attention(1, 3, 5, keys=7),
}
SCHEDULES = [
    ("attention", "sm_90",
     "O: attention in one kernel | "
     "Q_shared .ttv, top_init t., total_init t., O_init t.., V_shared .tt, K_shared .ttv, score_init t...., "
     "Q_shared_warp tu.., K_shared_warp tu..., score_update_o tu.., mma tu....., top_rf_init t., top_rf_update t.., "
     "top_old t., top_update t., top_shift t., top_correction t., power t.., total_rf_init t., total_rf_update t.., "
     "total_rescaled t., total_update t., share t.., O_rescaled t.., share_warp_warp tu.., V_shared_warp tu.., "
     "O_update_o tu., mma_1 tu...., O_quotient t.., O_warp t.. | resident_blocks=2, pipeline_stages=2, "
     "instruction=mma_m16n8k8_f32_f32 x2, allow_reciprocal=True"),
    ("a page of keys", "sm_90",
     "O: attention in one kernel | "
     "Q_shared .tv, top_init ., total_init ., O_init .., V_shared ..t, K_shared ..tv, score_init ....., Q_shared_warp "
     ".u.., K_shared_warp .u..., score_update_o .u.., mma .u....., top_rf_init .., top_rf_update ..., top_old .., "
     "top_update .., top_shift .., top_correction .., power ..., total_rf_init .., total_rf_update ..., total_rescaled "
     ".., total_update .., share ..., O_rescaled ..., share_warp_warp .u.., V_shared_warp .u.., O_update_o .u., mma_1 "
     ".u...., O_quotient .., O_warp .. | resident_blocks=2, pipeline_stages=2, instruction=mma_m16n8k8_f32_f32 x2, "
     "allow_reciprocal=True"),
    ("chain", "sm_90",
     "F: tiling through shared memory | "
     "C_init xVtt, A_shared x.tt, B_shared x.tt, C_update xVtt., C_local xVtt, F_init xVtt, C_shared x..tt, E_shared "
     "x..tt, F_update x.Vtt., F_local xVtt | resident_blocks=2 x2, pipeline_stages=3 x2, "
     "pragma_auto_unroll_max_step=64 x2"),
    ("wide", "sm_90",
     "O: tiling through shared memory | "
     "score_init tt, Q_shared tt, K_shared .tt, score_update tt., score_local tt, top t., top_local t, power t, total "
     "t., total_local t, O_init tt, share_shared tt, V_shared .tt, O_update tt., O_local tt | resident_blocks=2 x2, "
     "pipeline_stages=3 x2, pragma_auto_unroll_max_step=16 x2, pragma_auto_unroll_max_step=0 x2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), SCHEDULES)
def test_schedules(name, target, expected):
    assert gpu_outcome(PROGRAMS[name](), target, roundings=2048) == expected
