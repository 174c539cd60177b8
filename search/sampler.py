"""The default search: rows of all sketches drawn at random and around the best measured ones, picked by a cost model.

It has the two methods that `autotune(search=...)` asks for, `propose` and `tell`. Made by hand, it can be given other rules or
another model:

    def search(task):
        target = Target(task.target)
        return Sampler(generate(task.func, target, rules=(KeepSerial(), *DEFAULT)), target, model=RandomModel(rng))

    tir.autotune(func, search=search)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from codegen.target import Target
from costmodel import CostModel, TileModel

from .family import family
from .geometry import machine
from .measure import Candidate, Measurement
from .sample import neighbours, sample
from .sketch import Sketch

POOL = 1024  # rows drawn for each batch, of which the model picks
BLIND = 0.25  # share of the candidates that are picked without asking the model
PARENTS = 12  # measured candidates that are mutated


class Sampler:
    """Proposes candidates: rows drawn at random from all sketches and around the best measured ones, of which a cost model picks
    the most promising; a share is picked blindly."""

    def __init__(self, sketches: Sequence[Sketch], target: Target, model: CostModel | None = None):
        if not sketches:
            raise ValueError("there is no sketch to sample from")
        self.sketches = tuple(sketches)
        self.target = target
        self.model = model or TileModel(machine(target))
        self._seen: set[tuple[str, tuple[int, ...]]] = set()
        self._measured: list[tuple[float, str, tuple[int, ...]]] = []

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` candidates that were not proposed before; fewer where the space is small."""
        random = self._draw(lambda sketch, count: sample(sketch, self.target, count, rng))
        local = self._draw(lambda sketch, count: self._around_best(sketch, count, rng))
        blind = math.ceil(BLIND * n)
        near = (n - blind) // 2 if local else 0
        picked = self._take(sorted(local, key=lambda d: -d[0]), near, [])
        picked = self._take(sorted(random, key=lambda d: -d[0]), n - blind, picked)
        picked = self._take([random[i] for i in rng.permutation(len(random))], n, picked)
        self._seen |= {(s.name, row) for _, s, row in picked}
        return [Candidate(s.name, row, s.trace(row).as_json(), score) for score, s, row in picked]

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Let the model learn, and remember the fastest."""
        for sketch in self.sketches:
            own = [m for m in measurements if m.candidate.sketch == sketch.name]
            if not own:
                continue
            rows = np.array([m.candidate.row for m in own], dtype=np.int64)
            self.model.update(family(sketch), rows, np.array([m.seconds for m in own]))
            self._measured += [(m.seconds, sketch.name, tuple(m.candidate.row)) for m in own if m.outcome == "ok"]
        self._measured = sorted(self._measured)[:PARENTS]

    def _around_best(self, sketch: Sketch, count: int, rng: np.random.Generator) -> np.ndarray:
        parents = [row for _, name, row in self._measured if name == sketch.name]
        if not parents or not sketch.columns:
            return np.empty((0, sketch.columns), dtype=np.int64)
        return neighbours(sketch, np.array(parents, dtype=np.int64)[rng.integers(len(parents), size=count)], self.target, rng)

    def _draw(self, rows_of: Callable[[Sketch, int], np.ndarray]) -> list[tuple[float, Sketch, tuple[int, ...]]]:
        """Scored rows of all sketches, without those proposed before."""
        drawn: dict[tuple[str, tuple[int, ...]], tuple[float, Sketch, tuple[int, ...]]] = {}
        for sketch in self.sketches:
            rows = rows_of(sketch, max(1, POOL // len(self.sketches)))
            if not len(rows):
                continue
            scores = self.model.score(family(sketch), rows)
            for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
                key = (sketch.name, tuple(row))
                if key not in self._seen:
                    drawn[key] = (score, sketch, tuple(row))
        return list(drawn.values())

    def _take(self, ordered, until: int, picked: list) -> list:
        """`picked` filled up to `until` from `ordered`, without repeats."""
        taken = {(s.name, row) for _, s, row in picked}
        for d in ordered:
            if len(picked) >= until:
                break
            if (d[1].name, d[2]) not in taken:
                taken.add((d[1].name, d[2]))
                picked = [*picked, d]
        return picked
