"""Sketches with symbolic tile sizes: for every row they say the same as the program that the row is."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from costmodel import NAMES, GBDTModel, features
from costmodel.pretrained import pretrained
from schedule import ScheduleError, replay
from schedule.open_trace import Hole
from search.policy.ranking import score_rows
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.population.symbolic import ReplayCache, symbolic, witness
from search.space import Derivation, best_first, named
from search.space.sketch import Sketch
from tests.programs import batched_matmul, conv_norm_relu, matmul, total, transposed_matmul
from tests.search.agreement import disagreements
from tests.search.once import generate
from tests.search.policy.schedule_programs import schedule_programs
from tests.search.population.candidates import SHAPES
from tests.sweeps import one_in
from tir import te, workloads
from tir.arith.symbolic import SymbolicInt
from tir.ir import Const
from tir.traverse import loops

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
MACHINE = TWO.machine


def agree(sketch: Sketch, rows: np.ndarray) -> None:
    """The features of the symbolic program for each row are those of the program that the row is."""
    assert [(sketch.name, row, found) for row, found in disagreements(sketch, rows) if found] == []


@one_in(2)
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "conv2d_transpose"])  # see tiles that a stride divides
@pytest.mark.parametrize("space", ["full", "ansor"])
def test_symbolic_and_concrete_features_agree(name, space):
    """Of each workload, at small odd shapes; `python -m tests.search.agreement` goes through all sketches with many rows."""
    rng = np.random.default_rng(0)
    func = workloads.make(name, SHAPES[name][0]).func
    states = best_first(Derivation(func, TWO, named(space).rules))
    sketch = named(space).sketch(states[rng.integers(len(states))], "sketch", func)
    agree(sketch, sample(sketch, TWO, 2, rng))


@pytest.mark.parametrize("func", [matmul(7, 13, 109), batched_matmul(), transposed_matmul(), total()], ids=lambda f: str(f.name))
def test_extents_shorter_than_the_levels_of_tiles(func):
    """Axes of 7 and less leave no room for tiles that are larger than 1 on each level, not even in the witness."""
    rng = np.random.default_rng(0)
    for sketch in generate(func, TWO, space="ansor"):
        agree(sketch, sample(sketch, TWO, 4, rng))


def test_a_padding_in_pieces():
    """A loop over what is cut off at both ends and what is between has as many pieces on a longer axis."""
    rng = np.random.default_rng(0)
    found = [
        s
        for s in generate(conv_norm_relu(w=17), TWO)
        if any(step.name == "loop_partition" for step in s.planned(s.variant(s.stand_ins())))
    ]
    assert found
    for sketch in found:
        agree(sketch, sample(sketch, TWO, 2, rng))


@pytest.mark.parametrize("shape", [(7, 13, 109), (7, 13, 40, 3)])
@pytest.mark.parametrize("space", ["full", "ansor"])
def test_packed_and_cached_tiles_of_short_axes(shape, space):
    """Where a level has one iteration, loops and parts of an index coincide that differ elsewhere."""
    rng = np.random.default_rng(1)
    for sketch in generate(workloads.make("gmm", shape).func, TWO, space=space):
        agree(sketch, sample(sketch, TWO, 3, rng))


@one_in(2)
@pytest.mark.parametrize("shape", [(1, 3, 5, 7, 18, 4, 2, 1), (1, 6, 5, 3, 5, 3, 3, 1)])
def test_tiles_that_a_stride_divides(shape):
    """Of an index that is divided by the stride, a tile of multiples of it has one place less, which hardly moves a prediction."""
    model = GBDTModel(MACHINE, base=pretrained(MACHINE))
    for sketch in generate(workloads.make("conv2d_transpose", shape).func, TWO, space="full"):
        rows = sample(sketch, TWO, 8, np.random.default_rng(0))
        plain = schedule_programs(sketch.func, [replay(sketch.func, sketch.trace(row)).func for row in rows])
        shared, _ = score_rows(model, sketch_programs(sketch), rows)
        alone, _ = score_rows(model, plain, np.arange(len(rows))[:, None])
        assert np.abs(shared - alone).max() < 0.05


def test_sketches_share_statements():
    """What packs the kernel is the same in several, and described once."""
    func = workloads.make("conv2d_transpose", (1, 3, 5, 7, 18, 4, 2, 1)).func
    found: list[set[int]] = []
    for sketch in generate(func, TWO):
        rows = sample(sketch, TWO, 40, np.random.default_rng(0))
        found.append({id(s) for _, p in sketch_programs(sketch).programs(rows) for s in p.statements})
    assert any(a & b for n, a in enumerate(found) for b in found[:n])


def test_short_axes_share_one_program():
    """Axes of 7 and 3 are too short for two iterations on each level, but the witness is of a longer problem."""
    func = workloads.make("conv_bn_relu", (1, 7, 7, 3, 13, 3, 1, 1)).func
    for sketch in generate(func, TWO):
        rows = sample(sketch, TWO, 50, np.random.default_rng(0))
        assert len(list(sketch_programs(sketch).programs(rows))) == len(np.unique(sketch.variants(rows), axis=0))


def test_extents_are_formulas():
    sketch = generate(matmul(109, 130, 37), TWO, space="limited")[0]
    row = sample(sketch, TWO, 1, np.random.default_rng(0))[0]
    func = symbolic(sketch, sketch.variant(row))
    sizes = {x.name: x.extent.value for x in loops(func.body) if isinstance(x.extent, Const)}
    assert sum(isinstance(size, SymbolicInt) for size in sizes.values()) >= 4


def test_one_program_serves_all_rows_of_a_variant():
    sketch = next(s for s in generate(matmul(109, 130, 37), TWO) if s.branches)
    rows = sample(sketch, TWO, 60, np.random.default_rng(0))
    shared = sketch_programs(sketch)
    groups = list(shared.programs(rows))
    assert sorted(n for members, _ in groups for n in members) == list(range(60))
    for members, found in groups:
        assert len({sketch.variant(rows[n]) for n in members}) == 1
        (again,) = shared.programs(rows[members[:1]])
        assert again[1] is found
    assert len(groups) == len({sketch.variant(row) for row in rows})
    assert list(shared.programs(rows[:0])) == []
    assert sketch_programs(sketch) is shared


def test_steps_taken_unchecked_make_what_the_primitives_make(monkeypatch: pytest.MonkeyPatch) -> None:
    target, rng = Target("llvm", num_cores=2), np.random.default_rng(3)
    some = []
    for func in (workloads.make("gmm", (61, 67, 109)).func, workloads.make("softmax", (13, 109)).func):
        for sketch in generate(func, target):
            some += [(sketch, sketch.variant(row)) for row in sample(sketch, target, 3, rng)]
    quick = [symbolic(sketch, variant, ReplayCache()).script() for sketch, variant in some]
    monkeypatch.setattr("search.population.symbolic.UNCHECKED", {})
    assert [symbolic(sketch, variant, ReplayCache()).script() for sketch, variant in some] == quick


def test_the_witness_is_large_on_every_level():
    for sketch in generate(matmul(7, 13, 109), TWO, space="ansor"):
        for row in sample(sketch, TWO, 5, np.random.default_rng(0)):
            found = witness(sketch, sketch.variant(row))
            assert sketch.variant(found) == sketch.variant(row)
            for t in sketch.tiles:
                sizes = [found[c] for c in t.columns]
                assert min(sizes) > 1 and len(set(sizes)) == len(sizes)


def test_where_the_witness_is_refused_each_row_is_a_program():
    """A step that is legal for some numbers only: the rows for which it is are judged one by one, the others not at all."""
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 2.0, name="B")
    func = te.create_prim_func([A, B])
    step = replay(func, []).trace
    assert len(step) == 0
    s = replay(func, [])
    s.split("i", [3, 4])
    (exact,) = s.trace
    sketch = Sketch("exact", func, (), (exact.with_args(factors=(Hole(("column", 0)), 4)),), (), (), 1)
    with pytest.raises(ScheduleError, match="the factors make 4 iterations"):
        symbolic(sketch, ())
    rows = np.array([[3], [1], [4], [2]])
    found = list(sketch_programs(sketch).programs(rows))
    assert [members.tolist() for members, _ in found] == [[0], [2]]
    waste = [features(p, rows[m], MACHINE)[0, 0, NAMES.index("waste")] for m, p in found]
    assert sketch_programs(sketch).count_concrete(rows) == 4 and sketch_programs(sketch).count_concrete(rows[:0]) == 0
    assert waste == pytest.approx(np.log2([1 + 1, 16 / 12 + 1]), rel=2**-20)
