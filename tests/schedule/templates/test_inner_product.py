"""Inner products of a few rows or columns: the lanes are steps of the sum, in tiles of both operands."""

from __future__ import annotations

import pytest

from schedule.templates import inner_product
from tests.schedule.templates.patterns import check_estimates, matched, outcome, relu

MATCHES = {
    "ik jk -> ij", "bki bjk -> bij", "gik bjk -> gibj", "nhwc co -> nhwo", "distances of rows", "products of a half",
}  # fmt: skip


def test_what_is_matched():
    assert matched(inner_product.matches).keys() == MATCHES


SCHEDULES = [
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 128}, "znver2", "Y: dot products | Y_rf ..uuv, Y .uu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 128}, "znver4", "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 128}, "sapphirerapids", "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 40, "j": 2, "k": 100}, "znver2", "Y: dot products | Y_rf ..uuv, Y .uu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 40, "j": 2, "k": 100}, "znver4", "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 5, "j": 7, "k": 33}, "znver2: dot products",
     "Y: packing | B_global .uv, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 5, "j": 7, "k": 33}, "znver4: dot products",
     "Y: packing | B_global .uv, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ki jk -> ij", {"i": 3, "j": 40, "k": 128}, "znver2",
     "Y: dot products | A_global .v, Y_rf ..uuv, Y .uu. | combine_lanes=True"),
    ("ki jk -> ij", {"i": 3, "j": 40, "k": 128}, "znver4",
     "Y: dot products | A_global pv, Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("bik bjk -> bij", {"b": 3, "i": 2, "j": 9, "k": 64}, "znver2",
     "Y: dot products | Y_rf ...uuv, Y ..uu. | combine_lanes=True"),
    ("bik bjk -> bij", {"b": 3, "i": 2, "j": 9, "k": 64}, "znver4",
     "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("gik bjk -> gibj", {"g": 2, "b": 3, "i": 3, "j": 5, "k": 64}, "znver2: dot products",
     "Y: dot products | Y_rf ....uuv, Y ...uu. | combine_lanes=True"),
    ("gik bjk -> gibj", {"g": 2, "b": 3, "i": 3, "j": 5, "k": 64}, "znver4: dot products",
     "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 4, "j": 8, "k": 64, "kind": "float64"}, "znver2",
     "Y: dot products | Y_rf ...uuv, Y ..uu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 4, "j": 8, "k": 64, "kind": "float64"}, "znver4",
     "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 128, "kinds": ("float16", "float16")}, "znver4: dot products",
     "Y: dot products | Y_rf p.uuv, Y puu. | combine_lanes=True"),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 128, "after": relu}, "znver2: dot products",
     "Y: dot products; Z: elementwise | Y_rf ..uuv, Y .uu., Z .v | combine_lanes=True"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Programs, and on which targets the template suits them.
SUITED = [
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 24}, (), [True, False, False]),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 23}, (), [False, False, False]),
    ("ik jk -> ij", {"i": 40, "j": 5, "k": 100}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 7, "j": 7, "k": 200}, (), [True, True, True]),
    ("ki jk -> ij", {"i": 3, "j": 40, "k": 128}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 40, "j": 3, "k": 128}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 8, "j": 300, "k": 512}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 300, "j": 8, "k": 513}, (), [True, True, True]),
    ("bik bjk -> bij", {"b": 3, "i": 2, "j": 9, "k": 64}, (), [True, True, True]),
    ("gik bjk -> gibj", {"g": 2, "b": 3, "i": 4, "j": 8, "k": 64}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 8, "j": 16, "k": 128}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 2, "j": 1, "k": 128}, (), [False, False, False]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(inner_product, rule, about, constants, suits)
