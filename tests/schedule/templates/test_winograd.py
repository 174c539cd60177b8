"""Convolutions by minimal filtering: blocks of tiles whose stages follow each other, channels as lanes."""

from __future__ import annotations

import pytest

from graph.fusion import fuse
from schedule.open_schedule import OpenSchedule
from schedule.templates import winograd
from tests import programs
from tests.graph.test_winograd import network, sized
from tests.schedule.templates.patterns import TARGETS, planned
from tir.ir import PrimFunc

# Images, channels, output channels, extents, kernel, attributes.
CONVOLUTIONS = {
    "small": (1, 5, 7, (13, 11), (3, 3), {"pads": (1, 1, 1, 1)}),
    "two images": (2, 3, 19, (4, 4), (3, 3), {"pads": (1, 1, 1, 1)}),
    "no padding": (3, 2, 5, (7, 3), (3, 3), {}),
    "one axis": (1, 3, 2, (23,), (3,), {"pads": (1, 2)}),
    "columns": (1, 4, 33, (6, 10), (1, 3), {"pads": (0, 1, 0, 1)}),
    "whole vectors": (1, 16, 16, (12, 12), (3, 3), {"pads": (1, 1, 1, 1)}),
}
SCHEDULES = [
    ("small", 0, "znver2",
     "products: Winograd | p1_global ...v, pad ...v, channels_last_ax2_5_0 ..uv, channels_last_ax2_5_1 ..uv, inputs "
     "...uv, inputs_1 ....uv, products .....uuv, outputs ...uuv, outputs_1 ...uuv, relu ...uv | "
     "pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("small", 0, "znver4",
     "products: Winograd | p1_global ...v, pad p..v, channels_last p.uv, inputs p..uv, inputs_1 p...uv, products "
     "p...uuv, outputs p..uuv, outputs_1 p..uuv, relu p.uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', "
     "32]]"),
    ("small", -1, "znver2",
     "products: Winograd | p1_global ...v, pad ..v, channels_last_i2_1_0 .uv, channels_last_i2_1_1 .uv, inputs ..uv, "
     "inputs_1 ...uv, products ...uuv, outputs ..uuv, outputs_1 ..uuv, relu ..uv | pragma_auto_unroll_max_step=64, "
     "prefetch=[['p1_global', 32]]"),
    ("small", -1, "znver4",
     "products: Winograd | p1_global ...v, pad p.v, channels_last puv, inputs p.uv, inputs_1 p..uv, products p.uuv, "
     "outputs puuv, outputs_1 puuv, relu puv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("two images", 0, "znver2",
     "products: Winograd | p1_global ...v, pad ...v, channels_last ..uv, inputs ...uv, inputs_1 ....uv, products "
     "....uuv, outputs ....uuv, outputs_1 ....uuv, relu ...uv | pragma_auto_unroll_max_step=64, "
     "prefetch=[['p1_global', 32]]"),
    ("two images", 0, "znver4",
     "products: Winograd | p1_global ...v, pad p..v, channels_last p.uv, inputs p..uv, inputs_1 p...uv, products "
     "p...uuv, outputs p...uuv, outputs_1 p...uuv, relu p..uv | pragma_auto_unroll_max_step=64, "
     "prefetch=[['p1_global', 32]]"),
    ("two images", -1, "znver2",
     "products: Winograd | p1_global ...v, pad ...v, channels_last ..uv, inputs ..uv, inputs_1 ..uv, products ...uv, "
     "outputs ..uuv, outputs_1 ..uuv, relu ...uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("two images", -1, "znver4",
     "products: Winograd | p1_global ...v, pad p.v, channels_last puv, inputs p.uv, inputs_1 p.uv, products p.uv, "
     "outputs p.uuv, outputs_1 p.uuv, relu p.uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("no padding", 0, "znver2",
     "products: Winograd | p1_global ...v, pad ...v, channels_last ..uv, inputs ...uv, inputs_1 ...uv, products "
     "...uuv, outputs ..uuv, outputs_1 ..uuv, relu ..uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', "
     "32]]"),
    ("no padding", 0, "znver4",
     "products: Winograd | p1_global ...v, pad p.v, channels_last puv, inputs p.uv, inputs_1 p.uv, products p.uuv, "
     "outputs puuv, outputs_1 puuv, relu puv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("no padding", -1, "znver2",
     "products: Winograd | p1_global ...v, pad ...v, channels_last ..uv, inputs ...uv, inputs_1 ...uv, products "
     "...uuv, outputs ..uuv, outputs_1 ..uuv, relu ..uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', "
     "32]]"),
    ("no padding", -1, "znver4",
     "products: Winograd | p1_global ...v, pad p.v, channels_last puv, inputs p.uv, inputs_1 p.uv, products p.uuv, "
     "outputs puuv, outputs_1 puuv, relu puv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("one axis", 0, "znver2",
     "products: Winograd | p1_global ..v, pad .v, channels_last_i1_1_0 .uv, channels_last_i1_1_1 uv, inputs .uv, "
     "products ..uv, outputs .uv, relu .uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("one axis", 0, "znver4",
     "products: Winograd | p1_global ..v, pad .v, channels_last_i1_1_0 uv, channels_last_i1_1_1 uv, inputs .uv, "
     "products p.uv, outputs .uv, relu .uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("one axis", -1, "znver2",
     "products: Winograd | p1_global ..v, pad .v, channels_last_i1_1_0 .uv, channels_last_i1_1_1 uv, inputs .uv, "
     "products ..uv, outputs .uv, relu .uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("one axis", -1, "znver4",
     "products: Winograd | p1_global ..v, pad .v, channels_last_i1_1_0 uv, channels_last_i1_1_1 uv, inputs .uv, "
     "products p.uv, outputs .uv, relu .uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("columns", 0, "znver2",
     "products: Winograd | p1_global ...v, pad ..v, channels_last_i2_1_0 .uv, channels_last_i2_1_1 .uv, inputs ..uv, "
     "products ....uuv, outputs ...uv, relu ...uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("columns", 0, "znver4",
     "products: Winograd | p1_global ..v, pad p.v, channels_last puv, inputs p.uv, products p.uv, outputs p..uv, "
     "relu p.uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("columns", -1, "znver2",
     "products: Winograd | p1_global ...v, pad ..v, channels_last_i2_1_0 .uv, channels_last_i2_1_1 .uv, inputs ..uv, "
     "products ....uuv, outputs ...uv, relu ...uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("columns", -1, "znver4",
     "products: Winograd | p1_global ..v, pad p.v, channels_last puv, inputs p.uv, products p.uuv, outputs p..uv, "
     "relu p.uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("whole vectors", 0, "znver2",
     "products: Winograd | p1_global ...v, pad ....v, channels_last_ax2_5_0 ...uv, channels_last_ax2_5_1 ...uv, "
     "inputs ....uv, inputs_1 .....uv, products .....uv, outputs ....uuv, outputs_1 ....uuv, relu ....uv | "
     "pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("whole vectors", 0, "znver4",
     "products: Winograd | p1_global ...v, pad p..v, channels_last p.uv, inputs p.uv, inputs_1 p..uv, products "
     "p...uv, outputs p.uuv, outputs_1 p.uuv, relu p.uv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', "
     "32]]"),
    ("whole vectors", -1, "znver2",
     "products: Winograd | p1_global ....v, pad ...v, channels_last_i2_1_0 ..uv, channels_last_i2_1_1 ..uv, inputs "
     "...uv, inputs_1 ....uv, products ....uuv, outputs ...uuv, outputs_1 ...uuv, relu ...uv | "
     "pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
    ("whole vectors", -1, "znver4",
     "products: Winograd | p1_global ...v, pad p.v, channels_last puv, inputs p.uv, inputs_1 p..uv, products p.uuv, "
     "outputs puuv, outputs_1 puuv, relu puv | pragma_auto_unroll_max_step=64, prefetch=[['p1_global', 32]]"),
]  # fmt: skip


def filtered(name: str, number: int) -> PrimFunc:
    """A convolution by tiles, those of this number for its kernel, with a bias and a ReLU."""
    return fuse(sized(network(CONVOLUTIONS[name])[0], number))[0].func


@pytest.mark.parametrize(("name", "number", "target", "expected"), SCHEDULES)
def test_schedules(name, number, target, expected):
    assert planned(filtered(name, number), target) == expected


ESTIMATES = {
    "small": [(2, 2), (4, 6, 2, 6, 7, False, 9042), (4, 6, 4, 6, 7, False, 15378), (7, 6, 4, 6, 7, True, 12130)],
    "two images": [(2, 2), (2, 2, 2, 2, 19, False, 3416), (2, 2, 2, 2, 19, False, 5712), (2, 2, 2, 2, 19, False, 4432)],
    "no padding": [(2, 2), (3, 3, 3, 3, 5, True, 1973), (3, 3, 3, 3, 5, True, 3878), (3, 3, 3, 3, 5, True, 3286)],
    "one axis": [(2,), (1, 12, 1, 12, 2, True, 467), (1, 12, 1, 12, 2, True, 892), (1, 12, 1, 12, 2, True, 698)],
    "columns": [(1, 2), (6, 5, 2, 5, 8, True, 5724), (6, 5, 1, 5, 33, True, 6144), (6, 5, 1, 5, 33, True, 4584)],
    "whole vectors": [(2, 2), (2, 6, 1, 6, 16, False, 21912), (1, 6, 1, 6, 16, False, 23832), (6, 6, 3, 6, 16, True, 15192)],
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_estimated_cycles_and_blocks(name):
    """Worked examples: the axes of a tile, and on each target rows and columns of a block, the register tile, and cycles."""
    found = []
    for target in TARGETS.values():
        s = OpenSchedule(filtered(name, 0), target, at_seed=True)
        (w,) = (x for b in s.unscheduled() if (x := winograd.matches(s, b)) is not None)
        t = winograd.tiles(w, target.machine)
        found.append((t.rows, t.columns, t.down, t.across, t.channels, t.together, round(winograd.cycles(w, s, target.machine))))
    assert [w.tile, *found] == ESTIMATES[name]


def test_transforms_by_sums_are_no_choices():
    """The matrices of te's own schedule are summed over: these are reductions, and not filtered so."""
    s = OpenSchedule(programs.winograd(), TARGETS["znver2"], at_seed=True)
    assert [winograd.matches(s, b) for b in s.unscheduled()] == [None] * len(s.unscheduled())
