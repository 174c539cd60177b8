"""Monte-Carlo tree search whose moves any function proposes (Reasoning Compiler: Tang et al., NeurIPS 2025, section 3).

A node of the tree is a whole schedule. UCT selects a node with fewer than BRANCHES children. The proposer sees this node, its
ancestors with their scores, and the fastest measured schedule, and proposes changes of knobs; each makes a child. A few random
mutations of the child, scored by the model, are its rollout. The best score goes back up the path. The schedules with the best
scores are measured, and the tree stays for the next batch.

The proposer of the paper is a language model. `asking(complete)` makes one of any function from a text to a text: a call of a
service, a local model, recorded answers. Without a proposer moves are random mutations, the paper's search without a language
model. A mutation also replaces proposals that are all invalid or known. A proposal is data, and nothing in it is run.

    policy = lambda task: make_policy(task, "reasoning", proposer=asking(complete))
    tir.autotune(func, policy=policy)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..policy.rows import Point, RowPolicy
from ..population.mutate import mutants_of, mutations
from ..population.sample import legalize
from ..space.sketch import Sketch
from .knobs import knobs

BRANCHES = 2  # most proposals for a node, and children with which UCT descends from it; as in the paper
EXPLORATION = math.sqrt(2)  # of UCT, as in the paper
SIMULATIONS = 24  # nodes expanded for a batch, each with one call of the proposer
ROLLOUTS = 8  # random schedules made from a child
ROLLOUT_STEPS = 3  # mutations of each random schedule
SHOWN_NODES = 3  # nodes in a question: a node, its parent, and its grandparent

Settings = Mapping[str, Sequence[int]]  # numbers of knobs, by name


@dataclass(frozen=True)
class Prompt:
    """A question to a proposer: the sketch, the settings of a node and its ancestors with their scores, nearest first, and the
    seconds and settings of the fastest measured schedule of the sketch, if any."""

    sketch: Sketch
    nodes: tuple[tuple[float, Settings], ...]
    fastest: tuple[float, Settings] | None = None

    def text(self) -> str:
        """The question in words, for a language model; `proposals` reads its answer."""
        extents = {f"{t.block}.{t.axis}": t.extent for t in self.sketch.tiles}
        options = {c.name: c.options for c in self.sketch.choices if len(c.options) > 1}
        timed = [f"Fastest measured, {self.fastest[0] * 1e6:.4g} us: {json.dumps(self.fastest[1])}"] if self.fastest else []
        return "\n".join([
            "Improve the schedule of this tensor program.", self.sketch.func.script(), str(self.sketch),
            f"Knobs with inner tile sizes of an axis, outermost first, and the extent of the axis: {json.dumps(extents)}",
            f"Knobs with one number, and its options: {json.dumps(options)}",
            "The schedule, then its ancestors, with scores (higher is faster):",
            *(f"{score:.4g}: {json.dumps(settings)}" for score, settings in self.nodes), *timed,
            f"Answer with at most {BRANCHES} JSON objects, each from knobs to change to lists of numbers.",
        ])  # fmt: skip


Proposer = Callable[[Prompt], Iterable[Settings]]


def asking(complete: Callable[[str], str]) -> Proposer:
    """A proposer that asks a function from a text to a text."""
    return lambda prompt: proposals(complete(prompt.text()))


def proposals(answer: str) -> list[Settings]:
    """The JSON objects in a text, without nested ones."""
    found = []
    for text in re.findall(r"\{[^{}]*\}", answer):
        with suppress(json.JSONDecodeError):
            found.append(json.loads(text))
    return found


@dataclass
class _Node:
    point: Point
    score: float
    parent: _Node | None
    best: float  # best score of the node, its descendants and their rollouts
    visits: int = 0
    children: list[_Node] = field(default_factory=list)

    def path(self) -> list[_Node]:
        """The node and its ancestors."""
        return [self, *(self.parent.path() if self.parent else ())]


class ReasoningSearch(RowPolicy):
    """The best schedules of a tree of proposals."""

    def __init__(self, *args: Any, proposer: Proposer | None = None, simulations: int = SIMULATIONS, **parts: Any):
        super().__init__(*args, **parts)
        if proposer is not None and not callable(proposer):
            raise ValueError(f"proposer takes a function of a Prompt, got {proposer!r}")
        if simulations < 1:
            raise ValueError(f"simulations must be at least 1, got {simulations!r}")
        self.proposer, self.simulations = proposer, simulations
        self._mutations = mutations()
        self._knobs = [{knob.name: knob.columns for knob in knobs(s)} for s in self.sketches]
        self._roots: list[_Node] = []
        self._scores: dict[Point, float] = {}

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        if not self._roots:  # the seed of each sketch, or else its stand-ins
            first = (s.matrix([s.seed or s.stand_ins()]) for s in self.sketches)
            self._roots = [self._nodes(k, legalize(self.sketches[k], self.target, row), None)[0] for k, row in enumerate(first)]
        for _ in range(self.simulations):
            self._expand(self._selected(rng), rng)
        return self.by_score({p: score for p, score in self._scores.items() if self.is_new(p)})

    def _selected(self, rng: np.random.Generator) -> _Node:
        """The node that UCT comes to: the first on its way with fewer than BRANCHES children."""
        highest, nodes = max(node.best for node in self._roots), self._roots
        while True:
            visits = np.array([node.visits for node in nodes])
            speeds = np.exp([node.best - highest for node in nodes])  # scores are logarithms of speeds
            values = speeds + EXPLORATION * np.sqrt(np.log(1 + visits.sum()) / (visits + 1))
            node = nodes[int(np.argmax(values + 1e-9 * rng.random(len(nodes))))]
            if len(node.children) < BRANCHES:
                return node
            nodes = node.children

    def _expand(self, node: _Node, rng: np.random.Generator) -> None:
        """Add children to a node, and score them and their rollouts."""
        (k, row), sketch = node.point, self.sketches[node.point[0]]
        made = sketch.matrix(r for r in self._asked(node) if (k, tuple(r)) not in self._scores)[:BRANCHES]
        if not len(made):
            made, _ = mutants_of(sketch, self.target, sketch.matrix([row]), self._mutations, rng)
        for child in self._nodes(k, made, node):
            node.children.append(child)
            ends = sketch.matrix([child.point[1]] * ROLLOUTS)
            for _ in range(ROLLOUT_STEPS):
                ends, _ = mutants_of(sketch, self.target, ends, self._mutations, rng)
            best = max(n.score for n in (child, *self._nodes(k, ends, None)))
            for above in child.path():
                above.best, above.visits = max(above.best, best), above.visits + 1

    def _asked(self, node: _Node) -> np.ndarray:
        """The rows that the proposer asks for at a node, made legal, without invalid proposals."""
        (k, row), sketch = node.point, self.sketches[node.point[0]]
        if self.proposer is None:
            return sketch.matrix([])
        shown = tuple((n.score, self._settings(n.point)) for n in node.path()[:SHOWN_NODES])
        fastest = next(((self.measured[p], self._settings(p)) for p in self.best(len(self.measured)) if p[0] == k), None)
        changed = [self._changed(k, row, settings) for settings in self.proposer(Prompt(sketch, shown, fastest))]
        return legalize(sketch, self.target, sketch.matrix(r for r in changed if r is not None))

    def _changed(self, k: int, row: Sequence[int], settings: Any) -> list[int] | None:
        """A row with other settings; None unless all knobs are known, and numbers are positive or options of choices."""
        options = {c.column: c.options for c in self.sketches[k].choices}
        result = list(row)
        for name, numbers in settings.items() if isinstance(settings, Mapping) else ():
            columns = self._knobs[k].get(name, ())
            if not columns or not isinstance(numbers, Sequence) or len(numbers) != len(columns):
                return None
            for column, number in zip(columns, numbers, strict=True):
                if type(number) is not int or number not in options.get(column, range(1, 1 << 31)):
                    return None
                result[column] = number
        return result

    def _settings(self, point: Point) -> Settings:
        return {name: [point[1][c] for c in columns] for name, columns in self._knobs[point[0]].items()}

    def _nodes(self, k: int, rows: np.ndarray, parent: _Node | None) -> list[_Node]:
        """Scored nodes of rows; the scores are kept."""
        scores = self.scores(k, rows).tolist()
        made = [_Node((k, tuple(row)), score, parent, score) for row, score in zip(rows.tolist(), scores, strict=True)]
        self._scores |= {node.point: node.score for node in made}
        return made
