"""How often mutations are applied."""

from __future__ import annotations

import numpy as np
import pytest

from search.policy.credit import AdaptiveCredit, FixedCredit

TABLE = {"move": 0.6, "scale": 0.3, "choose": 0.1}


def test_fixed_probabilities_stay():
    credit = FixedCredit(TABLE)
    credit.reward("scale", 9, 10)
    assert credit.weights(["move", "scale"]).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_what_makes_better_children_is_applied_more_often():
    credit = AdaptiveCredit(TABLE)
    assert credit.weights(list(TABLE)).tolist() == pytest.approx([0.6, 0.3, 0.1])
    for _ in range(5):
        credit.reward("scale", 8, 10)
        credit.reward("move", 1, 10)
    move, scale, choose = credit.weights(list(TABLE))
    assert scale > 0.6 > 0.3 > move and choose > 0 and move + scale + choose == pytest.approx(1.0)
    for _ in range(50):
        credit.reward("choose", 8, 10)
        credit.reward("scale", 8, 10)
        credit.reward("move", 1, 10)
    move, scale, choose = credit.weights(list(TABLE))
    assert choose == pytest.approx(scale, rel=0.05)  # the initial probability no longer matters


def test_the_past_is_forgotten():
    credit = AdaptiveCredit(TABLE)
    credit.reward("move", 10, 10)
    high = credit.weights(list(TABLE))[0]
    for _ in range(100):
        credit.reward("move", 0, 0)
    assert high > credit.weights(list(TABLE))[0] == pytest.approx(0.6, abs=1e-3)


def test_a_mutation_that_never_wins_keeps_a_chance():
    credit = AdaptiveCredit(TABLE)
    for _ in range(1000):
        credit.reward("move", 0, 500)
    assert np.all(credit.weights(list(TABLE)) > 0)
