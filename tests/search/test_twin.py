"""The row whose program is most like a known one: found for what the library makes, and where evolution begins."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import Schedule, replay
from search.evolution import Evolution
from search.measure import Measurement
from search.sample import fit
from search.space import generate
from search.strategies import search
from search.task import Task
from search.twin import twin
from tests.search.programs import argmax, matmul
from tests.search.test_library_points import signature
from tir import workloads

ONE = Target("llvm", num_cores=1, vector_bits=512, l1=32768, l2=1 << 20, l3=1 << 25)
TWO = Target("llvm", num_cores=2, vector_bits=512, l1=32768, l2=1 << 20, l3=1 << 25)


@pytest.mark.parametrize(
    ("name", "shape", "target"),
    [
        ("gmm", (109, 300, 400), ONE),
        ("gmm", (109, 300, 400), TWO),
        ("gmm", (1024, 1024, 1024), TWO),
        ("gmm", (77, 130, 97, 3), ONE),
        ("conv2d_nhwc", (1, 13, 13, 32, 64, 3, 1, 1), ONE),
        ("conv2d", (1, 28, 28, 64, 109, 1, 1, 1, 0), TWO),
        ("depthwise", (1, 28, 28, 109, 3, 3, 1, 1), TWO),
        ("softmax", (109, 1021), ONE),
        ("norm", (1, 2048, 1024), TWO),
    ],
)
def test_what_the_library_makes_has_a_twin(name, shape, target):
    func = workloads.make(name, shape).func
    known = templates.schedule(func, target)
    assert known is not None
    sketch, row = twin(generate(func, target), known.func, target)
    made = replay(func, sketch.trace(row)).func
    assert signature(made, target, unrolled=False) == signature(known.func, target, unrolled=False)


def test_its_tiles_are_those_of_the_known_program():
    func = workloads.make("conv2d_nhwc", (1, 13, 13, 32, 64, 3, 1, 1)).func
    sketch, row = twin(generate(func, TWO)[:2], templates.schedule(func, TWO).func, TWO)
    assert "Y: direct convolution" in sketch.rules
    assert {t.axis: [row[c] for c in t.columns] for t in sketch.tiles} == {"v_co": [32], "v_h": [1], "v_w": [13]}


@pytest.mark.parametrize(("name", "shape"), [("gmm", (61, 67, 109)), ("gmm", (7, 13, 109, 3)), ("softmax", (7, 109))])
def test_a_twin_is_its_own_twin(name, shape):
    func = workloads.make(name, shape).func
    sketch, row = twin(generate(func, TWO), templates.schedule(func, TWO).func, TWO)
    assert (fit(sketch, TWO, row[None]) == row).all()
    again, same = twin([sketch], replay(func, sketch.trace(row)).func, TWO)
    assert again is sketch and same.tolist() == row.tolist()


def test_programs_of_other_tiles_have_none():
    """A product whose rows and columns are cut into five levels is like no row."""
    func = matmul(96, 64, 96)
    s = Schedule(func)
    for loop in s.get_loops("C"):
        s.split(loop, [None, 2, 2, 2, 2])
    assert twin(generate(func, TWO), s.func, TWO) is None


def test_evolution_begins_with_it():
    func = matmul(109, 300, 400)
    task = Task.of(func, "llvm -num-cores 2")
    sketch, row = twin(
        generate(func, Target(task.target)), templates.schedule(func, Target(task.target)).func, Target(task.target)
    )
    begun, rng = search(task, model="tile"), np.random.default_rng(0)
    first, *others = begun.propose(4, rng)
    assert (first.sketch, first.row) == (sketch.name, tuple(row.tolist()))
    assert first.row not in {c.row for c in (*others, *begun.propose(8, rng)) if c.sketch == first.sketch}
    known = Evolution(generate(func, TWO), TWO, start=(sketch, row))
    known.tell([Measurement(first, "ok", (1.0,))])
    assert (first.sketch, first.row) not in {(c.sketch, c.row) for c in known.propose(8, rng)}
    assert Evolution(generate(func, TWO), TWO, start=(sketch, row)).propose(0, rng) == []


@pytest.mark.parametrize("options", [{"space": "ansor"}, {"space": "limited"}, {"search": "random"}])
def test_other_spaces_and_searches_know_nothing_of_it(options, monkeypatch):
    monkeypatch.setattr("search.strategies.twin", lambda *_: pytest.fail("asked for a twin"))
    assert search(Task.of(matmul(), "llvm -num-cores 1"), model="none", **options).propose(2, np.random.default_rng(0))


def test_what_the_library_does_not_know_begins_at_random() -> None:
    func, target = argmax(), Target("llvm -num-cores 1")
    assert templates.schedule(func, target) is None
    begun = search(Task.of(func, "llvm -num-cores 1"), model="none")
    assert begun._start == [] and begun.propose(2, np.random.default_rng(0))
