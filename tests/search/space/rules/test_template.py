"""Templates as rules: which blocks they take, what nests these get, and that all rows compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from codegen import lower
from codegen.target import Target
from schedule import replay, templates
from schedule.open_schedule import OpenSchedule
from schedule.open_trace import Role
from search.population.sample import sample
from search.space.rules import SumOfProducts, Verdict
from search.space.sketch import Sketch
from tests import programs
from tests.schedule.harness import same_numbers, well_formed
from tests.search.agreement import disagreements
from tests.search.once import generate
from tests.sweeps import one_in, quick
from tir import workloads
from tir.ir import For, Kind, PrimFunc, Select
from tir.traverse import blocks, loops, loops_to, variables, walk

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")


def state(func: PrimFunc) -> OpenSchedule:
    return OpenSchedule(func, TWO, [b.name for b in blocks(func)])


def convolution(channels: int = 17) -> PrimFunc:
    return workloads.make("conv2d", (1, 7, 13, 3, channels, 3, 3, 1, 1)).func


def transposed(channels: int = 18, kernel: int = 4, stride: int = 2) -> PrimFunc:
    return workloads.make("conv2d_transpose", (1, 3, 5, 7, channels, kernel, stride, 1)).func


def only(rule, func: PrimFunc) -> set[str]:
    return {b.name for b in blocks(func) if rule.applies(state(func), b.name) is not Verdict.SKIP}


def test_convolutions_with_channels_for_half_a_vector():
    assert only(SumOfProducts(templates.conv2d), convolution(8)) == {"conv"}
    assert only(SumOfProducts(templates.conv2d), convolution(7)) == set()
    assert only(SumOfProducts(templates.conv2d), workloads.make("conv1d", (1, 17, 5, 19, 3, 2, 1)).func) == {"Y"}
    groups = workloads.make("conv2d_nhwc", (1, 7, 9, 6, 34, 3, 1, 1, 1, 2)).func
    assert only(SumOfProducts(templates.conv2d), groups) == {"Y"}
    for other in (programs.matmul(7, 13, 109), workloads.make("depthwise", (1, 7, 13, 5, 3, 3, 1, 1)).func, transposed()):
        assert only(SumOfProducts(templates.conv2d), other) == set()


def test_a_direct_convolution():
    """Its levels; the channels are innermost in the copy from which the consumer turns tiles round."""
    (new,) = SumOfProducts(templates.conv2d).apply(state(convolution()), "conv")
    nest = [x.name for x in loops_to(new.func.body, "conv")]
    assert nest == [loop for level in new.tiled("conv").levels for loop in level]
    assert [len(level) for level in new.tiled("conv").levels] == [1, 2, 1, 3, 2, 1]  # as the class says
    assert {t.axis: (t.extent, t.vector) for t in new.tiles} == {"v_co": (17, True), "v_oh": (7, False), "v_ow": (13, False)}
    assert set(new.scheduled) == {"conv", "Y"} and new.tiled("Y") is None
    assert str(new.block("conv").body.buffer.shape[-1]) == "17"
    same_numbers(convolution(), new.func, seeds=(0,))


def test_channels_that_are_last_are_not_turned():
    func = workloads.make("conv1d", (1, 17, 5, 19, 3, 2, 1)).func
    (new,) = SumOfProducts(templates.conv2d).apply(state(func), "Y")
    assert set(new.scheduled) == {"Y"} and [b.name for b in blocks(new.func)] == ["pad", "Y"]
    same_numbers(func, new.func, seeds=(0,))


def test_transposed_convolutions():
    assert only(SumOfProducts(templates.conv2d_transpose), transposed(8)) == {"Y"}
    assert only(SumOfProducts(templates.conv2d_transpose), transposed(7)) == set()
    assert only(SumOfProducts(templates.conv2d_transpose), transposed(stride=1)) == {
        "Y"
    }  # no zeros, but a kernel that runs backwards
    for other in (programs.matmul(7, 13, 109), convolution()):
        assert only(SumOfProducts(templates.conv2d_transpose), other) == set()


def filled(sketch: Sketch, channels: int, pixels: int, rows: int = 1) -> list[int]:
    row = sketch.stand_ins()
    for t in sketch.tiles:
        row[t.columns[0]] = channels if t.vector else pixels if t.axis == "v_w" else rows
    return row


@quick(lambda kernel, stride: kernel % stride != 0)
@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 2), (3, 3)])
def test_classes_of_pixels_meet_classes_of_the_kernel(kernel, stride):
    func = transposed(kernel=kernel, stride=stride)
    (sketch,) = [s for s in generate(func, TWO) if s.rules == ("Y: transposed convolution", "pad: skip")]
    scheduled = replay(func, sketch.trace(filled(sketch, 16, 3)))
    nest = loops_to(scheduled.func.body, "Y")
    assert [(x.kind, x.extent.value) for x in nest[-2:]] == [(Kind.UNROLLED, 3), (Kind.VECTORIZED, 16)]
    assert [x.extent.value for x in nest[-8:-6]] == [stride, stride]  # of the kernel, outside of the sum
    well_formed(scheduled.func)
    same_numbers(func, scheduled.func, seeds=(0,))


def test_a_tile_may_have_several_rows_and_read_a_copy_of_a_kernel_that_runs_backwards():
    func = transposed()
    (sketch,) = [s for s in generate(func, TWO) if s.rules == ("Y: transposed convolution", "pad: skip")]
    row = filled(sketch, 16, 3, rows=2)
    row[next(c.column for c in sketch.choices if c.name == "pack K for Y")] = 1
    scheduled = replay(func, sketch.trace(row))
    nest = loops_to(scheduled.func.body, "Y")
    assert [(x.kind, x.extent.value) for x in nest[-3:]] == [(Kind.UNROLLED, 2), (Kind.UNROLLED, 3), (Kind.VECTORIZED, 16)]
    assert "K_global" in {b.name for b in blocks(scheduled.func)}
    same_numbers(func, scheduled.func, seeds=(0,))


def test_no_condition_is_left_inside():
    """It concerns classes alone, so that it is looked at outside of the loops over the sum and the tile."""
    func = transposed()
    sketch = next(s for s in generate(func, TWO) if "Y: transposed convolution" in s.rules)
    lowered = lower(replay(func, sketch.trace(filled(sketch, 16, 3))).func, TWO, after="simplify_all")
    (condition,) = {n.condition for n in walk(lowered.body) if isinstance(n, Select) and not variables(n.condition) & {"h", "w"}}
    nest = next(x for x in walk(lowered.body) if isinstance(x, For) and x.var.name == "rh_1")
    assert variables(condition) & {x.name for x in loops(nest)} == {"rh_1", "rw_1"}


def square(width: int = 7, kernel: int = 3, padding: int = 1) -> PrimFunc:
    return workloads.make("conv2d", (1, 5, width, 3, 13, kernel, kernel, 1, padding)).func


def test_convolutions_whose_pixels_are_last_and_fill_a_vector():
    assert only(SumOfProducts(templates.im2col), square()) == {"conv"}
    assert only(SumOfProducts(templates.im2col), square(width=3)) == set()  # an image of fifteen pixels
    for other in (programs.matmul(7, 13, 109), workloads.make("conv1d", (1, 17, 5, 19, 3, 2, 1)).func):
        assert only(SumOfProducts(templates.im2col), other) == set()


def test_an_image_is_unrolled_unless_its_pixels_lie_in_a_row():
    """It is a matrix product of the weights and a row of pixels for each step of the sum."""
    func = square()
    by_rows, new, *_ = SumOfProducts(templates.im2col).apply(state(func), "conv")  # the model prefers the image as it is
    assert [b.name for b in blocks(by_rows.func)] == ["conv", "Y"]
    assert [b.name for b in blocks(new.func)] == ["K_reindex", "pad_reindex", "conv", "Y"] and new.pending == ["conv", "Y"]
    assert {t.axis: (t.extent, t.vector) for t in new.tiles} == {"v0": (13, False), "v2": (35, True)}
    nest = [x.name for x in loops_to(new.func.body, "conv")]
    assert nest == [loop for level in new.tiled("conv").levels for loop in level]
    same_numbers(func, new.func, seeds=(0,))
    new, *_ = SumOfProducts(templates.im2col).apply(state(square(kernel=1, padding=0)), "conv")
    assert [view.of for view in new.views] == ["X", "K"] and "pad_reindex" not in [b.name for b in blocks(new.func)]


def narrow(channels: int = 5) -> PrimFunc:
    return workloads.make("conv2d_nhwc", (1, 9, 7, 32, channels, 3, 1, 1)).func


def depthwise(name: str = "depthwise") -> PrimFunc:
    return workloads.make(name, (1, 13, 7, 5, 3, 3, 1, 1) if name == "depthwise" else (1, 13, 7, 19, 3, 1, 1)).func


def test_few_channels_and_kernels_of_their_own():
    assert only(SumOfProducts(templates.few_channels), narrow()) == {"Y"}
    assert only(SumOfProducts(templates.few_channels), narrow(16)) == set()
    assert only(SumOfProducts(templates.depthwise), depthwise()) == {"conv"}
    assert only(SumOfProducts(templates.depthwise), depthwise("depthwise_nhwc")) == {"Y"}
    for rule in (SumOfProducts(templates.few_channels), SumOfProducts(templates.depthwise)):
        for other in (programs.matmul(7, 13, 109), convolution(), transposed()):
            assert only(rule, other) == set()


def test_templates_that_finish_their_loops_leave_annotation_nothing():
    """The numbers of such a nest are sizes of its tiles, how threads share it, and how far a template unrolls it."""
    for func, name, axes, others in (
        (narrow(), "narrow", {"v_w": (7, 5)}, set()),
        (depthwise(), "depthwise", {"v_oh": (13, None), "v_ow": (7, None)}, {Role.PRAGMA}),
    ):
        sketch = next(s for s in generate(func, TWO) if f"{name} convolution" in str(s))
        assert {t.axis: (t.extent, t.limit) for t in sketch.tiles} == axes
        assert {c.role for c in sketch.choices if "pad" not in c.name} <= {Role.PARALLEL, *others}


def test_a_long_sum_may_run_in_parts():
    """Whose panels of weights are larger than half of the cache; what follows is computed for a whole panel."""
    func, small = (
        workloads.make("conv2d", (1, 7, 13, 40, 17, 3, 3, 1, 1)).func,
        Target("llvm", num_cores=1, mcpu="x86-64-v4", l2=16384),
    )
    (parts, whole) = SumOfProducts(templates.conv2d).apply(OpenSchedule(func, small, [b.name for b in blocks(func)]), "conv")
    assert (parts.rules, whole.rules) == (["conv: direct convolution, the sum in parts"], ["conv: direct convolution"])
    tiles = [t for t in parts.tiles if t.reduce]
    assert [(t.axis, t.extent) for t in tiles] == [("v_rc", 40)]
    assert len(parts.tiled("conv").levels[0]) == 2 and parts.tiled("conv").places == ("co_0",)


@one_in(3)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "func",
    [
        convolution(), transposed(), transposed(37, 3, 3), transposed(18, 3, 1), square(), square(kernel=1, padding=0), narrow(),
        depthwise(), depthwise("depthwise_nhwc"),
    ],
)  # fmt: skip
def test_random_rows(func, number):
    """The seed and two more rows compute the same, and the symbolic program has the features of each."""
    rng = np.random.default_rng(0)
    for sketch in generate(func, Target("llvm", num_cores=2, mcpu="x86-64-v4", l2=1 << 14)):
        if sketch.seed is not None:
            rows = sample(sketch, TWO, 4, rng)
            row = [list(sketch.seed), *rows[:2].tolist()][number]
            same_numbers(func, replay(func, sketch.trace(row)).func, seeds=(0,))
            if "direct" not in str(sketch):  # whose channels may end in a part of half a register, which features take for whole
                assert all(not found for _, found in disagreements(sketch, rows[number::3]))
