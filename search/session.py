"""The tuning of one task in steps, so that several can share a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from .events import Callback, Finished, Started
from .measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer
from .protocol import Search
from .records import Records
from .result import Result
from .run import Run
from .task import Task


class Session:
    """A task that is tuned as far as it is asked to; a context manager that ends its worker processes.

    `search` makes what proposes candidates from the task, `first` the candidates to begin with, `measurer` what measures them.
    Nothing is started before the first `step`.
    """

    def __init__(
        self,
        task: Task,
        search: Callable[[Task], Search],
        first: Callable[[Task], Sequence[Candidate]],
        *,
        records: Records | None = None,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        limits: Limits | None = None,
        measurer: Callable[[Task], Measurer] | None = None,
    ):
        limits = limits or Limits()
        self.task = task
        self._make_search, self._make_first = search, first
        self._make_measurer = measurer or (lambda task: LocalMeasurer(task, limits=limits, seed=seed))
        self._run = Run(task, None, None, time.monotonic(), callbacks, limits, records, seed)
        self._rng = np.random.default_rng(seed)
        self._stack = ExitStack()
        self._search: Any = None
        self._measurer: Any = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def best(self) -> Measurement | None:
        """The fastest checked candidate so far, of earlier runs too."""
        return self._run.best

    @property
    def trials(self) -> int:
        """How many candidates this session has measured."""
        return self._run.trials

    @property
    def exhausted(self) -> bool:
        """Whether the search has nothing new to propose."""
        return self._run.exhausted

    def step(self, n: int, polish: bool = False) -> int:
        """Measure at most `n` more candidates, next to the best if `polish`; returns how many new trials that were. The first
        step also prepares the data, and measures the first candidates beside."""
        before = self.trials
        if self._measurer is None:
            self._start(n)
        if (left := n - (self.trials - before)) > 0:
            self._run.step(self._measurer, self._search, self._rng, left, polish)
        return self.trials - before

    def _start(self, n: int) -> None:
        self._run.emit(Started(self.task, None, None))
        self._measurer = self._stack.enter_context(self._make_measurer(self.task))
        make = lambda: (self._make_search(self.task), self._make_first(self.task))  # noqa: E731
        self._search = self._run.start(self._measurer, make, self._rng, n)

    def pause(self) -> None:
        """Let go of the worker processes until the next step, where the measurer can."""
        if hasattr(self._measurer, "pause"):
            self._measurer.pause()

    def finish(self, interrupted: bool = False) -> Result:
        """Let the leading candidates race, unless `interrupted`, and give back what was found; NothingFound if nothing was."""
        if self._measurer is not None and not interrupted:
            self._run.race(self._measurer)
        result = self._run.result(interrupted)
        self._run.emit(Finished(result))
        return result
