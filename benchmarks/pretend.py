"""A measurer that takes times instead of measuring them, here and as the agent of Dask workers: for simulations of a farm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from distributed import Worker

from search.measure import BASELINE, Baseline, Candidate, Comparison, Limits, Measurement, Measurer
from search.measure.distributed.agent import Agent, Job
from search.measure.distributed.finished import Finished
from search.measure.provenance import Provenance
from search.task import Task

Times = Callable[[Candidate], tuple[float, float]]  # seconds of a call of a candidate, and for how long it is measured


class PretendMeasurer(Measurer):
    """Measures a candidate by waiting for as long as `times` says, and gives the seconds that it says; the message tells when
    that began and ended."""

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


class PretendAgent(Agent):
    """An agent whose devices, as many as its worker has slots, are pretended."""

    def __init__(self, times: Times):
        self._times = times

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        self._turn = nullcontext()  # type: ignore[assignment]
        self.finished = Finished(Path(worker.local_directory) / "finished")  # what is pretended ends with the worker

    def make(self, task: Task, limits: Limits, seed: int) -> Measurer:
        return PretendMeasurer(task, self._times)

    def builder(self, job: Job) -> PretendMeasurer:  # type: ignore[override]
        return PretendMeasurer(Task.from_json(job["task"]), self._times)
