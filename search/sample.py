"""Populations: integer matrices with one row a candidate, drawn at random from a sketch.

Tile sizes may be any integer: where they do not divide, the last tile is guarded. They are drawn from inside to outside, from
what the machine offers: the innermost tile fits the vector registers, the next ones are small multiples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen.target import Target
from costmodel import CostModel, Nest, TileModel

from .geometry import machine, nests
from .measure import Candidate, Measurement
from .sketch import Sketch, Tile

REGISTERS = 28  # vector registers for accumulators, of 32
LANES = 32  # bits of an element that lanes are counted in
POOL = 1024  # rows drawn for each batch, of which the model picks
EXACT = 0.75  # how often a size that divides is preferred where there is one: it needs no guard
PARENTS = 12  # measured candidates that are mutated


def sample(sketch: Sketch, target: Target, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` rows of the sketch's holes, an (n, columns) int64 matrix; every row is a legal candidate."""
    rows = np.ones((n, sketch.columns), dtype=np.int64)
    for choice in sketch.choices:
        rows[:, choice.column] = rng.choice(choice.options, size=n)
    for block in dict.fromkeys(t.block for t in sketch.tiles):
        spatial = [t for t in sketch.tiles if t.block == block and not t.reduce]
        reduce = [t for t in sketch.tiles if t.block == block and t.reduce]
        _spatial(rows, spatial, target, rng)
        _reduce(rows, reduce, rng)
    return rows


def _spatial(rows: np.ndarray, tiles: Sequence[Tile], target: Target, rng: np.random.Generator) -> None:
    """Register tiles of at most REGISTERS vectors, then two levels of multiples."""
    n = len(rows)
    lanes = target.lanes(LANES)
    budget = np.full(n, REGISTERS, dtype=np.int64)
    for t in tiles:
        if not t.vector:
            continue
        if t.extent <= lanes:
            inner = np.full(n, t.extent, dtype=np.int64)
        else:
            menu = lanes * np.arange(1, min(4, -(-t.extent // lanes)) + 1)
            exact = menu[t.extent % menu == 0]
            inner = rng.choice(menu, size=n)
            if len(exact):
                inner = np.where(rng.random(n) < EXACT, rng.choice(exact, size=n), inner)
        rows[:, t.columns[-1]] = np.minimum(inner, t.extent)
        budget //= np.maximum(1, -(-inner // lanes))
    others = [t for t in tiles if not t.vector]
    for k in rng.permutation(len(others)):
        t = others[k]
        # Uniform in the exponent, half of the time all that the budget allows.
        top = np.minimum(budget, t.extent)
        drawn = np.exp(rng.random(n) * np.log(top + 0.999)).astype(np.int64)
        inner = np.where(rng.random(n) < 0.5, top, np.clip(drawn, 1, top))
        inner = _fitting(t.extent, inner, rng)
        rows[:, t.columns[-1]] = inner
        budget = np.maximum(1, budget // inner)
    for t in tiles:
        left = -(-t.extent // rows[:, t.columns[-1]])
        for column in reversed(t.columns[:-1]):
            drawn = np.exp(rng.random(n) * np.log(left + 0.999)).astype(np.int64)
            size = _fitting(left, np.clip(drawn, 1, left), rng)
            size = np.where(rng.random(n) < 0.3, 1, size)
            rows[:, column] = size
            left = -(-left // size)


def _reduce(rows: np.ndarray, tiles: Sequence[Tile], rng: np.random.Generator) -> None:
    """Inner reduction loops: short axes whole, long ones from a few dozen up."""
    n = len(rows)
    for t in tiles:
        if t.extent <= 16:
            inner = np.where(rng.random(n) < 0.8, t.extent, 1)
        else:
            low = np.log(16.0)
            inner = np.exp(low + rng.random(n) * (np.log(t.extent + 0.999) - low)).astype(np.int64)
            inner = _fitting(t.extent, np.clip(inner, 1, t.extent), rng)
        rows[:, t.columns[-1]] = inner


def _fitting(extent: np.ndarray | int, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sizes near `size` that waste little: mostly the largest divisor of `extent` that is not much smaller, else the least size
    that makes as many tiles, so that the last is nearly full."""
    extent = np.broadcast_to(np.asarray(extent), size.shape)
    even = -(-extent // -(-extent // size))
    divisor = np.ones_like(size)
    for value in np.unique(extent):
        divisors = np.array([d for d in range(1, value + 1) if value % d == 0])
        here = extent == value
        divisor[here] = divisors[np.searchsorted(divisors, size[here], side="right") - 1]
    near = (2 * divisor > size) & (rng.random(len(size)) < EXACT)
    return np.where(near, divisor, even)


def neighbours(sketch: Sketch, parents: np.ndarray, target: Target, rng: np.random.Generator) -> np.ndarray:
    """One mutant of each parent: all levels of one axis, or one choice, drawn anew. Same shape as `parents`."""
    drawn = sample(sketch, target, len(parents), rng)
    groups = [t.columns for t in sketch.tiles] + [(c.column,) for c in sketch.choices]
    if not groups:
        return parents.copy()
    mask = np.zeros((len(groups), sketch.columns), dtype=bool)
    for g, columns in enumerate(groups):
        mask[g, list(columns)] = True
    return np.where(mask[rng.integers(len(groups), size=len(parents))], drawn, parents)


class Sampler:
    """Proposes candidates: rows drawn at random from all sketches and around the best measured ones, of which a cost model picks
    the most promising; a share is picked blindly."""

    def __init__(self, sketches: Sequence[Sketch], target: Target, model: CostModel | None = None):
        if not sketches:
            raise ValueError("there is no sketch to sample from")
        self.sketches = tuple(sketches)
        self.target = target
        self.model = model or TileModel(machine(target))
        self._nests: dict[str, tuple[Nest, ...]] = {s.name: nests(s) for s in sketches}
        self._seen: set[tuple[str, tuple[int, ...]]] = set()
        self._measured: list[tuple[float, str, tuple[int, ...]]] = []

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` candidates that were not proposed before; fewer where the space is small."""
        random = self._draw(lambda sketch, count: sample(sketch, self.target, count, rng))
        local = self._draw(lambda sketch, count: self._around_best(sketch, count, rng))
        blind = -(-n // 4)
        near = (n - blind) // 2 if local else 0
        picked = self._take(sorted(local, key=lambda d: -d[0]), near, [])
        picked = self._take(sorted(random, key=lambda d: -d[0]), n - blind, picked)
        picked = self._take([random[i] for i in rng.permutation(len(random))], n, picked)
        self._seen |= {(s.name, row) for _, s, row in picked}
        return [Candidate(s.name, row, s.trace(row).as_json()) for _, s, row in picked]

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Let the model learn, and remember the fastest."""
        by_sketch = {s.name: s for s in self.sketches}
        for name in {m.candidate.sketch for m in measurements} & set(by_sketch):
            own = [m for m in measurements if m.candidate.sketch == name]
            rows = np.array([m.candidate.row for m in own], dtype=np.int64)
            self.model.update(self._nests[name], rows, np.array([m.seconds for m in own]))
            self._measured += [(m.seconds, name, tuple(m.candidate.row)) for m in own if m.outcome == "ok"]
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
            scores = self.model.score(self._nests[sketch.name], rows)
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
