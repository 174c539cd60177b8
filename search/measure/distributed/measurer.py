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

from ...task import Task, target_text
from ..limits import Limits
from ..outcome import DRIFTED, Baseline, Candidate, Comparison, Measurement
from ..protocol import Measurer
from ..provenance import Provenance, versions
from .farm import BUILD_RESOURCE, PATIENCE_SECONDS, Farm, Job

if TYPE_CHECKING:
    from distributed import Client

LOOK_SECONDS = 2.0  # between two readings of the farm's size
LEAD_CANDIDATES = 1.5  # candidates under way a device for a search that takes no time; more lead to proposals from older results
SPARE_FACTOR = 1.5  # factor of the candidates that the devices measure while the search is away
MAX_LEAD_CANDIDATES = 8


def resource(target: str | Target) -> str:
    """The resource of Dask workers that measure for a target: `cpu:znver4`, `gpu:sm_90`."""
    target = Target(target)
    return f"cpu:{target.mcpu}" if backend(target).device is None else f"gpu:{target.arch}"


class DaskMeasurer:
    """A factory of task measurers on the workers of a Dask `client`'s cluster that have the resource of the task's target.

    `limits` and `seed` are those of `LocalMeasurer`. With `rounds` a batch is proposed after the end of the last one, as on one
    machine; without, the devices are kept busy. `patience` is the seconds to wait for a lost scheduler, or if all workers are
    lost. With `builders`, the workers with the resource `build` compile for a processor. The measuring workers get their object
    code, and must trust it (`tir.worker --trust-builders`).
    """

    def __init__(
        self, client: Client, *, limits: Limits | None = None, seed: int = 0, rounds: bool = False,
        patience: float = PATIENCE_SECONDS, builders: bool = False,
    ):  # fmt: skip
        self.farm = Farm(client, patience)
        self._limits, self._seed, self._rounds, self._builders = limits or Limits(), int(seed), rounds, builders

    def __call__(self, task: Task) -> TaskMeasurer:
        """The measurer of a task."""
        return TaskMeasurer(self.farm, task, self._limits, self._seed, self._rounds, self._builders)

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
    fit = None if device is None else lambda r: r.status.get("device", device) == device
    job = Job({"context": context, "key": key, **content}, needed, reply, fit)
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
    """The measurer of one task on a farm, in `rounds`, or without waits between candidates. `best` is the shortest checked time
    so far by the fingerprint of the device; `twice` counts programs measured more than once."""

    def __init__(self, farm: Farm, task: Task, limits: Limits, seed: int, rounds: bool, builders: bool):
        self.task, self.farm = task, farm
        self.best: dict[str, float] = {}
        self.twice = 0
        self.written = lambda: True
        self.resource = resource(task.target)
        content = {"task": task.as_json(), "limits": asdict(limits), "seed": seed}
        own = [versions().get(name) for name in ("tir", "llvmlite", "llvm")]
        self._context = _hash(content, own)
        self._content = {**content, "context": self._context}
        self._built: dict[str, Any] | None = None  # the fields shared by all jobs of builders
        if builders:
            if backend(task.target).device is not None:
                raise ValueError(f"builders compile for processors, target llvm, got {task.target}")
            machine = _ask(farm, self.resource, {"op": "resolve", "target": task.target})["machine"]
            described = {**task.as_json(), "target": target_text(Target(task.target, **machine))}
            self._built = {**self._content, "op": "build", "task": described}
        self._replies: deque[tuple[Job, dict[str, Any]]] = deque()
        self._under_way: dict[Job, Candidate] = {}
        self._results: dict[tuple[str, str], Measurement] = {}  # by fingerprint and digest
        self._primary: Provenance | None = None
        self._calibrations: dict[str, float] = {}  # by fingerprint, seconds of the calibration kernel
        self._took: deque[float] = deque(maxlen=256)  # seconds of the latest jobs
        self._rounds = rounds
        self._building = 0  # candidates that builders build at once
        self._before = farm.repeated
        self._slots = (0, 0.0)  # their number, and the time of the reading
        self._left = time.monotonic()  # time of the search's last departure
        self._away = 0.0  # seconds until its return, lately

    def __exit__(self, *_: object) -> None:
        self.cancel()
        self.farm.flush()

    def remember(self, measurements: Sequence[Measurement]) -> None:
        for m in measurements:
            self._note(m)

    def prepare(self) -> Baseline:
        """Draw the data and time the program as written on a machine with the most common device, which also runs the races."""
        devices = Counter(r.status.get("device") for r in self.farm.need(self.resource))
        answer = self._ask("prepare", {}, devices.most_common(1)[0][0])
        measurement = Measurement.from_json(answer["measurement"])
        self._primary = measurement.provenance
        self._note(measurement)
        self._calibrate(measurement, answer)
        return Baseline(measurement, answer["tolerance"], answer["note"])

    def submit(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            self.farm.need(self.resource)
        best = None if self._primary is None else self.best.get(self._primary.fingerprint)
        best = best if len(self.best) < 2 else None  # times of several devices
        jobs = {}
        for c in candidates:
            key = _hash(self._context, c.sketch, c.row, c.trace)
            content = {"op": "measure", **self._content, "key": key, "candidate": c.as_json(), "best": best}
            job = Job(content, self.resource, self._replies)
            if self._built is not None:
                built = {**self._built, "key": _hash("build", key), "candidate": content["candidate"]}
                job = Job(built, BUILD_RESOURCE, self._replies, then=job)
            jobs[job] = c
        self._under_way |= jobs
        self.farm.submit([*jobs])

    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        """Measurements as they arrive; a request for the next one confirms that the last is recorded."""
        self._away = max(0.5 * self._away, time.monotonic() - self._left)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        start = time.perf_counter()
        while self._under_way or self._replies:
            if not self._replies:
                if (left := deadline - time.monotonic()) < 0:
                    break
                self.farm.advance(min(left, 1.0))
                continue
            job, answer = self._replies.popleft()
            if (candidate := self._under_way.get(job)) is None:
                continue
            if job.then is not None and "objects" in answer:
                del self._under_way[job]
                job.then.content["objects"] = answer["objects"]
                self._under_way[job.then] = candidate
                self.farm.submit([job.then])
            else:
                self.run_seconds += time.perf_counter() - start
                yield self._measurement(job, candidate, answer)
                start = time.perf_counter()
                if "drift" not in answer and self.written():
                    self.farm.confirm(self._context, job.content["key"])
        self.run_seconds += time.perf_counter() - start
        self._left = time.monotonic()

    def cancel(self) -> None:
        self.farm.cancel(self._under_way)
        self._under_way.clear()

    def compare(
        self, candidates: Sequence[Candidate], *, numpy: bool = False, rounds: int = 100, seconds: float = 2.0
    ) -> Comparison:
        options = {"numpy": numpy, "rounds": rounds, "seconds": seconds}
        answer = self._ask("compare", {"candidates": [c.as_json() for c in candidates], **options})
        compared = tuple(map(Measurement.from_json, answer["candidates"]))
        return Comparison(compared, tuple(answer["numpy"]), answer["tolerance"])

    def peak(self, dtype: str = "float32") -> float | None:
        return self._ask("peak", {"dtype": dtype})["flops"]

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _ask(self, op: str, more: dict[str, Any], device: str | None = None) -> dict[str, Any]:
        """The answer to a job on any machine with the primary device."""
        device = device if self._primary is None else self._primary.device
        return _ask(self.farm, self.resource, {"op": op, **self._content, **more}, device)

    def _measurement(self, job: Job, candidate: Candidate, answer: dict[str, Any]) -> Measurement:
        """The measurement in an answer; for a known program, the known one."""
        self._took.append(answer["seconds"])
        m = replace(Measurement.from_json(answer["measurement"]), candidate=candidate)
        if job.then is not None:  # a builder could not build it, nor could the device
            m = replace(m, provenance=self._primary)
        if "drift" in answer:
            message = f"{DRIFTED}: a fixed kernel took {answer['drift']:.2f} times as long as before"
            return replace(m, message=message, max_error=None, duplicate=False)
        del self._under_way[job]
        known = self._results.get((m.provenance.fingerprint, m.digest)) if m.provenance is not None and m.digest else None
        if known is not None:
            self.twice += not m.duplicate
            return replace(known, candidate=candidate, duplicate=True, build_seconds=m.build_seconds)
        self._note(m)
        self._calibrate(m, answer)
        return m

    def _calibrate(self, m: Measurement, answer: dict[str, Any]) -> None:
        """Note the seconds of the calibration kernel on the device of a measurement."""
        if m.provenance is not None and answer.get("calibration"):
            known = self._calibrations.get(m.provenance.fingerprint, answer["calibration"])
            self._calibrations[m.provenance.fingerprint] = min(known, answer["calibration"])

    def scaled_to_primary(self, measurement: Measurement) -> Measurement:
        """The measurement, scaled to the primary device by the ratio of the times of the calibration kernel."""
        if self._primary is None or measurement.provenance is None:
            return measurement
        elsewhere = measurement.provenance.fingerprint
        if elsewhere == self._primary.fingerprint:
            return measurement
        here, there = (self._calibrations.get(fingerprint) for fingerprint in (self._primary.fingerprint, elsewhere))
        ratio = 1.0 if here is None or there is None else here / there
        return replace(measurement, samples=tuple(s * ratio for s in measurement.samples), elsewhere=elsewhere)

    def _note(self, m: Measurement) -> None:
        fingerprint = "" if m.provenance is None else m.provenance.fingerprint
        if m.digest:
            self._results.setdefault((fingerprint, m.digest), m)
        if m.outcome == "ok" and m.max_error is not None:
            self.best[fingerprint] = min(self.best.get(fingerprint, m.seconds), m.seconds)

    # --- keeping the farm busy ------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        if self._rounds:
            return 0
        count, seen = self._slots
        if not count or time.monotonic() - seen > LOOK_SECONDS:
            count = sum(r.slots for r in self.farm.need(self.resource))
            self._building = 0 if self._built is None else sum(r.slots for r in self.farm.need(BUILD_RESOURCE))
            self._slots = count, time.monotonic()
        return count

    @property
    def room(self) -> int:
        each = max(0.05, sum(self._took) / len(self._took)) if self._took else 1.0
        lead = min(MAX_LEAD_CANDIDATES, LEAD_CANDIDATES + SPARE_FACTOR * self._away / each)
        return max(0, round(lead * self.slots) + self._building - self.farm.under_way)

    @property
    def remark(self) -> str:
        times = self.farm.repeated - self._before
        twice = f"; {self.twice} programs were measured twice" if self.twice else ""
        said = f"candidates were given to another worker {times} times, as theirs was lost, failed or drifted" if times else ""
        return (said + twice).removeprefix("; ")

    def finished(self) -> Iterator[Measurement]:
        """The measurements for an earlier, killed run of this task and seed."""
        for key, answer in self.farm.finished([self._context]).items():
            yield Measurement.from_json(answer["measurement"])
            if self.written():
                self.farm.confirm(self._context, key)
