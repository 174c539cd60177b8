"""A measurer without clocks or processes, and a search to go with it."""

from __future__ import annotations

from search.measure import BASELINE, Baseline, Candidate, Comparison, Measurement, Measurer

DEFAULT, WRITTEN = 2e-3, 1e-3  # seconds of schedules in the fake measurer


class Fake(Measurer):
    """A measurer without clocks: default schedules take DEFAULT seconds, programs as written WRITTEN."""

    submit = results = None  # it measures in rounds

    def __init__(self, task):
        self.task = task

    def prepare(self):
        return Baseline(Measurement(BASELINE, "run_timeout", message="slow"), 1e-6)

    def of(self, candidate):
        if candidate.trace == "interrupt":
            raise KeyboardInterrupt
        seconds = WRITTEN if candidate.trace is None else DEFAULT
        return Measurement(candidate, "ok", (seconds,) * 4, max_error=0.0, digest=repr(candidate.trace))

    def measure(self, candidates):
        yield from map(self.of, candidates)

    def compare(self, candidates, *, numpy=False, rounds=20, seconds=2.0):
        return Comparison(tuple(map(self.of, candidates)))


class Once:
    """A search that proposes these candidates, and then no more."""

    def __init__(self, *traces):
        self.left = [Candidate("once", (n,), trace) for n, trace in enumerate(traces)]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass
