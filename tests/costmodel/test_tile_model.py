"""The tile model: its counts and footprints against enumeration, and that it tells good tiles from bad ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from codegen.target import Target
from costmodel import RandomModel, SketchPrograms, TileAccess, TiledNest, TileModel
from costmodel.recording import product
from costmodel.tile_model import CACHE_LINE_BYTES, _body, _cycles, _innermost, _levels, _lines, _rivals, _run_counts, _tile
from schedule.machine import CPU, EXPOSED_LOADS
from schedule.open_schedule import OpenSchedule
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.population.tiled_nests import nests
from tests.search.once import generate
from tests.sweeps import quick
from tir import te, workloads

MACHINE = CPU(1, 512, 32, 32 << 10, 1 << 20, 32 << 20)
TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)


def matmul(m: int, k: int, n: int) -> TiledNest:
    """C[i, j] += A[i, k] * B[k, j] with the holes i1 i2 i3 j1 j2 j3 k1."""
    return TiledNest(
        extents=(m, n, k),
        reduce=(False, False, True),
        columns=((0, 1, 2), (3, 4, 5), (6,)),
        accesses=(
            TileAccess((((0, 1),), ((1, 1),)), (m, n), 4, written=True),
            TileAccess((((0, 1),), ((2, 1),)), (m, k), 4),
            TileAccess((((2, 1),), ((1, 1),)), (k, n), 4),
        ),
        vector=1,
    )


def convolution(stride: int) -> TiledNest:
    """Y[c, x] += X[stride x + r] * K[c, r], one channel whole: the axis of the kernel is not split."""
    return TiledNest(
        extents=(5, 13, 3),
        reduce=(False, False, True),
        columns=((0, 1, 2), (3, 4, 5), (6,)),
        accesses=(
            TileAccess((((0, 1),), ((1, 1),)), (5, 13), 4, written=True),
            TileAccess((((1, stride), (2, 1)),), (12 * stride + 3,), 4),
            TileAccess((((0, 1),), ((2, 1),)), (5, 3), 4),
        ),
        vector=1,
    )


ROWS = np.array([[1, 1, 1, 1, 1, 1, 1], [2, 1, 3, 2, 1, 16, 5], [1, 2, 2, 3, 1, 7, 13], [7, 1, 1, 1, 13, 1, 2]])


def sizes(nest: TiledNest, row) -> list[list[int]]:
    """The inner tile sizes of each axis in a row."""
    return [[int(row[c]) for c in axis] for axis in nest.columns]


def test_lengths_of_the_levels():
    """The outermost level takes what the others leave, rounded up; a reduction has a loop in the two R levels alone."""
    nest = matmul(7, 13, 109)
    assert _levels(nest, sizes(nest, [1, 1, 3, 2, 1, 32, 5])) == [
        [3, 2, 1],  # S0: ceil(7 / 3), ceil(109 / 64)
        [1, 2, 1],  # S1
        [1, 1, 3],  # R0: ceil(13 / 5)
        [1, 1, 1],  # S2
        [1, 1, 5],  # R1
        [3, 32, 1],  # S3
    ]


def test_an_axis_without_holes_is_outermost():
    nest = TiledNest((1, 13), (False, True), ((), (0,)), (), None)
    assert _levels(nest, [[], [5]]) == [[1, 1], [1, 1], [1, 3], [1, 1], [1, 5], [1, 1]]


@pytest.mark.parametrize("row", ROWS.tolist())
def test_counts_are_products_of_the_levels_outside(row):
    nest = matmul(7, 13, 109)
    levels = _levels(nest, sizes(nest, row))
    counts = _run_counts(levels)
    assert counts == [math.prod(x for level in levels[:depth] for x in level) for depth in range(6)]
    assert counts[5] >= 7 * 13 * 109 / math.prod(levels[5])


@pytest.mark.parametrize("nest", [matmul(7, 13, 109), matmul(13, 109, 7), convolution(1), convolution(2)])
def test_footprints_are_those_of_the_first_tile(nest):
    """Against enumeration: the span that each dimension of the access covers, in whole lines along the last."""
    for row, depth in itertools.product(ROWS, range(6)):
        levels = _levels(nest, sizes(nest, row))
        axes = []
        for axis, extent in enumerate(nest.extents):
            length = math.prod(int(level[axis]) for level in levels[depth:])
            axes.append(range(min(length, extent)))
        for access in nest.accesses:
            lines = 1
            for position, dim in enumerate(access.dims):
                touched = [sum(c * point[a] for a, c in dim) for point in itertools.product(*axes)]
                span = min(max(touched) - min(touched) + 1, access.shape[position])
                lines *= math.ceil(span * access.nbytes / CACHE_LINE_BYTES) if position == len(access.dims) - 1 else span
            assert _lines(access, _tile(nest, levels, depth)) == lines


def test_footprints_shrink_inwards_and_grow_with_the_tile():
    nest = matmul(128, 128, 128)
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 9, (50, 7))
    for row, larger in zip(rows, rows + rng.integers(0, 3, rows.shape), strict=True):
        levels, others = _levels(nest, sizes(nest, row)), _levels(nest, sizes(nest, larger))
        for access in nest.accesses:
            lines = [_lines(access, _tile(nest, levels, depth)) for depth in range(6)]
            assert lines == sorted(lines, reverse=True)
            assert _lines(access, _tile(nest, others, 5)) >= lines[5]


def test_rivals_for_a_set():
    """Rows 4 KiB apart share one set of the cache, rows 1 KiB apart four, and rows that follow one another need no sharing."""
    dims = (((0, 1),), ((1, 1),))
    for tile, rivals in (([12, 16], [12, 3, 1]), ([1, 16], [1, 1, 1])):
        assert [_rivals(TileAccess(dims, (1024, n), 4), tile, 4096) for n in (1024, 256, 16)] == rivals
        assert _rivals(TileAccess(dims, (1024, 1024), 4), tile, 65536) == 1


@pytest.mark.parametrize(
    "level, expected", [([3, 5, 1], [1, 5, 1]), ([3, 1, 1], [3, 1, 1]), ([1, 1, 1], [1, 1, 1]), ([1, 2, 7], [1, 1, 7])]
)
def test_the_innermost_loop_of_a_level(level, expected):
    assert _innermost(level) == (expected, max(expected))


@pytest.mark.parametrize("nest", [matmul(7, 13, 109), convolution(2), TiledNest((7, 1), (False, True), ((), ()), (), None)])
def test_recorded_cycles_are_those_of_plain_numbers(nest):
    rows = np.random.default_rng(0).integers(1, 17, (70, 7))
    assert TileModel(MACHINE).cycles(nest, rows).tolist() == [_cycles(nest, sizes(nest, row), MACHINE) for row in rows]


# --- scores ------------------------------------------------------------------------------------------------------------

GOOD = [1, 16, 6, 1, 1, 64, 256]  # 6 x 4 registers, 256 steps of the reduction, 96 rows for each panel of the other operand
WORSE = {
    "one register, entered for each step": [1, 1, 1, 1, 1, 16, 1],
    "more loads than multiply-adds": [1, 96, 1, 1, 1, 64, 256],
    "more accumulators than registers": [1, 3, 32, 1, 1, 64, 256],
    "accumulators moved too often": [1, 16, 6, 1, 1, 64, 2],
    "half of the lanes idle": [1, 16, 6, 1, 1, 8, 256],
}


@pytest.mark.parametrize("shape", [(1000, 1000, 1000), (768, 768, 768), (109, 1024, 130), (2048, 256, 64)])
def test_a_good_tile_of_a_matrix_product_scores_higher(shape):
    good, *others = TileModel(MACHINE).score(SketchPrograms("", 7, (matmul(*shape),)), np.array([GOOD, *WORSE.values()]))
    assert [name for name, score in zip(WORSE, others, strict=True) if score >= good] == []


def test_vectors_that_are_used_again_take_registers():
    """Two rows of a convolution use the same vectors of the image: 2 x 14 accumulators leave no room for 14 of those."""
    nest = TiledNest(
        extents=(64, 56, 16, 3),
        reduce=(False, False, False, True),
        columns=((0, 1, 2), (3, 4, 5), (6, 7, 8), (9,)),
        accesses=(
            TileAccess((((0, 1),), ((1, 1),), ((2, 1),)), (64, 56, 16), 4, written=True),
            TileAccess((((1, 1), (3, 1)), ((2, 1),)), (58, 16), 4),
            TileAccess((((0, 1),), ((3, 1),)), (64, 3), 4),
        ),
        vector=2,
    )
    rows = [[1, 1, 4, 1, 1, 7, 1, 1, 16, 3], [1, 1, 2, 1, 1, 14, 1, 1, 16, 3], [1, 1, 28, 1, 1, 1, 1, 1, 16, 3]]
    assert [_body(nest, _levels(nest, sizes(nest, row))[-1], MACHINE) for row in rows] == pytest.approx(
        [
            14 + (28 + 7 + 1 - 32) + exposed(7, 4),
            14 + (28 + 14 + 1 - 32) + exposed(14, 2),
            14.5 + exposed(1, 28),  # 28 elements of the kernel and a vector of the image to load
        ]
    )


def exposed(panel, elements):
    """Cycles of loads of vectors and elements that multiply-adds do not hide."""
    return EXPOSED_LOADS * (panel * MACHINE.memory.line[0] + elements / 2)


def test_vectors_that_cross_lines_are_loaded_twice():
    row = [1, 1, 1, 1, 1, 128, 13]
    nests = matmul(7, 13, 128), matmul(7, 13, 130)
    aligned, crossing = (_body(nest, _levels(nest, sizes(nest, row))[-1], MACHINE) for nest in nests)
    assert (aligned - exposed(8, 1), crossing - exposed(16, 1)) == (4.5, 8.5)  # nine loads, and seventeen


def test_scores_follow_the_cycles():
    nest = matmul(109, 128, 130)
    model = TileModel(MACHINE)
    rows = np.random.default_rng(0).integers(1, 17, (100, 7))
    cycles = model.cycles(nest, rows)
    assert (cycles >= 109 * 128 * 130 / 16 / 2).all()  # no faster than the multiply-adds alone
    assert np.allclose(model.score(SketchPrograms("", 7, (nest,)), rows), -np.log(cycles), rtol=1e-12)
    assert np.allclose(model.score(SketchPrograms("", 7, (nest, nest)), rows), -np.log(2 * cycles), rtol=1e-12)
    assert (model.score(SketchPrograms("", 7), rows) == 0).all()


def test_threads_help_as_far_as_there_are_tasks():
    nest = matmul(128, 128, 128)
    four = TileModel(CPU(4, 512, 32, 32 << 10, 1 << 20, 32 << 20))
    one = TileModel(MACHINE)
    rows = np.array([[1, 16, 8, 1, 2, 64, 16], [1, 4, 8, 1, 2, 64, 16], [1, 4, 8, 1, 1, 64, 16], [1, 2, 8, 1, 1, 26, 16]])
    tasks = [1, 4, 8, 40]
    assert [product(_levels(nest, sizes(nest, row))[0]) for row in rows] == tasks
    assert np.allclose(one.cycles(nest, rows) / four.cycles(nest, rows), [1, 4, 4, 4])
    five = TileModel(CPU(5, 512, 32, 32 << 10, 1 << 20, 32 << 20))
    assert np.allclose(one.cycles(nest, rows) / five.cycles(nest, rows), [1, 4, 4, 5])  # 8 tasks on 5 threads take two rounds


def test_a_smaller_cache_is_not_faster():
    nest = matmul(512, 512, 512)
    rows = np.random.default_rng(0).integers(1, 17, (200, 7))
    small = TileModel(CPU(1, 512, 32, 8 << 10, 64 << 10, 1 << 20)).cycles(nest, rows)
    assert (small >= TileModel(MACHINE).cycles(nest, rows)).all()


# Of products in a row and of convolutions that others are like.
LARGE_SPACES = ("attention_weights", "mlp", "conv1d", "conv2d_nhwc", "conv3d", "conv_bn_relu", "capsule")


@quick(lambda name: name not in LARGE_SPACES)
@pytest.mark.parametrize("name", workloads.names())
def test_scores_of_every_workload_are_finite(name):
    rng = np.random.default_rng(0)
    model = TileModel(TWO.machine)
    odd = {"gmm": [(7, 13, 109)], "mlp": [(7, 13, 109, 1)]}
    for shape in (None, *odd.get(name, ())):
        for sketch in generate(workloads.make(name, shape).func, TWO):
            scores = model.score(sketch_programs(sketch), sample(sketch, TWO, 50, rng))
            assert scores.shape == (50,) and np.isfinite(scores).all()
            assert model.score(sketch_programs(sketch), sample(sketch, TWO, 0, rng)).shape == (0,)


def test_the_nest_of_a_strided_convolution():
    func = workloads.make("conv2d", (2, 7, 7, 5, 17, 3, 3, 2, 0)).func
    (nest,) = nests(generate(func, TWO, space="ansor")[0])
    assert nest.extents == (2, 17, 3, 3, 5, 3, 3)
    assert nest.reduce == (False,) * 4 + (True,) * 3
    assert [len(c) for c in nest.columns] == [3, 3, 3, 3, 1, 1, 1] and len(nest.accesses) == 3
    assert nest.vector == 3 and nest.element_bits == 32
    write, image, kernel = nest.accesses
    assert write.written and write.dims == (((0, 1),), ((1, 1),), ((2, 1),), ((3, 1),))
    assert image.dims == (((0, 1),), ((4, 1),), ((2, 2), (5, 1)), ((3, 2), (6, 1))) and image.shape == (2, 5, 7, 7)
    assert kernel.dims == (((1, 1),), ((4, 1),), ((5, 1),), ((6, 1),)) and kernel.nbytes == 4


def test_two_products_make_two_nests():
    sketch = generate(workloads.make("mlp", (7, 13, 109, 40)).func, TWO, max_sketches=1)[0]
    first, second = nests(sketch)
    assert {first.extents, second.extents} == {(7, 109, 13), (7, 40, 109)}
    columns = [c for nest in (first, second) for axis in nest.columns for c in axis]
    assert sorted(columns) == sorted(c for t in sketch.tiles for c in t.columns)


def test_a_product_that_becomes_another_has_its_nest_in_that_form():
    """Queries of four heads by keys of two: steps give the axes other names, in one way of a branch or in all."""
    A, B, k = te.placeholder((4, 7, 5)), te.placeholder((2, 13, 5)), te.reduce_axis((0, 5))
    C = te.compute((4, 7, 13), lambda h, i, j: te.sum(A[h, i, k] * B[h // 2, j, k], axis=k), name="C")
    func, renamed = te.create_prim_func([A, B, C]), 0
    for sketch in generate(func, Target("llvm", num_cores=1, mcpu="x86-64")):
        found = nests(sketch)
        assert {c for n in found for axis in n.columns for c in axis} == {c for t in sketch.tiles for c in t.columns}
        assert all(math.prod(n.extents) == 4 * 7 * 13 * 5 for n in found)
        assert [n.vector is None for n in found] == [not any(t.vector for t in sketch.tiles)] * len(found)
        renamed += bool(found) and not any(t.axis in ("v_h", "v_i", "v_j") for t in sketch.tiles)
    assert renamed, "no sketch has axes that steps made"

    s = OpenSchedule(func, TWO)

    def renaming(s: OpenSchedule) -> None:
        s.transform_block_layout("C", "lambda h, i, j, k: (h, k, i, j)", True)
        s.split(s.get_loops("C")[-1], [None, *s.sizes("C", s.block("C").iters[-1].var.name, vector=True)])

    s.branch("order", {"as written": lambda s: s.unroll(s.get_loops("C")[-1]), "sum outside": renaming})
    (nest,) = nests(s.finish("two ways", func))
    assert nest.vector == 3 and nest.columns[3] and nest.extents == (4, 5, 7, 13)


def test_random_scores():
    rows = np.ones((7, 3), dtype=np.int64)
    first, second = (RandomModel(np.random.default_rng(0)).score(SketchPrograms("", 7), rows) for _ in range(2))
    assert (first == second).all() and len(set(first)) == 7
