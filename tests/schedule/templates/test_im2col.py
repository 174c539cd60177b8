"""Convolutions as products over im2col panels, or row by row of the image: lanes are pixels."""

from __future__ import annotations

import pytest

from schedule.templates import im2col
from tests.schedule.templates.patterns import TARGETS, estimate, outcome, relu

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
     "Y: pixels in lanes | A_reindex ....v, Y ...uv, Z ...v | pragma_auto_unroll_max_step=64"),
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


# Worked examples of the formula, on each target: none where the template does not suit.
ESTIMATES = [
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9}, (), [3671.5, 2839.8, 2203.8]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 40, "h": 12, "w": 19}, (), [75623.5, 82475.8, 47291.8]),
    ("nchw oc -> nohw", {"n": 1, "c": 8, "o": 9, "h": 5, "w": 9}, (), [None, None, None]),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 2, "c": 33, "o": 40, "h": 5, "w": 9}, (), [12209.6, 9867.2, 6461.7]),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 1, "c": 33, "o": 40, "h": 32, "w": 32}, (), [133885.4, 107518.7, 62626.7]),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 9, "h": 15, "w": 17}, (), [9666.3, 11044.7, 6446.9]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 12, "w": 9, "kinds": ("float16", "float16")}, (), [10994.7, 10940.0, 7970.3]),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 4, "h": 3, "w": 7}, (), [894.6, 1058.8, 894.6]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 1, "w": 7}, (), [None, None, None]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 2, "w": 4}, (), [848.0, None, None]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 1, "w": 16}, (), [1295.0, 1065.6, 916.2]),
    ("nc(16h+r)(16w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 4, "w": 5}, (), [2376.1, 3635.6, 2186.5]),
    ("nc(h+r)(w+q) corq -> nohw", {"n": 1, "c": 3, "o": 30, "h": 5, "w": 7}, (), [None, None, None]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 64, "o": 128, "h": 7, "w": 7}, (), [355239.6, 524914.7, 214207.9]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 64, "o": 128, "h": 7, "w": 7}, ("B",), [355239.6, 512635.5, 239289.0]),
    ("nc(h+r)w ocr -> nohw", {"n": 1, "c": 3, "o": 30, "h": 5, "w": 7}, (), [1379.2, 1985.2, 1366.3]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "expected"), ESTIMATES)
def test_estimated_cycles(rule, about, constants, expected):
    assert [estimate(im2col, rule, about, name, constants) for name in TARGETS] == expected
