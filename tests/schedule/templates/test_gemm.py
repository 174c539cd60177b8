"""Matrix products: what is one, and loops that are those of GotoBLAS, on processors of few and many registers."""

from __future__ import annotations

import pytest

from schedule.templates import gemm
from tests.schedule.templates.patterns import check_estimates, matched, outcome, relu

MATCHES = {
    "ik kj -> ij", "ki kj -> ij", "ik jk -> ij", "ik kj -> ji", "bik bkj -> bij", "bik kj -> bij", "bki bjk -> bij",
    "zik zkj -> zij", "zik kj -> zij", "ik kj -> yij", "ikr krj -> ij", "ikr jkr -> ij", "gik kbj -> gibj", "gik bjk -> gibj",
    "iz zj -> ij", "xk kj -> xj", "ik kx -> ix", "bxk bkj -> bxj", "zk kj -> zj", "nchw ochw -> no", "nchw oc -> nohw",
    "nhwc co -> nhwo", "squares of one factor", "products turned", "distances", "distances of rows", "shortest paths",
    "largest products", "products of halves", "products of a half", "products of bytes", "products of doubles", "one step",
    "one row", "one column", "some terms",
}  # fmt: skip


def test_what_is_matched():
    assert matched(gemm.matches).keys() == MATCHES


SCHEDULES = [
    ("ik kj -> ij", {"i": 13, "j": 33, "k": 17}, "znver2",
     "Y: packing | Y_j_0 ..uv, B_global ., Y_j_1_rf .uv, Y_j_1 u. | pragma_auto_unroll_max_step=64, combine_lanes=True"),
    ("ik kj -> ij", {"i": 13, "j": 33, "k": 17}, "znver4", "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 13, "j": 33, "k": 17}, "sapphirerapids", "Y: packing | Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 31, "k": 64, "after": relu}, "znver2",
     "Y: packing | B_global .v, Y ..uv, Z ..v | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 31, "k": 64, "after": relu}, "znver4",
     "Y: packing | Y p..uv, Z p..v | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 17, "j": 16, "k": 33}, "znver2", "Y: packing | Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 17, "j": 16, "k": 33}, "znver4", "Y: packing | Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 19, "k": 23}, "znver2",
     "Y: packing | B_global ..uv, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 19, "k": 23}, "znver4",
     "Y: packing | B_global ..uv, Y p.uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 3, "i": 9, "j": 17, "k": 13}, "znver2",
     "Y: packing | B_global ...v, A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 3, "i": 9, "j": 17, "k": 13}, "znver4", "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 3, "i": 9, "j": 17, "k": 13}, "sapphirerapids",
     "Y: packing | Y p..uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 33, "j": 40, "k": 13, "constants": ["B"]}, "znver2",
     "Y: packing | B_global ...v, A_global ...v, Y ....uv | pragma_auto_unroll_max_step=64, prefetch=[['B_global', "
     "32]]"),
    ("bik bkj -> bij", {"b": 4, "i": 33, "j": 40, "k": 13, "constants": ["B"]}, "znver4",
     "Y: packing | B_global p.v, Y p..uv | pragma_auto_unroll_max_step=64, prefetch=[['B_global', 32]]"),
    ("bik kj -> bij", {"b": 3, "i": 1, "j": 17, "k": 13}, "znver4", "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("ikr krj -> ij", {"i": 13, "j": 20, "k": 5, "r": 3}, "znver2",
     "Y: packing | B_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ikr krj -> ij", {"i": 13, "j": 20, "k": 5, "r": 3}, "znver4", "Y: packing | Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 24, "j": 40, "k": 500}, "znver2",
     "Y: packing, the sum in parts | Y .....uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 24, "j": 40, "k": 500}, "znver4",
     "Y: packing, the sum in parts, threads share columns | Y_j_0 p..uv, B_global p..., Y_j_1_rf p...uv, Y_j_1 p.u. | "
     "pragma_auto_unroll_max_step=64, combine_lanes=True"),
    ("ik kj -> ij", {"i": 7, "j": 17, "k": 5, "kinds": ("float16", "float16")}, "znver2",
     "Y: packing | B_global ..v, A_global .v, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 7, "j": 17, "k": 5, "kinds": ("float16", "float16")}, "znver4",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 7, "j": 17, "k": 5, "kinds": ("float32", "float16")}, "znver4",
     "Y: packing | B_global p.u, Y p.uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 17, "k": 9, "kind": "float64"}, "znver2",
     "Y: packing | Y_j_0 ..uv, B_global ., Y_j_1_rf ..uv, Y_j_1 .u. | pragma_auto_unroll_max_step=64, "
     "combine_lanes=True"),
    ("ik kj -> ij", {"i": 40, "j": 35, "k": 70, "after": relu}, "znver2",
     "Y: packing | B_global .v, Y ..uv, Z ..v | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 40, "j": 35, "k": 70, "after": relu}, "znver4",
     "Y: packing | Y_j_0 p..uv, B_global p.., Y_j_1_rf p...uv, Y_j_1 p..u., Z p.v | pragma_auto_unroll_max_step=64, "
     "combine_lanes=True"),
    ("ki kj -> ij", {"i": 48, "j": 40, "k": 33, "constants": ["A"]}, "znver2",
     "Y: packing | A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 48, "j": 40, "k": 33, "constants": ["A"]}, "znver4",
     "Y: packing | A_global p.v, Y p..uv | pragma_auto_unroll_max_step=64"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Programs, and on which targets the template suits them.
SUITED = [
    ("ik kj -> ij", {"i": 2, "j": 2, "k": 9}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 1, "j": 9, "k": 9}, (), [False, False, False]),
    ("ik kj -> ij", {"i": 2, "j": 1, "k": 9}, (), [False, False, False]),
    ("bik bkj -> bij", {"b": 2, "i": 1, "j": 9, "k": 9}, (), [True, True, True]),
    ("bik bjk -> bij", {"b": 2, "i": 1, "j": 9, "k": 9}, (), [False, False, False]),
    ("bik bkj -> bij", {"b": 1, "i": 1, "j": 9, "k": 9}, (), [False, False, False]),
    ("ik kj -> ij", {"i": 64, "j": 100, "k": 300}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 64, "j": 100, "k": 300}, ("B",), [True, True, True]),
    ("ik jk -> ij", {"i": 64, "j": 101, "k": 300}, ("A",), [True, True, True]),
    ("ki jk -> ij", {"i": 64, "j": 96, "k": 300}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 50, "j": 37, "k": 200, "kinds": ("float16", "float16")}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 30, "j": 97, "k": 64}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 200, "j": 33, "k": 1000}, (), [True, True, True]),
    ("bik bkj -> bij", {"b": 5, "i": 9, "j": 40, "k": 33}, (), [True, True, True]),
    ("ikr krj -> ij", {"i": 9, "j": 40, "k": 33}, (), [True, True, True]),
    ("ik bkj -> bij", {"b": 5, "i": 9, "j": 40, "k": 33}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 9, "j": 32, "k": 16}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 9, "j": 16, "k": 16}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(gemm, rule, about, constants, suits)
