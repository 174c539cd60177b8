"""The direction walk: steps from a measured point to a neighbour, in the best direction by Q-learning (FlexTensor: Zheng et al.,
ASPLOS 2020, section 5.2).

A direction moves the smallest prime factor of one level of an axis to another level, or takes an adjacent option of a choice. The
walk begins at the best points of a random set, by the model if given. Each further trial is one step from a measured point,
chosen as in simulated annealing. Its probability falls with its loss against the best, more steeply in the course of the search.
The reward is the relative speed-up of the neighbour.

As in the paper, the space is pruned: sizes beyond the registers and directions to known points are never proposed. The Q function
of the paper is a network of four layers. Here it is linear, because a run has only some hundred steps to learn from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..policy.rows import Point, RowPolicy
from ..population.sample import legalize
from ..space.sketch import Sketch

SAMPLED_ROWS = 1024  # of all sketches, for the beginning of the walk
FIRST_POINTS = 12  # points measured before the first step
GREED = 5.0  # gamma of the choice of a starting point: exp(-GREED * relative loss), at the first step
COOLING = 0.5  # growth of gamma with each measured point
RANDOM_SHARE = 0.2  # share of steps in a random direction
DISCOUNT = 0.7  # of the value of the neighbour's best direction
LEARNING_RATE = 0.5  # of learning

Direction = tuple[int, ...]  # tile, source and drain level; or a choice and the change of its option's number


class DirectionWalk(RowPolicy):
    """The walk from the best measured points in learned directions."""

    def __init__(self, *args: object, **parts: object):
        super().__init__(*args, **parts)  # type: ignore[arg-type]
        self._directions = [_directions(s) for s in self.sketches]
        self._values = [np.zeros((len(d), s.columns + 1)) for d, s in zip(self._directions, self.sketches, strict=True)]
        self._came: dict[Point, tuple[Point, int]] = {}  # starting point and direction of each step

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        points = self.best(64)
        if len(self.measured) < FIRST_POINTS or not points:
            yield from self.ranked(self.drawn(SAMPLED_ROWS, rng), rng)
            return
        best = self.measured[points[0]]
        losses = np.array([self.measured[p] / best - 1.0 for p in points])
        weights = np.exp(-(GREED + COOLING * (len(self.measured) - FIRST_POINTS)) * losses)
        for _ in range(4 * n):
            start = points[rng.choice(len(points), p=weights / weights.sum())]
            step = self._step(start, rng)
            if step is not None:
                yield step

    def learn(self, points: Sequence[Point]) -> None:
        for point in points:
            if point not in self._came:
                continue
            start, direction = self._came.pop(point)
            k, old, new = start[0], self.measured[start], self.measured[point]
            reward = old / new - 1.0 if np.isfinite(new) else -1.0
            wanted = reward + DISCOUNT * max(0.0, float(np.max(self._quality(point), initial=0.0)))
            state = self._state(start)
            self._values[k][direction] += LEARNING_RATE * (wanted - self._values[k][direction] @ state) * state / (state @ state)

    def _step(self, start: Point, rng: np.random.Generator) -> Point | None:
        """The new neighbour of a point in the best direction, or at times in a random one; None if all are known."""
        k, row = start
        count = len(self._directions[k])
        noise = 1e-9 * rng.random(count)
        order = rng.permutation(count) if rng.random() < RANDOM_SHARE else np.argsort(-self._quality(start) + noise)
        moved = [_one_step(self.sketches[k], self._directions[k][d], row) for d in order]
        there = [n for n, m in enumerate(moved) if m is not None]
        if not there:
            return None
        rows = legalize(self.sketches[k], self.target, self.sketches[k].matrix(m for m in moved if m is not None))
        for n, new in zip(there, rows.tolist(), strict=True):
            point = (k, tuple(new))
            if self.is_new(point):
                self._came[point] = start, int(order[n])
                return point
        return None

    def _quality(self, point: Point) -> np.ndarray:
        return self._values[point[0]] @ self._state(point)

    def _state(self, point: Point) -> np.ndarray:
        return np.concatenate([np.log2(1.0 + np.array(point[1], dtype=float)), [1.0]])


def _directions(sketch: Sketch) -> list[Direction]:
    found: list[Direction] = []
    for n, t in enumerate(sketch.tiles):
        levels = range(len(t.columns) + 1)
        found += [(n, a, b) for a in levels for b in levels if a != b]
    return found + [(n, by) for n, c in enumerate(sketch.choices) for by in (1, -1) if len(c.options) > 1]


def _one_step(sketch: Sketch, direction: Direction, row: tuple[int, ...]) -> list[int] | None:
    """The row one step in a direction, not yet in canonical form; None for a level of one iteration."""
    result = list(row)
    if len(direction) == 2:
        choice = sketch.choices[direction[0]]
        option = choice.options.index(row[choice.column]) + direction[1]
        result[choice.column] = choice.options[option % len(choice.options)]
        return result
    number, source, drain = direction
    tile = sketch.tiles[number]
    inner = [row[c] for c in tile.columns]
    levels = [-(-tile.extent // int(np.prod(inner))), *inner]
    if levels[source] == 1:
        return None
    factor = next(f for f in range(2, levels[source] + 1) if levels[source] % f == 0)
    for level, changed in ((source, levels[source] // factor), (drain, levels[drain] * factor)):
        if level:
            result[tile.columns[level - 1]] = changed
    return result
