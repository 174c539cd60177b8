"""Annotation: loops that threads share, tiles in registers, places of padding, and blocks that no template finished."""

from __future__ import annotations

import pytest

import tir
from schedule import templates
from tests import programs
from tests.schedule.templates.patterns import TARGETS, by_rule, nests, planned

PROGRAMS = {  # with the block of a template that is asked for
    "padding": (lambda: tir.workloads.make("conv2d", (1, 5, 7, 6, 32, 3, 3, 1, 1)).func, "conv", "direct convolution"),
    "padding, channels last": (
        lambda: tir.workloads.make("conv2d_nhwc", (1, 5, 7, 6, 32, 3, 1, 1)).func,
        "Y",
        "direct convolution",
    ),
    "transposed": (lambda: tir.workloads.make("conv2d_transpose", (1, 5, 6, 5, 24, 4, 2, 1)).func, "Y", "transposed convolution"),
    "batches": (lambda: by_rule("bik bkj -> bij", b=5, i=9, j=40, k=12), "Y", "packing"),
    "columns": (lambda: by_rule("ik kj -> ij", i=4, j=200, k=200), "Y", "packing"),
    "parts": (lambda: by_rule("ik kj -> ij", i=24, j=40, k=500), "Y", "packing, the sum in parts"),
    "argmax": (programs.argmax, "M", ""),
    "largest": (programs.largest_magnitude, "C", ""),
}
SCHEDULES = [
    ("padding", "znver2",
     "conv: direct convolution; pad: elementwise | pad_w_0 .., pad_w_1 ..v, pad_w_2 .., K_global ...uv, conv ......uv, "
     "Y ....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("padding", "znver4",
     "conv: direct convolution; pad: elementwise | K_global p.u, pad pv, conv p...uv, Y p.uv | "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("padding", "sapphirerapids",
     "conv: direct convolution; pad: elementwise | K_global p.u, pad pv, conv p...uv, Y p.uv | "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("padding, channels last", "znver2",
     "Y: direct convolution; pad: elementwise | pad ..v, K_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    ("padding, channels last", "znver4",
     "Y: direct convolution; pad: elementwise | K_global p.v, pad pv, Y p...uv | pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    ("padding, channels last", "sapphirerapids",
     "Y: direct convolution; pad: elementwise | K_global p.v, pad pv, Y p...uv | pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    ("transposed", "znver2",
     "Y: transposed convolution; pad: elementwise | K_reindex_global .....v, pad .v, Y .........uv | "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("transposed", "znver4",
     "Y: transposed convolution; pad: elementwise | K_reindex_global p.v, pad pv, Y p.....uv | schedule=dynamic, "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("transposed", "sapphirerapids",
     "Y: transposed convolution; pad: elementwise | K_reindex_global p.v, pad pv, Y p.....uv | schedule=dynamic, "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("batches", "znver2",
     "Y: packing | A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("batches", "znver4",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("batches", "sapphirerapids",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("columns", "znver2",
     "Y: packing | A_global .v, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("columns", "znver4",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("columns", "sapphirerapids",
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("parts", "znver2",
     "Y: packing, the sum in parts | Y .....uv | pragma_auto_unroll_max_step=64"),
    ("parts", "znver4",
     "Y: packing, the sum in parts | Y_j_0 p..uv, B_global p..., Y_j_1_rf p...uv, Y_j_1 p.u. | "
     "pragma_auto_unroll_max_step=64, combine_lanes=True"),
    ("parts", "sapphirerapids",
     "Y: packing, the sum in parts | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("argmax", "znver2",
     "default | M .v"),
    ("argmax", "znver4",
     "default | M .v"),
    ("argmax", "sapphirerapids",
     "default | M .v"),
    ("largest", "znver2",
     "default | Y .."),
    ("largest", "znver4",
     "default | Y p. | chunk=16, schedule=dynamic"),
    ("largest", "sapphirerapids",
     "default | Y p. | chunk=16, schedule=dynamic"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), SCHEDULES)
def test_schedules(name, target, expected):
    make, block, template = PROGRAMS[name]
    if expected.startswith("default"):
        assert templates.schedule(make(), TARGETS[target]) is None
        assert f"default | {nests(tir.default_schedule(make(), TARGETS[target]).func)}" == expected
    else:
        assert planned(make(), target, {f"template of {block}": template} if template else None) == expected
