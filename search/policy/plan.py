"""Planning: coordinate descent over the decisions of the template library, by measuring alone.

Where the estimates of templates cannot tell, as on a processor that nobody has described, a few measurements can (FFTW's
planner: Frigo and Johnson, The Design and Implementation of FFTW3, Proceedings of the IEEE 93(2), 2005, section 3). A plan begins
at the default schedule. Each step changes one decision of the best schedule so far: the template of a product, the packing of an
operand, the place of a stage, the sharing of loops by threads, then widths and unrolling. It ends where no change is faster.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from codegen.target import Target
from schedule import ScheduleError
from schedule.open_schedule import Alternatives
from schedule.open_trace import Role
from tir.ir import PrimFunc

from ..backends import search_backend
from ..measure import Candidate, Measurement, Origin

NAME = "plan"
# Decisions that change the nest come before those that change how it is written out.
ORDER = (Role.TEMPLATE, Role.PACKING, Role.LOCATION, Role.PARALLEL, Role.OTHER, Role.PRAGMA, Role.VECTOR_WIDTH)
Decisions = Mapping[str, Any]  # by the name of a choice, the option that it takes


class NoTemplate(ValueError):
    """The error for a function that the template library does not know."""


class Plan:
    """Proposes the neighbours of the best schedule, each one decision away. NoTemplate where no template knows the function."""

    def __init__(self, func: PrimFunc, target: Target):
        self._func, self._target = func, target
        self._decided = search_backend(target).decided
        self._alternatives: dict[str, Mapping[str, Alternatives]] = {}  # by trace: what else may be decided there
        default = self._trace({})
        if default is None:
            raise NoTemplate(f"no template knows {func.name}; use another policy")
        self._known: dict[str, Decisions] = {default: {}}  # by trace: the schedules that were made
        self._best: tuple[float, Decisions] = math.inf, {}
        self._next = self._neighbours(default)

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` new neighbours of the best schedule so far, all by a choice of one role."""
        found: list[Candidate] = []
        role = None
        while len(found) < n and (step := next(self._next, None)) is not None:
            if found and step[0] != role:
                self._next = chain([step], self._next)
                break
            role, decisions = step
            trace = self._trace(decisions)
            if trace is not None and trace not in self._known:
                found.append(self._candidate(trace, decisions))
                self._known[trace] = decisions
        return found

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Go on around the fastest; schedules of another origin are ignored."""
        for m in measurements:
            trace = json.dumps(m.candidate.trace)
            if trace in self._known and m.seconds < self._best[0]:
                self._best, self._next = (m.seconds, self._known[trace]), self._neighbours(trace)

    def _neighbours(self, trace: str) -> Iterator[tuple[Role, Decisions]]:
        for name, (role, options) in sorted(self._alternatives[trace].items(), key=lambda item: ORDER.index(item[1].role)):
            yield from ((role, {**self._known[trace], name: option}) for option in options)

    def _candidate(self, trace: str, decisions: Decisions) -> Candidate:
        changed = Origin(", ".join(f"{name}: {option}" for name, option in decisions.items()))
        return Candidate(NAME, (len(self._known),), json.loads(trace), origin=changed)

    def _trace(self, decisions: Decisions) -> str | None:
        """The trace of the schedule with these decisions, as JSON; None where they are refused."""
        try:
            made = self._decided(self._func, self._target, decisions)
        except ScheduleError:
            return None
        if made is None:
            return None
        trace = json.dumps(made.plain(self._func).trace.as_json())
        self._alternatives.setdefault(trace, made.alternatives)
        return trace
