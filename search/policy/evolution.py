"""The evolutionary search: generations of rows, bred from the best measured ones and scored by cost models (Ansor, section 5.1).

Differences from the original (`docs/searching.md` has the reasons):

    - Sketches get equal shares of the trials, until one is too slow for its trials or fails; each is evolved separately.
    - Populations and operators are matrices, and every row is legal, so that no row is rejected.
    - Parents are chosen by rank, the best always survive, and a part of each generation is sampled at random.
    - An analytic model ranks until there are measurements to learn from. Then it and the learned model are weighted by the share
      of measured pairs that each ordered correctly.
    - There is no crossover, which gained nothing. A part of a batch are mutants of the best measured rows, and a part is random.
      Rows that are nearly equal are not measured in the same batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from codegen.target import Target
from costmodel import CostModel, Explains, SketchPrograms, WarmUp
from costmodel.metrics import ranks

from ..measure import Candidate, Measurement, Origin
from ..population.mutate import Mutation, mutants_of, neighbours
from ..population.mutate import mutations as mutations_of
from ..population.programs import sketch_programs
from ..population.sample import legalize, sample
from ..space.sketch import Sketch
from .lineage import Generation, Lineage, coordinates
from .ranking import TrustedModel, is_ready, model_name, ordered_pairs, score_rows
from .rows import seconds_of_rows
from .shared_model import SharedModel

MAX_FAILURES = 3  # trials after which a sketch without a valid candidate is given up
LEEWAY = 2.0  # trials: after n of them the best of a sketch may take 1 + LEEWAY / n times that of all, or others come first


@dataclass(frozen=True, slots=True)
class Settings:
    """The constants of the evolution.

    A sketch is evolved for `generations` generations of `population` rows; both are smaller for a sketch that gets less than
    `worth` trials of the batch. Of a new generation the share `elite` are the best rows of the old one, and the share `fresh` is
    random. The rest are mutants of parents with the rank `population * u ** pressure`, u uniform in 0..1. In the first generation
    the share `seeded` are mutants of the `parents` best measured rows.

    Of a batch the share `blind` is random, and the share `near` are mutants of measured rows. Rows closer than `distance`, in
    doublings of a size, are not under way at once if others are left. A population has rows of `variants` different variants of
    its sketch, of which `unseen` are new, except for the first population.
    """

    population: int = 512
    generations: int = 4
    worth: int = 4
    elite: float = 0.1
    fresh: float = 0.05
    pressure: float = 2.0
    seeded: float = 0.4
    parents: int = 12
    blind: float = 0.1
    near: float = 0.4
    distance: float = 0.9
    variants: int = 8
    unseen: int = 2

    def scaled(self, trials: int) -> Settings:
        """The settings for a sketch with this number of trials of the batch."""
        share = min(1.0, trials / self.worth)
        return replace(
            self,
            population=max(1, round(self.population * math.sqrt(share))),
            generations=math.ceil(self.generations * (1 + share) / 2),
            variants=max(1, round(self.variants * math.sqrt(share))),
        )


@dataclass
class _Island:
    """A sketch, its programs for cost models, the seconds of its measured rows, and the variants scored so far."""

    sketch: Sketch
    programs: SketchPrograms
    measured: dict[tuple[int, ...], float] = field(default_factory=dict)
    seen: dict[tuple[int, ...], None] = field(default_factory=dict)
    under_way: dict[tuple[int, ...], None] = field(default_factory=dict)  # rows proposed and not yet measured

    @property
    def hoped(self) -> float:
        """The least seconds that more trials are hoped to give: infinite after MAX_FAILURES, 0 before the first valid one."""
        best, trials = min(self.measured.values(), default=math.inf), len(self.measured)
        return best / (1 + LEEWAY / trials) if best < math.inf else math.inf if trials >= MAX_FAILURES else 0.0

    def best(self, count: int) -> np.ndarray:
        """The fastest measured rows, best first."""
        valid = (row for row, seconds in self.measured.items() if math.isfinite(seconds))
        return self.sketch.matrix(sorted(valid, key=self.measured.__getitem__)[:count])

    def unknown(self, rows: np.ndarray) -> np.ndarray:
        """A mask of the rows that were neither measured nor proposed."""
        found = [row not in self.measured and row not in self.under_way for row in map(tuple, rows.tolist())]
        return np.array(found, dtype=bool)


@dataclass
class _Pool:
    """Unmeasured rows of a sketch with their scores, best first."""

    rows: np.ndarray
    scores: np.ndarray  # one column a model
    near: np.ndarray  # marks mutants of measured rows
    coordinates: np.ndarray  # of the rows in the space of `lineage.coordinates`
    left: np.ndarray  # marks rows that were not picked
    lineage: Lineage
    apart: np.ndarray  # distance to the nearest row that is picked or under way

    def penalize(self, coordinates: np.ndarray) -> None:
        """Update the distances of rows for new `coordinates`; rows near them are picked last."""
        for point in coordinates:
            np.minimum(self.apart, np.abs(self.coordinates - point).sum(axis=1), out=self.apart)


class Evolution:
    """Candidates with good scores, found by evolution from measured rows and from random ones.

    `model` is the cost model that learns, `prior` an analytic one; without both, parents are measured rows and their children are
    proposed without scores. `start` are rows, each with its sketch, that are proposed first.

    `mutations` by name, with their probabilities, replace those of `population.mutate`. The `rng` of `propose` is the only source
    of randomness: the same seed and measurements give the same candidates.

    A live display shows `scored` (rows, symbolic and concrete), `scored_per_second` and `shares` (trials by sketch). A report
    shows `generations`, some rows of each.
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        target: str | Target,
        model: CostModel | None = None,
        prior: CostModel | None = None,
        settings: Settings | None = None,
        start: Sequence[tuple[Sketch, np.ndarray]] | None = None,
        mutations: Mapping[str, Mutation] | None = None,
    ):
        if not sketches:
            raise ValueError("sketches is empty: a policy needs at least one sketch")
        self.sketches = tuple(sketches)
        self.target = Target(target)
        self.settings = settings or Settings()
        self._mutations = mutations_of() if mutations is None else dict(mutations)
        # Before anything is measured the analytic model is trusted, the learned one only if it is alone or knows other tasks.
        knows = prior is None or is_ready(model)
        initial = [(model, 6, 2) if knows else (model, 1, 1)] + ([] if prior is None else [(prior, 6, 2)])
        self._models = [TrustedModel(m, right, wrong) for m, right, wrong in initial if m is not None]
        self._prior = self._models[1].model if len(self._models) > 1 else None  # scores if the learned model is too slow
        for trusted in self._models:
            if isinstance(trusted.model, SharedModel):
                trusted.begin(trusted.model.right, trusted.model.wrong)
        self._islands = [_Island(s, sketch_programs(s)) for s in sketches]
        self._numbers = {s.name: n for n, s in enumerate(sketches)}
        self._start = [(self._numbers[sketch.name], row) for sketch, row in start or ()]
        self._predicted: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
        self._scored, self._concrete, self._scoring = 0, 0, 0.0
        self._batch = 0  # the number of the last proposal
        self.generations: list[Generation] = []

    # --- what a display shows ---

    @property
    def scored_per_second(self) -> float | None:
        return self._scored / self._scoring if self._scoring else None

    @property
    def scored(self) -> dict[str, int]:
        """The numbers of rows scored by the formulas of their sketch, and as programs of their own."""
        return {"symbolic": self._scored - self._concrete, "concrete": self._concrete}

    @property
    def shares(self) -> dict[str, int]:
        return {island.sketch.name: len(island.measured) for island in self._islands}

    # --- the protocol of autotune ---

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` candidates that were not proposed before; fewer if the space is small."""
        return [*self.proposals(n, rng)]

    def proposals(self, n: int, rng: np.random.Generator) -> Iterator[Candidate]:
        """The candidates of `propose`, each as soon as it is chosen: a sketch is evolved when its turn comes."""
        chosen = self.begin(n)
        yield from chosen
        if (count := len(chosen)) == n:
            return
        self._batch += 1
        blind = max(1, round(self.settings.blind * n)) if n > 3 and self._models else 0
        # Rows under way count as measured, with no new best time (the constant liar).
        under_way = [island.sketch.matrix(island.under_way) for island in self._islands]
        picked = np.array([len(rows) for rows in under_way], dtype=np.int64)
        planned = picked.copy()
        for _ in range(n):
            planned[self._order_of_sketches(planned)[0]] += 1
        pools: dict[int, _Pool] = {}
        while count < n:
            for number in self._order_of_sketches(picked):
                if number not in pools:
                    settings = self.settings.scaled(max(1, int(planned[number] - len(under_way[number]))))
                    pools[number] = self._evolved(self._islands[number], settings, rng)
                    pools[number].penalize(coordinates(self.sketches[number], under_way[number]))
                found = self._pick(number, pools[number], count >= n - blind, rng)
                if found is not None:
                    break
            else:
                return
            picked[number] += 1
            count += 1
            yield self._candidate(number, found, pools[number].lineage)

    def _order_of_sketches(self, picked: np.ndarray) -> list[int]:
        """The sketches by their number of trials, with `picked` ones; last those that are slow or never worked."""
        fastest = min((s for island in self._islands for s in island.measured.values()), default=math.inf)
        late = [island.hoped > fastest or island.hoped == math.inf for island in self._islands]
        trials = [len(island.measured) + int(n) for island, n in zip(self._islands, picked, strict=True)]
        return sorted(range(len(trials)), key=lambda k: (late[k], trials[k]))

    def begin(self, n: int) -> list[Candidate]:
        """At most `n` candidates of the start that were not proposed before."""
        new = ((number, row) for number, row in self._start if self._islands[number].unknown(row[None])[0])
        return [self._candidate(number, row, Origin("seed")) for number, row in islice(new, n)]

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Update the models. Candidates of unknown sketches are ignored."""
        own = seconds_of_rows(self.sketches, measurements)
        if here := {number: measured for (number, device), measured in own.items() if not device}:
            self._review(here)
        for (number, device), measured in own.items():
            island = self._islands[number]
            programs = replace(island.programs, device=device) if device else island.programs
            rows, seconds = island.sketch.matrix(measured), np.array(list(measured.values()))
            for trusted in self._models:
                trusted.model.update(programs, rows, seconds)
            for row in measured:
                island.under_way.pop(row, None)
            island.measured |= measured

    def warm_up(self) -> None:
        """Load the libraries that the models need."""
        for trusted in self._models:
            if isinstance(trusted.model, WarmUp):
                trusted.model.warm_up()

    def explanation(self, candidate: Candidate) -> dict[str, float]:
        """The effects of features, by name, on the learning model's prediction for a candidate; see `costmodel.Explains`."""
        number = self._numbers.get(candidate.sketch)
        if number is None or not self._models or not isinstance(self._models[0].model, Explains):
            return {}
        row = np.array(candidate.row, dtype=np.int64)
        return self._models[0].model.explanation(self._islands[number].programs, row)

    @property
    def taught(self) -> Collection[str]:
        """The tasks that a shared model has learned from."""
        return {task for t in self._models if isinstance(t.model, SharedModel) for task in t.model.tasks}

    def warm_start(self, examples: Iterable[tuple[Sketch, np.ndarray, np.ndarray]]) -> None:
        """Let the models learn from other tasks: sketches, (n, columns) rows of each, and their seconds. The initial trust of a
        model is its accuracy on the first of these tasks, the most similar one, after it has learned the others."""
        tasks: dict[str, list[tuple[SketchPrograms, np.ndarray, np.ndarray]]] = {}
        for sketch, rows, seconds in examples:
            programs = sketch_programs(sketch)
            tasks.setdefault(programs.task, []).append((programs, rows, seconds))
        groups = list(tasks.values())
        for trusted in self._models:
            for example in (e for group in groups[1:] for e in group):
                trusted.model.update(*example)
            if len(groups) > 1 or (groups and self.taught):
                batch = [(score_rows(trusted.model, programs, rows)[0], seconds) for programs, rows, seconds in groups[0]]
                trusted.begin(*ordered_pairs(batch))
            for example in groups[0] if groups else ():
                trusted.model.update(*example)

    # --- picking ---

    def _candidate(self, number: int, row: np.ndarray, origin: Origin | Lineage) -> Candidate:
        sketch, values = self.sketches[number], tuple(row.tolist())
        if isinstance(origin, Lineage):
            origin = origin.origin(values, self._islands[number].measured) or Origin("sample", self._batch)
        self._islands[number].under_way[values] = None
        scores = self._predicted.get((number, values))
        if scores is None or not len(scores):
            return Candidate(sketch.name, values, sketch.trace(values).as_json(), origin=origin)
        named = dict(zip((model_name(t.model) for t in self._models), scores.tolist(), strict=True))
        return Candidate(sketch.name, values, sketch.trace(values).as_json(), float(scores[0]), named, origin)

    def _pick(self, number: int, pool: _Pool, blindly: bool, rng: np.random.Generator) -> np.ndarray | None:
        """The best row of the pool apart from those picked before, or, `blindly`, a random one; None from an empty pool."""
        if blindly:
            rows = sample(self.sketches[number], self.target, 8, rng)
            if (new := self._islands[number].unknown(rows)).any():
                return rows[np.argmax(new)]
        left = np.flatnonzero(pool.left)
        if not len(left):
            return None
        near = left[pool.near[left]]
        if len(near) and rng.random() < self.settings.near:
            left = near
        k = left[0]
        far = pool.apart[left[:256]] >= self.settings.distance
        if far.any():
            k = left[np.argmax(far)]
        pool.left[k] = False
        pool.penalize(pool.coordinates[k : k + 1])
        row = pool.rows[k]
        self._predicted[(number, tuple(row.tolist()))] = pool.scores[k]
        return row

    # --- evolving ---

    def _evolved(self, island: _Island, settings: Settings, rng: np.random.Generator) -> _Pool:
        """The unmeasured rows of some generations, best first."""
        sketch, lineage = island.sketch, Lineage(self._batch)
        if not sketch.columns:
            rows = sketch.matrix([()])
            return self._pool(island, rows, self._scores(island, rows), rows[:0], lineage, rng)
        parents = island.best(settings.parents)
        variants = self._variants(island, parents, settings, rng)
        near = sketch.matrix([])
        count = round(settings.seeded * settings.population) if len(parents) else 0
        if count:
            bred = parents[rng.integers(len(parents), size=count)]
            mutants, made_by = mutants_of(sketch, self.target, bred, self._mutations, rng)
            beside = neighbours(sketch, self.target, parents[0])
            near = self._confined(sketch, np.concatenate([beside, mutants]), variants, rng)
            lineage.add(near[: len(beside)], "neighbour", 0, np.broadcast_to(parents[0], beside.shape))
            lineage.add(near[len(beside) :], _operators(made_by, count), 0, bred)
        fresh = self._confined(sketch, sample(sketch, self.target, settings.population - count, rng), variants, rng)
        lineage.add(fresh, "sample", 0)
        rows = np.unique(np.concatenate([parents, near, fresh]), axis=0)
        scores = self._scores(island, rows)
        everything = [(rows, scores)]
        for generation in range(1, (settings.generations if self._models else 0) + 1):
            rows, scores = self._next_generation(island, rows, scores, variants, settings, lineage, generation, rng)
            everything.append((rows, scores))
        rows, first = np.unique(np.concatenate([r for r, _ in everything]), axis=0, return_index=True)
        return self._pool(island, rows, np.concatenate([s for _, s in everything])[first], near, lineage, rng)

    def _next_generation(
        self,
        island: _Island,
        rows: np.ndarray,
        scores: np.ndarray,
        variants: np.ndarray,
        settings: Settings,
        lineage: Lineage,
        generation: int,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next generation, with its scores."""
        sketch = island.sketch
        order = np.argsort(self._order(scores, rng), kind="stable")
        rows, scores = rows[order], scores[order]
        self.generations.append(Generation.of(sketch.name, self._batch, generation - 1, rows))
        elite = max(1, round(settings.elite * settings.population))
        fresh = sample(sketch, self.target, round(settings.fresh * settings.population), rng)
        count = settings.population - elite - len(fresh)
        bred = (len(rows) * rng.random(count) ** settings.pressure).astype(np.int64)
        mutants, made_by = mutants_of(sketch, self.target, rows[bred], self._mutations, rng)
        new = self._confined(sketch, np.concatenate([mutants, fresh]), variants, rng)
        lineage.add(new[: len(bred)], _operators(made_by, len(bred)), generation, rows[bred])
        lineage.add(new[len(bred) :], "sample", generation)
        new_scores = self._scores(island, new)
        rows, first = np.unique(np.concatenate([rows[:elite], new]), axis=0, return_index=True)
        return rows, np.concatenate([scores[:elite], new_scores])[first]

    def _variants(self, island: _Island, parents: np.ndarray, settings: Settings, rng: np.random.Generator) -> np.ndarray:
        """The values of branch columns in a population: those of the best measured rows, other known ones, and some new ones.
        They are few, because each variant is a program that must be made before a model can score it."""
        sketch = island.sketch
        columns = _branching(sketch)
        if not columns:
            return np.empty((1, 0), dtype=np.int64)
        found = dict.fromkeys(list(dict.fromkeys(map(tuple, parents[:, columns].tolist())))[: (settings.variants + 1) // 2])
        if not island.seen:
            first = legalize(sketch, self.target, sketch.matrix([sketch.stand_ins()]))
            found |= dict.fromkeys(map(tuple, first[:, columns].tolist()))
        sampled = sample(sketch, self.target, 8 * settings.variants, rng)
        new = [v for v in dict.fromkeys(map(tuple, sampled[:, columns].tolist())) if v not in island.seen and v not in found]
        old = [v for v in island.seen if v not in found]
        left = max(0, settings.variants - len(found))
        fresh = new[: min(left, settings.unseen if island.seen else left)]
        again = [old[k] for k in rng.permutation(len(old))[: left - len(fresh)]]
        found |= dict.fromkeys([*fresh, *again])
        island.seen |= found
        return np.array(list(found), dtype=np.int64)

    def _confined(self, sketch: Sketch, rows: np.ndarray, variants: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows; any of another variant gets a random one of `variants`."""
        columns = _branching(sketch)
        if not columns or not len(rows):
            return rows
        strays = ~(rows[:, None, columns] == variants[None]).all(axis=2).any(axis=1)
        if not strays.any():
            return rows
        moved, result = rows[strays], rows.copy()
        moved[:, columns] = variants[rng.integers(len(variants), size=len(moved))]
        result[strays] = legalize(sketch, self.target, moved)
        return result

    def _pool(
        self, island: _Island, rows: np.ndarray, scores: np.ndarray, near: np.ndarray, lineage: Lineage, rng: np.random.Generator
    ) -> _Pool:
        """The pool of unknown rows, best first."""
        new = island.unknown(rows)
        rows, scores = rows[new], scores[new]
        order = np.argsort(self._order(scores, rng), kind="stable")
        rows, scores = rows[order], scores[order]
        close = {tuple(r) for r in near.tolist()}
        is_near = np.array([tuple(r) in close for r in rows.tolist()], dtype=bool)
        points, apart = coordinates(island.sketch, rows), np.full(len(rows), np.inf)
        return _Pool(rows, scores, is_near, points, np.ones(len(rows), dtype=bool), lineage, apart)

    # --- scores ---

    def _scores(self, island: _Island, rows: np.ndarray) -> np.ndarray:
        """The score of each row by each model: an (n, models) float64 matrix, higher is better."""
        if not self._models or not len(rows):
            return np.zeros((len(rows), len(self._models)))
        start = time.perf_counter()
        found = [score_rows(trusted.model, island.programs, rows, self._prior) for trusted in self._models]
        self._scoring += time.perf_counter() - start
        self._scored += len(rows)
        self._concrete += found[0][1]
        return np.stack([scores for scores, _ in found], axis=1)

    def _order(self, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One number a row, lower is better: its mean rank by the models, weighted by their trust; ties are in random order."""
        result = 1e-6 * rng.random(len(scores))
        total = sum(trusted.trust for trusted in self._models)
        for column, trusted in zip(scores.T, self._models, strict=True):
            result += trusted.trust / total * ranks(-column) / max(1, len(scores))
        return result

    def _review(self, measured: dict[int, dict[tuple[int, ...], float]]) -> None:
        """Compare the scores of a batch with the measured times."""
        batch = []  # for each sketch the scores and the seconds of its scored candidates
        for number, results in measured.items():
            known = [(self._predicted.pop((number, row)), s) for row, s in results.items() if (number, row) in self._predicted]
            if known:
                batch.append((np.stack([scores for scores, _ in known]), np.array([s for _, s in known])))
        new = not any(island.measured for island in self._islands)
        for k, trusted in enumerate(self._models):
            own = [(scores[:, k], seconds) for scores, seconds in batch]
            trusted.review(own)
            if new and isinstance(trusted.model, SharedModel):
                trusted.model.count(*ordered_pairs(own))


def _operators(made_by: Mapping[str, np.ndarray], count: int) -> list[str]:
    """The name of the mutation of each of `count` mutants, or `copy`."""
    found = ["copy"] * count
    for name, own in made_by.items():
        for n in own.tolist():
            found[n] = name
    return found


def _branching(sketch: Sketch) -> list[int]:
    """The columns of the branches of a sketch."""
    return sorted({branch.column for branch in sketch.branches})
