"""One tuning run: propose candidates, measure them, record them, tell the search, keep the best, and let the leaders race."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tir.ir import PrimFunc
from tir.verify import VerifyError, verify

from .events import Callback, Event, Measured, NewBest, Prepared, RoundEnded, ShootOut
from .measure import BASELINE, NO_BASELINE, Baseline, Candidate, Limits, Measurement, Measurer, count
from .protocol import Search
from .provenance import same_compiler, versions
from .ranking import correlation
from .records import Record, Records, RecordsError
from .result import PHASES, NothingFound, Result
from .sketch import Sketch
from .task import Task
from .warm_start import examples, is_of

BATCH = 16  # candidates proposed at once
IDLE = 100  # candidates in a row that were copies of earlier ones before the space counts as exhausted
LEADERS = 4  # candidates in the final race, at most
MARGIN = 1.15  # how much slower than the best a candidate may be to be in it
CHANCE = 4.0  # how much slower a first candidate may be
BROKEN = ("wrong_result", "crash")  # what is recorded of a candidate although it was valid before
DISTURBED = 2.0  # times as slow as before is no property of a program, if all of them are
POLISH = 0.15  # share of the budget, the last, that goes to candidates next to the best

Proposer = tuple[Search, Sequence[Candidate]]  # what proposes candidates, and those to begin with


class Run:
    """The state of one call of autotune. `best` is the fastest checked candidate so far, `exhausted` whether the search had
    nothing new to propose, `problem` what went wrong on the way."""

    def __init__(
        self,
        task: Task,
        trials: int | None,
        seconds: float | None,
        started: float,
        callbacks: Sequence[Callback],
        limits: Limits,
        records: Records | None,
        seed: int,
    ):
        _check(task.func)
        self._task, self._trials, self._seconds, self._started, self._callbacks = task, trials, seconds, started, callbacks
        self._limits, self._records = limits, records
        self._measurements: list[Measurement] = []  # one a trial
        self._outcomes = count(())
        self._measured = 0  # copies included
        self._copied = False  # whether a candidate was the program as written, or another valid one, again
        self._baseline: Measurement | None = None
        self._numpy: float | None = None
        self._peak: float | None = None
        self._tolerance: float | None = None
        self._phases = dict.fromkeys(PHASES, 0.0)
        self._rate: float | None = None  # candidates scored a second
        self._scored: dict[str, int] = {}
        self._rules: dict[str, tuple[str, ...]] = {}  # that made each sketch of the search
        self._idle = 0  # candidates in a row that were copies of earlier ones
        self._first: Sequence[Candidate] = ()
        self._broken: list[Measurement] = []  # in a race
        self.best: Measurement | None = None
        self.exhausted = False
        self.problem = ""
        earlier = records.of(task.key, task.target) if records is not None else []
        own = versions()
        # What another compiler made of a trace says how fast it is, about; what failed then may work now.
        told = [r for r in earlier if r.measurement.outcome == "ok" or same_compiler(r.versions, own)]
        self._earlier = [r.measurement for r in told]
        self._again = [r.measurement for r in told if same_compiler(r.versions, own)]
        self._identifiers = {id(r.measurement): r.id for r in told}  # of the rows in the records
        self._record_best(told)
        self._run = records.start(task, seed) if records is not None else ""

    def _record_best(self, told: Sequence[Record]) -> None:
        checked = [r.measurement for r in told if r.measurement.outcome == "ok" and r.measurement.max_error is not None]
        self.best = min(checked, key=lambda m: m.seconds, default=None)

    @property
    def trials(self) -> int:
        """How many candidates were measured, copies of earlier ones left out."""
        return len(self._measurements)

    def emit(self, event: Event) -> None:
        for callback in self._callbacks:
            callback(event)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time spent within as that of a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] += time.monotonic() - start

    # --- the search ----------------------------------------------------------------------------------------------------

    def search(self, measurer: Measurer, make: Callable[[], Proposer], rng: np.random.Generator) -> None:
        """Prepare, measure the first candidates, then rounds of proposing and measuring until the budget or the space is used
        up."""
        search = self.start(measurer, make, rng)
        while not self.spent() and not self.exhausted:
            n, polish = self._share(search)
            self.step(measurer, search, rng, n, polish)

    def start(self, measurer: Measurer, make: Callable[[], Proposer], rng: np.random.Generator, n: int = BATCH) -> Search:
        """Prepare, tell the search what is known, and measure the first candidates and others of the search, about `n` in all.
        `make` makes the search and the first candidates.

        While the program as written runs, on one thread, another makes the search and has its first candidates built.
        """
        measurer.remember(self._again)
        prepared = threading.Event()
        aside = ThreadPoolExecutor(1)
        with self.phase("prepare"):
            beginning = aside.submit(self._begin, measurer, make, rng, n, prepared)
            try:
                baseline = measurer.prepare()
                prepared.set()
                search, first, proposed = beginning.result()
            finally:
                prepared.set()
                aside.shutdown(wait=False)  # Ctrl-C does not wait for what it does
            self._first = first
            self._prepare(measurer, baseline, len(search.sketches) if hasattr(search, "sketches") else None)
        if first:
            self._round(measurer, search, first)
        if proposed and not (first and self._late()):  # a budget that is used up already is good for one candidate
            self._round(measurer, search, proposed)
        return search

    def _begin(
        self, measurer: Measurer, make: Callable[[], Proposer], rng: np.random.Generator, n: int, prepared: threading.Event
    ) -> tuple[Search, Sequence[Candidate], Sequence[Candidate]]:
        """The search, told what is known; the first candidates; and the first that it proposes. They are built until the program
        as written has run."""
        search, first = make()
        if self._records is not None and hasattr(search, "warm_start"):
            with Records(self._records.path, create=False) as records:  # a connection serves one thread
                search.warm_start(examples(records, self._task))
        self._rules = {"default": ("no search: tir.default_schedule",)}
        self._rules |= {s.name: s.rules for s in getattr(search, "sketches", ()) if isinstance(s, Sketch)}
        if known := self._known_to(search):
            search.tell(known)
        if self._trials is not None:
            first = first[: self._trials]
            n = min(n, self._trials - int(POLISH * self._trials))
        proposed = _proposed(search.propose(n - len(first), rng)) if n > len(first) else ()
        if hasattr(measurer, "build_ahead"):
            measurer.build_ahead([*first, *proposed], prepared.is_set)
        return search, first, proposed

    def step(self, measurer: Measurer, search: Search, rng: np.random.Generator, n: int, polish: bool = False) -> int:
        """One round of at most `n` candidates, next to the best if `polish` and the search can; returns how many were new
        trials. Sets `exhausted` where the search has nothing new any more."""
        with self.phase("propose"):
            polished = _proposed(search.polish(n, rng)) if polish and hasattr(search, "polish") else ()
            proposed = polished or _proposed(search.propose(n, rng))
        before = len(self._measurements)
        if proposed:
            self._round(measurer, search, proposed)
        new = len(self._measurements) - before
        self._idle = 0 if new else self._idle + len(proposed)
        self.exhausted = not proposed or self._idle >= IDLE
        return new

    def _known_to(self, search: Search) -> list[Measurement]:
        """What was measured earlier, but for candidates of other sketches that have the name of one of the search's."""
        own = {s.name: s for s in getattr(search, "sketches", ()) if isinstance(s, Sketch)}
        return [m for m in self._earlier if m.candidate.sketch not in own or is_of(m.candidate, own[m.candidate.sketch])]

    def _share(self, search: Search) -> tuple[int, bool]:
        """How many candidates the next round has, and whether they are to be next to the best, as near the end of the budget."""
        batch = self._batch()
        left = batch if self._trials is None else self._trials - len(self._measurements)
        last = int(POLISH * self._trials) if self._trials is not None and hasattr(search, "polish") else 0
        if left > last and self._used() < 1 - POLISH:
            return min(batch, left - last), False
        return min(batch, left), True

    def _batch(self) -> int:
        """How many candidates to propose at once: fewer where there is no time left for many."""
        if self._seconds is None or not self._measured:
            return BATCH
        each = (self._phases["propose"] + self._phases["build"] + self._phases["run"]) / self._measured
        return int(min(BATCH, max(2.0, (self._seconds - self._reserve() - self._elapsed()) / each)))

    def _round(self, measurer: Measurer, search: Search, proposed: Sequence[Candidate]) -> None:
        """Measure candidates, and tell the search what became of them."""
        told: list[Measurement] = []
        built, ran = measurer.build_seconds, measurer.run_seconds
        for measurement in measurer.measure(proposed):
            told.append(measurement)
            self._measured += 1
            self._record(measurement)
            if self._late():
                break
        self._phases["build"] += measurer.build_seconds - built
        self._phases["run"] += measurer.run_seconds - ran
        with self.phase("propose"):
            search.tell(told)
        ranked = getattr(search, "rank_correlation", None)
        rate = getattr(search, "scored_per_second", None)
        self._rate, self._scored = rate, getattr(search, "scored", {})
        known = (len(self._measurements), dict(self._outcomes), self._best_seconds(), self._elapsed())
        self.emit(RoundEnded(*known, ranked if ranked is not None else correlation(told), rate))

    def _prepare(self, measurer: Measurer, baseline: Baseline, sketches: int | None) -> None:
        self._baseline, self._tolerance = baseline.measurement, baseline.tolerance
        self.problem = self.problem or baseline.note
        if self._task.workload is not None:
            samples = measurer.compare([], numpy=True, rounds=3, seconds=1.0).numpy
            self._numpy = statistics.median(samples) if samples else None
        self._peak = self._measure_peak(measurer)
        self.emit(Prepared(baseline.measurement, self._numpy, self._peak, sketches, len(self._earlier)))

    def _measure_peak(self, measurer: Measurer) -> float | None:
        """The highest rate of arithmetic seen so far: other processes can only lower what one look finds."""
        dtype = "float64" if any(b.dtype == "float64" for b in self._task.func.buffers) else "float32"
        found = [p for p in (self._peak, measurer.peak(dtype)) if p is not None]
        return max(found, default=None)

    def _record(self, measurement: Measurement) -> None:
        if measurement.duplicate:  # the same program as an earlier trial: it cost no run, and counts as none
            self._copied |= measurement.outcome == "ok"
            return
        measurement = replace(measurement, ended=self._elapsed())
        self._measurements.append(measurement)
        self._outcomes[measurement.outcome] += 1
        if (identifier := self._keep(Records.add, self._run, measurement)) is not None:
            self._identifiers[id(measurement)] = identifier
        better = measurement.max_error is not None and measurement.seconds < self._best_seconds(float("inf"))
        if better:
            self.best = measurement
        self.emit(Measured(measurement, len(self._measurements), dict(self._outcomes), self._best_seconds()))
        if better:
            self.emit(NewBest(measurement, len(self._measurements)))

    def _keep(self, write: Callable[..., Any], *values: Any) -> Any:
        """Call a method of the records that writes to them; a full disk or a damaged file is no reason to lose the search."""
        if self._records is None:
            return None
        try:
            return write(self._records, *values)
        except RecordsError as error:
            self._records, self.problem = None, f"not all was recorded: {error}"
            return None

    # --- the race ------------------------------------------------------------------------------------------------------

    def leaders(self) -> list[Measurement]:
        """The few fastest candidates, best first, those of earlier runs among them; the first candidates, which were timed when
        the machine may have been busier than ever after; and the program as written if it is about as fast. None if none was
        valid."""
        written = self._baseline if self._baseline is not None and self._baseline.outcome == "ok" else None
        if any(m is written for m in self._broken):
            written = None
        if self.best is None:
            return [written] if written is not None and (self._outcomes["ok"] or self._copied) else []
        limit = MARGIN * self.best.seconds
        near: dict[str, Measurement] = {}  # by the program that they make
        for m in self._sound():
            if m.outcome == "ok" and not m.cut and m.seconds <= limit and m is not self.best:
                known = near.get(m.digest or str(id(m)))
                if known is None or m.seconds < known.seconds:
                    near[m.digest or str(id(m))] = m
        near.pop(self.best.digest, None)
        found = [self.best, *sorted(near.values(), key=lambda m: m.seconds)[: LEADERS - 1]]
        for m in self._sound():
            fair = m.outcome == "ok" and m.seconds <= CHANCE * self.best.seconds and m.candidate in self._first
            if fair and not any(m is f or (m.digest and m.digest == f.digest) for f in found):
                found.append(m)
        known = any(m.candidate == BASELINE for m in found)  # of an earlier run
        return [*found, written] if written is not None and written.seconds <= limit and not known else found

    def race(self, measurer: Measurer) -> None:
        """Time the leading candidates (then numpy) in turns in one process, and let the fastest of them be the best. Where all of
        them fail and some break, those next to them race."""
        leaders = self.leaders()
        if not leaders:
            return
        self.emit(ShootOut(tuple(leaders)))
        with self.phase("race"):
            known = self._task.workload is not None
            seconds = self._limits.race if self._seconds is None else min(self._limits.race, 0.5 * self._reserve())
            comparison = measurer.compare([m.candidate for m in leaders], numpy=known, seconds=seconds)
            self._peak = self._measure_peak(measurer)
        disturbed = self._retime(leaders, comparison.candidates)
        valid = [m for m in comparison.candidates if m.outcome == "ok"]
        broken = [b for b, after in zip(leaders, comparison.candidates, strict=True) if after.outcome in BROKEN]
        if valid:
            self.best = self._winner(valid)
            self._baseline = next((m for m in valid if m.candidate == BASELINE), self._baseline)
            winner = self._identifiers.get(id(leaders[comparison.candidates.index(self.best)]))
            if winner is None and self.best.candidate == BASELINE:  # what is to be found again has to be recorded
                winner = self._keep(Records.add, self._run, self.best)
            if winner is not None and not disturbed:
                self._keep(Records.won, winner, tuple(self._identifiers.values()))
        elif broken:
            self._broken += broken
            checked = [m for m in self._sound() if m.outcome == "ok" and m.max_error is not None]
            self.best = min(checked, key=lambda m: m.seconds, default=None)
            self.race(measurer)
            return
        if comparison.numpy:
            self._numpy = statistics.median(comparison.numpy)
        if comparison.tolerance is not None:
            self._tolerance = comparison.tolerance

    def _winner(self, raced: Sequence[Measurement]) -> Measurement:
        """The fastest of those that raced: all were disturbed alike, and disturbances only ever slow down. One of the first
        candidates, which nobody searched for, gives way only to one that was faster in three of four rounds: the fastest of
        several that are alike is one that had luck."""
        fastest = min(raced, key=_lower_quartile)
        first = min((m for m in raced if m.candidate in self._first), key=_lower_quartile, default=fastest)
        gains = [f / m for f, m in zip(first.samples, fastest.samples, strict=False)]
        return fastest if np.quantile(gains, 0.25) > 1 else first

    def _sound(self) -> list[Measurement]:
        """What was measured, now and earlier, but for what broke in a race."""
        broken = {id(m) for m in self._broken}
        return [m for m in (*self._measurements, *self._earlier) if id(m) not in broken]

    def _retime(self, leaders: Sequence[Measurement], raced: Sequence[Measurement]) -> bool:
        """Record who failed in the race, and its timings, unless everything took much longer than before: then the machine was
        busy; returns whether it was."""
        pairs = [(before, after) for before, after in zip(leaders, raced, strict=True) if id(before) in self._identifiers]
        disturbed = all(after.seconds > DISTURBED * before.seconds for before, after in pairs)
        for before, after in pairs:
            if after.outcome in BROKEN or (after.outcome == "ok" and not disturbed):
                self._keep(Records.retime, self._identifiers[id(before)], after)
        return disturbed and bool(pairs)

    # --- the end -------------------------------------------------------------------------------------------------------

    def result(self, interrupted: bool) -> Result:
        """The result; NothingFound if no candidate was valid, KeyboardInterrupt if there was no time for even one."""
        found = self._outcomes["ok"] or self._copied or any(m.outcome == "ok" for m in self._earlier)
        if not interrupted and not found:
            raise NothingFound(self._task, self._measurements)
        baseline = self._baseline if self._baseline is not None and self._baseline.outcome == "ok" else None
        best = self.best or baseline
        if best is None:
            if interrupted:
                raise KeyboardInterrupt("before anything was found")
            raise NothingFound(self._task, self._measurements)
        stopped = self._baseline is not None and self._baseline.outcome == "run_timeout" and self._baseline.message != NO_BASELINE
        return Result(
            task=self._task,
            trace=best.candidate.trace,
            seconds=best.seconds,
            outcomes=dict(self._outcomes),
            baseline=None if baseline is None else baseline.seconds,
            baseline_stopped=self._limits.baseline if stopped else None,
            numpy=self._numpy,
            max_error=best.max_error,
            tolerance=self._tolerance,
            peak=self._peak,
            elapsed=self._elapsed(),
            interrupted=interrupted,
            problem=self.problem,
            measurements=tuple(self._measurements),
            earlier=len(self._earlier),
            phases=dict(self._phases),
            scored_per_second=self._rate,
            scored=dict(self._scored),
            rules=self._rules,
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def spent(self) -> bool:
        """Whether the budget is used up."""
        return (self._trials is not None and len(self._measurements) >= self._trials) or self._late()

    def _late(self) -> bool:
        """Whether the budget in seconds is used up but for what the final race takes."""
        return self._seconds is not None and self._elapsed() >= self._seconds - self._reserve()

    def _reserve(self) -> float:
        """Seconds of a budget in seconds that are kept for the final race: what timing takes, and to build, check and warm up as
        much again; more where calls are so long that three rounds of them take longer."""
        if self._seconds is None:
            return 0.0
        calls = LEADERS * self._best_seconds(0.0) + (self._numpy or 0.0)  # of a round
        return min(max(min(2 * self._limits.race, 0.15 * self._seconds), 5 * calls), 0.3 * self._seconds)

    def _used(self) -> float:
        """The share of the budget that is used up, 0 to 1."""
        shares = [] if self._trials is None else [len(self._measurements) / self._trials]
        shares += [] if self._seconds is None else [self._elapsed() / self._seconds]
        return max(shares)

    def _best_seconds(self, default: Any = None) -> Any:
        return default if self.best is None else self.best.seconds


def _proposed(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """What a search proposed; TypeError if that is anything but candidates, which is a mistake of a search of one's own."""
    if not isinstance(candidates, Sequence) or not all(isinstance(c, Candidate) for c in candidates):
        raise TypeError(f"a search proposes a list of search.Candidate, empty where it has no more; got {candidates!r}")
    return candidates


def _lower_quartile(m: Measurement) -> float:
    return float(np.quantile(m.samples, 0.25))


def _check(func: PrimFunc) -> None:
    """VerifyError for a program that is wrong, as one that leaves its arrays; one without iterations has nothing to be wrong."""
    report = verify(func)
    if any(not f.message.endswith("extents must be at least 1") for f in report.errors):
        raise VerifyError(report)
