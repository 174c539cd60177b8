"""The trees that are shipped."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from costmodel import GBDTModel
from costmodel.dataset import Dataset
from costmodel.metrics import pair_accuracy
from costmodel.pretrained import PATH, pretrained, save, train
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.task import Task
from tests.programs import matmul
from tests.search.once import generate
from tests.search.policy.oracle import SAMPLE, TARGET
from tir.notices import Degraded

TASK = Task.of(matmul(7, 13, 109), TARGET)


def test_they_order_programs_on_other_threads_better_than_chance():
    """The sample is of two threads, the trees are of one."""
    data = Dataset.load(SAMPLE)
    model = GBDTModel(TARGET.machine, base=pretrained(TARGET.machine))
    columns = np.ascontiguousarray(data.matrix.T)
    scores = model.loss.scores(np.bincount(data.program, weights=model.loss.parts(model.start(columns))))
    of = [data.task == n for n in range(len(data.tasks))]
    assert np.mean([pair_accuracy(scores[own], data.seconds[own], 0.02) for own in of]) > 0.6


def test_own_trees_correct_them():
    (sketch,) = generate(TASK.func, TARGET)[:1]
    programs, rows = sketch_programs(sketch), np.unique(sample(sketch, TARGET, 64, np.random.default_rng(0)), axis=0)
    model = GBDTModel(TARGET.machine, base=pretrained(TARGET.machine))
    before = model.score(programs, rows)
    assert model.name == "trees" and not len(model.forest)
    seconds = 1e-6 * np.exp(before - before.mean())  # the opposite of what they say
    assert pair_accuracy(before, seconds) == 0.0
    model.update(programs, rows, seconds)
    assert pair_accuracy(model.score(programs, rows), seconds) > 0.7


def test_they_are_kept_with_the_names_of_features(tmp_path):
    data = Dataset.load(SAMPLE)
    forest = train(data.subset(np.arange(60)), TARGET.machine)
    save(forest, tmp_path / "own.npz")
    again = pretrained(TARGET.machine, tmp_path / "own.npz")
    assert all((getattr(again, name) == getattr(forest, name)).all() for name in ("features", "thresholds", "values"))
    assert pretrained(Target("cuda -arch sm_90").machine) is None
    kept = dict(np.load(tmp_path / "own.npz"))
    np.savez(tmp_path / "older.npz", **(kept | {"names": kept["names"][1:]}))
    (tmp_path / "damaged.npz").write_bytes(b"PK damaged")
    for name, reason in {"older": "made for other features", "damaged": "", "none": "No such file"}.items():
        with pytest.warns(Degraded, match=f"begins without the pretrained model {name}.npz: .*{reason}"):
            assert pretrained(TARGET.machine, tmp_path / f"{name}.npz") is None
    assert PATH.stat().st_size < 1 << 16


def test_sets_are_joined_and_divided():
    data = Dataset.load(SAMPLE)
    first, second = (data.subset(np.flatnonzero(data.task == n)) for n in (0, 1))
    both = Dataset.joined([first, second])
    assert len(both) == len(first) + len(second) and len(both.tasks) == 2 * len(data.tasks)
    again = both.subset(np.arange(len(first), len(both)))
    assert (again.matrix == second.matrix).all() and (again.seconds == second.seconds).all()
    assert both.throughputs() == pytest.approx(np.concatenate([first.throughputs(), second.throughputs()]))
