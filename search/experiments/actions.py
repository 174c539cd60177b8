"""Greedy beam search over single actions (the BEAM search of tinygrad, `tinygrad/engine/search.py`).

Each level takes single actions on the schedules of the beam, measures the results, and keeps the fastest as the next beam. The
first beam is the unscheduled function. An action is a primitive with fixed arguments: a parallel loop, a vector or unrolled tile,
an exchange of two loops, a stage inlined or moved. The original measures all successors; here a cost model selects some. Each new
beam is the fastest schedules that were not in one yet, so the search goes back after a level without a faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from codegen.target import Target
from costmodel import CostModel
from schedule import Schedule, ScheduleError, replay_json
from schedule.templates.marks import parallel, plain_loops
from tir.ir import NOT_SPATIAL, Const, Kind, PrimFunc
from tir.traverse import axis_loops, blocks, loops_to

from ..measure import Candidate
from .traces import TracePolicy

BEAM_WIDTH = 4  # schedules of the beam, as tinygrad's BEAM=4
MAX_MEASURED_SUCCESSORS = 12  # most measured successors of a level
RANDOM_SHARE = 0.25  # of these, chosen without the model
TILE_WIDTHS = (2, 4, 8, 16, 32, 64)  # of tiles

Action = Callable[[Schedule], object]


class ActionBeam(TracePolicy):
    """The beam search, one action at a time on the fastest schedules."""

    name = "actions"

    def __init__(self, func: PrimFunc, target: Target, model: CostModel | None = None):
        super().__init__(func, target, model)
        self._expanded: set[str] = set()  # traces that were in a beam
        self._frontier: list[tuple[Schedule, float]] = []
        self._left = 0  # candidates that the level may still measure

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """The best successors of the beam by the model; after the end of a level, those of the next beam."""
        chosen: list[Candidate] = []
        while len(chosen) < n:
            if not self._left or not self._frontier:
                if chosen:  # the next beam needs their measurements
                    break
                self._frontier = self._successors(rng)
                self._left = MAX_MEASURED_SUCCESSORS
                if not self._frontier:
                    break
            schedule, score = self._frontier.pop(0)
            self._left -= 1
            if self.is_new(schedule):
                chosen.append(self.candidate(schedule, score))
        return chosen

    def _successors(self, rng: np.random.Generator) -> list[tuple[Schedule, float]]:
        """The results of single actions on the next beam, best score first; if all are known, on the beam after it."""
        while beam := self._beam():
            self._expanded |= {s.trace.to_json() for s in beam}
            made: dict[str, Schedule] = {}
            for schedule in beam:
                for new in successors(schedule, self.target):
                    made.setdefault(new.func.script(), new)
            unknown = [s for s in made.values() if self.is_new(s)]
            if unknown:
                unknown = [unknown[k] for k in rng.permutation(len(unknown))]  # the order of equal scores
                scores = self.scores(unknown, rng)
                order = np.argsort(-scores, kind="stable")
                good = round((1 - RANDOM_SHARE) * MAX_MEASURED_SUCCESSORS)
                order = np.concatenate([order[:good], rng.permutation(order[good:])])
                return [(unknown[k], float(scores[k])) for k in order]
        return []

    def _beam(self) -> list[Schedule]:
        """The fastest schedules that were not in a beam; at first the unscheduled function."""
        left = [t for t in self.measured if t not in self._expanded and self.measured[t] < np.inf]
        start = Schedule(self.func)
        plain_loops(start)
        if start.trace.to_json() not in self._expanded:
            return [start]
        return [replay_json(self.func, t) for t in sorted(left, key=self.measured.__getitem__)[:BEAM_WIDTH]]


def successors(schedule: Schedule, target: Target) -> Iterator[Schedule]:
    """The results of the legal actions on a schedule."""
    for action in _actions(schedule.func, target):
        new = schedule.copy()
        try:
            action(new)
        except ScheduleError:
            continue
        yield new


def _actions(func: PrimFunc, target: Target) -> Iterator[Action]:
    for block in blocks(func):
        path = loops_to(func.body, block.name)
        nest = [x for x in path if x.kind is Kind.SERIAL]
        reduced = axis_loops(block, *NOT_SPATIAL)
        for loop in nest:
            for width in TILE_WIDTHS:
                if isinstance(loop.extent, Const) and width <= loop.extent.value:
                    if loop.name not in reduced:
                        yield partial(_tile, block=block.name, loop=loop.name, width=width, mark=Kind.VECTORIZED)
                    yield partial(_tile, block=block.name, loop=loop.name, width=width, mark=Kind.UNROLLED)
        if nest and nest[0].name not in reduced and target.num_cores > 1 and all(x.kind is not Kind.PARALLEL for x in path):
            yield from (partial(parallel, loops=[x.name for x in nest[:n]]) for n in (1, 2) if len(nest) >= n)
        yield from (partial(_swap, outer=a.name, inner=b.name) for a, b in pairwise(nest))
        yield partial(Schedule.compute_inline, block=block.name)
        for consumer in Schedule(func).get_consumers(block.name):
            yield from (partial(Schedule.compute_at, block=block.name, loop=x.name) for x in loops_to(func.body, consumer))


def _tile(s: Schedule, block: str, loop: str, width: int, mark: Kind) -> None:
    """Split a loop, and vectorise or unroll its inner part innermost (tinygrad's UPCAST and UNROLL)."""
    *_, inner = s.split(loop, [None, width])
    path = s.get_loops(block)
    if path[-1] != inner:
        s.reorder(*path[path.index(inner) + 1 :], inner)
    if mark is Kind.VECTORIZED:
        s.vectorize(inner)
    else:
        s.unroll(inner)


def _swap(s: Schedule, outer: str, inner: str) -> None:
    """Exchange two loops."""
    s.reorder(inner, outer)
