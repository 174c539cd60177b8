"""The interface of a policy to the tuning loop: the two methods of `Policy`, and optional ones.

A policy of your own needs only `propose` and `update`:

    class Fixed:
        def __init__(self, traces):
            self.left = [Candidate("mine", (n,), trace) for n, trace in enumerate(traces)]

        def propose(self, n, rng):
            chosen, self.left = self.left[:n], self.left[n:]
            return chosen

        def update(self, measurements):
            pass

    tir.autotune(func, policy=Fixed(traces))

Each other protocol here is an optional ability that the loop uses if a policy has it; `costmodel.WarmUp` is another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ..measure import Candidate, Measurement

if TYPE_CHECKING:
    from ..space.sketch import Sketch
    from .lineage import Generation


@runtime_checkable
class Policy(Protocol):
    """Proposes candidates, and learns from their measurements."""

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` candidates to measure next; none when the space is exhausted."""
        ...

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learn from measurements: of proposed candidates, of the loop's own first ones, and at the start of earlier runs.
        Candidates of unknown sketches are to be ignored."""
        ...


@runtime_checkable
class Begins(Protocol):
    """A policy with good candidates before any search, as the seeds of templates."""

    def begin(self, n: int) -> Sequence[Candidate]:
        """At most `n` such candidates, which no later proposal repeats, to be measured before models are loaded."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A policy that gives each candidate as soon as it is chosen, in another thread while earlier ones are built and run."""

    def proposals(self, n: int, rng: np.random.Generator) -> Iterator[Candidate]:
        """The candidates of `propose`, one after another."""
        ...


@runtime_checkable
class ExplainsCandidates(Protocol):
    """A policy that explains the predictions of its model."""

    def explanation(self, candidate: Candidate) -> dict[str, float]:
        """The e-folds by which each feature, by its name, moves the predicted time; empty where unknown."""
        ...


@runtime_checkable
class Sketched(Protocol):
    """A policy that searches sketches, which the display counts, and the report shows with their rules."""

    sketches: Sequence[Sketch]


@runtime_checkable
class Scored(Protocol):
    """A policy that counts scored rows, {"symbolic": n, "concrete": m}, the latter lowered, and the rate, None where unknown."""

    scored: Mapping[str, int]
    scored_per_second: float | None


@runtime_checkable
class Evolves(Protocol):
    """A policy with generations, which the report shows."""

    generations: Sequence[Generation]


@runtime_checkable
class WarmStarts(Protocol):
    """A policy that can learn from records of other tasks."""

    @property
    def taught(self) -> Collection[str]:
        """The keys of tasks that its model has learned from already, so that it needs no examples of them."""
        ...

    def warm_start(self, examples: Iterable[tuple[Sketch, np.ndarray, np.ndarray]]) -> None:
        """Learn from rows of other tasks and their seconds, before the first proposal; see `policy.warm_start.examples`."""
        ...
