"""The front door of tuning: `autotune` sets a run up, lets it happen, and gives back what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from schedule import ScheduleError
from tir.ir import PrimFunc

from .events import Callback, Finished, Started
from .measure import Candidate, Limits, LocalMeasurer, Measurer, WorkerError
from .measure.reference import Workload
from .options import check_budget, check_names, check_options
from .protocol import Search
from .records import Records
from .result import NothingFound, Result
from .run import Run
from .task import Task

if TYPE_CHECKING:
    from codegen import Target
    from costmodel import CostModel

    from .rules import Rule

ONE_THREAD = 3.0  # seconds that one thread of a GPU gets for the program as written

__all__ = ["NothingFound", "Result", "Search", "autotune", "default_candidate"]


def autotune(
    func: PrimFunc,
    target: str | Target = "llvm",
    trials: int | None = 64,
    seconds: float | None = None,
    *,
    records: str | Path | Records | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    search: str | Search | Callable[[Task], Search] | None = None,
    model: str | CostModel | None = None,
    space: str | None = None,
    rules: Sequence[Rule] | None = None,
    first: Sequence[Candidate] | None = None,
    limits: Limits | None = None,
    workload: Workload | None = None,
    workers: int | None = None,
    builder: str | None = None,
    measurer: Callable[[Task], Measurer] | None = None,
) -> Result:
    """Search for the fastest schedule of `func`, measuring candidates on this machine.

    The budget is `trials` new candidates, `seconds` of wall time, or whichever ends first. The first candidates are `first`, by
    default the schedule that needs no measurement (`tir.default_schedule`), so that the result is never worse than that; then
    those of the search; at the end some next to the best; then the leaders race, timed in turns.

    `records`, a file or an open `Records`, is told of each candidate as it ends. What it holds of this function on this target
    and processor the search is told at the start, so that a run goes on where the last one ended; the best recorded schedule is
    in the final race.

    `search` is "evolution" (the default) or "random", with the cost `model` "gbdt", "tile", "random", "none" or an object, in the
    `space` "full", "ansor" or "limited" or of other sketch `rules`; or an object with the two methods of `Search`, or what makes
    one of the task. `limits` bounds what one candidate may take; `workload` names the computation, so that float64 numpy is the
    reference; `workers` build at once, with the module `builder`; or `measurer` makes another measurer of the task.

    Ctrl-C ends the run and returns the best so far, or is passed on where there is none yet. The same seed gives the same data
    and the same proposals as long as measurements don't influence them. Raises NothingFound if no candidate is valid, ValueError
    for a bad budget, target or option, VerifyError (of `tir.verify`) for a function that is not well formed, RecordsError for a
    file that cannot be used, WorkerError where workers cannot be started.
    """
    check_budget(trials, seconds)
    check_options(records, seed, callbacks, limits, workload, workers, rules, first, builder)
    check_names(search=search, model=model, space=space)
    if measurer is not None and not callable(measurer):
        raise ValueError(f"measurer takes what makes a search.Measurer of a task, got {measurer!r}")
    if measurer is not None and not (limits is workers is builder is None):
        raise ValueError("limits, workers and builder are those of the local measurer; another measurer brings its own")
    started = time.monotonic()
    task = Task.of(func, target, workload=workload)
    limits = limits or Limits()
    cuda = task.target.startswith("cuda")
    if seconds is not None and (workload is not None or not cuda):  # a slow program as written may not eat up the budget
        limits = replace(limits, baseline=min(limits.baseline, _baseline_limit(seconds)))
    if cuda and workload is not None:  # as written it is for one thread
        limits = replace(limits, baseline=min(limits.baseline, ONE_THREAD))
    with ExitStack() as stack:
        if isinstance(records, (str, Path)):
            records = stack.enter_context(Records(records))
        run = Run(task, trials, seconds, started, callbacks, limits, records, seed)
        run.emit(Started(task, trials, seconds))
        if measurer is None:
            measuring: Measurer = LocalMeasurer(task, workers=workers, builder=builder, limits=limits, seed=seed)
        else:
            measuring = measurer(task)
            if not all(hasattr(measuring, method) for method in ("__enter__", "prepare", "measure", "compare")):
                raise ValueError(f"measurer takes what makes a search.Measurer of a task; it made {measuring!r}")

        def make() -> tuple[Search, Sequence[Candidate]]:
            proposer = _search(task, search, model, space, rules)
            if hasattr(proposer, "warm_up"):
                proposer.warm_up()
            return proposer, _first(task, run, first)

        interrupted = False
        with measuring:
            try:
                run.search(measuring, make, np.random.default_rng(seed))
                run.race(measuring)
            except KeyboardInterrupt:
                interrupted = True
            except WorkerError as error:
                if run.best is None:
                    raise
                run.problem = str(error)  # what was found before is not lost
        result = run.result(interrupted)
        run.emit(Finished(result))
        return result


def default_candidate(task: Task) -> Candidate:
    """The schedule that needs no measurement, as a candidate."""
    return Candidate("default", (), task.default_trace())


def _first(task: Task, run: Run, first: Sequence[Candidate] | None) -> Sequence[Candidate]:
    if first is not None:
        return first
    try:
        return [default_candidate(task)]
    except ScheduleError as error:  # no reason not to search
        run.problem = f"there is no default schedule: {error}"
        return []


def _search(task: Task, search: Any, model: str | CostModel | None, space: str | None, rules: Sequence[Rule] | None) -> Search:
    """What proposes candidates for the task."""
    if search is None or isinstance(search, str):
        from . import strategies

        return strategies.search(task, search or "evolution", model or "gbdt", space or "full", rules)
    if not (model is space is rules is None):
        raise ValueError("model, space and rules are those of the named searches; a search of your own brings its own")
    if not callable(search) and not hasattr(search, "propose"):
        raise ValueError(f"search takes a name, an object with propose and tell, or what makes one of the task; got {search!r}")
    return search(task) if isinstance(search, type) or not hasattr(search, "propose") else search


def _baseline_limit(seconds: float) -> float:
    """How long the program as written may run in a budget of so many seconds: it is only there to be compared with."""
    return min(10.0, max(2.0, 0.06 * seconds))
