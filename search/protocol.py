"""What the tuning loop asks of whatever proposes candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .measure import Candidate, Measurement


class Search(Protocol):
    """Where candidates come from. A user's own needs these two methods and nothing else:

    class Fixed:
        def __init__(self, traces):
            self.left = [Candidate("mine", (n,), trace) for n, trace in enumerate(traces)]

        def propose(self, n, rng):
            chosen, self.left = self.left[:n], self.left[n:]
            return chosen

        def tell(self, measurements):
            pass

    tir.autotune(func, search=Fixed(traces))

    Where a search has more, the loop uses it:

    polish(n, rng)             at most n candidates one step from the best measured ones, for the end of the budget
    warm_up()                  load what is needed later, while the program as written runs
    warm_start(examples)       learn from other tasks, before the first proposal; see `search.warm_start.examples`
    sketches                   a sequence; how many there are is shown
    scored_per_second          candidates that the cost model judges a second, None where unknown
    scored                     how many rows it judged so far, by how: {"symbolic": n, "concrete": m}, the latter one by one
    rank_correlation           of the model's scores with what was then measured, -1 to 1, None where unknown
    """

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Candidate]:
        """At most `n` candidates to measure next; none when the space is exhausted."""
        ...

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Learn what became of candidates: those proposed, the loop's own first ones, and at the start those of earlier runs.

        Candidates of sketches that the search does not know are to be passed over.
        """
        ...
