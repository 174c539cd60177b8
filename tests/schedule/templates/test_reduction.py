"""Large reductions along memory or across it: partial results in lanes, threads that share results or parts."""

from __future__ import annotations

import pytest

from schedule.templates import reduction
from tests.schedule.templates.patterns import matched, outcome, relu
from tir import te

MATCHES = {
    "ik kj -> ij", "ki kj -> ij", "ik jk -> ij", "ik kj -> ji", "bik bkj -> bij", "bik kj -> bij", "bki bjk -> bij",
    "zik zkj -> zij", "zik kj -> zij", "ik kj -> yij", "ik kj -> ijx", "ikr krj -> ij", "ikr jkr -> ij", "bi kj -> bij",
    "gik kbj -> gibj", "gik bjk -> gibj", "ikz kj -> ij", "iz zj -> ij", "xk kj -> xj", "ik kx -> ix", "bxk bkj -> bxj",
    "kj k -> j", "jk k -> j", "k kj -> j", "k kj -> zj", "zk kj -> zj", "bk bkj -> bj", "jkr kr -> j", "ik ik -> i",
    "ij ij -> i", "iik kj -> ij", "(i+k) kj -> ij", "(2i+k) kj -> ij", "i(j+k) kj -> ij", "0k kj -> j", "(k/2)j k -> j",
    "nc(h+r)(w+q) ocrq -> nohw", "nc(2h+r)(2w+q) ocrq -> nohw", "nc(h+r)(w+2q) ocrq -> nohw", "nchw ochw -> no",
    "n(h+r)(w+q)c rqco -> nhwo", "n(h+r)(w+q)c orqc -> nhwo", "n(h+r)(w+q)c rqoc -> nhwo", "nc(w+q) ocq -> now",
    "ngc(h+r)(w+q) gocrq -> ngohw", "nchw oc -> nohw", "nhwc co -> nhwo", "z(h+r)(w+q)c rqco -> zhwo",
    "n(h+r)(w+q)(o/5) rqo -> nhwo", "n(h+r)(w+q)(5(o/5)+c) rqco -> nhwo", "n(o/5)(h+r)(w+q) orq -> nohw",
    "n(h+r)(w+q)(o/1) rqo -> nhwo", "nc(h+r)(w+q) crq -> nchw", "n(h+r)(w+q)c rqc -> nhwc", "nc(2h+r)(2w+q) crq -> nchw",
    "nc(w+q) cq -> ncw", "(h+r)(w+q) rq -> hw", "nc(h+r)(w+q) -> nchw", "n(h+r)(w+q)c -> nhwc", "nc(3h+r)(3w+q) -> nchw",
    "nc(w+q) -> ncw", "nchw -> nc", "nchw -> ch", "ik -> i", "ki -> i", "k -> x", "kr -> x", "(h+r) -> h", "(h+r)c -> ch",
    "sums of squares", "squares of one factor", "products turned", "distances", "distances of rows", "shortest paths",
    "largest products", "products of halves", "products of a half", "products of bytes", "products of doubles",
    "convolution of bytes", "matrix of doubles and vector", "largest of windows", "one pixel", "one channel", "one step",
    "one row", "one column", "transposed", "transposed, one class", "transposed by 3h", "transposed, remainder 1",
    "transposed, two conditions on an axis", "transposed by pixels alone", "transposed by three axes", "some terms",
}  # fmt: skip


def test_what_is_matched():
    assert matched(reduction.matches).keys() == MATCHES


SCHEDULES = [
    ("ik -> i", {"i": 13, "k": 100}, "znver2", "Y: reduction | Y_rf ..v, Y .. | combine_lanes=True"),
    ("ik -> i", {"i": 13, "k": 100}, "znver4", "Y: reduction | Y_rf p.v, Y p. | combine_lanes=True"),
    ("ik -> i", {"i": 13, "k": 100}, "sapphirerapids", "Y: reduction | Y_rf p.v, Y p. | combine_lanes=True"),
    ("ik -> i", {"i": 13, "k": 7}, "znver2", "Y: reduction | Y .. | combine_lanes=True"),
    ("ik -> i", {"i": 13, "k": 7}, "znver4", "Y: reduction | Y p. | combine_lanes=True"),
    ("ik -> i", {"i": 1, "k": 1000}, "znver2", "Y: reduction | Y_rf .v, Y . | combine_lanes=True"),
    ("ik -> i", {"i": 1, "k": 1000}, "znver4", "Y: reduction | Y_rf_rf p.v, Y_rf p., Y . | combine_lanes=True"),
    ("ik -> i", {"i": 1, "k": 1000}, "sapphirerapids", "Y: reduction | Y_rf_rf p.v, Y_rf p., Y . | combine_lanes=True"),
    ("ki -> i", {"i": 37, "k": 29}, "znver2", "Y: reduction | Y .v"),
    ("ki -> i", {"i": 37, "k": 29}, "znver4", "Y: reduction | Y_rf p.v, Y .v"),
    ("ki -> i", {"i": 300, "k": 40}, "znver2", "Y: reduction | Y ...v"),
    ("ki -> i", {"i": 300, "k": 40}, "znver4", "Y: reduction | Y_rf p...v, Y ..v"),
    ("ki -> i", {"i": 5, "k": 500}, "znver2", "Y: reduction | Y .v"),
    ("ki -> i", {"i": 5, "k": 500}, "znver4", "Y: reduction | Y_rf p.v, Y .v"),
    ("nchw -> nc", {"n": 2, "c": 5, "h": 7, "w": 9}, "znver2", "Y: reduction | Y_rf ...v, Y ... | combine_lanes=True"),
    ("nchw -> nc", {"n": 2, "c": 5, "h": 7, "w": 9}, "znver4", "Y: reduction | Y_rf p..v, Y p.. | combine_lanes=True"),
    ("nchw -> ch", {"n": 3, "c": 5, "h": 7, "w": 9}, "znver2", "Y: reduction | Y .... | combine_lanes=True"),
    ("nchw -> ch", {"n": 3, "c": 5, "h": 7, "w": 9}, "znver4", "Y: reduction | Y p... | combine_lanes=True"),
    ("kr -> x", {"k": 30, "r": 20}, "znver2", "Y: reduction | Y_rf .v, Y . | combine_lanes=True"),
    ("kr -> x", {"k": 30, "r": 20}, "znver4", "Y: reduction | Y_rf_rf p.v, Y_rf p., Y . | combine_lanes=True"),
    ("ik -> i", {"i": 40, "k": 33, "total": te.max, "after": relu}, "znver2",
     "Y: reduction; Z: elementwise | Y_rf ..v, Y .., Z .v | combine_lanes=True"),
    ("ik -> i", {"i": 40, "k": 33, "total": te.max, "after": relu}, "znver4",
     "Y: reduction; Z: elementwise | Y_rf p.v, Y p., Z v | combine_lanes=True"),
    ("ik -> i", {"i": 40, "k": 5, "after": relu}, "znver2", "Y: reduction | Y .., Z . | combine_lanes=True"),
    ("ik -> i", {"i": 40, "k": 5, "after": relu}, "znver4", "Y: reduction | Y p., Z p | combine_lanes=True"),
    ("ik -> i", {"i": 4, "k": 64, "kind": "float64"}, "znver2", "Y: reduction | Y_rf ..v, Y .. | combine_lanes=True"),
    ("ik -> i", {"i": 4, "k": 64, "kind": "float64"}, "znver4",
     "Y: reduction | Y_rf_rf p..v, Y_rf p.., Y .. | combine_lanes=True"),
    ("nkh -> nh", {"n": 5, "k": 70, "h": 24}, "znver2", "Y: reduction | Y ..v"),
    ("nkh -> nh", {"n": 5, "k": 70, "h": 24}, "znver4", "Y: reduction | Y_rf p.v, Y ..v"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected
