"""Populations: every row drawn is a legal candidate, within what the machine offers, and the same for the same seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from search.population.cpu import DIVIDING_SHARE
from search.population.sample import sample
from search.space.sketch import Sketch
from tests.programs import elementwise_chain, matmul, sum_of_three_axes
from tests.search.once import generate
from tests.sweeps import one_in, quick
from tir import workloads
from tir.traverse import blocks, loops

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")

ROWS = 24  # replayed for each workload and shape

# An odd shape, one with axes of one iteration, and the default (None) of every workload.
SHAPES = [
    *(("gmm", s) for s in ((7, 13, 109), (1, 7, 13), (13, 109, 1), (7, 13, 40, 3), None)),
    *(("mlp", s) for s in ((7, 13, 109, 5), (13, 1, 7, 109), None)),
    *(("conv2d", s) for s in ((1, 7, 13, 3, 5, 3, 3, 1, 1), (2, 7, 7, 5, 17, 3, 3, 2, 0), None)),
    *(("depthwise", s) for s in ((1, 7, 13, 5, 3, 3, 1, 1), (2, 9, 9, 3, 3, 3, 2, 0), None)),
    *(("softmax", s) for s in ((7, 109), (1, 40), (13, 1), None)),
    *(("layernorm", s) for s in ((7, 109), (1, 40), (13, 1), None)),
]


def sketches_of(name: str, shape: tuple[int, ...] | None, target: Target = TWO) -> list[Sketch]:
    return generate(workloads.make(name, shape).func, target)


@one_in(3)
@pytest.mark.parametrize(("name", "shape"), SHAPES, ids=lambda v: str(v).replace(" ", "") if v else "default")
def test_every_row_is_legal(name, shape):
    """Rows of each workload and shape replay: all steps are legal with their numbers, and name the same loops."""
    sketches = sketches_of(name, shape)
    rng = np.random.default_rng(0)
    for sketch in sketches:
        rows = sample(sketch, TWO, math.ceil(ROWS / len(sketches)), rng)
        for row in {tuple(r) for r in rows.tolist()}:
            schedule = replay(sketch.func, sketch.trace(row))
            planned = [step.results for step in sketch.picked(sketch.variant(row))]
            assert [step.results for step in schedule.trace] == planned, row


@one_in(2)
@pytest.mark.parametrize("lanes", [16, 32, 64, 128])
@pytest.mark.parametrize("columns", [32, 33, 64, 65, 109, 130])
def test_lanes_that_exceed_the_axis_are_legal(columns, lanes):
    """The choice of lanes knows nothing of the extent: two vectors are enough for the rule, four may be drawn."""
    for sketch in sketches_of("softmax", (3, columns)):
        replay(sketch.func, sketch.trace([lanes] * sketch.columns))


def test_names_of_loops_do_not_depend_on_the_numbers():
    """A step that was recorded with stand-ins names loops that are there with all numbers, those of one iteration included."""
    sketch = sketches_of("gmm", (7, 13, 109))[-1]
    rows = [[1] * 7, [7, 1, 1, 109, 1, 1, 13], [1, 7, 1, 1, 109, 1, 1], [1, 1, 7, 1, 1, 109, 13], [2, 2, 2, 3, 3, 3, 3], [7] * 7]
    ways = [0] * (sketch.columns - 7)  # the first run of each branch
    names = {tuple(x.name for x in loops(replay(sketch.func, sketch.trace(row + ways)).func)) for row in rows}
    assert len(names) == 1


def test_rows_are_a_matrix_of_positive_sizes_and_options():
    for sketch in [*sketches_of("mlp", (7, 13, 109, 5)), *sketches_of("softmax", (7, 109))]:
        for n in (0, 1, 13):
            rows = sample(sketch, TWO, n, np.random.default_rng(1))
            assert rows.shape == (n, sketch.columns) and rows.dtype == np.int64
            assert all((rows[:, t.columns] >= 1).all() for t in sketch.tiles)
            assert all(np.isin(rows[:, c.column], c.options).all() for c in sketch.choices)


def test_no_tile_exceeds_its_axis():
    for name, shape in (("gmm", (7, 13, 109)), ("conv2d", (1, 7, 13, 3, 5, 3, 3, 1, 1))):
        for sketch in sketches_of(name, shape):
            rows = sample(sketch, TWO, 500, np.random.default_rng(2))
            for tile in sketch.tiles:
                inner = rows[:, list(tile.columns)]
                assert (inner <= tile.extent).all()
                # No level is longer than what the levels within it leave to do.
                left = np.full(len(rows), tile.extent)
                for column in reversed(tile.columns):
                    assert (rows[:, column] <= left).all()
                    left = -(-left // rows[:, column])


def test_the_same_seed_draws_the_same():
    sketch = sketches_of("gmm", (7, 13, 109))[0]
    first, second, other = (sample(sketch, TWO, 200, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert (first == second).all() and (first != other).any()


@quick(lambda dtype, registers: dtype == "float64" or registers == 16)
@pytest.mark.parametrize(("target", "dtype", "lanes", "registers"), [
    (Target("llvm", num_cores=2, mcpu="skylake-avx512", vector_bits=512), "float32", 16, 32),
    (Target("llvm", num_cores=2, mcpu="skylake-avx512", vector_bits=512), "float64", 8, 32),
    (Target("llvm", num_cores=2, mcpu="skylake-avx512", vector_bits=256), "float32", 8, 32),
    (Target("llvm", num_cores=2, mcpu="haswell", vector_bits=256), "float32", 8, 16),
])  # fmt: skip
def test_accumulators_fit_the_registers(target, dtype, lanes, registers):
    for func in (matmul(109, 13, 109, dtype), workloads.make("conv2d", (1, 20, 40, 3, 40, 3, 3, 1, 1), dtype).func):
        for sketch in generate(func, target):
            rows = sample(sketch, target, 1000, np.random.default_rng(0))
            vectors, across = np.ones(len(rows)), np.ones(len(rows))
            for tile in sketch.tiles:
                if not tile.reduce:
                    inner = rows[:, tile.columns[-1]]
                    vectors *= np.ceil(inner / lanes) if tile.vector else inner
                    across *= np.ceil(inner / lanes) if tile.vector else 1
            # Beside one or two vectors of columns, and an element of the rows; of 32 one is free.
            assert (vectors <= min(registers, 31) - 1 - np.minimum(across, 2)).all()
            assert vectors.max() > (registers - 4) // 2  # and they are used


def test_sizes_that_divide_are_preferred():
    (sketch, *_) = generate(matmul(120, 256, 96), TWO)
    rows = sample(sketch, TWO, 4000, np.random.default_rng(0))
    for tile in sketch.tiles:
        inner = rows[:, tile.columns[-1]]
        exact = np.mean(tile.extent % inner == 0)
        assert exact >= DIVIDING_SHARE - 3 * math.sqrt(DIVIDING_SHARE * (1 - DIVIDING_SHARE) / len(rows)), (
            tile
        )  # three standard deviations
        assert exact < 1.0, tile  # but the others are not left out


def test_lanes_are_whole_vectors_where_they_fit():
    (sketch, *_) = generate(matmul(7, 13, 109), TWO)
    (column,) = (t.columns[-1] for t in sketch.tiles if t.vector)
    (width,) = (c.column for c in sketch.choices if c.name == "C vectors")
    rows = sample(sketch, TWO, 4000, np.random.default_rng(0))
    assert set(rows[rows[:, width] == 0, column]) == {16, 32, 48, 64}
    assert set(rows[rows[:, width] == 1, column]) == {8, 16, 24, 32}
    assert 0.05 < np.mean(rows[:, width]) < 0.15  # a tenth have half registers
    (sketch, *_) = generate(matmul(7, 13, 13), TWO)
    rows = sample(sketch, TWO, 100, np.random.default_rng(0))
    (width,) = (c.column for c in sketch.choices if c.name == "C vectors")
    assert set(rows[rows[:, width] == 0, column]) == {13}


def test_choices_are_drawn_from_their_options():
    sketch = generate(sum_of_three_axes(), TWO)[0]
    for choice in sketch.choices:
        assert set(sample(sketch, TWO, 100, np.random.default_rng(0))[:, choice.column]) == set(choice.options)


def test_a_sketch_without_holes_has_one_row():
    (sketch,) = [s for s in generate(elementwise_chain(), TWO) if not s.columns]
    rows = sample(sketch, TWO, 3, np.random.default_rng(0))
    assert rows.shape == (3, 0)
    assert blocks(replay(sketch.func, sketch.trace(())).func)
