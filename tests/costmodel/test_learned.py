"""A learned model is a data set and a regressor: other regressors than boosted trees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

import tir
from costmodel import Boosting, GBDTModel, RegressorModel, ThroughputSum, TileModel
from costmodel.metrics import pair_accuracy
from search.measure import Measurement
from search.policy.named import make_policy
from search.task import Task
from tests.costmodel.test_gbdt import MACHINE, pretended, some_rows
from tests.programs import matmul

REGRESSORS = {
    "ridge": lambda: Ridge(alpha=10.0),
    "random forest": lambda: RandomForestRegressor(20, min_samples_leaf=3, random_state=0),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_any_regressor_learns(name):
    f, rows = some_rows(150)
    _, others = some_rows(80, seed=1)
    truth = pretended(f, others)
    model = RegressorModel(MACHINE, REGRESSORS[name]())
    assert (model.score(f, others) == TileModel(MACHINE).score(f, others)).all()  # too little to learn from
    model.update(f, rows, pretended(f, rows))
    assert pair_accuracy(model.score(f, others), truth) > 0.75 > 0.65 > pair_accuracy(TileModel(MACHINE).score(f, others), truth)


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_search_asks_any_regressor(name):
    fitted = []

    class Counted(type(REGRESSORS[name]())):
        def fit(self, X, y, sample_weight=None):
            fitted.append(X.shape)
            return super().fit(X, y, sample_weight)

    regressor = Counted(**REGRESSORS[name]().get_params())
    func = matmul(40, 13, 109)
    found = make_policy(
        Task.of(func, "llvm -num-cores 1"), model=RegressorModel(MACHINE, regressor, min_programs=4), space="ansor"
    )
    rng = np.random.default_rng(0)
    for _ in range(2):
        found.update([Measurement(c, "ok", (1.0 + sum(c.row),)) for c in found.propose(8, rng)])
    assert len(found.propose(8, rng)) == 8 and len(fitted) == 2 and fitted[0][0] >= 8


def test_autotune_takes_it():
    model = RegressorModel(MACHINE, Ridge(), min_programs=2)
    result = tir.autotune(matmul(7, 13, 40), "llvm -num-cores 1", trials=20, model=model)
    assert 4 <= model.programs <= len(result.measurements) and hasattr(model.regressor, "coef_")


def test_trees_learn_with_the_loss_of_the_paper():
    f, rows = some_rows(150)
    _, others = some_rows(80, seed=1)
    options = Boosting(trees=40, depth=4, rate=0.2, share=0.5, loss=ThroughputSum())
    model = GBDTModel(MACHINE, boosting=options)
    seconds = pretended(f, rows)
    model.update(f, rows, seconds)
    assert pair_accuracy(model.score(f, others), pretended(f, others)) > 0.8
    fastest = np.argsort(seconds, kind="stable")[:20]
    assert model.score(f, rows[fastest]) == pytest.approx(seconds.min() / seconds[fastest], abs=0.2)  # sums of throughputs


def test_trees_of_another_loss_are_not_kept(tmp_path):
    f, rows = some_rows(60)
    options = Boosting(trees=10, depth=3, loss=ThroughputSum())
    model = GBDTModel(MACHINE, boosting=options)
    model.update(f, rows, pretended(f, rows))
    scores = model.score(f, rows)
    model.save(tmp_path / "model.npz")
    again = GBDTModel.load(tmp_path / "model.npz", MACHINE, boosting=options)
    other = GBDTModel.load(tmp_path / "model.npz", MACHINE, boosting=Boosting(trees=10, depth=3))
    assert (again.score(f, rows) == scores).all() and len(other.forest) == 0
    assert other.score(f, rows).max() < 0 < scores.min()  # logarithms of nanoseconds, and throughputs
