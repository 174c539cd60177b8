"""The measurer of a task on a Dask cluster: `tir.autotune(func, measurer=DaskMeasurer(client))`."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from codegen import Target
from codegen.backend import backend
from codegen.cache import data_key

from ...task import Task
from ..limits import Limits
from ..outcome import Baseline, Candidate, Comparison, Measurement
from ..protocol import Measurer
from ..provenance import Provenance, versions
from .farm import PATIENCE_SECONDS, Farm, Job

if TYPE_CHECKING:
    from distributed import Client


def resource(target: str | Target) -> str:
    """The resource of Dask workers that measure for a target: `cpu:znver4`, `gpu:sm_90`."""
    target = Target(target)
    return f"cpu:{target.mcpu}" if backend(target).device is None else f"gpu:{target.arch}"


class DaskMeasurer:
    """A factory of task measurers on the workers of a Dask `client`'s cluster that have the resource of the task's target.

    `limits` and `seed` are those of `LocalMeasurer`. `patience` is the seconds to wait for a lost scheduler, or if all workers
    are lost. A run measures on one device, the commonest: workers with another processor of the same resource get nothing.
    """

    def __init__(
        self, client: Client, *, limits: Limits | None = None, seed: int = 0, patience: float = PATIENCE_SECONDS
    ):  # fmt: skip
        self.farm = Farm(client, patience)
        self._limits, self._seed = limits or Limits(), int(seed)

    def __call__(self, task: Task) -> TaskMeasurer:
        """The measurer of a task."""
        return TaskMeasurer(self.farm, task, self._limits, self._seed)

    def resolve(self, target: str | Target) -> Target:
        """The target, with cores and caches that it does not name taken from the machines that measure for it."""
        text = str(target)
        given = Target(text)
        answer = _ask(self.farm, resource(given), {"op": "resolve", "target": text})
        return Target(given, **answer["options"])

    def devices(self, target: str) -> list[Provenance]:
        """The devices that measure for a target, most workers first."""
        own = resource(target)
        names = Counter(r.status.get("device") for r in self.farm.need(own))
        answers = [_ask(self.farm, own, {"op": "resolve", "target": target}, name) for name, _ in names.most_common()]
        return list({p.fingerprint: p for p in (Provenance(**a["provenance"]) for a in answers)}.values())


def _ask(farm: Farm, needed: str, content: dict[str, Any], device: str | None = None) -> dict[str, Any]:
    """The answer to one job, performed on a device of this name, if given."""
    reply: deque[tuple[Job, dict[str, Any]]] = deque()
    context = content.get("context", "")
    key = f"{content['op']}-{_hash(context, content, str(time.time_ns()))}"
    farm.need(needed)
    job = Job({"context": context, "key": key, **content}, needed, reply, device)
    farm.submit([job])
    try:
        while not reply:
            farm.advance(1.0)
        return reply[0][1]
    finally:
        farm.cancel([job])


def _hash(*data: Any) -> str:
    return data_key(data)[:24]


class TaskMeasurer(Measurer):
    """The measurer of one task on a farm. `best` is the shortest checked time so far; `twice` counts programs measured more than
    once."""

    def __init__(self, farm: Farm, task: Task, limits: Limits, seed: int):
        self.task, self.farm = task, farm
        self.best: float | None = None
        self.twice = 0
        self.resource = resource(task.target)
        content = {"task": task.as_json(), "limits": asdict(limits), "seed": seed}
        own = [versions().get(name) for name in ("tir", "llvmlite", "llvm")]
        self._content = {**content, "context": _hash(content, own)}
        self._results: dict[str, Measurement] = {}  # by digest
        self._device: str | None = None  # its name, once known
        self._before = farm.repeated

    def remember(self, measurements: Sequence[Measurement]) -> None:
        for m in measurements:
            self._note(m)

    def prepare(self) -> Baseline:
        """Draw the data and time the program as written on a machine with the most common device. Others do so at their first
        candidate."""
        devices = Counter(r.status.get("device") for r in self.farm.need(self.resource))
        self._device = devices.most_common(1)[0][0]
        answer = self._ask("prepare", {})
        measurement = Measurement.from_json(answer["measurement"])
        self._note(measurement)
        return Baseline(measurement, answer["tolerance"], answer["note"])

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[Measurement]:
        if not candidates:
            return
        self.farm.need(self.resource)
        replies: deque[tuple[Job, dict[str, Any]]] = deque()
        under_way: dict[Job, Candidate] = {}
        for c in candidates:
            key = _hash(self._content["context"], c.sketch, c.row, c.trace)
            content = {"op": "measure", **self._content, "key": key, "candidate": c.as_json(), "best": self.best}
            under_way[Job(content, self.resource, replies, self._device)] = c
        start = time.perf_counter()
        self.farm.submit([*under_way])
        try:
            while under_way:
                if not replies:
                    self.farm.advance(1.0)
                    continue
                job, answer = replies.popleft()
                self.run_seconds += time.perf_counter() - start
                yield self._measurement(under_way.pop(job), answer)
                start = time.perf_counter()
        finally:
            self.farm.cancel(under_way)

    def compare(
        self, candidates: Sequence[Candidate], *, numpy: bool = False, rounds: int = 100, seconds: float = 2.0
    ) -> Comparison:
        options = {"numpy": numpy, "rounds": rounds, "seconds": seconds}
        answer = self._ask("compare", {"candidates": [c.as_json() for c in candidates], **options})
        compared = tuple(map(Measurement.from_json, answer["candidates"]))
        return Comparison(compared, tuple(answer["numpy"]), answer["tolerance"])

    def peak(self, dtype: str = "float32") -> float | None:
        return self._ask("peak", {"dtype": dtype})["flops"]

    @property
    def slots(self) -> int:
        return sum(r.slots for r in self.farm.need(self.resource))

    @property
    def remark(self) -> str:
        times = self.farm.repeated - self._before
        twice = f"; {self.twice} programs were measured twice" if self.twice else ""
        said = f"candidates were given to another worker {times} times, as theirs was lost or failed" if times else ""
        return (said + twice).removeprefix("; ")

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _ask(self, op: str, more: dict[str, Any]) -> dict[str, Any]:
        """The answer to a job on any machine with the device of the run."""
        return _ask(self.farm, self.resource, {"op": op, **self._content, **more}, self._device)

    def _measurement(self, candidate: Candidate, answer: dict[str, Any]) -> Measurement:
        """The measurement in an answer; for a known program, the known one."""
        m = replace(Measurement.from_json(answer["measurement"]), candidate=candidate)
        if (known := self._results.get(m.digest) if m.digest else None) is not None:
            self.twice += not m.duplicate
            return replace(known, candidate=candidate, duplicate=True, build_seconds=m.build_seconds)
        self._note(m)
        return m

    def _note(self, m: Measurement) -> None:
        if m.digest:
            self._results.setdefault(m.digest, m)
        if m.outcome == "ok" and m.max_error is not None:
            self.best = m.seconds if self.best is None else min(self.best, m.seconds)
