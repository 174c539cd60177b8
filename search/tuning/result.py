"""The result of a tuning run, or the error without one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.runtime.timing import duration
from schedule import Schedule, replay_json
from tir.display import bundle, html_table, preformatted, tally
from tir.script.outline import signature_text

from ..drawing.curves import plot
from ..drawing.html import alone
from ..measure import Measurement, count
from ..measure.timing import MAX_DRIFT
from ..task import Task
from .history import History, history

if TYPE_CHECKING:
    from codegen import Kernel
    from codegen.cuda.kernel import CudaKernel

    from ..policy.lineage import Generation
    from ..space.sketch import Sketch

PHASES = ("prepare", "propose", "build", "run", "race")
MEASURING = ("run", "race")


def failures(measurements: Sequence[Measurement]) -> list[tuple[str, int, str]]:
    """The kinds of failure that occurred, with the count and the most common message of each."""
    found: dict[str, Counter[str]] = {}
    for m in measurements:
        if m.outcome != "ok":
            found.setdefault(m.outcome, Counter())[m.message.splitlines()[0] if m.message else ""] += 1
    return [(kind, messages.total(), messages.most_common(1)[0][0]) for kind, messages in found.items()]


def default_seconds(race: Sequence[Measurement], trials: Sequence[Measurement], slowdown: float | None) -> float | None:
    """The seconds of the default schedule in a race, or else in its trial, times the slowdown; None if it was no valid trial."""
    found = ([m.seconds for m in of if m.candidate.sketch == "default" and m.outcome == "ok"] for of in (race, trials))
    raced, tried = (next(iter(seconds), None) for seconds in found)
    return raced if raced is not None or tried is None else tried * (slowdown or 1.0)


def certainty(result: Result) -> list[str]:
    """Sentences on candidates that the final race could not tell from the best, and on a machine that changed its speed."""
    said = []
    if result.tied:
        others = ", ".join(f"{m.candidate.sketch} ({duration(m.seconds)})" for m in result.tied)
        said.append(f"the race could not tell the best from {others}")
    if paces := [m.pace for m in result.measurements if m.pace > 1]:
        said.append(
            f"the machine was slower during {len(paces)} of {len(result.measurements)} trials, up to {max(paces):.2f} times by a"
            " kernel of known work: their times are divided by that"
        )
    if result.slowdown is not None and not 1 / MAX_DRIFT <= result.slowdown <= MAX_DRIFT:
        said.append(
            f"the machine changed its speed: a call took {result.slowdown:.2f} times as long in the race as in the trials"
        )
    return said


class NothingFound(RuntimeError):
    """No candidate was valid. `outcomes` counts them by kind, `reasons` has the most common message of each kind."""

    def __init__(self, task: Task, measurements: Sequence[Measurement]):
        self.task = task
        self.outcomes = count(measurements)
        self.reasons = {kind: message for kind, _, message in failures(measurements) if message}
        lines = [f"no valid candidate for {task.name}: {tally(self.outcomes) if measurements else 'no candidate was proposed'}"]
        lines += [f"  {kind}: {message}" for kind, message in self.reasons.items()]
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Result:
    """The result of a run. `seconds` is the median time of the best schedule, `trace` that schedule as JSON (None: as written).

    `outcomes` counts the trials by kind. `baseline` is the seconds of the program as written, `baseline_stopped` those after
    which it was stopped. A program that was too slow for the race has its earlier time at the speed of the machine in the race.
    `numpy` is the seconds of the workload in numpy, timed in turns with the best. All three may be None.
    `max_error` and `tolerance` are relative to the size of each element (`tir.workloads`). `peak` is the measured floating-point
    operations a second of the machine. `interrupted` is True if Ctrl-C ended the run before its budget was used up. `problem`, if
    not empty, is another reason for its end, or for missing records.

    `measurements` are the trials in order, and `earlier` counts the recorded ones of this task at the start. `phases` are the
    seconds of each of PHASES. `scored_per_second` is the rate of the cost model, None if unknown; `scored` counts its rows:
    `symbolic`, by shared formulas, and `concrete`, each lowered by itself. `rules` are the sketch rules of each sketch, by its
    name.

    The report shows the `sketches` and some rows of each of the `generations`. It shows `explanation`, the e-folds by which each
    feature moves the prediction for the best candidate (`costmodel.Explains`). `notices` counts degradations (`tir.notices`) by
    message. `tied` are the candidates that the final race could not tell from the best, `race` the valid measurements of that
    race. `slowdown` is the ratio of times in the race to those of the same candidates in their trials, None without a race.
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
    earlier: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    scored_per_second: float | None = None
    scored: dict[str, int] = field(default_factory=dict)
    rules: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    sketches: tuple[Sketch, ...] = field(default=(), repr=False)
    generations: tuple[Generation, ...] = field(default=(), repr=False)
    explanation: dict[str, float] = field(default_factory=dict, repr=False)
    notices: dict[str, int] = field(default_factory=dict)
    tied: tuple[Measurement, ...] = field(default=(), repr=False)
    slowdown: float | None = None
    race: tuple[Measurement, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """The best time beside those of its comparisons, and the trials by outcome."""
        return "\n".join(f"{name:12}{value}".rstrip() for name, value in self._rows()) + "\n"

    def _rows(self) -> list[tuple[str, str]]:
        def against(seconds: float | None) -> str:
            return "not measured" if seconds is None else f"{duration(seconds, 3)}, {seconds / self.seconds:.3g} × the best"

        speed = f", {self.task.flop / self.seconds / 1e9:.1f} GFLOP/s" if self.task.flop else ""
        rows = [("task", signature_text(self.task.func)), ("target", self.task.target)]
        rows += [("best", f"{duration(self.seconds, 3)}{speed}"), ("as written", against(self.baseline))]
        rows += [("numpy", against(self.numpy))] if self.numpy is not None else []
        rows.append(("trials", f"{self.trials} in {self.elapsed:.1f} s: {tally(self.outcomes)}"))
        rows += [("notice", f"{message} ({times} ×)") for message, times in self.notices.items()]
        return rows + [("problem", self.problem)] * bool(self.problem)

    def __repr__(self) -> str:
        return f"<Result {self.task.name}: {duration(self.seconds, 3)}, {self.trials} trials>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The result with the curve of the best so far, and the best program."""
        best = [math.inf if row["best"] is None else row["best"] for row in self.history]
        curve = alone(plot({"best so far": np.array([best])})) if best else ""
        rows = html_table(("", ""), self._rows(), text=(0, 1))
        return bundle(str(self), rows + curve + preformatted(self.schedule.func.outline()))

    @cached_property
    def schedule(self) -> Schedule:
        """The best schedule, replayed on the function."""
        return replay_json(self.task.func, self.trace)

    @cached_property
    def kernel(self) -> Kernel | CudaKernel:
        """The best kernel, built in this process at the first access."""
        import codegen

        return codegen.build(self.schedule.func, self.task.resolved)

    @cached_property
    def history(self) -> History:
        """The trials as a table: a list of rows, or with `.frame()` a pandas frame."""
        return history(self.measurements, self.task.flop)

    @cached_property
    def ceiling(self) -> float | None:
        """The peak, or the speed of the fastest kernel where a busy machine measured a lower peak. None without a peak."""
        if self.peak is None:
            return None
        times = (self.seconds, *(m.seconds for m in self.measurements if m.outcome == "ok"), self.numpy, self.baseline)
        return max(self.peak, *(self.task.flop / s for s in times if s is not None))

    @property
    def default(self) -> float | None:
        """The seconds of the default schedule in the race, or else in its trial at the speed of the race; None without either."""
        return default_seconds(self.race, self.measurements, self.slowdown)

    @property
    def trials(self) -> int:
        return sum(self.outcomes.values())

    @property
    def measuring(self) -> float:
        """The share of the elapsed time spent on running candidates, to time and to check them, 0 to 1."""
        return sum(self.phases.get(name, 0.0) for name in MEASURING) / self.elapsed if self.elapsed else 0.0
