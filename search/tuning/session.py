"""A session: the tuning of one task, in steps: propose candidates, measure and record them, update the policy.

Several sessions can share a budget; `drive` runs them from start to end.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from codegen.backend import backend
from codegen.processor import host_cores
from costmodel import WarmUp
from schedule import ScheduleError
from tir.notices import counted, degraded
from tir.verify import check

from ..measure import Candidate, Limits, LocalMeasurer, Measurement, Measurer, Origin, WorkerError
from ..measure.protocol import WAIT_SECONDS, OtherDevices
from ..policy.protocol import Begins, Evolves, ExplainsCandidates, Policy, Scored, Sketched, Streams, WarmStarts
from ..policy.ranking import correlation
from ..policy.warm_start import examples, is_of
from ..records import Records
from ..space.sketch import Sketch
from ..task import Task
from .budget import Budget
from .events import Callback, Finished, Prepared, RoundEnded, Started
from .journal import Journal
from .options import Options
from .race import MAX_LEADERS, race
from .result import Result, default_seconds

MAX_COPIES = 100  # successive candidates that copy earlier ones before the space counts as exhausted
BASELINE_SHARE = 0.06  # largest share of a budget in seconds for the program as written
RANKED_CANDIDATES = 64  # latest candidates of which a display shows the rank correlation
COMPARISON_SECONDS = 3.0  # for a program as written that serves for comparison alone


Turn = tuple["Session", int]  # a session, and a number of candidates
Beginning = tuple[Policy, Sequence[Candidate]]  # a policy, and the candidates to measure before it searches


class Session:
    """The tuning of a task, step by step; a context manager that ends its worker processes.

    Nothing is started before the first `step`. `error` is a failure of workers that ended it; `under_way` counts the candidates
    submitted and not ended.
    """

    def __init__(self, task: Task, budget: Budget, options: Options, records: Records | None, callbacks: Sequence[Callback]):
        self.task = task
        self.error: WorkerError | None = None
        self._budget, self._options = budget, options
        self._limits = _limits(task, options.limits or Limits(), budget)
        measurer = options.measurer
        known = [d.fingerprint for d in measurer.devices(task.target)] if isinstance(measurer, OtherDevices) else None
        self._journal = Journal(task, budget, records, options.seed, callbacks, known)
        self._rng = np.random.default_rng(options.seed)
        self._stack = ExitStack()
        self._measurer: Measurer | None = None
        self._rounds = True  # a step ends with the last of its candidates, so that the measurer gets a round at a time
        self._policy: Policy | None = None
        self._first: Sequence[Candidate] = ()  # the candidates measured before those of the policy
        self._measured = 0  # copies included
        self._idle = 0  # candidates in a row that were copies of earlier ones
        self._exhausted = False
        self._warm = False  # the policy has learned of other tasks
        self.under_way = 0
        self._untaught: list[Measurement] = []  # not yet passed to the policy
        self._recent: deque[Measurement] = deque(maxlen=RANKED_CANDIDATES)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def best(self) -> Measurement | None:
        """The fastest checked candidate so far, of earlier runs too."""
        return self._journal.best

    @property
    def gain(self) -> float:
        """The speedup of the best candidate over the default schedule or else the first valid one, all timed alone; else 1."""
        journal = self._journal
        trials = (*journal.measurements, *journal.earlier)
        default = default_seconds(journal.race, trials, journal.slowdown)
        known = default or next((m.seconds for m in trials if m.outcome == "ok"), None)
        return known / self.best.seconds if self.best is not None and known is not None else 1.0

    @property
    def trials(self) -> int:
        """The number of measured candidates of this session, without copies of earlier ones."""
        return len(self._journal.measurements)

    @property
    def begun(self) -> bool:
        """True after the first step."""
        return self._measurer is not None or self.error is not None

    @property
    def exhausted(self) -> bool:
        """True if the policy has nothing new to propose, or nothing can be measured."""
        return self.error is not None or (self._exhausted and not self.under_way)

    def turns(self) -> Iterator[Turn]:
        """Turns of a single task, until the budget or the space is used up."""
        while not self._budget.spent and not self.exhausted:
            spent = sum(self._journal.phases[name] for name in ("propose", "build", "run"))
            yield self, self._budget.share(spent / self._measured if self._measured else 0.0)

    def step(self, n: int) -> None:
        """Measure at most `n` more candidates. The first step also prepares the data, and measures all first candidates."""
        if self._measurer is None or self._policy is None:
            self._catching(lambda: self._start(n))
        else:
            self._catching(lambda: self._go_on(n))

    def _catching(self, act: Callable[[], None]) -> None:
        """Run an action; a failure of workers ends the session, and its candidates under way count no more."""
        try:
            with counted(self._journal.notices):
                act()
        except WorkerError as error:
            self.error, self._journal.problem = error, str(error)
            self._count(-self.under_way)

    def look(self) -> None:
        """Take the measurements that have ended meanwhile, without waiting."""
        if self.under_way:
            self._catching(lambda: self._wait(0.0))

    def drain(self) -> None:
        """Wait for candidates under way until the time is up."""
        while self.under_way and self.error is None and not self._budget.late:
            self._catching(lambda: self._wait(1.0))
        self._catching(self._abandon)

    def pause(self) -> None:
        """Release the worker processes until the next step, if the measurer can."""
        if self._measurer is not None:
            self._measurer.pause()

    def race(self) -> None:
        """Let the leading candidates race. A task to which no time is left keeps the times of its trials."""
        if (measurer := self._measurer) is not None and self.error is None and self._budget.fits_race(self.task.key):
            self._catching(lambda: race(self._journal, measurer, self._budget, self._first))

    def result(self, interrupted: bool) -> Result:
        """The result of the session; without one NothingFound, WorkerError if workers failed, or KeyboardInterrupt."""
        if self.error is not None and (self.best is None or self._measurer is None):
            raise self.error
        if self._measurer is not None:
            self._journal.problem = self._journal.problem or self._measurer.remark
        best = self.best
        if isinstance(self._policy, ExplainsCandidates) and best is not None:
            self._journal.explanation = self._policy.explanation(best.candidate)
        result = self._journal.result(interrupted)
        self._journal.emit(Finished(result))
        return result

    # --- the beginning -------------------------------------------------------------------------------------------------

    def _start(self, n: int) -> None:
        """Prepare, and measure the first candidates and others of the policy, about `n` in all."""
        journal, budget = self._journal, self._budget
        own = (budget.trials, budget.seconds) if budget.tasks == 1 else (None, None)
        journal.emit(Started(self.task, *own))
        measurer = self._measurer = self._stack.enter_context(self._make_measurer())
        self._rounds, journal.scaled_to_primary = not measurer.slots, measurer.scaled_to_primary
        if recorded := journal.records is not None:  # else the results of a killed run wait for the next run with records
            for measurement in measurer.finished():
                journal.found_again(measurement)
        if not self._rounds:
            measurer.written = lambda: not recorded or journal.records is not None
        budget.batch = max(budget.batch, measurer.slots // 2)
        measurer.remember(journal.again)
        with journal.phase("prepare"):
            self._policy, first = self._prepare(measurer, n)
        self._submit(first)
        spent = bool(first) and budget.spent  # even a budget that is used up allows one candidate
        if not spent:
            self._learn_of_others(self._policy)
        self._teach()
        if len(first) < n and not spent:
            self._submit(self._proposed(n - len(first)))
            self._teach()

    def _make_measurer(self) -> Measurer:
        o = self._options
        if o.measurer is None:
            return LocalMeasurer(
                self.task, limits=self._limits, seed=o.seed, workers=o.workers, builder=o.builder, inputs=o.inputs
            )
        made = o.measurer(self.task)
        if not isinstance(made, Measurer):
            raise ValueError(f"measurer takes what makes a search.Measurer of a task; it made {made!r}")
        return made

    def _prepare(self, measurer: Measurer, n: int) -> Beginning:
        """Run the program as written, while another thread makes the policy and has the first candidates built."""
        journal = self._journal
        prepared = threading.Event()
        aside = ThreadPoolExecutor(1)
        beginning = aside.submit(copy_context().run, self._begin, measurer, n, prepared)
        try:
            baseline = measurer.prepare()
            prepared.set()
            policy, first = beginning.result()
        finally:
            prepared.set()
            aside.shutdown(wait=False)  # Ctrl-C does not wait for it
        journal.prepared(baseline, self._limits.baseline)
        if self.task.workload is not None:
            samples = measurer.compare([], numpy=True, rounds=3, seconds=1.0).numpy
            journal.numpy = statistics.median(samples) if samples else None
        journal.measure_peak(measurer)
        sketches = len(policy.sketches) if isinstance(policy, Sketched) else None
        journal.emit(Prepared(baseline.measurement, journal.numpy, journal.peak, sketches, len(journal.earlier)))
        return policy, first

    def _begin(self, measurer: Measurer, n: int, prepared: threading.Event) -> Beginning:
        """The policy, updated with records of the task, and the first candidates, which are built until the program as written
        has run. Meanwhile a free core loads the code of the models."""
        journal = self._journal
        policy, self._first = self._make_policy()
        sketches = policy.sketches if isinstance(policy, Sketched) else ()
        own = {s.name: s for s in sketches if isinstance(s, Sketch)}
        journal.rules = {"default": ("no search: tir.default_schedule",), **{name: s.rules for name, s in own.items()}}
        journal.sketches = tuple(own.values())
        # Without candidates of other sketches under a name of the policy's.
        known = [m for m in journal.earlier if (s := own.get(m.candidate.sketch)) is None or is_of(m.candidate, s)]
        if known:
            self._learn_of_others(policy)
            policy.update(known)
        first = self._first = self._first[: self._budget.left]
        if isinstance(policy, Begins) and n > len(first):
            first = [*first, *_candidates(policy.begin(n - len(first)))]
        measurer.build_ahead(first, prepared.is_set)
        if isinstance(policy, WarmUp) and host_cores() > 1 and not prepared.is_set():
            policy.warm_up()
        return policy, first

    def _learn_of_others(self, policy: Policy) -> None:
        """Let the policy learn from the records of other tasks, once, before those of this one."""
        records = self._journal.records
        if records is not None and isinstance(policy, WarmStarts) and not self._warm:
            with Records(records.path, create=False) as own:  # a connection serves one thread
                policy.warm_start(examples(own, self.task, policy.taught))
        self._warm = True

    def _make_policy(self) -> tuple[Policy, Sequence[Candidate]]:
        """The policy, and the first candidates."""
        o = self._options
        policy: Any = o.policy
        if policy is None or isinstance(policy, str):
            from ..policy.named import make_policy

            policy = make_policy(self.task, policy or "evolution", o.model, o.space, o.rules)
        elif isinstance(policy, type) or not isinstance(policy, Policy):
            policy = policy(self.task)
        if o.first is not None:
            return policy, o.first(self.task) if callable(o.first) else o.first
        try:
            return policy, [default_candidate(self.task)]
        except ScheduleError as error:  # no reason not to search
            self._journal.problem = f"no default schedule: {error}"
            return policy, []

    # --- the search ----------------------------------------------------------------------------------------------------

    def _go_on(self, n: int) -> None:
        """Have at most `n` more candidates measured, as soon as the measurer has room for them."""
        measurer, budget = self._measurer, self._budget
        assert measurer is not None
        self._wait(0.0)
        while self.under_way and not budget.late and measurer.room < max(1, min(n, budget.batch // 2)):
            self._wait(0.1)
        self._teach()
        n = n if self._rounds else min(n, measurer.room)
        if n and not self._exhausted and not budget.late and self._submit(self._proposed(n)):
            self._teach()
        else:
            self._exhausted |= n > 0 and not self.under_way
            self._wait(0.1)

    def _proposed(self, n: int) -> Iterator[Candidate | None]:
        """The candidates of the policy, each when it is chosen; None while kernels can run meanwhile."""
        policy, measurer = self._policy, self._measurer
        assert policy is not None and measurer is not None
        if not isinstance(policy, Streams):
            yield from _candidates(policy.propose(n, self._rng))
        elif self._rounds and measurer.spare:
            yield from self._aside(measurer, policy.proposals(n, self._rng))
        else:
            yield from policy.proposals(n, self._rng)

    def _aside(self, measurer: Measurer, candidates: Iterator[Candidate]) -> Iterator[Candidate | None]:
        """The candidates, which another thread chooses while kernels leave a core free; None while the next is not yet chosen."""
        chosen, ended = SimpleQueue[Candidate](), threading.Event()

        def choose() -> None:
            while not ended.is_set() and (candidate := next(candidates, None)) is not None:
                chosen.put(candidate)

        with ThreadPoolExecutor(1) as aside:
            choosing = aside.submit(copy_context().run, choose)
            try:
                while not (choosing.done() and chosen.empty()):
                    measurer.choosing = not choosing.done()
                    try:
                        yield chosen.get(timeout=0.0 if self.under_way else WAIT_SECONDS)
                    except Empty:
                        yield None
                choosing.result()
            finally:
                ended.set()
                measurer.choosing = False

    def _submit(self, candidates: Iterable[Candidate | None]) -> bool:
        """Have candidates measured, in rounds each as it comes, until the time is up; True if there were any."""
        measurer, sent = self._measurer, []
        assert measurer is not None

        def counted() -> Iterator[Candidate | None]:
            for candidate in candidates:
                if candidate is not None:
                    sent.append(candidate)
                    self._count(1)
                yield candidate
                if sent and self._budget.late:
                    return

        phases, start = self._journal.phases, time.monotonic()
        others = sum(phases.values())
        try:
            if not self._rounds:
                measurer.submit([c for c in counted() if c is not None])
            else:
                self._take(measurer.measure(counted()))
                self._count(-self.under_way)  # those left
        finally:
            if isinstance(candidates, Generator):  # nothing is chosen any more when the policy learns
                candidates.close()
        phases["propose"] += time.monotonic() - start - (sum(phases.values()) - others)
        return bool(sent)

    def _wait(self, timeout: float) -> None:
        """Add the measurements so far, and those of the next `timeout` seconds."""
        if self._measurer is not None and self.under_way:
            self._take(self._measurer.results(timeout))

    def _take(self, results: Iterator[Measurement]) -> None:
        """Add measurements as they end; in rounds until the time is up."""
        journal, measurer = self._journal, self._measurer
        assert measurer is not None
        built, ran = measurer.build_seconds, measurer.run_seconds
        for measurement in results:
            self._add(measurement)
            if self._rounds and self._budget.late:
                break
        journal.phases["build"] += measurer.build_seconds - built
        journal.phases["run"] += measurer.run_seconds - ran

    def _add(self, measurement: Measurement) -> None:
        """Add a measurement to the journal and the budget."""
        journal = self._journal
        if measurement.drifted:  # the candidate is measured again
            journal.keep(measurement)
            return
        self._count(-1)
        self._idle = self._idle + 1 if measurement.duplicate else 0
        self._exhausted |= self._idle >= MAX_COPIES
        if measurement.outcome == "fault":
            degraded(f"a worker's own code failed, and its candidate is not judged: {measurement.message}")
        else:
            self._untaught.append(journal.scaled_to_primary(measurement))
        self._measured += 1
        journal.add(measurement)
        best = 0.0 if journal.best is None else journal.best.seconds
        self._budget.rounds[self.task.key] = MAX_LEADERS * best + (journal.numpy or 0.0)

    def _count(self, more: int) -> None:
        """Change the number of candidates under way."""
        self.under_way += more
        self._budget.under_way += more

    def _teach(self) -> None:
        """Update the policy with the measurements since its last update."""
        journal, policy = self._journal, self._policy
        measured, self._untaught = self._untaught, []
        if policy is None or not measured:
            return
        with journal.phase("propose"):
            policy.update(measured)
        if isinstance(policy, Scored):
            journal.scored_per_second, journal.scored = policy.scored_per_second, dict(policy.scored)
        if isinstance(policy, Evolves):
            journal.generations = tuple(policy.generations)
        self._recent.extend(measured)
        ranked = correlation(self._recent)
        journal.emit(RoundEnded(*journal.progress, self._budget.elapsed, ranked, journal.scored_per_second))

    def _abandon(self) -> None:
        """Forget candidates under way."""
        if self._measurer is not None and self.under_way:
            self._measurer.cancel()
            self._count(-self.under_way)
        self._teach()


def _candidates(proposed: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates that a policy proposed; TypeError for any other proposal of a user's policy."""
    if not isinstance(proposed, Sequence) or not all(isinstance(c, Candidate) for c in proposed):
        raise TypeError(f"a policy proposes a list of search.Candidate, empty where it has no more; got {proposed!r}")
    return proposed


@contextmanager
def sessions(
    tasks: Sequence[Task], budget: Budget, options: Options, callbacks: Sequence[Sequence[Callback]]
) -> Iterator[list[Session]]:
    """A session of each task, with its callbacks. VerifyError, before any start, for a function that is not well formed."""
    for task in tasks:
        check(task.func)
    with ExitStack() as stack:
        records = options.records
        if isinstance(records, (str, Path)):
            records = stack.enter_context(Records(records))
        made = (Session(task, budget, options, records, own) for task, own in zip(tasks, callbacks, strict=True))
        yield [stack.enter_context(session) for session in made]


def drive(tuned: Sequence[Session], turns: Iterable[Turn]) -> bool:
    """Run the turns, then the race of each session; only one at a time has worker processes. Returns True if Ctrl-C ended it."""
    active: Session | None = None

    def activate(session: Session) -> Session:
        nonlocal active
        if active is not None and active is not session:
            active.pause()
        active = session
        return session

    try:
        for session, n in turns:
            for other in tuned:
                other.look()
            activate(session).step(n)
        for session in tuned:
            session.drain()
        for session in tuned:
            activate(session).race()
    except KeyboardInterrupt:
        return True
    return False


def default_candidate(task: Task) -> Candidate:
    """The default schedule as a candidate."""
    return Candidate("default", (), task.default_trace(), origin=Origin("default schedule"))


def _limits(task: Task, limits: Limits, budget: Budget) -> Limits:
    """The limits with one for the program as written, which need not run. It gets a small share of a budget in
    seconds; COMPARISON_SECONDS there, and on one thread of a GPU, if numpy is the reference."""
    device, known = backend(task.target).device is not None, task.workload is not None
    most = limits.baseline
    if budget.seconds is not None and (known or not device):
        most = min(most, 10.0, max(2.0, BASELINE_SHARE * budget.seconds / budget.tasks))
    if known and (device or budget.seconds is not None):
        most = min(most, COMPARISON_SECONDS)
    return replace(limits, baseline=most)
