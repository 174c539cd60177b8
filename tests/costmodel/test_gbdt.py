"""The model that learns: that it does, from whom, and that what it learned can be kept."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from codegen.target import Target
from costmodel import NAMES, Boosting, GBDTModel, SketchPrograms, TileModel, features
from costmodel.metrics import pair_accuracy
from search.population.programs import sketch_programs
from search.population.sample import sample
from tests.programs import matmul
from tests.search.once import generate

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
MACHINE = TWO.machine
QUICK = Boosting(trees=30, added=8, depth=4, rate=0.2, share=0.5)


def some_rows(n: int, seed: int = 0, shape=(40, 109, 130)) -> tuple[SketchPrograms, np.ndarray]:
    sketch = generate(matmul(*shape), TWO, space="ansor")[0]
    return sketch_programs(sketch), sample(sketch, TWO, n, np.random.default_rng(seed))


def pretended(f: SketchPrograms, rows: np.ndarray) -> np.ndarray:
    """Seconds that contradict the tile model: few accumulators are fast."""
    result = np.empty(len(rows))
    for members, program in f.programs(rows):
        result[members] = features(program, rows[members], MACHINE)[:, :, NAMES.index("accumulators")].max(axis=0)
    return 1e-4 * (1 + result)


def test_it_learns_what_the_formula_does_not_know():
    f, rows = some_rows(120)
    _, others = some_rows(80, seed=1)
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, pretended(f, rows))
    truth = pretended(f, others)
    assert pair_accuracy(model.score(f, others), truth) > 0.8 > 0.65 > pair_accuracy(TileModel(MACHINE).score(f, others), truth)


def test_each_device_has_its_own_fast_programs():
    """Scores are those of the primary device, though another one, which likes other programs, has measured more."""
    f, rows = some_rows(600)  # of 180, two draws in three are too few to tell the devices apart
    _, others = some_rows(80, seed=1)
    elsewhere, truth = replace(f, device="another"), pretended(f, others)
    seconds = np.where(np.arange(600) % 3, 1e-7 / pretended(f, rows), pretended(f, rows))
    mixed, told = (GBDTModel(MACHINE, boosting=QUICK) for _ in range(2))
    mixed.update(f, rows, seconds)
    told.update(f, rows[::3], seconds[::3])
    told.update(elsewhere, rows[np.arange(600) % 3 > 0], seconds[np.arange(600) % 3 > 0])
    assert pair_accuracy(told.score(f, others), truth) > 0.7 > 0.5 > pair_accuracy(mixed.score(f, others), truth)
    assert told.data.tasks == [f.task, f"{f.task} on another"]
    assert all(told.throughputs()[told.data.task == n].max() == 1 for n in (0, 1))  # relative to the best of each device


def test_scores_are_predicted_times():
    f, rows = some_rows(150)
    model = GBDTModel(MACHINE, boosting=Boosting(trees=80, depth=6, leaf=1))
    seconds = pretended(f, rows)
    model.update(f, rows, seconds)
    predicted = 1e-9 * np.exp(-model.score(f, rows))
    assert np.median(np.abs(np.log(predicted / seconds))) < 0.05


def test_a_formula_judges_until_there_is_enough():
    f, rows = some_rows(QUICK.min_programs)
    model, formula = GBDTModel(MACHINE, boosting=QUICK), TileModel(MACHINE)
    seconds = pretended(f, rows)
    model.update(f, rows[:-1], seconds[:-1])
    assert model.programs == QUICK.min_programs - 1 and (model.score(f, rows) == formula.score(f, rows)).all()
    model.update(f, rows[-1:], seconds[-1:])
    assert (model.score(f, rows) != formula.score(f, rows)).any()


def test_failures_teach():
    """Rows of odd register tiles fail: others are preferred, though they take longer than any of those that ran."""
    f, rows = some_rows(150)
    wide = rows[:, 2] > np.median(rows[:, 2])
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, np.where(wide, np.inf, 1e-3))
    scores = model.score(f, rows)
    assert pair_accuracy(scores, np.where(wide, 2.0, 1.0)) > 0.9
    nothing = GBDTModel(MACHINE, boosting=QUICK)
    nothing.update(f, rows, np.full(len(rows), np.inf))
    assert np.isfinite(nothing.score(f, rows)).all() and (nothing.throughputs() == 0).all()


def test_trees_are_added_for_new_data_and_built_anew_after_growth():
    f, rows = some_rows(109)
    seconds = pretended(f, rows)
    model = GBDTModel(MACHINE, boosting=QUICK)
    sizes = []
    for start, stop in ((0, 60), (60, 70), (70, 80), (80, 109)):
        model.update(f, rows[start:stop], seconds[start:stop])
        model.score(f, rows)
        sizes.append(len(model.forest))
    assert sizes == [30, 38, 30, 30]
    before = model.forest
    model.score(f, rows)
    assert model.forest is before  # nothing new, nothing fitted


def test_training_is_bounded():
    f, rows = some_rows(109)
    model = GBDTModel(MACHINE, boosting=Boosting(trees=5, depth=3, max_programs=40))
    seconds = pretended(f, rows)
    model.update(f, rows, seconds)
    chosen = model._chosen()
    fastest = np.argsort(model.data.seconds, kind="stable")[:20]
    assert len(chosen) == len(set(chosen.tolist())) == 40 and set(fastest.tolist()) <= set(chosen.tolist())
    assert np.isfinite(model.score(f, rows)).all()


def test_a_seed_decides():
    f, rows = some_rows(60)
    first, again, other = (GBDTModel(MACHINE, seed, QUICK) for seed in (0, 0, 1))
    for model in (first, again, other):
        model.update(f, rows, pretended(f, rows))
    assert (first.score(f, rows) == again.score(f, rows)).all() and (first.score(f, rows) != other.score(f, rows)).any()


def test_a_model_is_as_readable_as_the_user_lets_files_be(tmp_path):
    before = os.umask(0o077)
    try:
        GBDTModel(MACHINE).save(tmp_path / "model.npz")
    finally:
        os.umask(before)
    assert (tmp_path / "model.npz").stat().st_mode & 0o777 == 0o600


def test_what_was_learned_can_be_kept(tmp_path):
    f, rows = some_rows(60)
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, pretended(f, rows))
    scores = model.score(f, rows)
    model.save(tmp_path / "model.npz")
    kept = GBDTModel.load(tmp_path / "model.npz", MACHINE, boosting=QUICK)
    assert kept.programs == 60 and (kept.score(f, rows) == scores).all()
    deeper = GBDTModel.load(tmp_path / "model.npz", MACHINE, boosting=Boosting(trees=5, depth=2))
    assert np.isfinite(deeper.score(f, rows)).all() and deeper.forest.depth == 2  # other options: trained anew
    kept.update(f, rows[:1], np.array([1.0]))
    assert kept.programs == 61


def test_what_was_kept_stays_until_the_new_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    path.write_text("old")
    monkeypatch.setattr(np, "savez_compressed", lambda file, **_: file.write(b"half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        GBDTModel(MACHINE).save(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_of_another_version_is_refused(tmp_path):
    model = GBDTModel(MACHINE)
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as data:
        content = dict(data)
    content["names"] = content["names"][:-1]
    np.savez(tmp_path / "old.npz", **content)
    with pytest.raises(ValueError, match=r"old.npz holds a model over other features than this version has; train it anew from"):
        GBDTModel.load(tmp_path / "old.npz", MACHINE)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The arrays of a model that learned."""
    f, rows = some_rows(30)
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, pretended(f, rows))
    model.score(f, rows)
    path = tmp_path_factory.mktemp("model") / "model.npz"
    model.save(path)
    with np.load(path) as data:
        return dict(data)


@pytest.mark.parametrize(("name", "change", "reason"), [
    ("features", lambda a: a + len(NAMES), r"`features` has numbers outside of 0..\d+"),
    ("features", lambda a: -1 - a, "`features` has numbers outside of 0"),
    ("program", lambda a: a + 1, "`program` has numbers outside of 0..29"),
    ("task", lambda a: a + 7, "`task` has numbers outside of 0..0"),
    ("matrix", lambda a: a[:, :-1], "`matrix` has the shape .* which does not fit the others"),
    ("matrix", lambda a: np.full_like(a, np.nan), "`matrix` has elements that are no numbers"),
    ("thresholds", lambda a: a.astype(float), "`thresholds` is float64 of shape"),
    ("values", lambda a: a[:, 1:], "trees of 15 leaves and 15 inner nodes"),
    ("seconds", lambda a: -a, "times or counts that are not positive"),
    ("tasks", lambda a: a.astype(object), "Object arrays cannot be loaded"),
])  # fmt: skip
def test_a_file_that_was_changed_is_refused(content, name, change, reason, tmp_path):
    np.savez(tmp_path / "changed.npz", **(content | {name: change(content[name])}))
    with pytest.raises(ValueError, match=f"changed.npz is no model that GBDTModel.save wrote, or is damaged: {reason}"):
        GBDTModel.load(tmp_path / "changed.npz", MACHINE)


def test_what_is_no_model_is_refused(content, tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(FileNotFoundError, match=r"model .*model.npz does not exist; GBDTModel.save writes one"):
        GBDTModel.load(path, MACHINE)
    np.savez(path, **content)
    whole = path.read_bytes()
    for damaged in (b"", b"no archive", whole[: len(whole) // 2], whole[:400] + bytes(64) + whole[464:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model.npz is no model that GBDTModel.save wrote, or is damaged: "):
            GBDTModel.load(path, MACHINE)
    np.savez(path, **(content | {"is_gpu": np.array(True)}))
    with pytest.raises(ValueError, match=r"model.npz holds a model for a GPU, which says nothing of a processor"):
        GBDTModel.load(path, MACHINE)


def test_other_tasks_give_a_start():
    """Taught by one shape, it ranks another, of which it was told nothing."""
    f, rows = some_rows(150)
    g, others = some_rows(60, seed=1, shape=(37, 64, 200))
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, pretended(f, rows))
    assert f.task != g.task and pair_accuracy(model.score(g, others), pretended(g, others)) > 0.75


def test_rows_without_a_program_come_last():
    f, rows = some_rows(60)
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows, pretended(f, rows))

    def all_but_some(asked):
        for members, program in f.programs(asked):
            yield members[asked[members, 0] != asked[0, 0]], program

    holes = SketchPrograms(f.name, f.columns, f.nests, f.task, all_but_some)
    left_out = rows[:, 0] == rows[0, 0]
    assert 0 < left_out.sum() < len(rows)
    assert (np.isfinite(model.score(holes, rows)) == ~left_out).all()
    model.update(holes, rows, np.ones(60))
    assert model.programs == 60 + (~left_out).sum()


def test_no_rows():
    f, rows = some_rows(60)
    model = GBDTModel(MACHINE, boosting=QUICK)
    model.update(f, rows[:0], np.empty(0))
    assert model.score(f, rows[:0]).shape == (0,)
    model.update(f, rows, pretended(f, rows))
    assert model.score(f, rows[:0]).shape == (0,)
