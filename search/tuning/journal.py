"""The state of a run for one task: its measurements, the best of them, its records, and its callbacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..measure import BASELINE, NO_BASELINE, Baseline, Measurement, Measurer, count
from ..measure.provenance import fingerprint, same_compiler, versions
from ..records import Records, RecordsError
from ..task import Task
from .budget import Budget
from .events import Callback, Event, Measured, NewBest
from .result import PHASES, NothingFound, Result


class Journal:
    """The measurements of a task, in memory and in `records`, with the callbacks for events.

    `measurements` are the trials of this run, without duplicates, and `outcomes` counts them. `earlier` are measurements of
    earlier runs, which update the policy; `again` are earlier ones that need no new measurement. `best` is the fastest checked
    candidate, earlier runs included. `problem` is the description of a failure, or empty. The others are fields of `Result`.
    Records are those of the devices with the given `fingerprints` (default: this one).
    """

    def __init__(
        self,
        task: Task,
        budget: Budget,
        records: Records | None,
        seed: int,
        callbacks: Sequence[Callback],
        fingerprints: Sequence[str] | None = None,
    ):
        self.task, self.records = task, records
        self._budget, self._callbacks = budget, callbacks
        self.measurements: list[Measurement] = []
        self.outcomes = count(())
        self.baseline: Measurement | None = None
        self.baseline_stopped: float | None = None
        self.numpy: float | None = None
        self.peak: float | None = None
        self.tolerance: float | None = None
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.scored_per_second: float | None = None
        self.scored: dict[str, int] = {}
        self.rules: dict[str, tuple[str, ...]] = {}
        self.sketches: tuple[Any, ...] = ()
        self.generations: tuple[Any, ...] = ()
        self.explanation: dict[str, float] = {}
        self.tied: tuple[Measurement, ...] = ()
        self.slowdown: float | None = None
        self.race: tuple[Measurement, ...] = ()
        self.problem = ""
        self.notices: Counter[str] = Counter()
        self._copied = False  # a candidate was a duplicate of a valid one
        self._broken: set[int] = set()  # identities of measurements that failed in a race
        own = versions()
        # With another version of the compiler times are similar, but failures may be gone.
        self._fingerprints = fingerprints or [fingerprint(task.target)]  # the first is that of the primary device
        self.scaled_to_primary: Callable[[Measurement], Measurement] = lambda m: m
        known = [r for p in self._fingerprints for r in records.of_fingerprint(task.key, p)] if records is not None else []
        known = [r for r in known if r.first.conclusive]
        usable = [r for r in known if r.measurement.outcome == "ok" or same_compiler(r.versions, own)]
        self.earlier = [r.measurement for r in usable if r.fingerprint == self._fingerprints[0]]
        self.again = [r.measurement for r in usable if same_compiler(r.versions, own)]
        self._identifiers = {id(r.measurement): r.id for r in usable}  # of the rows in the records
        self._run = records.start(task, seed) if records is not None else ""
        self._primary: str | None = None  # the fingerprint of the primary device, once known
        self.best = self._fastest()

    def emit(self, event: Event) -> None:
        for callback in self._callbacks:
            callback(event)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the context to that of a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] += time.monotonic() - start

    @property
    def progress(self) -> tuple[int, dict[str, int], float | None]:
        """For events: the number of trials, the counts of outcomes, and the seconds of the best."""
        return len(self.measurements), dict(self.outcomes), None if self.best is None else self.best.seconds

    # --- measurements ------------------------------------------------------------------------------------------------------

    def prepared(self, baseline: Baseline, limit: float) -> None:
        """Take the measurement of the program as written, which was stopped after `limit` seconds if it timed out."""
        m = self.baseline = baseline.measurement
        self._primary = None if m.provenance is None else m.provenance.fingerprint
        self.tolerance, self.problem = baseline.tolerance, self.problem or baseline.note
        self.baseline_stopped = limit if m.outcome == "run_timeout" and m.message != NO_BASELINE else None

    def measure_peak(self, measurer: Measurer) -> None:
        """Measure the arithmetic peak again, and keep the highest, because other processes can only lower it."""
        dtype = "float64" if any(b.dtype == "float64" for b in self.task.func.buffers) else "float32"
        self.peak = max((p for p in (self.peak, measurer.peak(dtype)) if p is not None), default=None)

    def add(self, measurement: Measurement) -> None:
        """Add the measurement of a candidate. A duplicate of an earlier program was not run, and is no trial."""
        if measurement.duplicate:
            self._copied |= measurement.outcome == "ok"
            return
        measurement = replace(measurement, ended=self._budget.elapsed)
        identifier = self._keep(Records.add, self._run, measurement)
        measurement = self.scaled_to_primary(measurement)
        self.measurements.append(measurement)
        self.outcomes[measurement.outcome] += 1
        self._budget.measured += 1
        if identifier is not None:
            self._identifiers[id(measurement)] = identifier
        checked = measurement.outcome == "ok" and measurement.max_error is not None
        better = checked and self._on_primary(measurement) and (self.best is None or measurement.seconds < self.best.seconds)
        if better:
            self.best = measurement
        self.emit(Measured(measurement, *self.progress))
        if better:
            self.emit(NewBest(measurement, len(self.measurements)))

    def keep(self, measurement: Measurement) -> None:
        """Record a measurement that is no trial."""
        self._keep(Records.add, self._run, measurement)

    def found_again(self, measurement: Measurement) -> None:
        """Add a measurement that a killed run did not receive, unless it is recorded already."""
        if any(m.digest == measurement.digest and m.candidate == measurement.candidate for m in self.again):
            return
        if (identifier := self._keep(Records.add, self._run, measurement)) is not None:
            self._identifiers[id(measurement)] = identifier
        self.again.append(measurement)
        if measurement.provenance is not None and measurement.provenance.fingerprint == self._fingerprints[0]:
            self.earlier.append(measurement)
        self.best = self._fastest()

    def _on_primary(self, measurement: Measurement) -> bool:
        """True for a measurement of the primary device; times of others are only a hint."""
        origin = measurement.provenance
        return self._primary is None or origin is None or origin.fingerprint == self._primary

    def _keep(self, write: Callable[..., Any], *values: Any) -> Any:
        """Call a writing method of the records. With a full disk or a damaged file the run continues without records."""
        if self.records is None:
            return None
        try:
            return write(self.records, *values)
        except RecordsError as error:
            self.records, self.problem = None, f"not all was recorded: {error}"
            return None

    # --- the race ----------------------------------------------------------------------------------------------------------

    @property
    def sound(self) -> list[Measurement]:
        """All measurements, those of earlier runs included, except those that failed in a race."""
        return [m for m in (*self.measurements, *self.earlier) if id(m) not in self._broken]

    @property
    def written(self) -> Measurement | None:
        """The program as written, if it is valid and did not fail in a race."""
        m = self.baseline
        return m if m is not None and m.outcome == "ok" and id(m) not in self._broken else None

    @property
    def found(self) -> bool:
        """True if any candidate was valid, in this run or earlier, duplicates included."""
        return self.outcomes["ok"] > 0 or self._copied or any(m.outcome == "ok" for m in self.earlier)

    def raced(
        self, entries: Sequence[tuple[Measurement, Measurement]], winner: tuple[Measurement, Measurement] | None, certain: bool
    ) -> None:
        """Add a race: the measurements of each candidate before the race, and in it. The `winner` becomes the best. If it is
        `certain`, the records note it as the winner, and then rank no candidate known to this run before it."""
        own = [(before, after) for before, after in entries if self._on_primary(before)]
        results = {self._identifiers[id(before)]: after for before, after in own if self.recorded(before)}
        identifier = None
        if winner is not None:
            before, self.best = winner
            identifier = self._identifiers.get(id(before)) if self._on_primary(before) else None
            if identifier is None and (self.best.candidate == BASELINE or not self._on_primary(before)):  # for a later run
                identifier = self._keep(Records.add, self._run, self.best)
                results |= {} if identifier is None else {identifier: self.best}
        if results:
            self._keep(Records.race, self._run, results, identifier if certain else None)

    def discard(self, broken: Sequence[Measurement]) -> None:
        """Remove candidates that failed in a race; the best is the fastest of the others."""
        self._broken |= {id(m) for m in broken}
        self.best = self._fastest()

    def _fastest(self) -> Measurement | None:
        checked = (m for m in self.sound if m.outcome == "ok" and m.max_error is not None and self._on_primary(m))
        return min(checked, key=lambda m: m.seconds, default=None)

    def recorded(self, m: Measurement) -> bool:
        """True if a measurement is in the records."""
        return id(m) in self._identifiers

    # --- the end -----------------------------------------------------------------------------------------------------------

    def result(self, interrupted: bool) -> Result:
        """The result; NothingFound without a valid candidate, KeyboardInterrupt if interrupted before the first."""
        baseline = self.baseline if self.baseline is not None and self.baseline.outcome == "ok" else None
        best = self.best or baseline
        if interrupted and best is None:
            raise KeyboardInterrupt("before anything was found")
        if best is None or not (interrupted or self.found):
            raise NothingFound(self.task, self.measurements)
        raced = baseline is best or any(m.candidate == BASELINE for m in self.race)
        drift = 1.0 if raced or self.slowdown is None else self.slowdown
        return Result(
            task=self.task, trace=best.candidate.trace, seconds=best.seconds, outcomes=dict(self.outcomes),
            baseline=None if baseline is None else drift * baseline.seconds, baseline_stopped=self.baseline_stopped,
            numpy=self.numpy, max_error=best.max_error, tolerance=self.tolerance, peak=self.peak, elapsed=self._budget.elapsed,
            interrupted=interrupted, problem=self.problem, measurements=tuple(self.measurements), earlier=len(self.earlier),
            phases=dict(self.phases), scored_per_second=self.scored_per_second, scored=dict(self.scored), rules=self.rules,
            sketches=self.sketches, generations=self.generations, explanation=self.explanation,
            notices=dict(self.notices), tied=self.tied, slowdown=self.slowdown, race=self.race,
        )  # fmt: skip
