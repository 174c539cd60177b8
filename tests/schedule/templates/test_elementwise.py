"""Elementwise blocks: vectors along the memory that is written, squares where an operand lies across, short rows as one."""

from __future__ import annotations

from functools import partial
from itertools import accumulate

import pytest

from schedule.templates import elementwise
from tests.codegen.harness import ONE, same
from tests.schedule.templates.patterns import TARGETS, by_rule, matched, outcome, planned, scheduled
from tir import te
from tir.ir import PrimFunc

MATCHES = {
    "ij -> ij",
}  # fmt: skip


def test_what_is_matched():
    assert matched(elementwise.matches).keys() == MATCHES


SCHEDULES = [
    ("ij -> ij", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("ij -> ij", {"i": 7, "j": 33}, "znver4", "Y: elementwise | Y pv"),
    ("ji -> ij", {"i": 33, "j": 40}, "znver2", "Y: elementwise | Y ...uv"),
    ("ji -> ij", {"i": 33, "j": 40}, "znver4", "Y: elementwise | Y ..uv"),
    ("ij -> ij", {"i": 30, "j": 3}, "znver2", "Y: elementwise | Y .v"),
    ("ij -> ij", {"i": 30, "j": 3}, "znver4", "Y: elementwise | Y pv"),
    ("k -> k", {"k": 100}, "znver2", "Y: elementwise | Y .v"),
    ("k -> k", {"k": 100}, "znver4", "Y: elementwise | Y v"),
    ("k -> k", {"k": 5}, "znver2", "Y: elementwise | Y v"),
    ("bji -> bij", {"b": 3, "i": 9, "j": 20}, "znver2", "Y: elementwise | Y ...uv"),
    ("bji -> bij", {"b": 3, "i": 9, "j": 20}, "znver4", "Y: elementwise | Y pv"),
    ("nchw -> nhwc", {"n": 1, "c": 16, "h": 3, "w": 5}, "znver2", "Y: elementwise | Y ..v"),
    ("nchw -> nhwc", {"n": 1, "c": 16, "h": 3, "w": 5}, "znver4", "Y: elementwise | Y pv"),
    ("ij -> ij", {"i": 700, "j": 64}, "znver2", "Y: elementwise | Y .v | non_temporal=Y"),
    ("ij -> ij", {"i": 700, "j": 64}, "znver4", "Y: elementwise | Y pv | non_temporal=Y"),
    ("ij -> ijz", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("i -> ij", {"i": 7, "j": 33}, "znver2", "Y: elementwise | Y .v"),
    ("j(i+1) -> ij", {"i": 17, "j": 19}, "znver2", "Y: elementwise | Y ..uv"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


def joined(*lengths: int, rows: int = 3) -> PrimFunc:
    """Rows of several matrices one after the other."""
    parts = [te.placeholder((rows, n), name=name) for n, name in zip(lengths, "ABCDEF", strict=False)]
    ends = [*accumulate(lengths)]

    def value(i, j):
        result = parts[-1][i, j - (ends[-2] if len(ends) > 1 else 0)]
        for part, end, length in reversed([*zip(parts, ends, lengths, strict=True)][:-1]):
            result = te.if_then_else(j < end, part[i, j - (end - length)], result)
        return result

    return te.create_prim_func([*parts, te.compute((rows, ends[-1]), value, name="Y")])


def turned(rows: int, columns: int, by: int) -> PrimFunc:
    """Rows that are rotated."""
    A = te.placeholder((rows, columns), name="A")
    return te.create_prim_func([A, te.compute((rows, columns), lambda i, j: A[i, (j + by) % columns], name="Y")])


def stages(count: int, rows: int = 5, columns: int = 9) -> PrimFunc:
    """So many stages, each of two loads of the one before: 2 ** count loads if all are inlined."""
    last = te.placeholder((rows, columns), name="A")
    given = last
    for n in range(count):
        last = te.compute((rows, columns), lambda i, j, x=last: x[i, j] + x[i, j] * 0.5, name="Y" if n == count - 1 else f"S{n}")
    return te.create_prim_func([given, last])


EDGES = {
    **{f"columns of {n}": partial(by_rule, "ij -> ij", i=30, j=n) for n in (1, 3, 4, 7, 8, 9, 16)},
    **{f"one row of {n}": partial(by_rule, "ij -> ij", i=1, j=n) for n in (1, 7, 32, 33, 64, 129)},
    **{f"across, {i} by {j}": partial(by_rule, "ji -> ij", i=i, j=j) for i, j in ((7, 9), (8, 9), (9, 8), (9, 7), (16, 16))},
    **{f"image of {h} by {w} by {c}": partial(by_rule, "hwc -> chw", h=h, w=w, c=c) for h, w, c in (
        (3, 5, 16), (3, 5, 7), (3, 5, 8), (3, 8, 16), (2, 7, 9), (1, 5, 16))},
    "image by columns": partial(by_rule, "whc -> chw", h=3, w=5, c=16),
    "three short axes": partial(by_rule, "ijk -> ijk", i=9, j=3, k=2),
    "two short axes, many": partial(by_rule, "ijk -> ijk", i=5, j=40, k=3),
    "bytes across": partial(by_rule, "ji -> ij", i=33, j=40, kind="int8"),
    "halves across": partial(by_rule, "ji -> ij", i=33, j=40, kind="float16"),
    "two parts": lambda: joined(5, 40),
    "three parts": lambda: joined(16, 40, 3),
    "one row in parts": lambda: joined(16, 50, rows=1),
    "five parts": lambda: joined(9, 8, 7, 9, 10),
    "six parts": lambda: joined(9, 8, 7, 9, 10, 11),
    "whole lines": lambda: joined(16, 32),
    "rotated": lambda: turned(3, 40, 7),
    "rotated by all": lambda: turned(3, 40, 40),
    "quotients": partial(by_rule, "i(j/20) -> ij", i=3, j=50),
    "many quotients": partial(by_rule, "i(j/3) -> ij", i=3, j=50),
    **{f"{n} stages": partial(stages, n) for n in (2, 5, 6)},
}  # fmt: skip
PLANS = [
    ("columns of 1", "znver2", "Y: elementwise | Y v"),
    ("columns of 1", "znver4", "Y: elementwise | Y v"),
    ("columns of 3", "znver2", "Y: elementwise | Y .v"),
    ("columns of 3", "znver4", "Y: elementwise | Y pv"),
    ("columns of 4", "znver2", "Y: elementwise | Y .v"),
    ("columns of 4", "znver4", "Y: elementwise | Y pv"),
    ("columns of 7", "znver2", "Y: elementwise | Y .v"),
    ("columns of 7", "znver4", "Y: elementwise | Y pv"),
    ("columns of 8", "znver2", "Y: elementwise | Y .v"),
    ("columns of 8", "znver4", "Y: elementwise | Y pv"),
    ("columns of 9", "znver2", "Y: elementwise | Y .v"),
    ("columns of 9", "znver4", "Y: elementwise | Y pv"),
    ("columns of 16", "znver2", "Y: elementwise | Y .v"),
    ("columns of 16", "znver4", "Y: elementwise | Y pv"),
    ("one row of 1", "znver2", "Y: elementwise | Y"),
    ("one row of 1", "znver4", "Y: elementwise | Y"),
    ("one row of 7", "znver2", "Y: elementwise | Y v"),
    ("one row of 7", "znver4", "Y: elementwise | Y v"),
    ("one row of 32", "znver2", "Y: elementwise | Y v"),
    ("one row of 32", "znver4", "Y: elementwise | Y v"),
    ("one row of 33", "znver2", "Y: elementwise | Y .v"),
    ("one row of 33", "znver4", "Y: elementwise | Y v"),
    ("one row of 64", "znver2", "Y: elementwise | Y .v"),
    ("one row of 64", "znver4", "Y: elementwise | Y v"),
    ("one row of 129", "znver2", "Y: elementwise | Y .v"),
    ("one row of 129", "znver4", "Y: elementwise | Y pv"),
    ("across, 7 by 9", "znver2", "Y: elementwise | Y .v"),
    ("across, 7 by 9", "znver4", "Y: elementwise | Y v"),
    ("across, 8 by 9", "znver2", "Y: elementwise | Y .uv"),
    ("across, 8 by 9", "znver4", "Y: elementwise | Y v"),
    ("across, 9 by 8", "znver2", "Y: elementwise | Y .uv"),
    ("across, 9 by 8", "znver4", "Y: elementwise | Y pv"),
    ("across, 9 by 7", "znver2", "Y: elementwise | Y .v"),
    ("across, 9 by 7", "znver4", "Y: elementwise | Y v"),
    ("across, 16 by 16", "znver2", "Y: elementwise | Y ..uv"),
    ("across, 16 by 16", "znver4", "Y: elementwise | Y uv"),
    ("image of 3 by 5 by 16", "znver2", "Y: elementwise | Y ..uv"),
    ("image of 3 by 5 by 7", "znver2", "Y: elementwise | Y .v"),
    ("image of 3 by 5 by 8", "znver2", "Y: elementwise | Y .uv"),
    ("image of 3 by 8 by 16", "znver2", "Y: elementwise | Y ..uv"),
    ("image of 2 by 7 by 9", "znver2", "Y: elementwise | Y ..uv"),
    ("image of 1 by 5 by 16", "znver2", "Y: elementwise | Y .v"),
    ("image by columns", "znver2", "Y: elementwise | Y .v"),
    ("image by columns", "znver4", "Y: elementwise | Y v"),
    ("three short axes", "znver2", "Y: elementwise | Y .v"),
    ("two short axes, many", "znver2", "Y: elementwise | Y ..v"),
    ("bytes across", "znver2", "Y: elementwise | Y ...uv"),
    ("bytes across", "znver4", "Y: elementwise | Y ..uv"),
    ("halves across", "znver2", "Y: elementwise | Y ...uv"),
    ("halves across", "znver4", "Y: elementwise | Y ..uv"),
    ("two parts", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v"),
    ("three parts", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v, Y_j_2 .v"),
    ("one row in parts", "znver2", "Y: elementwise | Y_j_0 v, Y_j_1 .v"),
    ("one row in parts", "znver4", "Y: elementwise | Y_j_0 v, Y_j_1 v"),
    ("five parts", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v, Y_j_2 .v, Y_j_3 .v, Y_j_4 .v"),
    ("six parts", "znver2", "Y: elementwise | Y .v"),
    ("whole lines", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v"),
    ("rotated", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v"),
    ("rotated by all", "znver2", "Y: elementwise | Y .v"),
    ("quotients", "znver2", "Y: elementwise | Y_j_0 .v, Y_j_1 .v, Y_j_2 .v"),
    ("many quotients", "znver2", "Y: elementwise | Y .v"),
    ("2 stages", "znver2", "Y: elementwise | Y .v"),
    ("5 stages", "znver2", "Y: elementwise; S0: elementwise | S0 .v, Y .v"),
    ("6 stages", "znver2", "Y: elementwise; S1: elementwise | S1 .v, Y .v"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), PLANS)
def test_edges(name, target, expected):
    """One below, at and above a register; parts whose conditions change; stages that are too many to be inlined."""
    func = EDGES[name]()
    assert planned(func, target) == expected
    if target == "znver2":
        same(scheduled(func, TARGETS[target]).func, targets=(ONE,), reference=func)
