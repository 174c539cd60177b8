"""A measurer that takes times instead of measuring them, here and as the agent of Dask workers: for simulations of a farm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from distributed import Worker

from search.measure import BASELINE, Baseline, Candidate, Comparison, Limits, Measurement, Measurer
from search.measure.distributed.agent import Agent, Job
from search.measure.distributed.finished import FinishedAnswers
from search.measure.distributed.measurer import LEAD_CANDIDATES
from search.measure.provenance import Provenance
from search.task import Task

Times = Callable[[Candidate], tuple[float, float]]  # seconds of a call of a candidate, and for how long it is measured


class PretendMeasurer(Measurer):
    """Waits for as long as `times` says, and gives its seconds; the message tells when that began and ended."""

    def __init__(self, task: Task, times: Times):
        self.task, self.times = task, times
        self._submitted: list[Candidate] = []
        self.best: float | None = None
        self._provenance = Provenance.here(task.target)

    def prepare(self) -> Baseline:
        return Baseline(self._measured(BASELINE), tolerance=1.0)

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._submitted += candidates

    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        while self._submitted:
            yield self._measured(self._submitted.pop(0))

    def calibrate(self) -> None:
        return

    def pause(self) -> None:
        return

    def objects(self, candidate: Candidate) -> dict[str, str]:
        return {64 * "0": ""}

    def compare(self, candidates: Sequence[Candidate], **_: Any) -> Comparison:
        return Comparison(tuple(map(self._measured, candidates)))

    def _measured(self, candidate: Candidate) -> Measurement:
        seconds, latency = self.times(candidate)
        began = time.time()
        time.sleep(latency)
        when = json.dumps([began, time.time()])
        return Measurement(candidate, "ok", (seconds,), when, max_error=0.0, provenance=self._provenance)


class PretendFarm(PretendMeasurer):
    """So many devices whose time passes without waiting: each result is that of the candidate that ends next."""

    def __init__(self, task: Task, times: Times, slots: int):
        super().__init__(task, lambda candidate: (times(candidate)[0], 0.0))
        self._slots = slots
        self._took, self._now = times, 0.0
        self._running: list[tuple[float, int, Candidate]] = []  # until when, in the order in which they began
        self._began = 0

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def room(self) -> int:
        return max(0, round(LEAD_CANDIDATES * self.slots) - len(self._running) - len(self._submitted))

    def submit(self, candidates: Sequence[Candidate]) -> None:
        super().submit(candidates)
        while self._submitted and len(self._running) < self.slots:
            candidate, self._began = self._submitted.pop(0), self._began + 1
            heappush(self._running, (self._now + self._took(candidate)[1], self._began, candidate))

    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        if timeout != 0.0 and self._running:
            self._now, _, candidate = heappop(self._running)
            self.submit(())
            yield self._measured(candidate)


class PretendAgent(Agent):
    """An agent whose devices, as many as its worker has slots, are pretended."""

    def __init__(self, times: Times):
        self._times = times

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        self._turn = nullcontext()  # type: ignore[assignment]
        self.finished = FinishedAnswers(Path(worker.local_directory) / "finished")  # what is pretended ends with the worker

    def make(self, task: Task, limits: Limits, seed: int) -> PretendMeasurer:  # type: ignore[override]
        return PretendMeasurer(task, self._times)

    def builder(self, job: Job) -> PretendMeasurer:  # type: ignore[override]
        return PretendMeasurer(Task.from_json(job["task"]), self._times)
