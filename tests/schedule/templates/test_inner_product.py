"""Inner products of a few rows or columns: the lanes are steps of the sum, in tiles of both operands."""

from __future__ import annotations

import pytest

from schedule.templates import inner_product
from tests.schedule.templates.patterns import TARGETS, estimate, matched, outcome, relu

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


# Worked examples of the formula, on each target: none where the template does not suit.
ESTIMATES = [
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 24}, (), [1994.9, None, None]),
    ("ik jk -> ij", {"i": 3, "j": 40, "k": 23}, (), [None, None, None]),
    ("ik jk -> ij", {"i": 40, "j": 5, "k": 100}, (), [5291.5, 5610.0, 5118.8]),
    ("ik jk -> ij", {"i": 7, "j": 7, "k": 200}, (), [2012.8, 4564.0, 5113.5]),
    ("ki jk -> ij", {"i": 3, "j": 40, "k": 128}, (), [3300.8, 4666.6, 3711.4]),
    ("ik kj -> ij", {"i": 40, "j": 3, "k": 128}, (), [3300.8, 4044.8, 3587.4]),
    ("ik jk -> ij", {"i": 8, "j": 300, "k": 512}, (), [235712.0, 219632.0, 99535.7]),
    ("ik jk -> ij", {"i": 300, "j": 8, "k": 513}, (), [236747.5, 220040.0, 101270.4]),
    ("bik bjk -> bij", {"b": 3, "i": 2, "j": 9, "k": 64}, (), [1253.5, 1824.8, 1313.5]),
    ("gik bjk -> gibj", {"g": 2, "b": 3, "i": 4, "j": 8, "k": 64}, (), [4039.7, 4903.7, 4087.7]),
    ("ik jk -> ij", {"i": 8, "j": 16, "k": 128}, (), [3397.1, 3909.1, 4663.7]),
    ("ik jk -> ij", {"i": 2, "j": 1, "k": 128}, (), [None, None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "expected"), ESTIMATES)
def test_estimated_cycles(rule, about, constants, expected):
    assert [estimate(inner_product, rule, about, name, constants) for name in TARGETS] == expected
