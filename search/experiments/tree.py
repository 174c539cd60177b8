"""Monte-Carlo tree search over the decisions of a schedule (ProTuner: Haj-Ali et al., 2020, section 3).

The root picks a sketch, each node below it the setting of the next knob. UCT chooses the path. As in the paper, the value of a
node is that of the best program below it, not the mean, because one fast program counts. The path ends at an unvisited node.
Random rows complete the program, the model scores them, and the best score goes back up the path. The best programs of the whole
tree are measured, and the next tree has a model that learned from them. A node of many visits has more children (progressive
widening, Coulom 2007), because the sizes of an axis are too many to try each. Without a model the search is random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..policy.rows import Point, RowPolicy, points_of
from ..population.sample import legalize
from .knobs import knobs, settings

EXPLORATION = 0.2  # of UCT; the best program has the value 1
SIMULATIONS = 128  # paths of a tree
SCORED_PATHS = 32  # paths whose programs are scored together; a path under way counts as visited
ROLLOUTS = 8  # random programs at the end of a path
WIDENING = 1.5  # children of a node with v visits: WIDENING * sqrt(v)

Setting = tuple[int, ...]


@dataclass
class _Node:
    """A node of the tree: `score` is that of the best program below it, `children` are by their settings."""

    visits: int = 0
    score: float = -math.inf
    children: dict[Setting, _Node] = field(default_factory=dict)


class TreeSearch(RowPolicy):
    """The best programs of a tree search by the model."""

    def __init__(self, *args: object, simulations: int = SIMULATIONS, **parts: object):
        super().__init__(*args, **parts)  # type: ignore[arg-type]
        self.simulations = simulations
        self._knobs = [knobs(s) for s in self.sketches]

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        root = _Node()
        found: dict[Point, float] = {}
        known = self.best(n)
        self._finish(root, [self._path_of(p) for p in known], [self.sketches[k].matrix([row]) for k, row in known], found)
        for _ in range(max(1, self.simulations // SCORED_PATHS)):
            paths = [self._selected(root, rng) for _ in range(SCORED_PATHS)]
            self._finish(root, paths, [self._completed(path, rng) for path in paths], found)
        return self.by_score(found)

    def _finish(self, root: _Node, paths: Sequence[list[Setting]], ends: Sequence[np.ndarray], found: dict[Point, float]) -> None:
        """Score the programs at the ends of paths, and update the nodes of the paths."""
        for k in range(len(self.sketches)):
            own = [(path, rows) for path, rows in zip(paths, ends, strict=True) if path[0][0] == k]
            if not own:
                continue
            scores = self.scores(k, np.concatenate([rows for _, rows in own]))
            start = 0
            for path, rows in own:
                mine = scores[start : start + len(rows)]
                start += len(rows)
                found |= zip(points_of({k: rows}), mine.tolist(), strict=True)
                node = root
                for setting in [*path, None]:
                    node.score = max(node.score, float(mine.max()))
                    if setting is not None:
                        node = node.children.setdefault(setting, _Node())

    def _path_of(self, point: Point) -> list[Setting]:
        """The path of a whole row."""
        k, row = point
        return [(k,), *(tuple(row[c] for c in knob.columns) for knob in self._knobs[k])]

    def _selected(self, root: _Node, rng: np.random.Generator) -> list[Setting]:
        """The path from the root to an unvisited node, or to a complete program."""
        node = root
        path: list[Setting] = []
        while True:
            node.visits += 1
            if path and (node.visits == 1 or len(path) > len(self._knobs[path[0][0]])):
                return path
            options = self._widened(node, path, rng)
            bound = math.log(node.visits + 1)
            values = [  # scores are logarithms of speeds; a node without one counts as the best
                (math.exp(c.score - root.score) if math.isfinite(c.score) else 1.0)
                + EXPLORATION * math.sqrt(bound / (c.visits + 0.5))
                for c in options.values()
            ]
            setting = list(options)[int(np.argmax(np.array(values) + 1e-9 * rng.random(len(values))))]
            path.append(setting)
            node = options[setting]

    def _widened(self, node: _Node, path: list[Setting], rng: np.random.Generator) -> dict[Setting, _Node]:
        """The children of a node, with new ones if it has enough visits."""
        if not path:
            for k in range(len(self.sketches)):
                node.children.setdefault((k,), _Node())
            return node.children
        k = path[0][0]
        wanted = math.ceil(WIDENING * math.sqrt(node.visits))
        if len(node.children) < wanted:
            knob = self._knobs[k][len(path) - 1]
            for setting in settings(self.sketches[k], self.target, knob, wanted, rng).tolist():
                if len(node.children) < wanted:
                    node.children.setdefault(tuple(setting), _Node())
        return node.children

    def _completed(self, path: list[Setting], rng: np.random.Generator) -> np.ndarray:
        """Random programs with the settings of a path."""
        k = path[0][0]
        rows = self.sampled(k, ROLLOUTS, rng)
        for knob, setting in zip(self._knobs[k], path[1:], strict=False):
            rows[:, knob.columns] = setting
        return np.unique(legalize(self.sketches[k], self.target, rows), axis=0)
