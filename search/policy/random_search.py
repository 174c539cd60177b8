"""Random search: random rows of all sketches, ranked by a cost model if given. The baseline for `Evolution`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..measure import Candidate, Origin
from .rows import Point, RowPolicy

SAMPLED_ROWS = 1024  # for each batch, the same number of each sketch
UNSCORED_SHARE = 0.25  # of the candidates, picked at random instead of by score


class RandomSearch(RowPolicy):
    """Random rows of all sketches; with a `model`, those with the best scores and some random ones."""

    _batch = 0

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        self._batch += 1
        return [replace(c, origin=Origin("sample", self._batch)) for c in super().propose(n, rng)]

    def search(self, n: int, rng: np.random.Generator) -> list[Point]:
        found: dict[Point, float] = {}
        for number, rows in self.drawn(SAMPLED_ROWS, rng).items():
            scored = self.scored_points(number, np.unique(rows, axis=0))
            found |= {point: score for point, score in scored.items() if self.is_new(point)}
        points = list(found)
        drawn = [points[k] for k in rng.permutation(len(points))]
        if self.model is None:
            return drawn
        ranked = self.by_score({p: found[p] for p in drawn})
        return [*dict.fromkeys([*ranked[: n - math.ceil(UNSCORED_SHARE * n)], *drawn])]
