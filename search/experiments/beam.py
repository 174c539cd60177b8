"""Beam search over incomplete programs (Adams et al., Learning to Optimize Halide with Tree Search and Random Programs, SIGGRAPH
2019, section 4).

A program is decided knob by knob: the placement of its stages, then the sizes of each axis and the other choices. Open numbers
have their simplest values: tiles of one, the first option. After each decision the model scores the unfinished programs, and only
the best go on. With random dropout, as in the paper's search for several candidates, a pass loses random states, so that each
pass ends with other programs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..policy.rows import Point, RowPolicy, points_of
from ..population.sample import legalize
from .knobs import knobs, settings

BEAM_WIDTH = 32  # states of the beam, as in the paper
SETTINGS_A_STATE = 8  # settings of a knob for each state
SURVIVAL_PROBABILITY = 0.5  # probability of a state to survive the dropout of a whole pass, as in the paper
MAX_PASSES = 5  # most passes for a batch, as in the paper


class BeamSearch(RowPolicy):
    """The programs at the ends of passes of a beam search, best first; the first pass has no dropout."""

    def __init__(self, *args: object, **parts: object):
        super().__init__(*args, **parts)  # type: ignore[arg-type]
        self._knobs = [knobs(s) for s in self.sketches]

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        found: dict[Point, None] = {}
        for number in range(MAX_PASSES):
            found |= dict.fromkeys(p for p in self._descend(rng, dropout=number > 0) if self.is_new(p))
            if len(found) >= 2 * n:
                break
        return self.ranked(self.by_sketch(found), rng)

    def _descend(self, rng: np.random.Generator, dropout: bool) -> list[Point]:
        """The states of the beam at the end of one pass."""
        beam = {k: legalize(s, self.target, s.matrix([s.stand_ins()])) for k, s in enumerate(self.sketches)}
        decisions = max(map(len, self._knobs))
        survival = SURVIVAL_PROBABILITY ** (1 / max(1, decisions)) if dropout else 1.0
        for depth in range(decisions):
            grown = {k: self._decided(k, rows, depth, rng) for k, rows in beam.items()}
            beam = self._survivors(grown, survival, rng)
        return points_of(beam)

    def _decided(self, k: int, rows: np.ndarray, depth: int, rng: np.random.Generator) -> np.ndarray:
        """The states of a sketch and their successors, with knob number `depth` set in several ways, if it has that knob."""
        if depth >= len(self._knobs[k]):
            return rows
        knob = self._knobs[k][depth]
        options = settings(self.sketches[k], self.target, knob, SETTINGS_A_STATE, rng)
        children = np.repeat(rows, len(options), axis=0)
        children[:, knob.columns] = np.tile(options, (len(rows), 1))
        return np.unique(np.concatenate([rows, legalize(self.sketches[k], self.target, children)]), axis=0)

    def _survivors(self, grown: dict[int, np.ndarray], survival: float, rng: np.random.Generator) -> dict[int, np.ndarray]:
        """The best surviving states of all sketches."""
        scores = np.concatenate([self.scores(k, rows) for k, rows in grown.items()])
        owner = np.concatenate([np.full(len(rows), k) for k, rows in grown.items()])
        number = np.concatenate([np.arange(len(rows)) for rows in grown.values()])
        order = rng.permutation(len(scores))
        order = order[np.argsort(-scores[order], kind="stable")]
        lives = rng.random(len(order)) < survival
        order = order[lives] if lives.any() else order
        kept = order[:BEAM_WIDTH]
        return {k: rows[number[mine]] for k, rows in grown.items() if len(mine := kept[owner[kept] == k])}
