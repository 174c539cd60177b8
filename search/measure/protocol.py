"""The interface of a measurer to the tuning loop, on this machine or on another.

A measurer is made for one task, which is data (`Task.as_json`), as are candidates and measurements (`Candidate.as_json`,
`Measurement.from_json`): measurement on another machine needs no search. A measurer of your own derives from `Measurer` and
implements prepare, submit, results and compare:

    class Elsewhere(Measurer):
        def __init__(self, task):
            self.server = connect(task.as_json())

        def prepare(self):
            return Baseline(Measurement.from_json(self.server.ask("prepare")), tolerance=1e-5)

        def submit(self, candidates):
            for c in candidates:
                self.server.send("measure", c.as_json())

        def results(self, timeout=None):
            while self.server.owes and (answer := self.server.receive(timeout)) is not None:
                yield Measurement.from_json(answer)

        def compare(self, candidates, *, numpy=False, rounds=100, seconds=2.0):
            answers = self.server.ask("compare", [c.as_json() for c in candidates], rounds, seconds)
            return Comparison(tuple(map(Measurement.from_json, answers)))

    tir.autotune(func, measurer=Elsewhere)

On the other machine, `LocalMeasurer(Task.from_json(data))` does the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, Self, runtime_checkable

from .outcome import Baseline, Candidate, Comparison, Measurement
from .provenance import Provenance

WAIT_SECONDS = 0.01  # seconds for which results may wait for builds while a candidate is chosen


@runtime_checkable
class OtherDevices(Protocol):
    """A maker of measurers for devices other than this machine's."""

    def devices(self, target: str) -> Sequence[Provenance]:
        """The devices that measure for a target, the one with the most workers first."""
        ...


class Measurer(ABC):
    """Measures the candidates of one task; a context manager. `LocalMeasurer` is that of this machine.

    Every submitted candidate ends in one `Measurement`, valid or not, with the `provenance` of its device. A failure that is no
    candidate's fault is a `WorkerError`. `build_seconds` and `run_seconds` add up the time for which results waited for builds
    and runs. `written`, set by the session for a measurer with `slots`, is True if its results are recorded, so that its workers
    may forget them. `spare` is the number of cores of this machine that kernels leave free while they are timed. The session sets
    `choosing` while it chooses candidates on one of them.
    """

    spare: int = 0
    choosing: bool = False
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    written: Callable[[], bool]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes."""
        return

    def remember(self, measurements: Sequence[Measurement]) -> None:
        """Take measurements of earlier runs: they need not be repeated, and the best of them is the one to beat."""
        return

    @abstractmethod
    def prepare(self) -> Baseline:
        """Draw the data, and time the program as written."""

    @abstractmethod
    def submit(self, candidates: Sequence[Candidate]) -> None:
        """Begin to measure candidates, beside earlier ones; returns before they have ended."""

    @abstractmethod
    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        """One measurement for each submitted candidate, as it ends, in any order; a possible best has been compared with the
        reference. Ends with the last one, or after `timeout` seconds, and then another call gives the rest. More may be submitted
        meanwhile."""

    def cancel(self) -> None:
        """Forget submitted candidates without a result, if possible."""
        return

    def measure(self, candidates: Iterable[Candidate | None]) -> Iterator[Measurement]:
        """Submit candidates, each as it comes, and yield the results, as each ends; closing the iterator cancels the rest. None
        stands for a candidate that is not chosen yet: meanwhile others are measured."""
        try:
            for candidate in candidates:
                if candidate is None:
                    yield from self.results(WAIT_SECONDS)
                else:
                    self.submit([candidate])
            yield from self.results()
        finally:
            self.cancel()

    @abstractmethod
    def compare(
        self, candidates: Sequence[Candidate], *, numpy: bool = False, rounds: int = 100, seconds: float = 2.0
    ) -> Comparison:
        """Compare all with the reference, then time them in turns on one device."""

    def peak(self, dtype: str = "float32") -> float | None:
        """Floating-point operations a second of the device, None if unknown."""
        return None

    # --- optional abilities ---

    def build_ahead(self, candidates: Sequence[Candidate], enough: Callable[[], bool]) -> None:
        """Build the next candidates until `enough()`; another thread calls it while `prepare` runs."""
        return

    def pause(self) -> None:
        """End processes until the next request, while another task is measured; data and results are kept."""
        return

    @property
    def slots(self) -> int:
        """The number of candidates measured at once on devices that are kept busy: more are submitted as soon as they have
        `room`. 0 for a measurer that gets a round at a time, each after the end of the last."""
        return 0

    @property
    def room(self) -> int:
        """The number of further candidates to submit now, so that no device waits for the search."""
        return 0

    def scaled_to_primary(self, measurement: Measurement) -> Measurement:
        """The measurement scaled to the primary device, the one of `prepare`."""
        return measurement

    @property
    def remark(self) -> str:
        """A remark on the measurements at the end, as on repeated ones, or empty."""
        return ""

    def finished(self) -> Iterator[Measurement]:
        """The measurements for an earlier, killed run; a request for the next one confirms that the last is recorded."""
        return iter(())
