"""A measurer that takes times instead of measuring them, here and as the agent of Dask workers: for simulations of a farm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from distributed import Worker

from search.measure import BASELINE, Baseline, Candidate, Comparison, Limits, Measurement, Measurer
from search.measure.distributed.agent import Agent
from search.measure.provenance import Provenance
from search.task import Task

Times = Callable[[Candidate], tuple[float, float]]  # seconds of a call of a candidate, and for how long it is measured


class PretendMeasurer(Measurer):
    """Measures a candidate by waiting for as long as `times` says, and gives the seconds that it says."""

    def __init__(self, task: Task, times: Times):
        self.task, self.times = task, times
        self._submitted: list[Candidate] = []
        self._provenance = Provenance.here(task.target)

    def prepare(self) -> Baseline:
        return Baseline(self._measured(BASELINE), tolerance=1.0)

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._submitted += candidates

    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        while self._submitted:
            yield self._measured(self._submitted.pop(0))

    def compare(self, candidates: Sequence[Candidate], **_: Any) -> Comparison:
        return Comparison(tuple(map(self._measured, candidates)))

    def _measured(self, candidate: Candidate) -> Measurement:
        seconds, latency = self.times(candidate)
        time.sleep(latency)
        return Measurement(candidate, "ok", (seconds,), max_error=0.0, provenance=self._provenance)


class PretendAgent(Agent):
    """An agent whose devices, as many as its worker has slots, are pretended."""

    def __init__(self, times: Times):
        self._times = times

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        self._turn = nullcontext()  # type: ignore[assignment]

    def make(self, task: Task, limits: Limits, seed: int) -> Measurer:
        return PretendMeasurer(task, self._times)
