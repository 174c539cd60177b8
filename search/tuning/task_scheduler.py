"""Tuning of several functions under one budget: a scheduler gives each round to the task with the largest expected gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from codegen.target import Target
from costmodel import CostModel
from tir.ir import PrimFunc

from ..measure import Candidate, Limits, Measurer, WorkerError
from ..measure.reference import NamedWorkload
from ..policy.protocol import Policy
from ..records import Records
from ..task import Task
from .budget import BATCH, Budget
from .events import Event
from .gradient_allocation import Allocation, Objective, TaskHistory, choose, expel, group
from .options import Options, check_budget, check_options
from .result import NothingFound, Result
from .session import Session, Turn, drive, sessions

MIN_ROUND = 4  # candidates of a round, if the budget allows
MIN_ROUNDS = 4  # a task, on average, at least
STRATEGIES = ("gradient", "round-robin")


@dataclass(frozen=True)
class WeightedFunction:
    """A function to tune among others: `weight` is its number of calls, `workload` its named workload, if any. `seconds` is the
    known time of its default schedule, such as that inside of a network, where caches are cold. With it the function gets a round
    only if that promises most, and its times are `seconds` over its speedups alone."""

    func: PrimFunc
    weight: float = 1.0
    workload: NamedWorkload | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a task: the number of the task among distinct ones, and the trials of the round. `seconds` is the best time of
    the task after it, on the clock of its known seconds, `objective` that over all tasks. Both are infinite while a valid
    candidate is missing."""

    task: int
    trials: int
    seconds: float
    objective: float


@dataclass(frozen=True)
class TasksResult:
    """The results of a run over several tasks: a `Result` for each function, in the order given, or None without a valid
    candidate. `objective` is that of their times, `rounds` are in order. `interrupted` is True if Ctrl-C ended the run.
    `problems` has the reason for each function without a result, empty for others."""

    results: tuple[Result | None, ...]
    objective: float
    rounds: tuple[Round, ...] = field(repr=False)
    elapsed: float = 0.0
    interrupted: bool = False
    problems: tuple[str, ...] = ()

    @property
    def trials(self) -> int:
        return sum(r.trials for r in self.rounds)


def tune_tasks(
    tasks: Sequence[PrimFunc | WeightedFunction],
    target: str | Target = "llvm",
    trials: int | None = None,
    seconds: float | None = None,
    *,
    objective: Objective | None = None,
    strategy: str = "gradient",
    allocation: Allocation | None = None,
    records: str | Path | Records | None = None,
    seed: int = 0,
    callbacks: Sequence[Callable[[Task, Event], None]] = (),
    policy: str | Callable[[Task], Policy] | None = None,
    model: str | CostModel | None = None,
    space: str | None = None,
    first: Callable[[Task], Sequence[Candidate]] | None = None,
    limits: Limits | None = None,
    measurer: Callable[[Task], Measurer] | None = None,
) -> TasksResult:
    """Tune several functions under one budget of `trials` candidates in all, `seconds` of wall time, or whichever ends first.

    The run minimises `objective`, a function of the list of their seconds in the order of `tasks`. By default it is their sum,
    each times the weight of its `WeightedFunction`. Equal functions are tuned once. Each task of unknown seconds gets a round
    first. Then comes the task with the steepest expected descent of the objective, or (`strategy="round-robin"`) the next in
    turn. `allocation` holds the constants of the choice. The other options are those of `autotune`, with three differences.
    `first` makes the first candidates of a task, callbacks get the task with each event, and all tasks share the cost model.

    Ctrl-C ends the run and returns the best so far. Raises ValueError for a bad budget, target or option, VerifyError (of
    `tir.verify`) for a function that is not well formed.
    """
    if not isinstance(tasks, Sequence):
        raise ValueError(f"tasks takes a list of functions or WeightedFunctions, got a {type(tasks).__name__}")
    subjects = [t if isinstance(t, WeightedFunction) else WeightedFunction(t) for t in tasks]
    _check(subjects, trials, seconds, objective, strategy)
    options = Options(records, seed, callbacks, policy, model, space, None, first, limits, measurer=measurer)
    check_options(options)
    if isinstance(policy, Policy) and not isinstance(policy, type):
        raise ValueError(f"several tasks need a policy each: a name, or what makes one of a task; got {policy!r}")
    own = [Task.of(s.func, target, workload=s.workload) for s in subjects]
    unique = list({(t.key, t.workload): t for t in own}.values())
    position = [next(n for n, u in enumerate(unique) if (u.key, u.workload) == (t.key, t.workload)) for t in own]

    def value(found: Sequence[float]) -> float:
        each = [found[n] for n in position]
        return objective(each) if objective is not None else float(np.dot([s.weight for s in subjects], each))

    known = [subjects[position.index(n)].seconds for n in range(len(unique))]
    budget = Budget(trials, seconds, race=(limits or Limits()).race, tasks=len(unique), certain=known.count(None))
    labelled = [[partial(callback, task) for callback in callbacks] for task in unique]
    if policy is None or isinstance(policy, str):
        from ..policy.named import shared_models

        options = replace(options, model=shared_models(model, Target(target), policy or "evolution"))
    with sessions(unique, budget, options, labelled) as tuned:
        scheduler = _Scheduler(tuned, known, budget, value, strategy, allocation or Allocation(), seed)
        interrupted = drive(tuned, scheduler.turns())
        scheduler.close()
    found = [_result(session, interrupted) for session in tuned]
    alone = [None if r is None else r.seconds for r, _ in found]
    total = _total(value, [s if s and k is None else _seconds(t, k) for s, t, k in zip(alone, tuned, known, strict=True)])
    results, problems = zip(*(found[n] for n in position), strict=True)
    return TasksResult(results, total, tuple(scheduler.rounds), budget.elapsed, interrupted, problems)


def _check(
    subjects: Sequence[WeightedFunction], trials: int | None, seconds: float | None, objective: Objective | None, strategy: str
) -> None:
    if not subjects:
        raise ValueError("tasks is empty: expected at least one")
    check_budget(trials, seconds)
    if trials is not None and trials < (new := sum(s.seconds is None for s in subjects)):
        raise ValueError(f"{new} tasks need at least one trial each, got trials={trials}")
    if objective is not None and not callable(objective):
        raise ValueError(f"objective takes a function of the list of seconds, got {objective!r}")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is not supported; expected one of {', '.join(STRATEGIES)}")
    if bad := [s.weight for s in subjects if not s.weight > 0]:
        raise ValueError(f"the weight of a task must be positive, got {bad[0]}")
    if bad := [s.seconds for s in subjects if s.seconds is not None and not 0 < s.seconds < math.inf]:
        raise ValueError(f"the known seconds of a task must be positive, got {bad[0]}")


def _size(trials: int | None, tasks: int, new: int) -> int:
    """The candidates of a round; fewer for a small budget, so that each `new` task gets a first round and others are left."""
    if trials is None:
        return BATCH
    return min(BATCH, trials // max(1, new), max(MIN_ROUND, trials // (MIN_ROUNDS * tasks)))


def _seconds(session: Session, known: float | None) -> float:
    """The seconds of a task with its best schedule: `known` ones over the speedup, so that clocks do not mix, or those alone."""
    if known is not None:
        return known / session.gain
    return math.inf if session.best is None else session.best.seconds


def _total(value: Objective, seconds: Sequence[float]) -> float:
    return value(seconds) if all(map(math.isfinite, seconds)) else math.inf


def _result(session: Session, interrupted: bool) -> tuple[Result | None, str]:
    """The result of a session, or None and the reason."""
    try:
        return session.result(interrupted), ""
    except (NothingFound, WorkerError, KeyboardInterrupt) as error:
        return None, str(error) if session.begun else "it got no round"


class _Scheduler:
    """The choice of the next task in one call of `tune_tasks`."""

    def __init__(
        self,
        tuned: Sequence[Session],
        known: Sequence[float | None],
        budget: Budget,
        value: Objective,
        strategy: str,
        allocation: Allocation,
        seed: int,
    ):
        self._sessions, self._known, self._budget, self._value = tuned, known, budget, value
        self._strategy, self._allocation = strategy, allocation
        self._rng = np.random.default_rng(seed)
        self._histories = [
            TaskHistory(s.task.flop, group(s.task.func, s.task.flop), [] if k is None else [_seconds(s, k)])
            for s, k in zip(tuned, known, strict=True)
        ]
        self._size = _size(budget.trials, len(tuned), known.count(None))
        self._counted = [0] * len(tuned)  # trials in rounds
        self.rounds: list[Round] = []

    def turns(self) -> Iterator[Turn]:
        """Rounds of tasks until the budget or all spaces are used up."""
        while not self._budget.spent:
            if (task := self._choose()) is None:
                return
            session = self._sessions[task]
            size = max(self._size, self._budget.batch if self._budget.batch > BATCH else 0)  # larger for many devices
            size = size if self._budget.left is None else min(size, self._budget.left)
            yield session, size
            for n, other in enumerate(self._sessions):  # with many devices, rounds of others may have ended, too
                if (n == task and size) or other.trials > self._counted[n]:
                    self._ended(n)

    def close(self) -> None:
        """Count the measurements that ended after the last round."""
        for task, session in enumerate(self._sessions):
            if session.trials > self._counted[task]:
                self._ended(task)

    def _choose(self) -> int | None:
        if self._strategy == "round-robin":
            alive = [n for n, h in enumerate(self._histories) if not h.dead]
            return min(alive, key=lambda n: self._histories[n].rounds, default=None)
        return choose(self._histories, self._value, self._allocation, self._rng)

    def _ended(self, task: int) -> None:
        """Count the end of a round, and mark tasks that get no more. A round without measurements yet counts as under way."""
        session, history = self._sessions[task], self._histories[task]
        if session.under_way and session.trials == self._counted[task]:
            history.under_way += 1
            return
        history.under_way = 0
        trials, self._counted[task] = session.trials - self._counted[task], session.trials
        history.best.append(_seconds(session, self._known[task]))
        patience = self._allocation.patience
        hopeless = not math.isfinite(history.seconds) and history.rounds >= 3
        history.dead = session.exhausted or hopeless or (patience is not None and history.stalled_rounds >= patience)
        expel(self._histories, self._allocation)
        self.rounds.append(Round(task, trials, history.seconds, _total(self._value, [h.seconds for h in self._histories])))


def geometric_mean_speedup(references: Sequence[float]) -> Objective:
    """The objective that maximises the geometric mean of the speed-ups over reference seconds (Ansor, table 2, f3)."""

    def objective(seconds: Sequence[float]) -> float:
        return -math.exp(sum(math.log(r / max(s, 1e-12)) for r, s in zip(references, seconds, strict=True)) / len(references))

    return objective


def latency_requirements(groups: Sequence[Sequence[tuple[int, float]]], limits: Sequence[float]) -> Objective:
    """The objective that sums the times of networks, without a gain below the limit of each in seconds (Ansor, table 2, f2). A
    network is pairs of a task's number and its number of calls."""

    def objective(seconds: Sequence[float]) -> float:
        times = (sum(count * seconds[n] for n, count in group) for group in groups)
        return sum(max(t, limit) for t, limit in zip(times, limits, strict=True))

    return objective
