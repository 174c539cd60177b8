"""A measurer that takes times instead of measuring them, here and as the agent of Dask workers: for simulations of a farm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from heapq import heappop, heappush
from typing import Any

from distributed import Worker

from search.measure import BASELINE, Baseline, Candidate, Comparison, Limits, Measurement, Measurer
from search.measure.distributed.agent import Agent
from search.measure.provenance import Provenance
from search.task import Task

Times = Callable[[Candidate], tuple[float, float]]  # seconds of a call of a candidate, and for how long it is measured


class PretendMeasurer(Measurer):
    """Waits for as long as `times` says, and gives its seconds; the message tells when that began and ended."""

    def __init__(self, task: Task, times: Times):
        self.task, self.times = task, times
        self.best: float | None = None
        self._provenance = Provenance.here(task.target)

    def prepare(self) -> Baseline:
        return Baseline(self._measured(BASELINE), tolerance=1.0)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[Measurement]:
        yield from map(self._measured, candidates)

    def compare(self, candidates: Sequence[Candidate], **_: Any) -> Comparison:
        return Comparison(tuple(map(self._measured, candidates)))

    def _measured(self, candidate: Candidate) -> Measurement:
        seconds, latency = self.times(candidate)
        began = time.time()
        time.sleep(latency)
        when = json.dumps([began, time.time()])
        return Measurement(candidate, "ok", (seconds,), when, max_error=0.0, provenance=self._provenance)


class PretendFarm(PretendMeasurer):
    """So many devices whose time passes without waiting: the results of a batch come in the order in which they end."""

    def __init__(self, task: Task, times: Times, slots: int):
        super().__init__(task, lambda candidate: (times(candidate)[0], 0.0))
        self._slots, self._took = slots, times

    @property
    def slots(self) -> int:
        return self._slots

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[Measurement]:
        running: list[tuple[float, int, Candidate]] = []  # until when, in the order in which they began
        now = 0.0
        for n, candidate in enumerate(candidates):
            if len(running) == self.slots:
                now, _, ended = heappop(running)
                yield self._measured(ended)
            heappush(running, (now + self._took(candidate)[1], n, candidate))
        while running:
            yield self._measured(heappop(running)[2])


class PretendAgent(Agent):
    """An agent whose devices, as many as its worker has slots, are pretended."""

    def __init__(self, times: Times):
        self._times = times

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        self._turn = nullcontext()  # type: ignore[assignment]

    def make(self, task: Task, limits: Limits, seed: int) -> PretendMeasurer:  # type: ignore[override]
        return PretendMeasurer(task, self._times)
