"""What the tuning loop asks of whatever proposes candidates: the two methods of `Search`, and what it may have beside them.

A search of one's own needs `propose` and `update` and nothing else:

    class Fixed:
        def __init__(self, traces):
            self.left = [Candidate("mine", (n,), trace) for n, trace in enumerate(traces)]

        def propose(self, n, rng):
            chosen, self.left = self.left[:n], self.left[n:]
            return chosen

        def update(self, measurements):
            pass

    tir.autotune(func, search=Fixed(traces))

Each other protocol here is one ability; the loop uses those that a search has, `costmodel.WarmUp` among them. What a search says
of itself is shown, where it has these attributes: `sketches`, of which there are so many, each made by its `rules`; `scored`, how
many rows its model judged, as {"symbolic": n, "concrete": m}, the latter one by one; `scored_per_second`; and `rank_correlation`,
how its model's scores rank with what was then measured, -1 to 1. The last two are None where unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ..measure import Candidate, Measurement

if TYPE_CHECKING:
    from ..space.sketch import Sketch


@runtime_checkable
class Search(Protocol):
    """Where candidates come from."""

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` candidates to measure next; none when the space is exhausted."""
        ...

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learn what became of candidates: those proposed, the loop's own first ones, and at the start those of earlier runs.

        Candidates of sketches that the search does not know are to be passed over.
        """
        ...


@runtime_checkable
class Polishes(Protocol):
    """A search that knows what is next to the best."""

    def polish(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` candidates one step from the best measured ones, for the end of the budget."""
        ...


@runtime_checkable
class WarmStarts(Protocol):
    """A search that can learn from other tasks."""

    def warm_start(self, examples: Iterable[tuple[Sketch, np.ndarray, np.ndarray]]) -> None:
        """Learn from rows of other tasks and their seconds, before the first proposal; see `policy.warm_start.examples`."""
        ...
