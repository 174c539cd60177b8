"""The tuning loop: propose candidates, measure them, write them down, tell the search."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .budget import Budget
from .events import Prepared, RoundEnded
from .journal import Journal
from .measure import BuildsAhead, Candidate, Measurement, Measurer
from .protocol import Polishes, Search, WarmStarts, WarmsUp
from .race import LEADERS
from .ranking import correlation
from .records import Records
from .sketch import Sketch
from .warm_start import examples, is_of

IDLE = 100  # candidates in a row that were copies of earlier ones before the space counts as exhausted

Proposer = tuple[Search, Sequence[Candidate]]  # what proposes candidates, and those to begin with


class Loop:
    """The rounds of one task. `search` proposes; `first` are the candidates measured before its own; `exhausted` says that there
    is nothing new to propose."""

    search: Search

    def __init__(self, measurer: Measurer, budget: Budget, journal: Journal, rng: np.random.Generator):
        self._measurer, self._budget, self._journal, self._rng = measurer, budget, journal, rng
        self._measured = 0  # copies included
        self._idle = 0  # candidates in a row that were copies of earlier ones
        self.first: Sequence[Candidate] = ()
        self.exhausted = False

    def start(self, make: Callable[[], Proposer], n: int, limit: float) -> None:
        """Prepare, tell the search what is known, and measure the first candidates and others of the search, about `n` in all.
        `make` makes the search and the first candidates; the program as written may take `limit` seconds."""
        self._measurer.remember(self._journal.again)
        with self._journal.phase("prepare"):
            self.search, self.first, proposed = self._prepare(make, n, limit)
        if self.first:
            self._round(self.first)
        if proposed and not (self.first and self._budget.late):  # a budget that is used up is good for one candidate
            self._round(proposed)

    def _prepare(
        self, make: Callable[[], Proposer], n: int, limit: float
    ) -> tuple[Search, Sequence[Candidate], Sequence[Candidate]]:
        """While the program as written runs, on one thread, another makes the search and has its first candidates built."""
        journal, measurer = self._journal, self._measurer
        prepared = threading.Event()
        aside = ThreadPoolExecutor(1)
        beginning = aside.submit(self._begin, make, n, prepared)
        try:
            baseline = measurer.prepare()
            prepared.set()
            search, first, proposed = beginning.result()
        finally:
            prepared.set()
            aside.shutdown(wait=False)  # Ctrl-C does not wait for what it does
        journal.prepared(baseline, limit)
        if journal.task.workload is not None:
            samples = measurer.compare([], numpy=True, rounds=3, seconds=1.0).numpy
            journal.numpy = statistics.median(samples) if samples else None
        journal.measure_peak(measurer)
        sketches = len(search.sketches) if hasattr(search, "sketches") else None
        journal.emit(Prepared(baseline.measurement, journal.numpy, journal.peak, sketches, len(journal.earlier)))
        return search, first, proposed

    def _begin(
        self, make: Callable[[], Proposer], n: int, prepared: threading.Event
    ) -> tuple[Search, Sequence[Candidate], Sequence[Candidate]]:
        """The search, told what is known; the first candidates; and the first that it proposes. They are built until the program
        as written has run."""
        journal = self._journal
        search, first = make()
        if isinstance(search, WarmsUp):
            search.warm_up()
        if journal.records is not None and isinstance(search, WarmStarts):
            with Records(journal.records.path, create=False) as records:  # a connection serves one thread
                search.warm_start(examples(records, journal.task))
        own = {s.name: s for s in getattr(search, "sketches", ()) if isinstance(s, Sketch)}
        journal.rules = {"default": ("no search: tir.default_schedule",), **{name: s.rules for name, s in own.items()}}
        # Candidates of other sketches that have the name of one of the search's are left out.
        known = [m for m in journal.earlier if (s := own.get(m.candidate.sketch)) is None or is_of(m.candidate, s)]
        if known:
            search.tell(known)
        first = first[: self._budget.left]
        proposed = _candidates(search.propose(n - len(first), self._rng)) if n > len(first) else ()
        if isinstance(self._measurer, BuildsAhead):
            self._measurer.build_ahead([*first, *proposed], prepared.is_set)
        return search, first, proposed

    @property
    def polishes(self) -> bool:
        """Whether the search knows what is next to the best."""
        return isinstance(self.search, Polishes)

    @property
    def pace(self) -> float:
        """Seconds that a candidate has taken so far, from its proposal on; 0 before there is one."""
        phases = self._journal.phases
        return (phases["propose"] + phases["build"] + phases["run"]) / self._measured if self._measured else 0.0

    def step(self, n: int, polish: bool = False) -> None:
        """One round of at most `n` candidates, next to the best if `polish` and the search can."""
        with self._journal.phase("propose"):
            proposed: Sequence[Candidate] = ()
            if polish and isinstance(self.search, Polishes):
                proposed = _candidates(self.search.polish(n, self._rng))
            proposed = proposed or _candidates(self.search.propose(n, self._rng))
        before = len(self._journal.measurements)
        if proposed:
            self._round(proposed)
        self._idle = 0 if len(self._journal.measurements) > before else self._idle + len(proposed)
        self.exhausted = not proposed or self._idle >= IDLE

    def _round(self, proposed: Sequence[Candidate]) -> None:
        """Measure candidates, and tell the search what became of them."""
        journal, measurer = self._journal, self._measurer
        told: list[Measurement] = []
        built, ran = measurer.build_seconds, measurer.run_seconds
        for measurement in measurer.measure(proposed):
            told.append(measurement)
            self._measured += 1
            journal.add(measurement)
            best = 0.0 if journal.best is None else journal.best.seconds
            self._budget.rounds[journal.task.key] = LEADERS * best + (journal.numpy or 0.0)
            if self._budget.late:
                break
        journal.phases["build"] += measurer.build_seconds - built
        journal.phases["run"] += measurer.run_seconds - ran
        with journal.phase("propose"):
            self.search.tell(told)
        self._report(told)

    def _report(self, told: Sequence[Measurement]) -> None:
        """Let callbacks know that a round has ended, and what the search says of itself."""
        journal, search = self._journal, self.search
        journal.scored_per_second = getattr(search, "scored_per_second", None)
        journal.scored = dict(getattr(search, "scored", {}))
        ranked = getattr(search, "rank_correlation", None)
        ranked = correlation(told) if ranked is None else ranked
        journal.emit(RoundEnded(*journal.progress, self._budget.elapsed, ranked, journal.scored_per_second))


def _candidates(proposed: Sequence[Candidate]) -> Sequence[Candidate]:
    """What a search proposed; TypeError if that is anything but candidates, which is a mistake of a search of one's own."""
    if not isinstance(proposed, Sequence) or not all(isinstance(c, Candidate) for c in proposed):
        raise TypeError(f"a search proposes a list of search.Candidate, empty where it has no more; got {proposed!r}")
    return proposed
