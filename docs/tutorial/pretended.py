"""A measurer that takes a formula for the machine: lessons about the search need no time, and show the same everywhere."""

from __future__ import annotations

from search import Measurement, Measurer
from search.measure import BASELINE, Baseline, Comparison
from search.measure.provenance import Provenance


class Pretended(Measurer):
    """Gives the seconds that a function says for a candidate; the program as written takes a millisecond."""

    def __init__(self, task, seconds):
        self.task, self.seconds, self.waiting = task, seconds, []
        self.provenance = Provenance.here(task.target)

    def prepare(self):
        return Baseline(self.measured(BASELINE), tolerance=1.0)

    def submit(self, candidates):
        self.waiting += candidates

    def results(self, timeout=None):
        while self.waiting:
            yield self.measured(self.waiting.pop(0))

    def compare(self, candidates, **options):
        return Comparison(tuple(map(self.measured, candidates)))

    def measured(self, candidate):
        seconds = 1e-3 if candidate.trace is None else self.seconds(candidate)
        return Measurement(candidate, "ok", (seconds,), max_error=0.0, provenance=self.provenance)


def falling(task):
    """A measurer to which a product is slow at first and gets faster, and anything else takes 0.2 ms whatever is tried."""
    seen = []

    def seconds(candidate):
        seen.append(candidate)
        return 1e-4 + 1e-3 / (1 + len(seen)) if "gmm" in task.func.name else 2e-4

    return Pretended(task, seconds)
