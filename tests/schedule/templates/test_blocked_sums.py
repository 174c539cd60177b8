"""Sums of scaled blocks: words or codes of constants that are unpacked in registers, for few rows and many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph.compilation import passes_for
from graph.fusion import fuse
from graph.passes import optimize
from schedule import templates
from schedule.open_schedule import OpenSchedule
from schedule.templates import blocked_sums
from tests import programs
from tests.graph.test_weights import dots
from tests.schedule.templates.patterns import TARGETS, by_rule, nests
from tir.ir import PrimFunc

# Rows, columns, bits of a weight and of a row; results are computed in the tests of weights.
SCHEDULES = [
    ((1, 32, 4, 32), "znver2",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global .v, p1_global ..v, given_p_0 ..v, "
     "given_p_1 .., totals_rf ..v, totals .., sums .uuv, matmul .v | combine_lanes=True"),
    ((1, 32, 4, 32), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf ...v, totals ..., sums_init .uuv, "
     "numbers .uuuv, sums_update_o .uuuu, vpdpbusd .uuuuv, matmul .v | combine_lanes=True"),
    ((1, 32, 4, 32), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p..., totals ..., sums_init .uuv, "
     "numbers .uuuv, sums_update_o .uuuu, vpdpbusd .uuuuv, matmul .v"),
    ((2, 96, 4, 32), "znver2",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global ..v, p1_global ...v, given_p_0 ...v, "
     "given_p_1 ..., totals_rf ...v, totals ..., sums ...uuv, matmul ..uv | combine_lanes=True"),
    ((2, 96, 4, 32), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..., most ..., scaled v, steps v, given pv, totals_rf p...v, totals p..., sums_init "
     "p.uuuv, numbers p.uuuv, sums_update_o p.uuuuu, vpdpbusd p.uuuuuv, matmul p.uv | combine_lanes=True"),
    ((2, 96, 4, 32), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..., most ..., scaled v, steps v, given pv, totals_rf p...v, totals p..., sums_init "
     "p.uuuv, numbers p.uuuv, sums_update_o p.uuuuu, vpdpbusd p.uuuuuv, matmul p.uv | combine_lanes=True"),
    ((5, 48, 4, 32), "znver2",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global ..v, p1_global ...v, given_p_0 ...v, "
     "given_p_1 ..., totals_rf ...v, totals ..., sums ...uuv, matmul ..uv | combine_lanes=True"),
    ((5, 48, 4, 32), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled v, steps v, given pv, totals_rf p...v, totals p..., sums_init "
     "p.uuv, numbers p.uuv, sums_update_o p.uuuu, vpdpbusd p.uuuuv, matmul p.uv | combine_lanes=True x2"),
    ((5, 48, 4, 32), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled v, steps v, given pv, totals_rf p...v, totals p..., sums_init "
     "p.uuv, numbers p.uuv, sums_update_o p.uuuu, vpdpbusd p.uuuuv, matmul p.uv | combine_lanes=True x2"),
    ((1, 16, 8, 32), "znver2",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global .v, p1_global ..v, given ..v, "
     "totals_rf ..v, totals .., sums .uuv, matmul .v | combine_lanes=True"),
    ((1, 16, 8, 32), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf ...v, totals ..., sums_init .uv, "
     "numbers .uv, sums_update_o .uu, vpdpbusd .uuv, matmul .v | combine_lanes=True"),
    ((1, 16, 8, 32), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p..., totals ..., sums_init .uv, "
     "numbers .uv, sums_update_o .uu, vpdpbusd .uuv, matmul .v"),
    ((3, 20, 4, 32), "znver2",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global ..v, p1_global ...v, given_p_0 ...v, "
     "given_p_1 ..., totals_rf ...v, totals ..., sums ...uuv, matmul ..uv | combine_lanes=True"),
    ((3, 20, 4, 32), "znver4",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global .v, p1_global ..v, given pv, totals_rf "
     "p..v, totals p.., sums ..uuv, matmul .uv | combine_lanes=True"),
    ((3, 20, 4, 32), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; given: elementwise | p2_global .v, p1_global ..v, given pv, totals_rf "
     "p..., totals ..., sums ..uuv, matmul .uv"),
    ((1, 96, 4, 8), "znver2",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf ..v, most .., scaled v, steps v, given .v, totals_rf ..v, totals .., sums_init ..uuv, "
     "numbers ..uuuuv, sums_update_o ..uuuu, vpdpbusd ..uuuuv, matmul ..uv | combine_lanes=True x2"),
    ((1, 96, 4, 8), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p.., totals .., sums_init p.uv, "
     "numbers p.uuuv, sums_update_o p.uuu, vpdpbusd p.uuuv, matmul p.v"),
    ((1, 96, 4, 8), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p.., totals .., sums_init p.uv, "
     "numbers p.uuuv, sums_update_o p.uuu, vpdpbusd p.uuuv, matmul p.v"),
    ((12, 96, 8, 8), "znver2",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf ...v, most ..., scaled .v, steps .v, given ..v, totals_rf ...v, totals ..., sums_init "
     "...uuv, numbers ...uuv, sums_update_o ...uuu, vpdpbusd ...uuuv, matmul ...uv | combine_lanes=True x2"),
    ((12, 96, 8, 8), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled v, steps v, given pv, totals_rf p..v, totals p.., sums_init p..uuv, "
     "numbers p..uuv, sums_update_o p..uuu, vpdpbusd p..uuuv, matmul p..uv | combine_lanes=True x2"),
    ((12, 96, 8, 8), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled v, steps v, given pv, totals_rf p..v, totals p.., sums_init p..uuv, "
     "numbers p..uuv, sums_update_o p..uuu, vpdpbusd p..uuuv, matmul p..uv | combine_lanes=True x2"),
    ((40, 32, 4, 8), "znver2",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf ...v, most ..., scaled .v, steps .v, given ..v, totals_rf ...v, totals ..., sums_init "
     "...uuv, numbers ...uuuv, sums_update_o ...uuuu, vpdpbusd ...uuuuv, matmul ...uv | combine_lanes=True x2"),
    ((40, 32, 4, 8), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled pv, steps pv, given pv, totals_rf p..v, totals p.., sums_init "
     "..uuv, numbers ..uuuv, sums_update_o ..uuuu, vpdpbusd ..uuuuv, matmul ..uv | combine_lanes=True x2"),
    ((40, 32, 4, 8), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p..v, most p.., scaled pv, steps pv, given pv, totals_rf p..v, totals p.., sums_init "
     "..uuv, numbers ..uuuv, sums_update_o ..uuuu, vpdpbusd ..uuuuv, matmul ..uv | combine_lanes=True x2"),
    ((1, 256, 4, 8), "znver2",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf ..v, most .., scaled v, steps v, given .v, totals_rf ..v, totals .., sums_init ..uuv, "
     "numbers ..uuuuv, sums_update_o ..uuuu, vpdpbusd ..uuuuv, matmul ..uv | combine_lanes=True x2"),
    ((1, 256, 4, 8), "znver4",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p.., totals .., sums_init p.uuv, "
     "numbers p.uuuuv, sums_update_o p.uuuu, vpdpbusd p.uuuuv, matmul p.uv"),
    ((1, 256, 4, 8), "sapphirerapids",
     "matmul: sums of blocks; totals: reduction; most: reduction; given: elementwise; steps: elementwise; scaled: "
     "elementwise | most_rf p.., most .., scaled v, steps v, given pv, totals_rf p.., totals .., sums_init p.uuv, "
     "numbers p.uuuuv, sums_update_o p.uuuu, vpdpbusd p.uuuuv, matmul p.uv"),
]  # fmt: skip


def functions(rows: int, columns: int, bits: int, row_bits: int, name: str) -> list[PrimFunc]:
    """What a product by blocks of 32 weights becomes."""
    graph, *_ = dots(np.ones((rows, 96), "f4"), columns=columns, bits=bits, row_bits=row_bits)
    return [group.func for group in fuse(optimize(graph, passes_for(TARGETS[name])))]


def scheduled_sums(case, name: str) -> str:
    for func in functions(*case, name):
        s = templates.decided(func, TARGETS[name])
        if s is not None and any(blocked_sums.NAME in rule for rule in s.rules):
            return f"{'; '.join(s.rules)} | {nests(s.func)}"
    return "no sums of blocks"


@pytest.mark.parametrize(("case", "target", "expected"), SCHEDULES)
def test_schedules(case, target, expected):
    assert scheduled_sums(case, target) == expected


def found(case=(2, 96, 4, 32), name="znver2"):
    for func in functions(*case, name):
        s = OpenSchedule(func, TARGETS[name], at_seed=True)
        for block in s.unscheduled():
            if (sums := blocked_sums.matches(s, block)) is not None:
                return sums
    return None


@pytest.mark.parametrize(("rows", "fits"), [(1, True), (7, True), (8, True)])
def test_registers_hold_two_vectors_for_each_row(rows, fits):
    sums = found((rows, 96, 4, 32))
    machine = TARGETS["znver2"].machine
    assert sums is not None and not sums.unpacked
    assert blocked_sums.suits(sums, machine) == fits and machine.registers == 16
    assert not blocked_sums.suits(sums, replace(machine, registers=2 * rows - 1))
    assert blocked_sums.suits(sums, replace(machine, registers=2 * rows))


@pytest.mark.parametrize(("columns", "lanes", "width"), [(32, 16, 32), (48, 16, 16), (16, 16, 16), (64, 16, 32), (96, 8, 16)])
def test_columns_of_panels(columns, lanes, width):
    assert blocked_sums.dot_columns(columns, lanes) == width


@pytest.mark.parametrize("func", [
    programs.sum_of_three_axes(), programs.total(), programs.chained_matmuls(), by_rule("ik kj -> ij"), programs.attention(),
    programs.sums_of_chain(), by_rule("ij -> ij"),
])  # fmt: skip
def test_other_sums_are_none_of_blocks(func):
    s = OpenSchedule(func, TARGETS["znver2"], at_seed=True)
    assert all(blocked_sums.matches(s, block) is None for block in s.unscheduled())
