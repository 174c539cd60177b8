"""Convolutions with pixels in lanes: which blocks are, what nests they get, and that all rows compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from schedule.open_schedule import OpenSchedule
from search.rules import PixelsInLanes, Verdict
from search.sample import sample
from search.space import generate
from tests.schedule.harness import same_numbers
from tests.search import programs
from tests.search.agreement import disagreements
from tir import workloads
from tir.ir import For, Kind, PrimFunc
from tir.traverse import blocks, path_to

TWO = Target("llvm", num_cores=2, vector_bits=512)


def state(func: PrimFunc) -> OpenSchedule:
    return OpenSchedule(func, TWO, [b.name for b in blocks(func)])


def convolution(width: int = 7, kernel: int = 3, padding: int = 1) -> PrimFunc:
    return workloads.make("conv2d", (1, 5, width, 3, 13, kernel, kernel, 1, padding)).func


def only(func: PrimFunc) -> set[str]:
    return {b.name for b in blocks(func) if PixelsInLanes().applies(state(func), b.name) is not Verdict.SKIP}


def test_convolutions_whose_pixels_are_last_and_fill_a_vector():
    assert only(convolution()) == {"conv"}
    assert only(convolution(width=3)) == set()  # an image of fifteen pixels
    for other in (programs.matmul(), workloads.make("conv1d", (1, 17, 5, 19, 3, 2, 1)).func):
        assert only(other) == set()


def test_an_image_is_unrolled_unless_its_pixels_lie_in_a_row():
    func = convolution()
    (new,) = PixelsInLanes().apply(state(func), "conv")
    assert [b.name for b in blocks(new.func)] == ["pad_reindex", "conv", "Y"] and new.pending == ["conv", "Y"]
    assert {t.axis: (t.extent, t.vector, t.parts) for t in new.tiles} == {
        "v0": (13, False, ("v_co",)),
        "v5": (35, True, ("v_oh", "v_ow")),
    }
    nest = [x.name for x in path_to(new.func.body, "conv") if isinstance(x, For)]
    assert nest == [loop for level in new.tiled("conv").levels for loop in level]
    same_numbers(func, new.func, seeds=(0,))
    (new,) = PixelsInLanes().apply(state(convolution(kernel=1, padding=0)), "conv")
    assert "reindex" not in " ".join(b.name for b in blocks(new.func))


def test_either_tiles_of_pixels_or_of_channels_are_outside():
    func = convolution()
    sketch = next(s for s in generate(func, TWO) if "pixels in lanes" in str(s))
    order = next(c.column for c in sketch.choices if c.name == "conv order")
    found = []
    for way in (0, 1):
        row = sketch.stand_ins()
        row[0], row[1], row[order] = 4, 16, way
        scheduled = replay(func, sketch.trace(row)).func
        nest = [x for x in path_to(scheduled.body, "conv") if isinstance(x, For)]
        assert [(x.kind, x.extent.value) for x in nest[-2:]] == [(Kind.UNROLLED, 4), (Kind.VECTORIZED, 16)]
        same_numbers(func, scheduled, seeds=(0,))
        found.append(scheduled.script())
    assert found[0] != found[1]


@pytest.mark.parametrize("func", [convolution(), convolution(kernel=1, padding=0)])
def test_random_rows(func):
    """They compute the same, and the symbolic program has the features of each."""
    rng = np.random.default_rng(0)
    sketch = next(s for s in generate(func, TWO) if "pixels in lanes" in str(s))
    rows = sample(sketch, TWO, 4, rng)
    for row in rows[:2].tolist():
        same_numbers(func, replay(func, sketch.trace(row)).func, seeds=(0,))
    assert all(not found for _, found in disagreements(sketch, rows))
