"""Attention and chains of products: tiles of rows in which all stages run."""

from __future__ import annotations

import pytest

from tests import programs
from tests.schedule.templates.patterns import outcome_of

PROGRAMS = {
    "attention": lambda: programs.attention(2, 19, 13),
    "more keys": lambda: programs.attention(3, 40, 16, keys=33),
    "few rows": lambda: programs.attention(2, 2, 64, keys=40),
    "one head": lambda: programs.attention(1, 24, 8),
    "keys of a page": lambda: programs.attention(1, 8, 8, keys=1024),
    "chain": lambda: programs.chained_matmuls(20, 13, 31, 17),
    "chain of many rows": lambda: programs.chained_matmuls(40, 9, 16, 16),
}
SCHEDULES = [
    ("attention", "znver2",
     "O: attention | "
     "K_global ...uv, V_global ..v, score ...uv, top_rf ....v, top ...., power ...v, total_rf ....v, total ...., share "
     "...v, O ...uv | pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("attention", "znver4",
     "O: attention | "
     "K_global p..u, score p..uv, top p.., power p.v, total p.., share p.v, O p.uv | pragma_auto_unroll_max_step=64 "
     "x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("more keys", "znver2",
     "O: attention | "
     "K_global ...uv, score ....uv, top_rf ....v, top ...., power ...v, total_rf ....v, total ...., share ...v, O "
     "....uv | pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("more keys", "znver4",
     "O: attention | "
     "K_global puv, score p..uv, top_rf p..v, top p.., power p.v, total_rf p..v, total p.., share p.v, O p.uv | "
     "pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("few rows", "znver2",
     "score: dot products; O: packing; share: rows | "
     "score_rf ...uuv, score ..uu., top_rf ...v, top ..., power ..v, total_rf ...v, total ..., share ..v, O ...uv | "
     "combine_lanes=True x3, allow_reciprocal=True, pragma_auto_unroll_max_step=64"),
    ("few rows", "znver4",
     "score: dot products; O: packing; share: rows | "
     "score_rf p.uuv, score puu., top_rf p.v, top p., power pv, total_rf p.v, total p., share pv, O p.uv | "
     "combine_lanes=True x3, allow_reciprocal=True, pragma_auto_unroll_max_step=64"),
    ("one head", "znver2",
     "O: attention | "
     "K_global .uv, score ...uv, top_rf ...v, top ..., power ..v, total_rf ...v, total ..., share ..v, O ..uv | "
     "pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("one head", "znver4",
     "O: attention | "
     "K_global p.u, score ..uv, top .., power .v, total .., share .v, O .uv | pragma_auto_unroll_max_step=64 x2, "
     "combine_lanes=True x2, allow_reciprocal=True"),
    ("keys of a page", "znver2",
     "O: attention | "
     "K_global .uv, score ..uv, top_rf ..v, top .., power .v, total_rf ..v, total .., share .v, O .uv | "
     "pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("keys of a page", "znver4",
     "O: attention | "
     "K_global p.u, score ..uv, top_rf ..v, top .., power .v, total_rf ..v, total .., share .v, O .uv | "
     "pragma_auto_unroll_max_step=64 x2, combine_lanes=True x2, allow_reciprocal=True"),
    ("chain", "znver2",
     "C: packing; F: packing | "
     "B_global .v, C ..uv, F_j_1_0 ..uv, E_global ., F_j_1_1_1_rf ..uv, F_j_1_1_1 .u. | pragma_auto_unroll_max_step=64 "
     "x2, combine_lanes=True"),
    ("chain", "znver4", "C: packing; F: packing | C p.uv, F p.uv | pragma_auto_unroll_max_step=64 x2"),
    ("chain of many rows", "znver2", "C: packing; F: packing | C ..uv, F ..uv | pragma_auto_unroll_max_step=64 x2"),
    ("chain of many rows", "znver4", "C: packing; F: packing | C p.uv, F p.uv | pragma_auto_unroll_max_step=64 x2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), SCHEDULES)
def test_schedules(name, target, expected):
    assert outcome_of(PROGRAMS[name](), target, roundings=2048) == expected
