"""The template tuner: simulated annealing over the knobs of a schedule template (AutoTVM: Chen et al., Learning to Optimize
Tensor Programs, NeurIPS 2018, section 3 and algorithm 1).

A template is a schedule with open numbers: one of the library, or a user's function (`space=`). Its knobs are the sizes of an
axis, and its choices. Chains walk from row to row, one knob at a time, by the scores of the model. The best visited rows are
measured, and a share of the batch is random. The chains go on from their ends in the batch before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..policy.rows import Point, RowPolicy, points_of
from ..space.sketch import Sketch
from .knobs import with_knob_resampled

CHAINS = 128  # the constants of AutoTVM's optimiser, except that it takes 500 steps
CHAIN_STEPS = 60
PATIENCE_STEPS = 20  # steps without a new best row, after which the walk ends
RANDOM_SHARE = 0.05  # of a batch, epsilon
MAX_TEMPLATES = 4  # of the library


class TemplateTuner(RowPolicy):
    """The annealing over the knobs of templates: of the first sketches with seeds, else of the first sketch."""

    def __init__(self, sketches: Sequence[Sketch], *args: object, **parts: object):
        known = [s for s in sketches if s.seed is not None][:MAX_TEMPLATES] or sketches[:1]
        super().__init__(known, *args, **parts)  # type: ignore[arg-type]
        self._chains: dict[int, np.ndarray] = {}

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        found = self._annealed(n, rng) if self.model is not None else {}
        best = self.by_score(found)
        random = max(1, round(RANDOM_SHARE * n))
        return [*best[: n - random], *self._random(random, rng)[:random], *best[n - random :]]

    def _annealed(self, n: int, rng: np.random.Generator) -> dict[Point, float]:
        """The new rows visited by the chains, with their scores."""
        if not self._chains:
            self._chains = self.drawn(CHAINS, rng)
        for k, row in self.best(n):  # a chain begins at each of the best measured rows
            self._chains[k][rng.integers(len(self._chains[k]))] = row
        scores = {k: self.scores(k, rows) for k, rows in self._chains.items()}
        found: dict[Point, float] = {}
        best, waited = -np.inf, 0
        for step in range(CHAIN_STEPS):
            temperature = 1.0 - step / CHAIN_STEPS  # of scores, which are logarithms of times
            for k, rows in self._chains.items():
                moved = with_knob_resampled(self.sketches[k], self.target, rows, rng)
                new = self.scores(k, moved)
                with np.errstate(over="ignore", invalid="ignore"):
                    taken = (new > scores[k]) | (rng.random(len(rows)) < np.exp((new - scores[k]) / temperature))
                self._chains[k] = np.where(taken[:, None], moved, rows)
                scores[k] = np.where(taken, new, scores[k])
                found |= {p: s for p, s in zip(points_of({k: moved}), new.tolist(), strict=True) if self.is_new(p)}
            top = max(found.values(), default=-np.inf)
            best, waited = (top, 0) if top > best else (best, waited + 1)
            if waited >= PATIENCE_STEPS:
                break
        return found
