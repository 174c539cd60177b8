"""Data sets: kept in a file, and read by another version."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import costmodel.dataset
from costmodel.dataset import COLUMNS, FORMULA, Dataset
from costmodel.features import NAMES

SAMPLE = Path(costmodel.dataset.__file__).with_name("sample.npz")


def small() -> Dataset:
    data = Dataset()
    rng = np.random.default_rng(0)
    data.add("one", rng.random((2, 3, FORMULA + 1), dtype=np.float32), np.array([1.0, np.inf, 2.0]))
    data.add("two", rng.random((1, 2, FORMULA + 1), dtype=np.float32), np.array([3.0, 4.0]))
    return data


def test_a_file_gives_the_same_programs(tmp_path):
    data = small()
    data.save(tmp_path / "set.npz")
    again = Dataset.load(tmp_path / "set.npz")
    assert again.tasks == ["one", "two"] and len(again) == 5
    for name in ("matrix", "program", "task", "seconds"):
        assert (getattr(again, name) == getattr(data, name)).all()


def test_features_are_found_by_name(tmp_path):
    """A file of another version has other features in another order: what it lacks is 0, what it has besides is left out."""
    data = small()
    names = np.array([COLUMNS[-1], "not known any more", NAMES[3]])
    matrix = data.matrix[:, [FORMULA, 0, 3]]
    np.savez(
        tmp_path / "old.npz", names=names, matrix=matrix, program=data.program, task=data.task, seconds=data.seconds, tasks=data.tasks
    )  # fmt: skip
    again = Dataset.load(tmp_path / "old.npz")
    assert (again.matrix[:, [3, FORMULA]] == data.matrix[:, [3, FORMULA]]).all() and again.matrix.shape == data.matrix.shape
    assert np.count_nonzero(again.matrix.any(axis=0)) == 2


def test_the_sample_is_one():
    data = Dataset.load(SAMPLE)
    assert len(data) > 500 and len(data.tasks) > 10 and np.isfinite(data.matrix).all() and (data.seconds > 0).all()


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "none.npz"
    with pytest.raises(
        FileNotFoundError, match=f"^data set {re.escape(str(path))} does not exist; python -m benchmarks.dataset --out "
    ):
        Dataset.load(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(ValueError, match=re.escape("is no data set that Dataset.save wrote, or is damaged: ")):
        Dataset.load(path)
    data = small()
    np.savez(
        path, names=np.array(["a"]), matrix=data.matrix, program=data.program, task=data.task, seconds=data.seconds, tasks=data.tasks
    )  # fmt: skip
    with pytest.raises(ValueError, match=re.escape(f"wrote: `matrix` has the shape {data.matrix.shape}")):
        Dataset.load(path)
