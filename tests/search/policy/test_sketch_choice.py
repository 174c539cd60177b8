"""Ways to choose the sketch of the next trial, and predicted credit."""

from __future__ import annotations

import numpy as np
import pytest

from search.policy.bandit import MAX_FAILURES
from search.policy.credit import MIN_LIKELY, PredictedCredit
from search.policy.named import make_policy, shared_models
from search.policy.sketch_choice import BANDITS, FEATURES, Discounted, PolicyGradient
from search.task import Task
from tests.programs import matmul
from tests.search.once import generate
from tests.search.policy.oracle import TARGET

SKETCHES = generate(matmul(7, 13, 109), TARGET, space="ansor")


@pytest.mark.parametrize("name", [name for name in BANDITS if name != "uniform"])
def test_the_faster_sketch_gets_more_trials_and_one_that_fails_none(name):
    bandit = BANDITS[name](3)
    bandit.meet(SKETCHES[:3])
    for _ in range(MAX_FAILURES):
        bandit.update(2, np.inf)
    for _ in range(10):
        bandit.update(0, 1.0)
        bandit.update(1, 4.0)
    shares = bandit.shares(40, np.zeros(3, dtype=np.int64), np.random.default_rng(0))
    assert shares.sum() == 40 and shares[0] > shares[1] and shares[2] == 0


@pytest.mark.parametrize("name", ["thompson", "gradient"])
def test_draws_are_those_of_the_search(name):
    bandit = BANDITS[name](len(SKETCHES))
    bandit.meet(SKETCHES)
    orders = [bandit.order(np.zeros(len(SKETCHES)), np.random.default_rng(seed)).tolist() for seed in (*range(8), 0)]
    assert orders[0] == orders[-1] and len({*map(tuple, orders)}) > 1


def test_discounted_trials_are_forgotten():
    """After trials of others only, the bound of a slower sketch has grown."""
    bandit = Discounted(2)
    for _ in range(5):
        bandit.update(1, 1.2)
    before = bandit.bonus(bandit._recent)[1]
    for _ in range(60):
        bandit.update(0, 1.0)
    assert bandit.bonus(bandit._recent)[1] > before


def test_preferences_carry_over_to_the_next_task():
    """What one bandit learned of sketches, another one begins with."""
    shared = np.zeros(FEATURES)
    first = PolicyGradient(len(SKETCHES), shared)
    first.meet(SKETCHES)
    for _ in range(30):
        for k in range(len(SKETCHES)):
            first.update(k, 1.0 if k == 1 else 3.0)
    new, blank = PolicyGradient(len(SKETCHES), shared), PolicyGradient(len(SKETCHES))
    for bandit in (new, blank):
        bandit.meet(SKETCHES)
    assert new.probabilities()[1] > blank.probabilities()[1]
    assert np.isclose(new.probabilities().sum(), 1.0)


def test_the_tasks_that_share_a_model_share_preferences():
    shared = shared_models("tile", TARGET)
    tasks = [Task.of(matmul(7, 13, n), TARGET) for n in (109, 37)]
    one, other, alone = (
        make_policy(task, model=model, bandit="gradient")._bandit.preferences
        for task, model in zip((*tasks, tasks[0]), (shared, shared, "tile"), strict=True)
    )
    assert one is other is not alone


def test_predicted_credit_knows_where_a_mutation_pays():
    """`grow` pays for small rows only: it is picked for these, and seldom for large ones."""
    credit, rng = PredictedCredit({"grow": 1.0, "other": 1.0}), np.random.default_rng(0)
    small, large = np.full((40, 2), 1), np.full((40, 2), 256)
    for _ in range(30):
        credit.learn(SKETCHES[0], "grow", np.concatenate([small, large]), np.arange(80) < 40)
        credit.learn(SKETCHES[0], "other", np.concatenate([small, large]), np.arange(80) % 2 == 0)
    names = ["grow", "other"]
    share = [np.mean(credit.pick(SKETCHES[0], names, np.repeat(rows, 10, axis=0), rng) == 0) for rows in (small, large)]
    assert share[0] > 0.55 and 0 < share[1] < 0.35 and 0 < MIN_LIKELY < 0.1
