"""A stochastic schedule as the whole space: a function with `sample_*` steps, whose decisions are mutated in the trace
(MetaSchedule: Shao et al., Tensor Program Optimization with Probabilistic Programs, NeurIPS 2022, sections 3 and 4).

    def space(s):
        i, j, k = s.get_loops("C")
        i_0, i_1 = s.split(i, s.sample_tile(i, 2, max_innermost_factor=8))
        j_0, j_1 = s.split(j, s.sample_perfect_tile(j, 2, max_innermost_factor=64))
        s.reorder(i_0, j_0, k, i_1, j_1)

The steps may depend on the drawn decisions. For a mutant the function is called again with the decisions of its parent, except
one, which is drawn anew. Every later decision that does not fit any more is drawn anew, too. Then postprocessors change the
schedule further, or refuse it by a ScheduleError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.target import Target
from costmodel import CostModel
from schedule import REGISTRY, Schedule, ScheduleError, Trace
from tir.ir import PrimFunc

from ..measure import Candidate
from .stochastic_schedule import POSTPROCESSORS, multi_level_tiles
from .traces import TracePolicy

Space = Callable[[Schedule], object]
Decisions = Sequence[Any]  # of the sampling steps in order; None for one to draw

POPULATION = 48  # MetaSchedule has 512; here the score of each needs lowering
GENERATIONS = 2
MUTANT_SHARE = 0.85  # share of a generation that are mutants; others are drawn anew
RANDOM_SHARE = 0.05  # of a batch, at least one, chosen without the model
MAX_DRAWS = 20  # most draws for one schedule that the postprocessors accept


class StochasticSchedule(TracePolicy):
    """Evolution of the decisions in the schedules of `space`."""

    name = "stochastic"

    def __init__(
        self,
        func: PrimFunc,
        target: Target,
        model: CostModel | None = None,
        space: Space = multi_level_tiles,
        postprocessors: Sequence[Callable[[Schedule, Target], object]] = POSTPROCESSORS,
        population: int = POPULATION,
    ):
        super().__init__(func, target, model)
        self.space, self.postprocessors, self.population = space, tuple(postprocessors), population

    def propose(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """At most `n` new schedules: the best of some generations by the model, and a few without it."""
        parents = sorted((t for t in self.measured if self.measured[t] < np.inf), key=self.measured.__getitem__)[:n]
        kept = [_decisions(Trace.from_json(text)) for text in parents]
        pool: dict[str, tuple[Schedule, float]] = {}
        generations, drawn = (GENERATIONS, self.population) if self.model is not None else (1, 2 * n)
        for _ in range(generations):
            made = [self._drawn_schedule(self._mutant(kept, rng), rng) for _ in range(drawn)]
            new = {s.trace.to_json(): s for s in made if s is not None and self.is_new(s)}
            fresh = [s for text, s in new.items() if text not in pool]
            for schedule, score in zip(fresh, self.scores(fresh, rng).tolist(), strict=True):
                pool[schedule.trace.to_json()] = schedule, score
            best = sorted(pool.values(), key=lambda found: -found[1])
            kept = [*kept[: n // 2], *(_decisions(s.trace) for s, _ in best[:n])]
        random = max(1, round(RANDOM_SHARE * n))
        chosen, rest = best[: n - random], best[n - random :]
        chosen += [rest[k] for k in rng.permutation(len(rest))[: n - len(chosen)]]
        return [self.candidate(schedule, score) for schedule, score in chosen]

    def _mutant(self, kept: Sequence[Decisions], rng: np.random.Generator) -> Decisions:
        """The decisions of a kept schedule with one left open; at times none."""
        if not kept or rng.random() > MUTANT_SHARE:
            return ()
        chosen = list(kept[int(len(kept) * rng.random() ** 2)])
        if chosen:
            chosen[rng.integers(len(chosen))] = None
        return chosen

    def _drawn_schedule(self, decisions: Decisions, rng: np.random.Generator) -> Schedule | None:
        """A schedule with these decisions, and others drawn; None if all of MAX_DRAWS draws are refused."""
        for _ in range(MAX_DRAWS):
            schedule = _Decided(self.func, decisions, rng)
            try:
                self.space(schedule)
                for postprocess in self.postprocessors:
                    postprocess(schedule, self.target)
            except ScheduleError:
                decisions = ()
                continue
            return schedule
        return None


class _Decided(Schedule):
    """A schedule whose sampling steps take given decisions, in order, if they fit."""

    def __init__(self, func: PrimFunc, decisions: Decisions, rng: np.random.Generator):
        super().__init__(func, seed=rng)
        self._decisions = list(decisions)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        known = REGISTRY[name]
        if (asked := known.decision) is not None and self._decisions:
            decision = self._decisions.pop(0)
            bound = known.bound(args, kwargs)
            if decision is not None and bound.arguments.get(asked) is None:
                bound.arguments[asked] = decision
                try:
                    return super()._apply(name, *bound.args, **bound.kwargs)
                except ScheduleError:  # it does not fit earlier decisions
                    pass
        return super()._apply(name, *args, **kwargs)


def _decisions(trace: Trace) -> Decisions:
    return [step.bound[asked] for step in trace if (asked := REGISTRY[step.name].decision) is not None]
