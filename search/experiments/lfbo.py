"""Likelihood-free Bayesian optimisation (LFBO: Song et al., A General Recipe for Likelihood-free Bayesian Optimization, ICML
2022, section 4; as the autotuner of Helion, 2025, does it by default).

A classifier learns which rows are good: the fastest GOOD of all valid measured ones. A good row weighs by its improvement over
the fastest row that is not good. Each row stands among the bad ones, too, with the weight 1. Then the odds that the classifier
gives a row are its expected improvement (equation 7 of the paper), without a model of times.

The pool of a batch are random rows, and neighbours and mutants of the fastest rows, which Helion calls search copies. Those with
the highest odds are measured. Until FIRST_ROWS were measured, rows are random, or ranked by a model if one is given.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..policy.lineage import coordinates
from ..policy.rows import Point, RowPolicy, points_of
from ..population.mutate import mutants_of, mutations, neighbours

GOOD = 0.25  # share of good rows, at least one row; Helion has 0.1, of some hundred rows
FIRST_ROWS = 8  # valid measured rows before the classifier is asked
SEARCH_COPIES = 5  # fastest rows that others are made from, as in Helion
MUTANTS = 64  # mutants of each search copy
RANDOM_ROWS = 128  # random rows in the pool, of all sketches
RANDOM_SHARE = 0.1  # share of a batch drawn from the pool at random, at least one row
TREES = 64  # trees of the random forest


class LikelihoodFree(RowPolicy):
    """The rows of a pool that a classifier most expects to be good."""

    def __init__(self, *args: object, **parts: object):
        super().__init__(*args, **parts)  # type: ignore[arg-type]
        self._mutations = mutations()
        self._width = max(s.columns for s in self.sketches)

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        drawn = self.drawn(RANDOM_ROWS, rng)
        if len(self.best(FIRST_ROWS)) < FIRST_ROWS:
            return self.ranked(drawn, rng)
        points = list(dict.fromkeys(p for p in self._pool(drawn, rng) if self.is_new(p)))
        points = [points[k] for k in rng.permutation(len(points))]
        best = self.by_score(dict(zip(points, self._odds(points, int(rng.integers(1 << 31))).tolist(), strict=True)))
        random = max(1, round(RANDOM_SHARE * n))
        return [*best[: n - random], *points[:random], *best[n - random :]]

    def _pool(self, drawn: dict[int, np.ndarray], rng: np.random.Generator) -> Iterable[Point]:
        """Random rows, and neighbours and mutants of the fastest rows."""
        yield from points_of(drawn)
        for k, row in self.best(SEARCH_COPIES):
            sketch, own = self.sketches[k], self.sketches[k].matrix([row] * MUTANTS)
            yield from points_of({k: mutants_of(sketch, self.target, own, self._mutations, rng)[0]})
            yield from points_of({k: neighbours(sketch, self.target, own[0])})

    def _odds(self, points: list[Point], seed: int) -> np.ndarray:
        """The odds of each point to be good, by a classifier that has learned all measured points."""
        from sklearn.ensemble import RandomForestClassifier

        if not points:
            return np.zeros(0)
        known = list(self.measured)
        times = np.log(np.array([self.measured[p] for p in known]))
        order = np.argsort(times, kind="stable")[: len(self.best(len(times)))]
        good = order[: max(1, round(GOOD * len(order)))]
        better = times[order[min(len(good), len(order) - 1)]] - times[good] + 1e-9  # in logarithms of seconds
        described = self._described(known)
        x = np.concatenate([described, described[good]])
        y = np.concatenate([np.zeros(len(known)), np.ones(len(good))])
        forest = RandomForestClassifier(TREES, min_samples_leaf=2, random_state=seed)
        forest.fit(x, y, sample_weight=np.concatenate([np.ones(len(known)), better / better.mean()]))
        probability = forest.predict_proba(self._described(points))[:, 1]
        return probability / (1 - probability + 1e-9)

    def _described(self, points: list[Point]) -> np.ndarray:
        """Points as numbers: one-hot sketches, then sizes in doublings and choices, filled up with zeros."""
        result = np.zeros((len(points), len(self.sketches) + self._width))
        for k in {number for number, _ in points}:
            own = [n for n, (number, _) in enumerate(points) if number == k]
            sketch = self.sketches[k]
            result[own, k] = 1.0
            result[own, len(self.sketches) : len(self.sketches) + sketch.columns] = coordinates(
                sketch, sketch.matrix(points[n][1] for n in own)
            )
        return result
