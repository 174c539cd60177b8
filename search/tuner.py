"""The tuning loop: propose candidates, measure them, tell the search, keep the best, and let the leaders race at the end."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tir.ir import PrimFunc

from .events import Callback, Event, Finished, Measured, NewBest, Prepared, RoundEnded, ShootOut, Started
from .measure import BASELINE, Candidate, Limits, LocalMeasurer, Measurement, WorkerError, count
from .oracle import Workload
from .task import Task

if TYPE_CHECKING:
    from codegen import Kernel, Target
    from schedule import Schedule

BATCH = 16  # candidates proposed at once
IDLE = 100  # candidates in a row that were copies of earlier ones before the space counts as exhausted
LEADERS = 4  # candidates in the final race, at most
MARGIN = 1.15  # how much slower than the best a candidate may be to be in it


class Search(Protocol):
    """Where candidates come from. A user's own needs these two methods and nothing else:

    class Fixed:
        def __init__(self, traces):
            self.left = [Candidate("mine", (n,), trace) for n, trace in enumerate(traces)]

        def propose(self, n, rng):
            chosen, self.left = self.left[:n], self.left[n:]
            return chosen

        def tell(self, measurements):
            pass

    tir.autotune(func, search=Fixed(traces))
    """

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` candidates to measure next; none when the space is exhausted."""
        ...

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Learn what became of the candidates proposed."""
        ...


class NothingFound(RuntimeError):
    """No candidate was valid. `outcomes` counts what became of them, `reasons` gives the commonest message of each kind."""

    def __init__(self, task: Task, measurements: Sequence[Measurement]):
        self.task = task
        self.outcomes = count(measurements)
        self.reasons: dict[str, str] = {}
        for kind in self.outcomes:
            messages = Counter(m.message for m in measurements if m.outcome == kind and m.message)
            if messages:
                self.reasons[kind] = messages.most_common(1)[0][0]
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.outcomes.items() if n) or "no candidate was proposed"
        lines = [f"no valid candidate for {task.name}: {kinds}"]
        lines += [f"  {kind}: {message.splitlines()[0]}" for kind, message in self.reasons.items()]
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Result:
    """What a run found. `seconds` is the median time of the best schedule, `trace` that schedule as JSON data (None: as written).

    `outcomes` counts the trials by kind. `baseline` is the program as written in seconds (`baseline_stopped` the seconds after
    which it was stopped, if it was), `numpy` the workload in numpy, timed in turns with the best; None where not measured.
    `max_error` and `tolerance` are relative to the size of each element (`tir.workloads`). `interrupted` says that Ctrl-C ended
    the run before its budget was used up; `problem`, if not empty, what else did.
    """

    task: Task
    trace: Any
    seconds: float
    outcomes: dict[str, int]
    baseline: float | None
    baseline_stopped: float | None
    numpy: float | None
    max_error: float | None
    tolerance: float | None
    peak: float | None
    elapsed: float
    interrupted: bool
    problem: str
    measurements: tuple[Measurement, ...] = field(repr=False)

    @cached_property
    def schedule(self) -> Schedule:
        """The best schedule, replayed on the function."""
        from schedule import Schedule, Trace, replay

        return Schedule(self.task.func) if self.trace is None else replay(self.task.func, Trace.from_json(self.trace))

    @cached_property
    def kernel(self) -> Kernel:
        """The best kernel, built in this process when first asked for."""
        import codegen

        return codegen.build(self.schedule.func, codegen.Target(self.task.target))

    @property
    def trials(self) -> int:
        return sum(self.outcomes.values())


def autotune(
    func: PrimFunc,
    target: str | Target = "llvm",
    trials: int | None = 64,
    seconds: float | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    search: Search | Callable[[Task], Search] | None = None,
    limits: Limits | None = None,
    workload: Workload | None = None,
    workers: int | None = None,
    builder: str = "search.measure.builder",
) -> Result:
    """Search for the fastest schedule of `func`, measuring candidates on this machine.

    The budget is `trials` candidates, `seconds` of wall time, or whichever ends first. `search` proposes the candidates (or
    makes the object that does, from the task); `limits` bounds what one candidate may take; `workload` names the computation, so
    that float64 numpy is the reference. Ctrl-C ends the run and returns the best so far. The same seed gives the same data and
    the same proposals as long as measurements don't influence them.

    Raises NothingFound if no candidate is valid, ValueError for a bad budget or target, WorkerError where workers cannot be
    started.
    """
    if trials is None and seconds is None:
        raise ValueError("a budget is needed: trials, seconds or both")
    if trials is not None and trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    if seconds is not None and seconds <= 0:
        raise ValueError(f"seconds must be positive, got {seconds}")
    started = time.monotonic()
    task = Task.of(func, target, workload=workload)
    run = _Run(task, trials, seconds, started, callbacks)
    run.emit(Started(task, trials, seconds))
    interrupted, problem = False, ""
    limits = limits or Limits()
    if seconds is not None and workload is not None:  # a slow program as written may not eat up the budget
        limits = replace(limits, baseline=min(limits.baseline, _baseline_share(seconds) * seconds))
    run.baseline_limit = limits.baseline
    with LocalMeasurer(task, workers=workers, builder=builder, limits=limits, seed=seed) as measurer:
        try:
            run.search(measurer, search, np.random.default_rng(seed))
            if run.leaders():
                run.race(measurer)
        except KeyboardInterrupt:
            interrupted = True
        except WorkerError as error:
            if run.best is None:
                raise
            problem = str(error)  # what was found before is not lost
    result = run.result(interrupted, problem)
    run.emit(Finished(result))
    return result


class _Run:
    """The state of one call of autotune."""

    def __init__(self, task: Task, trials: int | None, seconds: float | None, started: float, callbacks: Sequence[Callback]):
        self._task, self._trials, self._seconds, self._started, self._callbacks = task, trials, seconds, started, callbacks
        self._measurements: list[Measurement] = []  # one a trial
        self._outcomes = count(())
        self._copied = False  # whether a candidate was the program as written, or another valid one, again
        self._baseline: Measurement | None = None
        self.baseline_limit: float | None = None
        self._numpy: float | None = None
        self._peak: float | None = None
        self._tolerance: float | None = None
        self.best: Measurement | None = None

    def emit(self, event: Event) -> None:
        for callback in self._callbacks:
            callback(event)

    def search(self, measurer: LocalMeasurer, search: Any, rng: np.random.Generator) -> None:
        """Prepare, then rounds of proposing and measuring until the budget or the space is used up."""
        sketches = None
        if search is None:
            search = default_search(self._task)
        elif isinstance(search, type) or not hasattr(search, "propose"):
            search = search(self._task)
        sketches = len(search.sketches) if hasattr(search, "sketches") else None
        self._prepare(measurer, sketches)
        idle = 0
        while not self._spent() and idle < IDLE:
            wanted = BATCH if self._trials is None else min(BATCH, self._trials - len(self._measurements))
            proposed = search.propose(wanted, rng)
            if not proposed:
                break
            before = len(self._measurements)
            told = []
            for measurement in measurer.measure(proposed):
                told.append(measurement)
                self._record(measurement)
                if self._late():
                    break
            search.tell(told)
            idle = 0 if len(self._measurements) > before else idle + len(proposed)
            self.emit(RoundEnded(len(self._measurements), dict(self._outcomes), self._best_seconds(), self._elapsed()))

    def _prepare(self, measurer: LocalMeasurer, sketches: int | None) -> None:
        baseline = measurer.prepare()
        self._baseline, self._tolerance = baseline.measurement, baseline.tolerance
        if self._task.workload is not None:
            samples = measurer.compare([], numpy=True, rounds=3, seconds=1.0).numpy
            self._numpy = statistics.median(samples) if samples else None
        self._peak = self._measure_peak(measurer)
        self.emit(Prepared(baseline.measurement, self._numpy, self._peak, sketches))

    def _measure_peak(self, measurer: LocalMeasurer) -> float | None:
        """The highest rate of arithmetic seen so far: other processes can only lower what one look finds."""
        dtype = "float64" if any(b.dtype == "float64" for b in self._task.func.buffers) else "float32"
        found = [p for p in (self._peak, measurer.peak(dtype)) if p is not None]
        return max(found, default=None)

    def _record(self, measurement: Measurement) -> None:
        if measurement.duplicate:  # the same program as an earlier trial: it cost no run, and counts as none
            self._copied |= measurement.outcome == "ok"
            return
        self._measurements.append(measurement)
        self._outcomes[measurement.outcome] += 1
        better = measurement.max_error is not None and measurement.seconds < self._best_seconds(float("inf"))
        if better:
            self.best = measurement
        self.emit(Measured(measurement, len(self._measurements), dict(self._outcomes), self._best_seconds()))
        if better:
            self.emit(NewBest(measurement, len(self._measurements)))

    def leaders(self) -> list[Measurement]:
        """The few fastest candidates, best first, and the program as written if it is about as fast; none if none was valid."""
        written = self._baseline if self._baseline is not None and self._baseline.outcome == "ok" else None
        if self.best is None:
            return [written] if written is not None and self._outcomes["ok"] else []
        limit = MARGIN * self.best.seconds
        near = [m for m in self._measurements if m.outcome == "ok" and not m.cut and m.seconds <= limit and m is not self.best]
        found = [self.best, *sorted(near, key=lambda m: m.seconds)[: LEADERS - 1]]
        return [*found, written] if written is not None and written.seconds <= limit else found

    def race(self, measurer: LocalMeasurer) -> None:
        """Time the leading candidates (and numpy) in turns in one process, and let the fastest of them be the best."""
        leaders = self.leaders()
        self.emit(ShootOut(tuple(leaders)))
        candidates = [m.candidate for m in leaders]
        comparison = measurer.compare(candidates, numpy=self._task.workload is not None, seconds=measurer.limits.race)
        self._peak = self._measure_peak(measurer)
        valid = [m for m in comparison.candidates if m.outcome == "ok"]
        if valid:
            self.best = min(valid, key=lambda m: m.seconds)
            self._baseline = next((m for m in valid if m.candidate == BASELINE), self._baseline)
        if comparison.numpy:
            self._numpy = statistics.median(comparison.numpy)
        if comparison.tolerance is not None:
            self._tolerance = comparison.tolerance

    def result(self, interrupted: bool, problem: str) -> Result:
        """The result; NothingFound if no candidate was valid, KeyboardInterrupt if there was no time for even one."""
        if not interrupted and self._outcomes["ok"] == 0 and not self._copied:
            raise NothingFound(self._task, self._measurements)
        baseline = self._baseline if self._baseline is not None and self._baseline.outcome == "ok" else None
        best = self.best or baseline
        if best is None:
            raise KeyboardInterrupt if interrupted else NothingFound(self._task, self._measurements)
        return Result(
            task=self._task,
            trace=best.candidate.trace,
            seconds=best.seconds,
            outcomes=dict(self._outcomes),
            baseline=None if baseline is None else baseline.seconds,
            baseline_stopped=self.baseline_limit if self._baseline and self._baseline.outcome == "run_timeout" else None,
            numpy=self._numpy,
            max_error=best.max_error,
            tolerance=self._tolerance,
            peak=self._peak,
            elapsed=self._elapsed(),
            interrupted=interrupted,
            problem=problem,
            measurements=tuple(self._measurements),
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _spent(self) -> bool:
        return (self._trials is not None and len(self._measurements) >= self._trials) or self._late()

    def _late(self) -> bool:
        """Whether the budget in seconds is used up but for what the final race takes."""
        return self._seconds is not None and self._elapsed() >= self._seconds - min(3.0, 0.1 * self._seconds)

    def _best_seconds(self, default: Any = None) -> Any:
        return default if self.best is None else self.best.seconds


def _baseline_share(seconds: float) -> float:
    """The share of a budget that the program as written may take: what leaves half a minute to search, from 25 to 60 per cent."""
    return min(0.6, max(0.25, 1 - 30 / seconds))


def default_search(task: Task) -> Search:
    """Candidates drawn at random from the sketches of the task, the most promising of them first."""
    from codegen.target import Target

    from .sampler import Sampler
    from .space import generate

    target = Target(task.target)
    return Sampler(generate(task.func, target), target)
