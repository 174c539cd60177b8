"""What cost models are worth, on recorded candidates."""

from __future__ import annotations

import numpy as np

from benchmarks import worth
from costmodel.dataset import Dataset
from tests.search.policy.oracle import SAMPLE


def test_models_choose_among_recorded_candidates(tmp_path, monkeypatch, capsys):
    data = Dataset.load(SAMPLE)
    files = [str(tmp_path / f"{n}.npz") for n in range(2)]
    for n, file in enumerate(files):
        data.subset(np.flatnonzero(data.task == n)).save(file)
    monkeypatch.setattr(worth, "MIN_POOL", 20)
    monkeypatch.setattr(worth, "TRIALS", 16)
    monkeypatch.setattr(worth, "SEEDS", 1)
    kept = ("formula", "shipped + trees", "oracle")
    monkeypatch.setattr(worth, "MODELS", {name: worth.MODELS[name] for name in kept})
    worth.main(files)
    tasks, heading, *lines = capsys.readouterr().out.splitlines()
    assert tasks == "2 tasks" and heading.split() == ["model", "first", "batch", "least", "best", "of", "16", "area"]
    figures = {" ".join(words[:-5]): [float(x) for x in words[-5:]] for words in map(str.split, lines)}
    assert tuple(figures) == kept and figures["oracle"] == [1.0] * 5
    assert all(0 < low <= 1 for found in figures.values() for low in found)
