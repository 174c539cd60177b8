"""The tuning of one task in steps, so that several can share a budget; and how a run of such sessions goes from start to end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from codegen.backend import backend
from schedule import ScheduleError
from tir.ir import PrimFunc
from tir.verify import VerifyError, verify

from .budget import Budget
from .events import Callback, Finished, Started
from .journal import Journal
from .loop import Loop, Proposer
from .measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer, Pauses, WorkerError
from .options import Options
from .protocol import Search
from .race import race
from .records import Records
from .result import Result
from .task import Task

WRITTEN = 0.06  # share of a budget in seconds, at most, that the program as written gets
ONE_THREAD = 3.0  # seconds that one thread of a GPU gets for the program as written


Turn = tuple["Session", int, bool]  # who measures, how many candidates, and whether next to the best


class Session:
    """A task that is tuned as far as it is asked to; a context manager that ends its worker processes.

    Nothing is started before the first `step`. `error` is why it cannot go on, if workers can't.
    """

    def __init__(self, task: Task, budget: Budget, options: Options, records: Records | None, callbacks: Sequence[Callback]):
        self.task = task
        self.error: WorkerError | None = None
        self._budget, self._options = budget, options
        self._limits = _limits(task, options.limits or Limits(), budget)
        self._journal = Journal(task, budget, records, options.seed, callbacks)
        self._stack = ExitStack()
        self._measurer: Measurer | None = None
        self._loop: Loop | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def best(self) -> Measurement | None:
        """The fastest checked candidate so far, of earlier runs too."""
        return self._journal.best

    @property
    def trials(self) -> int:
        """How many candidates this session has measured, copies of earlier ones left out."""
        return len(self._journal.measurements)

    @property
    def exhausted(self) -> bool:
        """Whether the search has nothing new to propose, or nothing can be measured."""
        return self.error is not None or (self._loop is not None and self._loop.exhausted)

    def turns(self) -> Iterator[Turn]:
        """Turns until the budget or the space is used up, where the whole budget is for this task."""
        while not self._budget.spent and not self.exhausted:
            known = (True, 0.0) if self._loop is None else (self._loop.polishes, self._loop.pace)
            yield (self, *self._budget.share(*known))

    def step(self, n: int, polish: bool = False) -> None:
        """Measure at most `n` more candidates, next to the best if `polish`. The first step also prepares the data, and measures
        the first candidates, all of them."""
        try:
            if self._loop is not None:
                self._loop.step(n, polish)
                return
            own = (self._budget.trials, self._budget.seconds) if self._budget.tasks == 1 else (None, None)
            self._journal.emit(Started(self.task, *own))
            self._measurer = self._stack.enter_context(self._make_measurer())
            self._loop = Loop(self._measurer, self._budget, self._journal, np.random.default_rng(self._options.seed))
            self._loop.start(self._make_proposer, n, self._limits.baseline)
        except WorkerError as error:
            self.error, self._journal.problem = error, str(error)

    def pause(self) -> None:
        """Let go of the worker processes until the next step, where the measurer can."""
        if isinstance(self._measurer, Pauses):
            self._measurer.pause()

    def race(self) -> None:
        """Let the leading candidates race."""
        try:
            if self._measurer is not None and self._loop is not None and self.error is None:
                race(self._journal, self._measurer, self._budget, self._loop.first)
        except WorkerError as error:
            self.error, self._journal.problem = error, str(error)

    def result(self, interrupted: bool) -> Result:
        """What was found; NothingFound if nothing was, WorkerError if for want of workers, KeyboardInterrupt if for want of
        time."""
        if self.error is not None and (self.best is None or self._measurer is None):
            raise self.error
        result = self._journal.result(interrupted)
        self._journal.emit(Finished(result))
        return result

    def _make_measurer(self) -> Measurer:
        o = self._options
        if o.measurer is None:
            return LocalMeasurer(self.task, workers=o.workers, builder=o.builder, limits=self._limits, seed=o.seed)
        made = o.measurer(self.task)
        if not all(hasattr(made, method) for method in ("__enter__", "prepare", "measure", "compare")):
            raise ValueError(f"measurer takes what makes a search.Measurer of a task; it made {made!r}")
        return made

    def _make_proposer(self) -> Proposer:
        o = self._options
        search: Any = o.search
        if search is None or isinstance(search, str):
            from . import strategies

            search = strategies.search(self.task, search or "evolution", o.model or "gbdt", o.space or "full", o.rules)
        elif isinstance(search, type) or not isinstance(search, Search):
            search = search(self.task)
        if o.first is not None:
            return search, o.first(self.task) if callable(o.first) else o.first
        try:
            return search, [default_candidate(self.task)]
        except ScheduleError as error:  # no reason not to search
            self._journal.problem = f"there is no default schedule: {error}"
            return search, []


@contextmanager
def sessions(
    tasks: Sequence[Task], budget: Budget, options: Options, callbacks: Sequence[Sequence[Callback]]
) -> Iterator[list[Session]]:
    """A session of each task, with its callbacks. VerifyError, before anything is done, if one of them is not well formed."""
    for task in tasks:
        _check(task.func)
    with ExitStack() as stack:
        records = options.records
        if isinstance(records, (str, Path)):
            records = stack.enter_context(Records(records))
        made = (Session(task, budget, options, records, own) for task, own in zip(tasks, callbacks, strict=True))
        yield [stack.enter_context(session) for session in made]


def drive(tuned: Sequence[Session], turns: Iterable[Turn]) -> bool:
    """A run: give the turns, then let the leaders of each session race. Only one at a time has worker processes. Ctrl-C ends it;
    returns whether it did."""
    active: Session | None = None

    def activate(session: Session) -> Session:
        nonlocal active
        if active is not None and active is not session:
            active.pause()
        active = session
        return session

    try:
        for session, n, polish in turns:
            activate(session).step(n, polish)
        for session in tuned:
            activate(session).race()
    except KeyboardInterrupt:
        return True
    return False


def default_candidate(task: Task) -> Candidate:
    """The schedule that needs no measurement, as a candidate."""
    return Candidate("default", (), task.default_trace())


def _limits(task: Task, limits: Limits, budget: Budget) -> Limits:
    """The limits with one for the program as written, which is only there to be compared with: it may not eat up a budget in
    seconds, and on a GPU it is for one thread."""
    device, known = backend(task.target).device is not None, task.workload is not None
    most = limits.baseline
    if budget.seconds is not None and (known or not device):
        most = min(most, 10.0, max(2.0, WRITTEN * budget.seconds / budget.tasks))
    if known and device:
        most = min(most, ONE_THREAD)
    return replace(limits, baseline=most)


def _check(func: PrimFunc) -> None:
    """VerifyError for a program that is wrong, as one that leaves its arrays; one without iterations has nothing to be wrong."""
    report = verify(func)
    if any(not f.message.endswith("extents must be at least 1") for f in report.errors):
        raise VerifyError(report)
