"""Random search: what it proposes, what it learns, and that a seed decides both."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import Trace, replay
from schedule.templates.lanes import in_lanes
from search.measure import Measurement
from search.policy.random_search import RandomSearch
from search.space.rules import FunctionRule
from tests.programs import matmul, total
from tests.search.once import generate
from tir import workloads

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
LANES = FunctionRule("lanes", lambda s, b: s.untouched(b), lambda s, b: in_lanes(s, b, s.choose("lanes", (16, 32, 48), block=b)))


def random_search(func=None, model=None) -> RandomSearch:
    return RandomSearch(generate(func or matmul(7, 13, 109), TWO), TWO, model)


def measured(candidate, seconds: float, outcome="ok") -> Measurement:
    return Measurement(candidate, outcome, (seconds,))


def test_candidates_are_new_and_legal():
    search, rng = random_search(), np.random.default_rng(0)
    seen = set()
    for _ in range(5):
        batch = search.propose(16, rng)
        assert len(batch) == 16
        assert not seen & {(c.sketch, c.row) for c in batch}
        seen |= {(c.sketch, c.row) for c in batch}
        search.update([measured(c, 1.0 + sum(c.row)) for c in batch])
    for c in batch:
        replay(matmul(7, 13, 109), Trace.from_json(c.trace))


def test_a_small_space_is_exhausted():
    """By this rule the sum of a vector has three candidates: with one, two or three registers of lanes."""
    search, rng = RandomSearch(generate(total(), TWO, (LANES,)), TWO), np.random.default_rng(0)
    assert {(c.sketch, c.row) for c in search.propose(16, rng)} == {("sketch 0", (n,)) for n in (16, 32, 48)}
    assert search.propose(16, rng) == []


def test_the_first_proposals_are_what_the_model_prefers():
    class Squares:
        """Likes register tiles of 4 rows."""

        def score(self, sketch, rows):
            return -np.abs(rows[:, 2] - 4.0)

        def update(self, sketch, rows, seconds):
            pass

    batch = random_search(matmul(40, 13, 109), Squares()).propose(16, np.random.default_rng(0))
    assert [c.row[2] for c in batch[:12]] == [4] * 12
    assert {c.row[2] for c in batch[12:]} != {4}  # a quarter is picked blindly


def test_without_a_model_any_row_is_as_likely():
    """Of a sketch's register tiles all sizes come up, and all sketches do."""
    search, rng = random_search(matmul(40, 13, 109)), np.random.default_rng(0)
    found = [c for _ in range(12) for c in search.propose(16, rng)]
    assert {c.sketch for c in found} == {s.name for s in search.sketches}
    assert all(c.score is None for c in found) and len({c.row[2] for c in found}) > 5


def test_what_was_measured_before_is_not_proposed():
    search = random_search(total())
    everything = random_search(total()).propose(100, np.random.default_rng(0))
    search.update([measured(c, 1.0) for c in everything[1:]])
    assert [(c.sketch, c.row) for c in search.propose(16, np.random.default_rng(1))] == [
        (everything[0].sketch, everything[0].row)
    ]


def test_failures_teach_the_model():
    class Remembers:
        def __init__(self):
            self.told = []

        def score(self, sketch, rows):
            return np.zeros(len(rows))

        def update(self, sketch, rows, seconds):
            self.told.append((rows.shape, seconds.tolist()))

    model = Remembers()
    search = RandomSearch(generate(total(), TWO, (LANES,)), TWO, model)
    batch = search.propose(4, np.random.default_rng(0))
    search.update([measured(c, 1.0, "ok" if c.row == (32,) else "wrong_result") for c in batch])
    assert sorted(c.row for c in batch) == [(16,), (32,), (48,)]
    assert model.told == [((3, 1), [1.0 if c.row == (32,) else float("inf") for c in batch])]


def test_a_sampler_needs_sketches():
    with pytest.raises(ValueError, match=r"^sketches is empty: a policy needs at least one sketch$"):
        RandomSearch([], TWO)


def test_another_seed_draws_other_candidates():
    func = workloads.make("mlp", (7, 13, 109, 5)).func
    first, second = ([c.row for c in random_search(func).propose(16, np.random.default_rng(seed))] for seed in (0, 1))
    assert first != second
