"""TrustedModels: how far a model is trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel import RandomModel, SketchPrograms
from search.policy.ranking import DECAY, MIN_TRUST, PRIOR_PAIRS, TrustedModel, ordered_pairs, score_rows
from tests.programs import matmul
from tests.search.policy.schedule_programs import schedule_programs

SCORES = np.array([4.0, 3.0, 2.0, 1.0])
SECONDS = np.array([1.0, 2.0, 3.0, np.inf])


def trusted(right: float = 1.0, wrong: float = 1.0) -> TrustedModel:
    return TrustedModel(RandomModel(np.random.default_rng(0)), right, wrong)


def test_trust_is_earned():
    j = trusted()
    assert j.trust == MIN_TRUST**2
    j.review([(SCORES, SECONDS)])
    assert (j.right, j.wrong) == (DECAY + 6, DECAY)
    before = j.trust
    j.review([(-SCORES, SECONDS)])
    assert j.trust < before
    for _ in range(20):
        j.review([(-SCORES, SECONDS)])
    assert j.trust == MIN_TRUST**2


class Says:
    """A model that says what it is told to."""

    def __init__(self, said):
        self.said = said

    def score(self, sketch, rows):
        return self.said

    def update(self, sketch, rows, seconds):
        pass


def test_what_a_model_says_is_a_number_for_each_row():
    rows = np.ones((3, 2), dtype=np.int64)
    sketch = SketchPrograms("s", 2)
    scores, lowered = score_rows(Says([1, np.nan, -np.inf]), sketch, rows)
    assert scores.tolist() == [1.0, -np.inf, -np.inf] and lowered == 0
    for said, got in (
        ([1.0, 2.0], r"float64 of the shape \(2,\)"),
        (np.ones((3, 1)), r"float64 of the shape \(3, 1\)"),
        (None, r"object of the shape \(\)"),
    ):
        with pytest.raises(TypeError, match=f"^a model scores 3 rows as 3 numbers; got {got}$"):
            score_rows(Says(said), sketch, rows)


class Counts:
    """A model of one's own that scores a row by the number of statements of its program."""

    def score(self, sketch, rows):
        found = np.zeros(len(rows))
        for members, program in sketch.programs(rows):
            found[members] = len(program.statements)
        return found

    def update(self, sketch, rows, seconds):
        pass


def test_whatever_model_asks_for_programs_lowers_rows():
    func, rows = matmul(), np.zeros((3, 1), dtype=np.int64)
    sketch = schedule_programs(func, [func])
    assert score_rows(Counts(), sketch, rows)[1] == 3
    formula = Says([7.0, 7.0, 7.0])
    few = replace(sketch, max_concrete=2)
    scores, lowered = score_rows(Counts(), few, rows, formula)
    assert scores.tolist() == formula.said and lowered == 0
    scores, lowered = score_rows(Counts(), few, rows[:2], formula)
    assert scores[0] == scores[1] < 7.0 and lowered == 2


def test_what_is_not_to_be_tried_is_ordered_too():
    j = trusted()
    with np.errstate(all="raise"):
        j.review([(np.array([1.0, -np.inf, -np.inf]), SECONDS[:3])])
    assert (j.right, j.wrong) == (DECAY + 2, DECAY)


def test_equal_times_say_nothing():
    j = trusted()
    j.review([(SCORES, np.array([1.0, 1.01, np.inf, np.inf])), (SCORES[:1], SECONDS[:1])])
    assert (j.right, j.wrong) == (DECAY + 4, DECAY)


@pytest.mark.parametrize(("scores", "right"), [(SCORES, 1.0), (-SCORES, 0.0), (np.array([4.0, 3.0, 1.0, 2.0]), 5 / 6)])
def test_another_task_says_how_far_it_is_trusted_at_first(scores, right):
    j = trusted()
    j.begin(*ordered_pairs([(scores, SECONDS)]))
    assert (j.right, j.wrong) == pytest.approx((PRIOR_PAIRS * right, PRIOR_PAIRS * (1 - right)))
    constant = trusted(6, 2)
    constant.begin(*ordered_pairs([(np.zeros(4), SECONDS)]))  # has no opinion: as before
    assert (constant.right, constant.wrong) == (6, 2)
