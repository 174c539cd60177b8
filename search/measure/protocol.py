"""What the tuning loop asks of whatever measures candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from .local import Baseline, Comparison
from .outcome import Candidate, Measurement


class Measurer(Protocol):
    """Measures the candidates of one task; a context manager. `LocalMeasurer` does so on this machine.

    `build_seconds` and `run_seconds` add up the time that `measure` has spent so far on building and on running.
    """

    build_seconds: float
    run_seconds: float

    def __enter__(self) -> Measurer: ...

    def __exit__(self, *error: object) -> None: ...

    def remember(self, measurements: Sequence[Measurement]) -> None:
        """Programs measured in earlier runs: they are not measured again, and the best of them is the one to beat."""
        ...

    def prepare(self) -> Baseline:
        """Draw the data, and time the program as written."""
        ...

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[Measurement]:
        """One measurement a candidate, as each ends; one that may be the best was compared with the reference."""
        ...

    def compare(
        self, candidates: Sequence[Candidate], *, numpy: bool = False, rounds: int = 100, seconds: float = 2.0
    ) -> Comparison:
        """Compare all with the reference, then time them in turns."""
        ...

    def peak(self, dtype: str = "float32") -> float | None:
        """Floating-point operations a second of the machine, None if unknown."""
        ...
