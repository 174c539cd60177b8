"""Where a choice of the templates turns: what just fits, is just long enough, or is just of another kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tir
from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule
from schedule.primitive import find_block
from schedule.templates import block_analysis, conv2d, elementwise, gemm, im2col
from schedule.templates.division import MIN_EACH
from schedule.templates.normal_form import axes
from schedule.templates.template import Template
from search.space import generate
from tests import programs
from tests.schedule.templates.test_default_schedules import product, sums, turned
from tests.schedule.templates.test_low_precision import product as bytes_product
from tir import te, workloads
from tir.constants import with_constants
from tir.ir import Axis, Buffer, Const, Kind, PrimFunc
from tir.traverse import axis_loops, blocks, loops, loops_to

LANES = 16
FOUR = tir.Target("llvm", mcpu="x86-64-v4", num_cores=4)


@pytest.mark.parametrize(("rows", "columns", "whole"), [(16, 16, True), (16, 15, False), (15, 16, False), (40, 17, True)])
def test_squares_are_transposed_where_there_is_a_whole_one(rows, columns, whole):
    block = find_block(turned(rows, columns), "Y")
    found = elementwise._transposed_axis(block, list(block.iters), LANES)
    assert (found is not None and found.var == block.iters[0].var) == whole


def test_transposed_rows_are_walked_in_squares():
    """Of as many elements a side as a vector has, transposed in registers; the vectors are along the result."""
    *_, down, across = loops_to(tir.default_schedule(turned(301, 1021), FOUR).func.body, "Y")
    assert (down.kind, across.kind) == (Kind.UNROLLED, Kind.VECTORIZED) and down.extent == across.extent == Const(LANES)


def test_a_loop_is_cut_where_a_quotient_changes():
    """At all of the places, if these are few."""
    i, most = te.var("i"), elementwise.MAX_PIECES
    for n, offset, length in itertools.product((1, 3, 7), (-5, 0, 2, 7), (1, 7, 13, 20)):
        expected = {x for x in range(1, length) if (x + offset) // n != (x - 1 + offset) // n}
        found = elementwise._quotient_changes((i + offset) // n, length)
        assert found == (expected if len(expected) < most else set()), (n, offset, length)


def test_results_of_the_same_rows_end_in_the_same_axis():
    i, j, k = (te.var(name) for name in "ijk")
    X, Y, Z = (Buffer(name, tuple(map(Const, shape))) for name, shape in (("X", (7, 13)), ("Y", (13,)), ("Z", (7, 1, 13))))
    for load, same in ((X[i, j], True), (X[j, i], False), (X[i, k], False), (X[j, j], False), (X[i, j + 1], False),
                       (Y[j], True), (Y[i], False), (Z[i, 0, j], True)):  # fmt: skip
        assert block_analysis._same_rows(load, (k, i, j)) == same, load


def test_threads_share_a_single_loop():
    """In chunks of vectors."""
    shared, *_, vector = loops_to(tir.default_schedule(programs.vector(1_000_003), FOUR).func.body, "B")
    assert shared.kind is Kind.PARALLEL and shared.extent.value >= 4 and vector.kind is Kind.VECTORIZED


def test_packed_constants_are_fetched_ahead_of_their_sum():
    """By the loop over its steps, each of which reads the next rows."""
    func = with_constants(product(127, 191, 109), {"B": np.ones((109, 191), "float32")})
    s = tir.default_schedule(func, FOUR)
    fetching = [x for b in blocks(s.func) for x in loops_to(s.func.body, b.name) if "prefetch" in dict(x.annotations)]
    steps = axis_loops(find_block(s.func, "C"), Axis.REDUCE)
    assert fetching and all(x.name in steps and x.kind is Kind.SERIAL for x in fetching)


def test_a_product_of_bytes_has_its_epilogue_in_its_tiles():
    func = bytes_product(64, 64, 64, "uint8", "int8", after=lambda c, _: te.maximum(c, 0))
    found = tir.default_schedule(func, tir.Target("llvm", mcpu="znver4", num_cores=1)).func
    around = [{x.name for x in loops_to(found.body, b.name)} for b in blocks(found) if b.name in ("D", "vpdpbusd")]
    assert len(around) == 2 and around[0] & around[1]


@pytest.mark.parametrize(("order", "together"), [("ockl", True), ("cklo", True), ("cokl", False), ("ckol", False)])
def test_the_steps_of_a_sum_lie_together_in_the_weights(order, together):
    size = {"o": 32, "c": 8, "k": 3, "l": 3}
    X, W = te.placeholder((1, 8, 16, 16), name="X"), te.placeholder(tuple(size[a] for a in order), name="W")
    c, k, l = (te.reduce_axis((0, size[a]), name=a) for a in "ckl")
    at = {"c": c, "k": k, "l": l}

    def value(n, o, h, w):
        return te.sum(X[n, c, h + k, w + l] * W[tuple(({"o": o} | at)[a] for a in order)], axis=[c, k, l])

    func = te.create_prim_func([X, W, te.compute((1, 32, 14, 14), value, name="Y")])
    assert im2col._steps_are_together(conv2d.matches(find_block(func, "Y"))) == together


@pytest.mark.parametrize("cores", [2, 4])
def test_many_results_are_shared_whole(cores):
    """From 16 a thread parts of sums are no way any more."""
    target = tir.Target("llvm", mcpu="x86-64-v4", num_cores=cores)
    for results, ways in ((16 * cores - 1, True), (16 * cores, False)):
        sketches = generate(sums(results, 4096, 1), target)
        assert any("threads share of" in c.name for s in sketches for c in s.choices) == ways


@pytest.mark.parametrize("cores", [2, 3])
def test_rows_fewer_than_threads_are_summed_in_parts(cores):
    target = tir.Target("llvm", mcpu="x86-64-v3", num_cores=cores)
    for rows, columns in ((MIN_EACH * cores**2, 40_009), (50_021, 13), (20_011, 64), (20_011, 109)):
        func = tir.default_schedule(sums(rows, columns, 0), target).func
        nest = next(x for x in loops(func) if x.kind is Kind.PARALLEL)
        assert nest.extent.value % cores == 0 and len(func.allocs) == 1
        x, y = np.random.default_rng(0).integers(-4, 5, (rows, columns)).astype("float32"), np.empty(columns, "float32")
        tir.build(func, tir.Target("llvm", num_cores=2))(x, y)
        assert np.array_equal(y, x.sum(0))
    assert not tir.default_schedule(sums(MIN_EACH * cores**2 - 1, 40_009, 0), target).func.allocs


def grouped(each: int) -> PrimFunc:
    """A convolution of channels in groups, of which each has some results."""
    X, K = te.placeholder((2 * 8, 20), name="X"), te.placeholder((2 * each, 8), name="K")
    c = te.reduce_axis((0, 8), name="c")
    value = lambda o, x: te.sum(X[o // each * 8 + c, x] * K[o, c], axis=c)  # noqa: E731
    return te.create_prim_func([X, K, te.compute((2 * each, 20), value, name="Y")])


def test_groups_have_members_enough_for_an_axis_of_their_own():
    for each in range(1, 2 * axes.MIN_MEMBERS + 1):
        block = find_block(grouped(each), "Y")
        assert axes._is_group_axis(block, block.iters[0]) == (each >= axes.MIN_MEMBERS)
        assert not axes._is_group_axis(block, block.iters[1])


def processor(**sizes: int) -> CPU:
    known = {"l1": 32 << 10, "l2": 1 << 20, "l3": 16 << 20} | sizes
    return CPU(1, 512, 32, known["l1"], known["l2"], known["l3"])


def test_an_operand_that_just_fills_l1_fits():
    """A byte less changes the tile of some products; what the operand fills to the byte is as good as a cache of more."""
    differing = 0
    for columns in range(17, 200, 6):
        for steps in (13, 64, 109):
            c = gemm.matches(find_block(product(509, columns, steps), "C"))
            exact, less, more = (gemm.tiles(c, processor(l1=columns * steps * 4 + n)) for n in (0, -4, 4))
            assert (exact.mr, exact.nr) == (more.mr, more.nr)
            differing += (exact.mr, exact.nr) != (less.mr, less.nr)
    assert differing


def test_a_panel_that_just_fills_its_part_of_l2_is_summed_whole():
    func = workloads.make("conv2d", (1, 28, 28, 32, 48, 3, 3, 1, 1)).func
    block = next(b for b in blocks(func) if b.is_reduction)
    c = conv2d.matches(block)
    for l2 in range(1 << 12, 1 << 18, 1 << 8):
        known = processor(l2=l2)
        t, usual = conv2d._seed(c, known)
        panel = 32 * 9 * t.columns * 4
        assert conv2d.variants(c, known)[0] == usual
        assert (gemm.Sum.IN_PARTS in conv2d.variants(c, known)) == (panel > known.l2_reuse_bytes or usual != gemm.Sum.WHOLE)


@pytest.mark.parametrize(("function", "fetched"), [(te.exp, True), (te.sqrt, False), (te.abs, False)])
def test_rows_of_costly_functions_fetch_the_next_row(function, fetched):
    """A function of a single instruction leaves memory no time."""
    X = te.placeholder((301, 20_011), name="X")
    k = te.reduce_axis((0, 20_011), name="k")
    E = te.compute((301, 20_011), lambda i, j: function(X[i, j]), name="E")
    S = te.compute((301,), lambda i: te.sum(E[i, k], axis=k), name="S")
    Y = te.compute((301, 20_011), lambda i, j: E[i, j] / S[i], name="Y")
    assert ('"prefetch"' in tir.default_schedule(te.create_prim_func([X, Y]), FOUR).func.script()) == fetched


def test_a_template_says_what_it_applies_to():
    with pytest.raises(NotImplementedError):
        Template().applies(OpenSchedule(turned(3, 5), FOUR), "Y")
    with pytest.raises(NotImplementedError):
        Template().change(OpenSchedule(turned(3, 5), FOUR), "Y")
