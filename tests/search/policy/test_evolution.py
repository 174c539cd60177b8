"""The evolutionary search: what it proposes, what it learns from, and that a seed decides both."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.target import Target
from costmodel import Boosting, GBDTModel, RandomModel, TileModel
from schedule import Trace, replay
from search.measure import Candidate, Measurement
from search.policy.evolution import LEEWAY, MAX_FAILURES, Evolution, Settings
from search.policy.named import make_policy
from search.policy.random_search import RandomSearch
from search.policy.ranking import TrustedModel
from search.population.mutate import Mutation
from search.population.sample import legalize, sample
from search.task import Task
from tests.programs import matmul, total
from tests.search.once import generate
from tir import workloads

ROOT = Path(__file__).parents[3]
TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)


class Likes:
    """A model that prefers rows close to `wanted`, in doublings, and remembers what it is told."""

    def __init__(self, *wanted):
        self.wanted, self.told, self.devices, self.judged = np.log2(wanted), [], [], 0

    def score(self, sketch, rows):
        self.judged += len(rows)
        width = min(len(self.wanted), rows.shape[1])
        return -np.abs(np.log2(np.maximum(rows[:, :width], 1)) - self.wanted[:width]).sum(axis=1)

    def update(self, sketch, rows, seconds):
        self.told.append((rows.tolist(), seconds.tolist()))
        self.devices.append(sketch.device)


def evolution(func=None, model=None, prior=None, **settings) -> Evolution:
    return Evolution(generate(func or matmul(40, 13, 109), TWO), TWO, model, prior, Settings(**settings))


def measured(candidate, seconds=1.0, outcome="ok") -> Measurement:
    return Measurement(candidate, outcome, (seconds,))


@pytest.mark.parametrize("model", [Likes(2, 4), None], ids=["model", "none"])
def test_candidates_are_new_and_legal(model):
    search, rng = evolution(model=model), np.random.default_rng(0)
    seen = set()
    for _ in range(4):
        batch = search.propose(16, rng)
        assert len(batch) == 16 == len({(c.sketch, c.row) for c in batch})
        assert not seen & {(c.sketch, c.row) for c in batch}
        seen |= {(c.sketch, c.row) for c in batch}
        search.update([measured(c, 1.0 + sum(c.row)) for c in batch])
    for c in batch[:4]:
        replay(matmul(40, 13, 109), Trace.from_json(c.trace))


def test_a_model_is_told_which_device_measured():
    """Measurements of another device do not count as accuracy of the model on the primary one."""
    model = Likes(2, 4)
    search = evolution(model=model)
    here, there = search.propose(8, np.random.default_rng(0)), search.propose(8, np.random.default_rng(1))
    (trusted,), before = search._models, search._models[0].right
    search.update([replace(measured(c, 1.0 + n), elsewhere="other") for n, c in enumerate(there)])
    assert trusted.right == before and set(model.devices) == {"other"}
    search.update([measured(c, 1.0 + n) for n, c in enumerate(here)])
    assert trusted.right != before and set(model.devices) == {"other", ""}
    assert sum(search.shares.values()) == 16


def origins(origin):
    """An origin and those of its parents, up to what was measured."""
    yield origin
    for parent in origin.parents:
        if parent.origin is not None:
            yield from origins(parent.origin)


def roots(origin) -> set[tuple[int, ...]]:
    """The measured rows that an origin goes back to."""
    return {row for p in origin.parents for row in ([p.row] if p.origin is None else roots(p.origin))}


def test_candidates_know_where_they_come_from():
    search, rng = evolution(model=Likes(2, 4), population=64, generations=3), np.random.default_rng(0)
    known: dict[str, set] = {}
    operators = {*search._mutations, "sample", "neighbour"}
    for batch in (1, 2, 3):
        proposed = search.propose(16, rng)
        for c in proposed:
            assert {o.batch for o in origins(c.origin)} == {batch}
            assert {o.operator for o in origins(c.origin)} <= operators
            assert all(o.generation > p.origin.generation for o in origins(c.origin) for p in o.parents if p.origin)
            assert all((o.operator == "sample") == (not o.parents) for o in origins(c.origin))
            assert roots(c.origin) <= known.get(c.sketch, set())  # a chain ends at what was measured, or was sampled
            assert c.score is None or c.scores == {"Likes": c.score}
        assert batch == 1 or any(roots(c.origin) for c in proposed)
        for c in proposed:
            known.setdefault(c.sketch, set()).add(c.row)
        search.update([measured(c, 1.0 + sum(c.row)) for c in proposed])
    assert {g.number for g in search.generations} == {0, 1, 2} and {g.batch for g in search.generations} == {1, 2, 3}


def test_scores_are_named_by_who_gave_them():
    """A learning model lends its voice to a formula until it has learned; then both are known."""
    model, rng = GBDTModel(TWO.machine, boosting=Boosting(min_programs=8, trees=2)), np.random.default_rng(0)
    sketches = generate(matmul(40, 13, 109), TWO, space="limited")
    search = Evolution(sketches, TWO, model, TileModel(TWO.machine), Settings(population=16, generations=1))
    first = search.propose(8, rng)
    assert {tuple(c.scores) for c in first if c.scores} == {("formula",)}
    search.update([measured(c, 1.0 + n) for n, c in enumerate(first)])
    later = [c for c in search.propose(8, rng) if c.scores]
    assert later and {tuple(c.scores) for c in later} == {("trees", "formula")}
    assert all(c.score == c.scores["trees"] for c in later)


def test_a_small_space_is_exhausted():
    search, rng = evolution(total()), np.random.default_rng(0)
    found = []
    while batch := search.propose(16, rng):
        found += [(c.sketch, c.row) for c in batch]
    space = {(s.name, ()) for s in search.sketches if not s.columns}
    assert len(found) == len(set(found)) >= len(search.sketches) and space <= set(found)


def test_generations_find_what_the_model_wants():
    """No row of the first generation is what the model likes best; that of the last is, or is as good."""
    wanted = (1, 2, 6, 3, 16, 4, 2)
    func = workloads.make("gmm", (113, 109, 127)).func
    missed, found = (
        max(
            c.score
            for c in evolution(func, Likes(*wanted), generations=n).propose(8, np.random.default_rng(0))
            if c.score is not None
        )
        for n in (0, 6)
    )
    assert missed < found


def test_a_model_is_not_asked_for_blind_candidates():
    batch = evolution(model=Likes(2, 4), blind=0.25).propose(16, np.random.default_rng(0))
    assert [c.score is None for c in batch] == [False] * 12 + [True] * 4
    batch = evolution(model=Likes(2, 4), blind=0.01).propose(16, np.random.default_rng(0))
    assert sum(c.score is None for c in batch) == 1  # a share never comes to nothing


def test_batches_are_diverse():
    """All but the blind candidates of one sketch are about a doubling apart, although their neighbours score higher."""
    search = evolution(model=Likes(2, 4, 4, 1, 16, 16, 8))
    batch = search.propose(12, np.random.default_rng(0))
    for sketch in search.sketches:
        choices = [c.column for c in sketch.choices]
        rows = np.array([c.row for c in batch[:11] if c.sketch == sketch.name], dtype=float)
        if len(rows) > 1:
            places = np.log2(np.maximum(rows, 1))
            places[:, choices] = rows[:, choices]
            apart = np.abs(places[:, None] - places[None]).sum(axis=2) + 10 * np.eye(len(rows))
            assert apart.min() >= Settings().distance


def test_children_of_the_best_are_proposed():
    search, rng = evolution(model=RandomModel(np.random.default_rng(1)), blind=0.0), np.random.default_rng(0)
    first = search.propose(16, rng)
    best = first[3]
    search.update([measured(c, 1.0 if c is best else 9.0) for c in first])
    sketch = next(s for s in search.sketches if s.name == best.sketch)
    tiles = [list(t.columns) for t in sketch.tiles]

    def axes(row):
        return sum(any(row[c] != best.row[c] for c in columns) for columns in tiles)

    near = [c for c in search.propose(16, rng) if c.sketch == best.sketch]
    assert len(near) >= 8 and sum(axes(c.row) <= 2 for c in near) >= 4


def test_failures_teach_the_models_but_have_no_children():
    model, prior = Likes(2, 4), Likes(4, 2)
    search, rng = evolution(model=model, prior=prior), np.random.default_rng(0)
    batch = search.propose(4, rng)
    search.update([measured(c, 1.0, "ok" if n == 1 else "wrong_result") for n, c in enumerate(batch)])
    for m in (model, prior):
        told = [(tuple(row), s) for rows, seconds in m.told for row, s in zip(rows, seconds, strict=True)]
        assert sorted(told) == sorted((c.row, 1.0 if n == 1 else float("inf")) for n, c in enumerate(batch))
    parents = [island.best(12).tolist() for island in search._islands]
    assert [row for rows in parents for row in rows] == [list(batch[1].row)]


def test_measurements_of_other_sketches_are_passed_over():
    model = Likes(2, 4)
    search = evolution(model=model)
    search.update([measured(Candidate("default", (), [])), measured(Candidate("sketch 0", (1, 2), []))])
    assert model.told == [] and sum(search.shares.values()) == 0


def test_what_was_told_before_the_first_proposal_is_not_proposed():
    """A resumed run: nothing of the first is measured again."""
    first = evolution(model=TileModel(TWO.machine)).propose(16, np.random.default_rng(0))
    search = evolution(model=TileModel(TWO.machine))
    search.update([measured(c, 1.0) for c in first])
    again = search.propose(16, np.random.default_rng(0))
    assert not {(c.sketch, c.row) for c in first} & {(c.sketch, c.row) for c in again}


def test_a_display_is_told():
    search, rng = evolution(model=Likes(2, 4.1, 3.3, 2.7, 17, 4.9, 2.2), generations=1), np.random.default_rng(0)
    assert search.scored_per_second is None
    batch = search.propose(16, rng)
    search.update([measured(c) for c in batch])
    assert search.scored["symbolic"] > 0 == search.scored["concrete"] and search.scored_per_second > 0
    assert sum(search.shares.values()) == 16


def test_a_search_needs_sketches():
    with pytest.raises(ValueError, match=r"^sketches is empty: a policy needs at least one sketch$"):
        Evolution([], TWO)


# --- parts that can be replaced -------------------------------------------------------------------------------------------


def test_mutations_of_ones_own():
    """A table with one operator: it makes all mutants."""
    asked = []

    def halve(sketch, target, rows, rng):
        asked.append(len(rows))
        return legalize(sketch, target, np.maximum(1, rows // 2))

    table = {"halve": Mutation(halve, lambda sketch: True)}
    search = Evolution(generate(matmul(40, 13, 109), TWO), TWO, Likes(1, 1, 1, 1, 1), mutations=table)
    search.propose(16, np.random.default_rng(0))
    assert sum(asked) > 100


def test_a_candidate_of_the_start_is_proposed_once():
    sketch = generate(matmul(40, 13, 109), TWO, space="ansor")[0]
    first, second = sample(sketch, TWO, 2, np.random.default_rng(0))
    search = Evolution([sketch], TWO, start=[(sketch, first), (sketch, first), (sketch, second)])
    assert [c.row for n in (1, 2, 3) for c in search.begin(n)] == [tuple(first), tuple(second)]
    search = Evolution([sketch], TWO, start=[(sketch, first), (sketch, first), (sketch, second)])
    assert [c.row for c in search.begin(2)] == [tuple(first), tuple(second)]


# --- how far models are trusted -------------------------------------------------------------------------------------------


def test_the_model_that_proves_right_is_listened_to():
    right, wrong = TrustedModel(Likes(1), 1, 1), TrustedModel(Likes(1), 6, 2)
    assert wrong.trust > right.trust
    seconds = np.array([1.0, 2.0, 3.0, float("inf")])
    for _ in range(3):
        right.review([(-np.arange(4.0), seconds)])
        wrong.review([(np.arange(4.0), seconds)])
    assert right.trust > 0.5 > 0.01 > wrong.trust > 0


def test_noise_and_ties_count_for_nothing():
    judge = TrustedModel(Likes(1), 1, 1)
    judge.review([(np.array([1.0, 2.0]), np.array([1.0, 1.01])), (np.array([3.0, 3.0]), np.array([1.0, 9.0]))])
    inf = float("inf")
    judge.review([(np.array([1.0, 2.0]), np.array([inf, inf])), (np.zeros(0), np.zeros(0))])
    assert judge.right == judge.wrong > 0


# --- the shares of the sketches -------------------------------------------------------------------------------------------


def shares_after(seconds: dict[str, float], trials: int) -> dict[str, int]:
    """The shares of three sketches whose candidates take so many seconds."""
    search, rng = Evolution(generate(matmul(40, 13, 109), TWO, space="ansor"), TWO, Likes(2, 4)), np.random.default_rng(0)
    while sum(search.shares.values()) < trials:
        batch = search.propose(6, rng)
        search.update([measured(c, seconds[c.sketch], "ok" if seconds[c.sketch] < 9.0 else "crash") for c in batch])
    return search.shares


def test_sketches_get_equal_shares():
    assert set(shares_after({"sketch 0": 1.0, "sketch 1": 1.15, "sketch 2": 1.05}, 36).values()) == {12}


def test_the_slower_a_sketch_the_sooner_it_gets_no_more_trials():
    seconds = {"sketch 0": 1.0, "sketch 1": 2.1, "sketch 2": 1.5}
    shares = shares_after(seconds, 60)
    for name in ("sketch 1", "sketch 2"):
        enough = LEEWAY / (seconds[name] - 1)
        assert enough <= shares[name] <= enough + 3
    assert shares["sketch 1"] < shares["sketch 2"] < shares["sketch 0"]


def test_a_sketch_that_never_works_is_given_up():
    assert MAX_FAILURES <= shares_after({"sketch 0": 1.0, "sketch 1": 1.0, "sketch 2": 9.0}, 60)["sketch 2"] <= MAX_FAILURES + 2


# --- the same for the same seed -------------------------------------------------------------------------------------------


POLICIES = {
    "evolution": lambda: make_policy(Task.of(workloads.make("gmm", (7, 13, 109)).func, TWO)),
    "random": lambda: RandomSearch(generate(workloads.make("mlp", (7, 13, 109, 5)).func, TWO), TWO),
}


def proposals(policy: str) -> list[list[tuple[str, tuple[int, ...]]]]:
    search, rng = POLICIES[policy](), np.random.default_rng(3)
    found = []
    for _ in range(3):
        batch = search.propose(16, rng)
        found.append([(c.sketch, c.row) for c in batch])
        search.update([measured(c, 1.0 + sum(c.row)) for c in batch])
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_decides_the_candidates_in_every_process(policy):
    """Sets and dicts have other orders in each, by which nothing may go."""
    found = proposals(policy)
    code = f"from {__name__} import proposals; print(proposals({policy!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{found}\n" and [len(batch) for batch in found] == [16, 16, 16]
