"""Mutations and crossover: what they return is legal, canonical, and differs where it should."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from schedule.open_trace import Choice, Role, Tile
from search.population.cpu import factorisations
from search.population.mutate import LOCATION, OTHERS, PARALLEL, PRAGMA, TILE_OPERATORS, choose, crossover, mutations, neighbours
from search.population.sample import legalize, sample
from search.space.sketch import Sketch
from tests.programs import matmul
from tests.search.once import generate
from tests.sweeps import one_in
from tir import workloads

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")

PROGRAMS = [("gmm", (7, 13, 109)), ("mlp", (13, 1, 7, 109)), ("conv2d", (1, 7, 13, 3, 5, 3, 3, 1, 1)), ("softmax", (7, 109))]


def some_sketches(name, shape, space="full", count=3) -> list[Sketch]:
    """The sketches of a workload that have most holes."""
    return sorted(generate(workloads.make(name, shape).func, TWO, space=space), key=lambda s: -s.columns)[:count]


@one_in(3)
@pytest.mark.parametrize("space", ["full", "ansor", "limited"])
@pytest.mark.parametrize(("name", "shape"), PROGRAMS, ids=lambda v: str(v).replace(" ", ""))
def test_children_are_legal_and_canonical(name, shape, space):
    rng = np.random.default_rng(0)
    for sketch in some_sketches(name, shape, space):
        parents = sample(sketch, TWO, 60, rng)
        made = [m.operate(sketch, TWO, parents, rng) for m in mutations().values()]
        made.append(crossover(sketch, TWO, parents, parents[::-1], rng))
        if sketch.columns:
            made.append(neighbours(sketch, TWO, parents[0]))
        for children in made:
            assert children.dtype == np.int64 and children.shape[1] == sketch.columns
            assert (legalize(sketch, TWO, children) == children).all()
            for choice in sketch.choices:
                assert np.isin(children[:, choice.column], choice.options).all()
            for row in np.unique(children, axis=0)[:2].tolist():
                replay(sketch.func, sketch.trace(row))


def test_operators_leave_their_parents_alone():
    (sketch, *_) = some_sketches("gmm", (40, 13, 109))
    parents = sample(sketch, TWO, 50, np.random.default_rng(0))
    kept = parents.copy()
    for mutation in mutations().values():
        mutation.operate(sketch, TWO, parents, np.random.default_rng(1))
    crossover(sketch, TWO, parents, parents[::-1], np.random.default_rng(1))
    assert (parents == kept).all()


@pytest.mark.parametrize("name", TILE_OPERATORS)
def test_a_tile_mutation_changes_one_axis_unless_registers_run_out(name):
    """Accumulators that no longer fit shrink another axis, too: below the budget nothing else changes."""
    sketch = bare(Tile("C", "i", 1009, False, (0, 1)), Tile("C", "k", 509, True, (2,)), Tile("C", "j", 256, False, (3, 4)))
    parents = legalize(sketch, TWO, np.tile([4, 2, 16, 4, 2], (200, 1)))
    children = TILE_OPERATORS[name](sketch, TWO, parents, np.random.default_rng(0))
    small = children[:, 1] * children[:, 4] < 28
    changed = np.stack([(children[:, c] != parents[:, c]).any(axis=1) for c in ([0, 1], [2], [3, 4])])
    assert small.sum() > 100 and changed.any(axis=1).all()
    assert (changed.sum(axis=0)[small] <= 1).all()


def bare(*tiles: Tile, choices=()) -> Sketch:
    columns = sum(len(t.columns) for t in tiles) + len(choices)
    return Sketch("bare", matmul(7, 13, 109), (), (), tuple(tiles), tuple(choices), columns)


def test_a_move_keeps_the_product_of_what_divides():
    sketch = bare(Tile("C", "i", 240, False, (0, 1, 2), perfect=True))
    parents = sample(sketch, TWO, 300, np.random.default_rng(0))
    children = TILE_OPERATORS["move"](sketch, TWO, parents, np.random.default_rng(1))
    assert (240 % np.prod(children, axis=1) == 0).all()
    changed = (children != parents).sum(axis=1)
    assert set(changed) <= {0, 1, 2} and np.mean(changed > 0) > 0.9


def test_steps_reach_imperfect_sizes():
    """Of 109 rows 9 tiles have 13 each, 8 have 14, and 10 have 11."""
    sketch = bare(Tile("C", "i", 109, False, (0, 1)), Tile("C", "k", 1, True, (2,)))
    parents = legalize(sketch, TWO, np.tile([1, 13, 1], (100, 1)))
    children = TILE_OPERATORS["step"](sketch, TWO, parents, np.random.default_rng(0))
    assert {11, 14} <= set(children[:, 1]) and 12 not in children[:, 1]


def test_perfect_tiles_divide_and_keep_their_limit():
    sketch = bare(Tile("C", "i", 120, False, (0, 1), perfect=True, limit=8))
    rows = sample(sketch, TWO, 500, np.random.default_rng(0))
    assert (120 % rows[:, 1] == 0).all() and (120 // rows[:, 1] % rows[:, 0] == 0).all()
    assert rows[:, 1].max() == 8
    assert len(np.unique(rows, axis=0)) == len(factorisations(120, 2, 8))


def test_factorisations_are_all_there_are():
    found = factorisations(12, 2, 12).tolist()
    assert sorted(found) == sorted([a, b] for a in range(1, 13) for b in range(1, 13) if 12 % (a * b) == 0)
    assert factorisations(7, 1, 4).tolist() == [[1]]


def test_fit_makes_one_of_rows_that_are_the_same_program():
    """Sizes beyond the extent are the extent; sizes that make as many tiles are the least of them."""
    sketch = bare(Tile("C", "i", 13, False, (0, 1)))
    rows = np.array([[1, 13], [5, 99], [7, 13]])
    assert (legalize(sketch, TWO, rows) == [[1, 13]]).all()
    assert (legalize(sketch, TWO, np.array([[1, 8], [1, 9], [1, 12]])) == [[1, 7]]).all()


def test_fit_makes_vectors_whole():
    sketch = bare(Tile("C", "j", 109, False, (0,), vector=True, bits=32))
    assert legalize(sketch, TWO, np.array([[3], [16], [23], [25], [200]])).ravel().tolist() == [16, 16, 16, 32, 109]


def test_a_mutation_takes_vectors_of_half_registers():
    """They are kept by the others, which change a tile by such a vector."""
    (sketch, *_) = some_sketches("gmm", (40, 13, 109))
    width = next(c.column for c in sketch.choices if c.name == "C vectors")
    vector = next(t.columns[-1] for t in sketch.tiles if t.vector)
    rng = np.random.default_rng(0)
    parents = sample(sketch, TWO, 400, rng)
    parents[:, width] = 0
    parents = legalize(sketch, TWO, parents)
    mutants = choose(OTHERS)(sketch, TWO, parents, rng)
    halved = mutants[mutants[:, width] == 1]
    assert len(halved) > 10
    stepped = TILE_OPERATORS["step"](sketch, TWO, halved, rng)
    assert (stepped[:, width] == 1).all() and (stepped[:, vector] % 16 == 8).any()
    assert (parents[:, vector] % 16 == 0).all()


def test_choices_take_another_option():
    sketch = bare(choices=(Choice("unroll", 0, (0, 16, 64)), Choice("only", 1, (3,))))
    parents = np.tile([16, 3], (200, 1))
    children = choose(OTHERS)(sketch, TWO, parents, np.random.default_rng(0))
    assert set(children[:, 0]) == {0, 64} and (children[:, 1] == 3).all()
    assert {tuple(r) for r in neighbours(sketch, TWO, np.array([16, 3])).tolist()} == {(0, 3), (64, 3)}


def test_each_mutation_of_choices_changes_those_of_its_roles():
    sketch = next(s for s in some_sketches("conv2d", (1, 32, 32, 16, 32, 3, 3, 1, 1), count=99) if len(roles_of(s)) > 3)
    rng = np.random.default_rng(0)
    parents = sample(sketch, TWO, 600, rng)
    table = mutations()
    for name, roles in (("parallel", PARALLEL), ("compute location", LOCATION), ("pragma", PRAGMA), ("choose", OTHERS)):
        own = [c.column for c in sketch.choices if c.role in roles]
        others = [c.column for c in sketch.choices if c.role not in roles]
        children = table[name].operate(sketch, TWO, parents, rng)
        assert table[name].suits(sketch) and (children[:, own] != parents[:, own]).any(axis=1).mean() > 0.3
        # What a branch takes along: columns that other options do not have are set to their first value.
        stays = (children[:, others] == parents[:, others]) | ~(sketch.used(children) & sketch.used(parents))[:, others]
        assert stays.all()


def roles_of(sketch: Sketch) -> set[str]:
    return {name for name, m in mutations().items() if m.suits(sketch)} - set(TILE_OPERATORS)


def test_all_mutations_are_equally_likely_at_first():
    table = mutations()
    assert list(table) == [*TILE_OPERATORS, "parallel", "compute location", "pragma", "choose"]
    assert len({m.probability for m in table.values()}) == 1


def test_a_mutation_that_can_change_nothing_is_not_for_a_sketch():
    table = mutations()
    tiled, chosen = bare(Tile("C", "i", 64, False, (0, 1))), bare(choices=(Choice("unroll", 0, (0, 16), role=Role.PRAGMA),))
    assert [name for name, m in table.items() if m.suits(tiled)] == list(TILE_OPERATORS)
    assert [name for name, m in table.items() if m.suits(chosen)] == ["pragma"]


def test_crossover_takes_blocks_from_either_parent():
    sketch = bare(
        Tile("C", "i", 64, False, (0, 1)), Tile("C", "j", 64, False, (2, 3)), Tile("D", "i", 64, False, (4, 5)),
        choices=(Choice("parallel loops of D", 6, (0, 1), block="C"), Choice("other", 7, (0, 1))),
    )  # fmt: skip
    mothers, fathers = np.tile([1, 1, 1, 1, 1, 1, 0, 0], (400, 1)), np.tile([2, 4, 2, 4, 2, 4, 1, 1], (400, 1))
    whole = crossover(sketch, TWO, mothers, fathers, np.random.default_rng(0)) == fathers
    for block in ((0, 1, 2, 3, 6), (4, 5), (7,)):
        assert (whole[:, block] == whole[:, block[:1]]).all() and 0.4 < np.mean(whole[:, block[0]]) < 0.6
    for one, other in ((0, 4), (0, 7), (4, 7)):
        assert 0.4 < np.mean(whole[:, one] == whole[:, other]) < 0.6


def test_around_is_all_single_steps():
    (sketch, *_) = some_sketches("gmm", (40, 13, 109))
    row = sample(sketch, TWO, 1, np.random.default_rng(0))[0]
    rows = neighbours(sketch, TWO, row)
    assert len(np.unique(rows, axis=0)) == len(rows) > 5
    assert (rows != row).any(axis=1).all()


def test_the_same_seed_makes_the_same_children():
    (sketch, *_) = some_sketches("mlp", (13, 1, 7, 109))
    parents = sample(sketch, TWO, 50, np.random.default_rng(0))
    for mutation in mutations().values():
        first, second = (mutation.operate(sketch, TWO, parents, np.random.default_rng(3)) for _ in range(2))
        assert (first == second).all()


def test_crossover_keeps_the_tiles_of_a_packed_product_with_its_packing_and_its_parallel_depth():
    """Nearly all children have all of these from one parent; drawn apart, hardly any would."""
    sketches = generate(workloads.make("mlp", (128, 128, 128, 128)).func, TWO)
    sketch = next(s for s in sketches if s.rules == ("F: packing", "D: skip", "C: packing"))
    chosen = [c for c in sketch.choices if c.name in ("parallel loops of D", "pack A for C", "pack B for C")]
    own = [c for t in sketch.tiles if t.block == "C" for c in t.columns] + [c.column for c in chosen]
    rng = np.random.default_rng(0)
    mothers, fathers = sample(sketch, TWO, 20_000, rng), sample(sketch, TWO, 20_000, rng)
    n = np.argmax(np.sum(mothers[:, own] != fathers[:, own], axis=1))
    assert (mothers[n, own] != fathers[n, own]).sum() >= len(own) - 1 and len(chosen) == 3
    mother, father = mothers[n], fathers[n]
    children = crossover(sketch, TWO, np.tile(mother, (400, 1)), np.tile(father, (400, 1)), rng)
    whole = (children[:, own] == mother[own]).all(axis=1) | (children[:, own] == father[own]).all(axis=1)
    assert np.mean(whole) > 0.9
