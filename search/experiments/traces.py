"""Common parts of policies over whole schedules, not rows of sketches: measured schedules, and a cost model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.target import Target
from costmodel import CostModel, WarmUp
from schedule import Schedule, ScheduleError, Trace, replay_json
from tir.ir import PrimFunc

from ..measure import Candidate, Measurement
from ..policy.ranking import score_rows
from ..population.programs import schedule_programs


class TracePolicy:
    """A policy that makes schedules of `func`, which are candidates of one sketch called `name`.

    `model` is a cost model that learns; `measured` has the seconds of each trace, as JSON text.
    """

    name = "schedule"

    def __init__(self, func: PrimFunc, target: Target, model: CostModel | None = None):
        self.func, self.target, self.model = func, target, model
        self.measured: dict[str, float] = {}
        self.scored = {"symbolic": 0, "concrete": 0}
        self._proposed: dict[str, PrimFunc] = {}  # functions of proposed and measured traces

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learn from measurements; those of other sketches are ignored."""
        own = {Trace.from_json(m.candidate.trace).to_json(): m.seconds for m in measurements if m.candidate.sketch == self.name}
        self.measured |= own
        if self.model is None or not own:
            return
        known = [(self._function(text), seconds) for text, seconds in own.items()]
        made = [(f, seconds) for f, seconds in known if f is not None]
        numbers = np.arange(len(made))[:, None]
        self.model.update(schedule_programs(self.func, [f for f, _ in made]), numbers, np.array([s for _, s in made]))

    def warm_up(self) -> None:
        """Load the libraries that the model needs."""
        if isinstance(self.model, WarmUp):
            self.model.warm_up()

    # --- for subclasses ---

    def is_new(self, schedule: Schedule) -> bool:
        """True if a schedule was neither measured nor proposed."""
        text = schedule.trace.to_json()
        return text not in self._proposed and text not in self.measured

    def scores(self, schedules: Sequence[Schedule], rng: np.random.Generator) -> np.ndarray:
        """The scores of schedules, higher is better; random without a model."""
        if self.model is None or not schedules:
            return rng.random(len(schedules))
        self.scored["concrete"] += len(schedules)
        programs = schedule_programs(self.func, [s.func for s in schedules])
        return score_rows(self.model, programs, np.arange(len(schedules))[:, None])[0]

    def candidate(self, schedule: Schedule, score: float) -> Candidate:
        """A schedule as a candidate, which then counts as proposed; without a model it has no score."""
        text = schedule.trace.to_json()
        self._proposed[text] = schedule.func
        return Candidate(
            self.name, (len(self._proposed) - 1,), schedule.trace.as_json(), score if self.model is not None else None
        )

    def _function(self, text: str) -> PrimFunc | None:
        """The function that a trace makes; None if a step is refused today."""
        if text not in self._proposed:
            try:
                self._proposed[text] = replay_json(self.func, text).func
            except (ScheduleError, ValueError):
                return None
        return self._proposed[text]
