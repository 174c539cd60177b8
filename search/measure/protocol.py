"""The interface of a measurer to the tuning loop, on this machine or on another.

A measurer is made for one task, which is data (`Task.as_json`), as are candidates and measurements (`Candidate.as_json`,
`Measurement.from_json`): measuring on another machine needs nothing of the search. A measurer of your own derives from `Measurer`
and implements prepare, submit, results and compare:

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
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from .outcome import Baseline, Candidate, Comparison, Measurement


class Measurer(ABC):
    """Measures the candidates of one task; a context manager. `LocalMeasurer` does so on this machine.

    Every candidate that is submitted ends in one `Measurement`, whatever becomes of it, with the `provenance` of where it was
    measured. A failure that is no candidate's fault is a `WorkerError`. `build_seconds` and `run_seconds` add up the time that
    was spent so far on building and on running, as far as results waited for it. `written`, which one with `slots` is given, says
    whether what it gave is in the records, so that its workers may forget it.
    """

    build_seconds: float = 0.0
    run_seconds: float = 0.0
    written: Callable[[], bool]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of all that was started."""
        return

    def remember(self, measurements: Sequence[Measurement]) -> None:
        """Programs measured in earlier runs: they need not be measured again, and the best of them is the one to beat."""
        return

    @abstractmethod
    def prepare(self) -> Baseline:
        """Draw the data, and time the program as written."""

    @abstractmethod
    def submit(self, candidates: Sequence[Candidate]) -> None:
        """Begin to measure these too; returns before they have ended."""

    @abstractmethod
    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        """One measurement for each candidate that was submitted, as each ends, in any order; one that may be the best was
        compared with the reference. Ends when all have come, or when `timeout` seconds have passed, then another call gives the
        rest. More may be submitted meanwhile."""

    def cancel(self) -> None:
        """Forget candidates that were submitted and have no result, where that can be done."""
        return

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[Measurement]:
        """Submit candidates and give the results, as each ends; who stops listening cancels the rest."""
        self.submit(candidates)
        try:
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

    # --- abilities, which a measurer may lack ---

    def build_ahead(self, candidates: Sequence[Candidate], enough: Callable[[], bool]) -> None:
        """Build the next candidates until there are `enough`; another thread calls it while `prepare` runs."""
        return

    def pause(self) -> None:
        """End processes until they are needed again, as another task is measured; data and results are kept."""
        return

    @property
    def slots(self) -> int:
        """The number of candidates measured at once on devices that are kept full: some are submitted whenever there is `room`.
        0 for a measurer that gets a round at a time, and the next one when all of it has come."""
        return 0

    @property
    def room(self) -> int:
        """The number of further candidates that it should get now, so that no device waits for the search."""
        return 0

    def comparable(self, measurement: Measurement) -> Measurement:
        """The measurement as the device that counts would have made it, as far as can be told: that which prepared."""
        return measurement

    @property
    def remark(self) -> str:
        """A remark on the measurements at the end, as that some were taken twice; empty for none."""
        return ""

    def finished(self) -> Iterator[Measurement]:
        """The measurements for an earlier, killed run. Asking for the next one says that the last is written down."""
        return iter(())
