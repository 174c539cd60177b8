"""Random search: random rows of all sketches, ranked by a cost model if there is one. The baseline for `Evolution`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codegen.target import Target
from costmodel import CostModel

from ..measure import Candidate, Measurement, Origin
from ..population.programs import sketch_programs
from ..population.sample import sample
from ..space.sketch import Sketch
from .ranking import model_name, score_rows

SAMPLED_ROWS = 1024  # for each batch, the same number of each sketch
UNSCORED_SHARE = 0.25  # of the candidates, picked at random instead of by score


class RandomSearch:
    """Proposes random rows of all sketches; with a `model`, those with the best scores and some random ones."""

    def __init__(self, sketches: Sequence[Sketch], target: Target, model: CostModel | None = None):
        if not sketches:
            raise ValueError("there is no sketch to sample from")
        self.sketches = tuple(sketches)
        self.target = target
        self.model = model
        self._seen: set[tuple[str, tuple[int, ...]]] = set()
        self._batch = 0

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` candidates that were not proposed before; fewer where the space is small."""
        candidates = self._sampled(rng)
        order = rng.permutation(len(candidates)).tolist()
        if self.model is not None:
            ranked = sorted(order, key=lambda k: -candidates[k][0])
            order = [*dict.fromkeys([*ranked[: n - math.ceil(UNSCORED_SHARE * n)], *order])]
        picked = [candidates[k] for k in order[:n]]
        self._seen |= {(sketch.name, row) for _, sketch, row in picked}
        self._batch += 1
        origin = Origin("sample", self._batch)
        if self.model is None:
            return [Candidate(s.name, row, s.trace(row).as_json(), origin=origin) for _, s, row in picked]
        name = model_name(self.model)
        return [Candidate(s.name, row, s.trace(row).as_json(), score, {name: score}, origin) for score, s, row in picked]

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Let the model learn, and remember what was measured."""
        for sketch in self.sketches:
            own = [m for m in measurements if m.candidate.sketch == sketch.name and len(m.candidate.row) == sketch.columns]
            if not own:
                continue
            self._seen |= {(sketch.name, tuple(m.candidate.row)) for m in own}
            if self.model is not None:
                rows = np.array([m.candidate.row for m in own], dtype=np.int64).reshape(len(own), sketch.columns)
                self.model.update(sketch_programs(sketch), rows, np.array([m.seconds for m in own]))

    def _sampled(self, rng: np.random.Generator) -> list[tuple[float, Sketch, tuple[int, ...]]]:
        """Rows of all sketches with their scores, without repeats and those proposed before."""
        found: list[tuple[float, Sketch, tuple[int, ...]]] = []
        for sketch in self.sketches:
            rows = np.unique(sample(sketch, self.target, max(1, SAMPLED_ROWS // len(self.sketches)), rng), axis=0)
            scores = np.zeros(len(rows)) if self.model is None else score_rows(self.model, sketch_programs(sketch), rows)
            keyed = ((score, sketch, tuple(row)) for score, row in zip(scores.tolist(), rows.tolist(), strict=True))
            found += [entry for entry in keyed if (sketch.name, entry[2]) not in self._seen]
        return found
