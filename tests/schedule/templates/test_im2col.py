"""Convolutions as products over im2col panels, or row by row of the image: lanes are pixels."""

from __future__ import annotations

import pytest

from schedule.templates import im2col
from tests.schedule.templates.patterns import check_estimates, outcome, relu

SCHEDULES = [
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9}, "znver2",
     "Y: direct convolution | B_global .uv, Y ....uv, Y_global ..uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9}, "znver4",
     "Y: pixels in lanes, row by row | Y p..uuv"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9}, "sapphirerapids",
     "Y: pixels in lanes, row by row | Y p..uuv"),
    ("nchw oc -> nohw", {"n": 1, "c": 8, "o": 9, "h": 5, "w": 9}, "znver2",
     "Y: packing | Y_w_0 ..uv, A_global .., Y_w_1_rf .uv, Y_w_1 .u. | pragma_auto_unroll_max_step=64, "
     "combine_lanes=True"),
    ("nchw oc -> nohw", {"n": 1, "c": 8, "o": 9, "h": 5, "w": 9}, "znver4",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 2, "c": 8, "o": 9, "h": 5, "w": 9, "after": relu}, "znver2",
     "Y: pixels in lanes | Y ....uv, Z ....v | pragma_auto_unroll_max_step=64"),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 2, "c": 8, "o": 9, "h": 5, "w": 9, "after": relu}, "znver4",
     "Y: pixels in lanes | Y p.uv, Z p.v | pragma_auto_unroll_max_step=64"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 5, "w": 9, "after": relu}, "znver2: pixels in lanes",
     "Y: pixels in lanes | A_reindex ....v, A_reindex_global ..v, Y ...uv, Z ...v | pragma_auto_unroll_max_step=64"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 5, "w": 9, "after": relu}, "znver4: pixels in lanes",
     "Y: pixels in lanes | A_reindex p.v, Y .uv, Z .v | pragma_auto_unroll_max_step=64"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 5, "w": 9, "after": relu}, "znver2: pixels in lanes, row by row",
     "Y: pixels in lanes, row by row | Y ....uuv, Z ...v"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 5, "w": 9, "after": relu}, "znver4: pixels in lanes, row by row",
     "Y: pixels in lanes, row by row | Y p..uuv, Z p.v"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 5, "h": 2, "w": 9, "kinds": ("float16", "float16")}, "znver2: pixels in lanes",
     "Y: pixels in lanes | A_reindex ....v, Y_ax2_2_0 .uv, A_reindex_global .., Y_ax2_2_1_rf ..uv, Y_ax2_2_1 .u., "
     "Y_global .v | pragma_auto_unroll_max_step=64, combine_lanes=True"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 5, "h": 2, "w": 9, "kinds": ("float16", "float16")}, "znver4: pixels in lanes",
     "Y: pixels in lanes | A_reindex p.v, Y .uv, Y_global .v | pragma_auto_unroll_max_step=64"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 5, "h": 2, "w": 9, "kinds": ("float16", "float16")}, "znver4: pixels in lanes, row by row",
     "Y: pixels in lanes, row by row | A_global pv, B_global pv, Y p..uuv"),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 4, "h": 3, "w": 7}, "znver2",
     "Y: pixels in lanes, row by row | Y ....uuv"),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 4, "h": 3, "w": 7}, "znver4",
     "Y: pixels in lanes, row by row | Y p..uuv"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 4, "o": 3, "h": 32, "w": 32, "r": 1, "q": 1}, "znver2",
     "Y: pixels in lanes | A_reindex ..v, B_reindex_global .v, Y ..uv, Y_global ..v | pragma_auto_unroll_max_step=64"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 4, "o": 3, "h": 32, "w": 32, "r": 1, "q": 1}, "znver4",
     "Y: pixels in lanes, row by row | Y p..uv"),
    ("nc(w+q) ocq -> now", {"n": 2, "c": 5, "o": 17, "w": 19}, "znver2", "Y: pixels in lanes, row by row | Y ....uuv"),
    ("nc(w+q) ocq -> now", {"n": 2, "c": 5, "o": 17, "w": 19}, "znver4", "Y: pixels in lanes, row by row | Y p..uuv"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


# Programs, and on which targets the template suits them.
SUITED = [
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 40, "h": 12, "w": 19}, (), [True, True, True]),
    ("nchw oc -> nohw", {"n": 1, "c": 8, "o": 9, "h": 5, "w": 9}, (), [False, False, False]),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 2, "c": 33, "o": 40, "h": 5, "w": 9}, (), [True, True, True]),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 1, "c": 33, "o": 40, "h": 32, "w": 32}, (), [True, True, True]),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 15, "w": 17}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 12, "w": 9, "kinds": ("float16", "float16")}, (), [True, True, True]),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 4, "h": 3, "w": 7}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 1, "w": 7}, (), [False, False, False]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 2, "w": 4}, (), [True, False, False]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 1, "w": 16}, (), [True, True, True]),
    ("nc(16h+r)(16w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 4, "w": 5}, (), [True, True, True]),
    ("nc(h+r)(w+q) corq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 5, "w": 7}, (), [False, False, False]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 64, "o": 128, "h": 7, "w": 7}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 64, "o": 128, "h": 7, "w": 7}, ("B",), [True, True, True]),
    ("nc(h+r)w ocr -> nohw", {"n": 1, "c": 3, "o": 30, "h": 5, "w": 7}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(im2col, rule, about, constants, suits)
