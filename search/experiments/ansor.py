"""Ansor as published: Zheng et al., OSDI 2020, sections 4.2 and 5, with the constants of the released code.

Details that the paper lacks follow the last release or, as the share of crossover, the paper's artifact. A round has 64
candidates there; the tuning loop has rounds of its own size, and the random warm-up is as long in rounds.

    - The space is that of Ansor's rules: SSRSRS tiles that divide, at most 64 innermost. Sketches are drawn uniformly.
    - The first population is sampled, with the best measured rows as at most a fifth. In four generations parents are drawn in
      proportion to their scores, and have a mutant with the probability 0.85, by fixed probabilities of the mutations. A child in
      twenty has two parents, by nodes. Only the best rows of a generation survive, on a heap.
    - The model is fitted anew to everything after each round, with the weighted squared error of throughputs summed over the
      statements of a program. Before the warm-up has passed, scores are random.
    - A share of 0.05 of a batch, epsilon, is random rows of the first population.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from codegen.target import Target
from costmodel import Boosting, CostModel, GBDTModel, ThroughputSum

from ..policy.rows import Point, Populations, RowPolicy, points_of
from ..population.mutate import crossover, mutants_of, mutations
from ..space.sketch import Sketch

POPULATION = 2048
GENERATIONS = 4
MUTATION_PROBABILITY = 0.85  # probability of a mutant, not a copy, among children of one parent
CROSSOVER_SHARE = 0.05  # share of a generation with two parents
MAX_REUSED_SHARE = 0.2  # largest share of measured rows in the first population
EPSILON = 0.05  # share of a batch that is random
WARM_UP = 25  # programs before the model scores: 100 of rounds of 64

# Probabilities of the mutations, by their names in `population.mutate`: tile sizes, unrolling, locations, parallel loops.
PROBABILITIES = {"move": 0.90, "pragma": 0.04, "compute location": 0.05, "parallel": 0.01}

Scorer = Callable[[int, np.ndarray], np.ndarray]  # scores of rows of a sketch, by its number


def pack_sum(target: Target) -> CostModel:
    """The cost model of the paper: boosted trees with the weighted squared error of sums of throughputs, grown for each batch."""
    grown = Boosting(trees=50, depth=10, rate=0.2, leaf=1, share=1.0, sample=1.0, weight=0.0, growth=0.0, min_programs=WARM_UP)
    return GBDTModel(target.machine, boosting=replace(grown, loss=ThroughputSum()))


class Ansor(RowPolicy):
    """The evolutionary search of the paper, with `population` rows in each generation, and random scores during the warm-up."""

    probabilities: Mapping[str, float] = PROBABILITIES

    def __init__(self, sketches: Sequence[Sketch], target: Target, *args: object, population: int = POPULATION, **parts: object):
        super().__init__(sketches, target, *args, **parts)  # type: ignore[arg-type]
        self.population = population
        self._mutations = {name: replace(mutations()[name], probability=p) for name, p in self.probabilities.items()}

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        rows = self.first_population(rng)
        first = points_of(rows)
        warm = len(self.measured) >= WARM_UP
        found = self.evolved(rows, self.scores if warm else lambda k, own: rng.random(len(own)), rng)
        return self.with_random(self.by_score(found), first, n, rng)

    # --- shared with the policies that have another model ---

    def first_population(self, rng: np.random.Generator) -> Populations:
        """Random rows, of sketches drawn uniformly."""
        owner = rng.integers(len(self.sketches), size=self.population)
        return {k: self.sampled(k, int(np.sum(owner == k)), rng) for k in np.unique(owner).tolist()}

    def evolved(self, rows: Populations, score: Scorer, rng: np.random.Generator) -> dict[Point, float]:
        """The unmeasured rows of all generations, with their scores: of `rows`, the best measured ones, and their descendants."""
        for k, row in self.best(round(MAX_REUSED_SHARE * self.population)):
            rows[k] = self.sketches[k].matrix([*rows.get(k, ()), row])
        heap: dict[Point, float] = {}
        for generation in range(GENERATIONS + 1):
            scores = {k: score(k, own) for k, own in rows.items()}
            found = zip(points_of(rows), np.concatenate([*scores.values()]).tolist(), strict=True)
            heap |= {p: s for p, s in found if self.is_new(p)}
            if generation < GENERATIONS:
                rows = self._next(rows, scores, rng)
        return heap

    def with_random(self, best: list[Point], first: Sequence[Point], n: int, rng: np.random.Generator) -> list[Point]:
        """The best points, with a share EPSILON of random ones of the first population among the first `n`."""
        random = round(EPSILON * n)
        blind = [first[k] for k in rng.permutation(len(first))[: 3 * random]]
        return [*best[: n - random], *blind, *best[n - random :]]

    def _next(self, rows: Populations, scores: Populations, rng: np.random.Generator) -> Populations:
        """The next generation."""
        speed = {k: np.maximum(s, 0.0) for k, s in scores.items()}
        share = np.array([s.sum() for s in speed.values()])
        share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
        children: dict[int, np.ndarray] = {}
        for (k, own), count in zip(rows.items(), rng.multinomial(self.population, share), strict=True):
            weights = speed[k] / speed[k].sum() if speed[k].sum() > 0 else None
            drawn = own[rng.choice(len(own), size=count, p=weights)]
            others = own[rng.choice(len(own), size=count, p=weights)]
            kind = rng.random(count)
            changed_share = CROSSOVER_SHARE + MUTATION_PROBABILITY * (1 - CROSSOVER_SHARE)
            crossed, mutated = kind < CROSSOVER_SHARE, (kind >= CROSSOVER_SHARE) & (kind < changed_share)
            drawn[crossed] = crossover(self.sketches[k], self.target, drawn[crossed], others[crossed], rng)
            drawn[mutated], _ = mutants_of(self.sketches[k], self.target, drawn[mutated], self._mutations, rng)
            if count:
                children[k] = np.unique(drawn, axis=0)
        return children
