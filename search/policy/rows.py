"""Common parts of policies over the rows of sketches: measured rows, new rows, and a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from codegen.target import Target
from costmodel import CostModel, WarmUp

from ..measure import Candidate, Measurement
from ..population.programs import sketch_programs
from ..population.sample import sample
from ..space.sketch import Sketch
from .ranking import model_name, score_rows

Point = tuple[int, tuple[int, ...]]  # the number of a sketch, and a row of it
Populations = dict[int, np.ndarray]  # rows by the number of their sketch

DRAWN_ROWS = 8  # random rows of each sketch for each missing candidate


def points_of(populations: Populations) -> list[Point]:
    """The rows of several sketches as points, in order."""
    return [(k, tuple(row)) for k, rows in populations.items() for row in rows.tolist()]


def seconds_of_rows(
    sketches: Sequence[Sketch], measurements: Sequence[Measurement]
) -> dict[tuple[int, str], dict[tuple[int, ...], float]]:
    """The seconds of measured rows, by the number of a known sketch and the device, which is empty for the primary one."""
    numbers = {s.name: n for n, s in enumerate(sketches)}
    found: dict[tuple[int, str], dict[tuple[int, ...], float]] = {}
    for m in measurements:
        number, row = numbers.get(m.candidate.sketch), tuple(map(int, m.candidate.row))
        if number is not None and len(row) == sketches[number].columns:
            found.setdefault((number, m.elsewhere), {})[row] = m.seconds
    return found


class RowPolicy(ABC):
    """A policy over rows of sketches. A subclass has `search`, and `learn` if it learns more than the model.

    `start` are rows, each with its sketch, that are proposed first. `model` is the cost model that learns, `prior` an analytic
    one, used without the other. `measured` has the seconds of every measured point.
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        target: str | Target,
        model: CostModel | None = None,
        prior: CostModel | None = None,
        start: Sequence[tuple[Sketch, np.ndarray]] = (),
    ):
        if not sketches:
            raise ValueError("sketches is empty: a policy needs at least one sketch")
        self.sketches, self.target = tuple(sketches), Target(target)
        self.model, self._prior = prior if model is None else model, prior
        self.measured: dict[Point, float] = {}
        self.scored, self.scored_per_second = {"symbolic": 0, "concrete": 0}, None
        self._proposed: set[Point] = set()
        self._predicted: dict[Point, float] = {}
        self._numbers = {s.name: n for n, s in enumerate(self.sketches)}
        self._start = [(self._numbers[s.name], tuple(row.tolist())) for s, row in start if s.name in self._numbers]

    @abstractmethod
    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        """Points to measure next, best first; the first `n` unknown ones are taken."""

    def learn(self, points: Sequence[Point]) -> None:
        """Learn from newly measured points, beside the model."""
        return

    # --- the protocol of autotune ---

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` candidates that were not proposed before: the start, the points of `search`, and then random rows."""
        chosen = self.begin(n)
        for points in (self.search, self._random):
            for point in points(n, rng) if len(chosen) < n else ():
                if len(chosen) < n and self.is_new(point):
                    self._proposed.add(point)
                    chosen.append(self._candidate(point))
        return chosen

    def begin(self, n: int) -> list[Candidate]:
        """At most `n` candidates of the start that were not proposed before."""
        chosen = [p for p in dict.fromkeys(self._start) if self.is_new(p)][:n]
        self._proposed |= set(chosen)
        return [self._candidate(p) for p in chosen]

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learn from measurements; those of unknown sketches are ignored."""
        own = seconds_of_rows(self.sketches, measurements)
        for (number, device), found in own.items():
            self.measured |= {(number, row): seconds for row, seconds in found.items()}
            if self.model is not None:
                sketch = self.sketches[number]
                programs = sketch_programs(sketch)
                programs = replace(programs, device=device) if device else programs
                self.model.update(programs, sketch.matrix(found), np.array(list(found.values())))
        self.learn([(number, row) for (number, _), found in own.items() for row in found])

    def warm_up(self) -> None:
        """Load the libraries that the model needs."""
        if isinstance(self.model, WarmUp):
            self.model.warm_up()

    # --- for subclasses ---

    def is_new(self, point: Point) -> bool:
        """True if a point was neither measured nor proposed."""
        return point not in self._proposed and point not in self.measured

    def best(self, count: int) -> list[Point]:
        """The fastest measured points, best first, without failures."""
        valid = [p for p, seconds in self.measured.items() if seconds < np.inf]
        return sorted(valid, key=lambda p: self.measured[p])[:count]

    def by_sketch(self, points: Iterable[Point]) -> Populations:
        """The rows of points, by the number of their sketch."""
        found: dict[int, list[tuple[int, ...]]] = {}
        for k, row in points:
            found.setdefault(k, []).append(row)
        return {k: self.sketches[k].matrix(rows) for k, rows in found.items()}

    def scores(self, number: int, rows: np.ndarray) -> np.ndarray:
        """The scores of rows of a sketch, higher is better; all 0 without a model."""
        if self.model is None or not len(rows):
            return np.zeros(len(rows))
        programs = sketch_programs(self.sketches[number])
        scores, concrete = score_rows(self.model, programs, rows, self._prior)
        self.scored["symbolic"] += len(rows) - concrete
        self.scored["concrete"] += concrete
        return scores

    def sampled(self, number: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Random rows of a sketch; one row for a sketch without columns."""
        sketch = self.sketches[number]
        return sample(sketch, self.target, count if sketch.columns else 1, rng)

    def drawn(self, count: int, rng: np.random.Generator) -> Populations:
        """About `count` random rows of all sketches, the same number of each."""
        each = max(1, count // len(self.sketches))
        return {k: self.sampled(k, each, rng) for k in range(len(self.sketches))}

    def scored_points(self, number: int, rows: np.ndarray) -> dict[Point, float]:
        """The points of rows of a sketch, with their scores."""
        return dict(zip(points_of({number: rows}), self.scores(number, rows).tolist(), strict=True))

    def ranked(self, populations: Populations, rng: np.random.Generator) -> list[Point]:
        """The rows of several sketches without repeats, best score first; equal ones in random order."""
        found: dict[Point, float] = {}
        for number, rows in populations.items():
            found |= self.scored_points(number, rows)
        points = list(found)
        return self.by_score({points[k]: found[points[k]] for k in rng.permutation(len(points))})

    def by_score(self, found: dict[Point, float]) -> list[Point]:
        """The points, best score first; the scores become those of the candidates."""
        self._predicted = found
        return sorted(found, key=lambda p: -found[p])

    def _random(self, n: int, rng: np.random.Generator) -> list[Point]:
        found = points_of({k: self.sampled(k, DRAWN_ROWS * n, rng) for k in range(len(self.sketches))})
        return [found[k] for k in rng.permutation(len(found))]

    def _candidate(self, point: Point) -> Candidate:
        sketch = self.sketches[point[0]]
        score = self._predicted.pop(point, None) if self.model is not None else None
        scores = None if score is None or self.model is None else {model_name(self.model): score}
        return Candidate(sketch.name, point[1], sketch.trace(point[1]).as_json(), score, scores)
