"""Measurement on this machine: worker processes build in parallel, then one kernel runs at a time.

No candidate is built or run in this process, and each ends in a typed outcome. The parent holds the clock, kills the process
group of a worker that exceeds its time, and starts it again. Other kernels of that worker are built again.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

import workloads
from codegen.backend import backend
from codegen.processor import host_cores, physical_cores
from codegen.target import Target

from ..task import Task
from . import wire
from .limits import Limits
from .lock import DeviceLock
from .memory import memory
from .outcome import BASELINE, NO_BASELINE, Baseline, Candidate, Comparison, Measurement, Outcome
from .process import GUARD, WorkerError, WorkerProcess, waited
from .protocol import Measurer
from .reference import DISTRIBUTIONS, given_file, given_inputs
from .timing import MAX_DRIFT

CALIBRATION_SHAPE = (192, 192, 192)  # of a matrix product: short, and within the caches
MAX_WORKERS = 4  # that build at once, by default
BUILDS_A_WORKER = 4  # builds of each worker before a group runs: more delay the results, fewer make workers wait for each other
MAX_CONFIRMATIONS = 4  # timings of a new best: two, and more while they are suspicious
DEFAULT_REFERENCE_NOTE = "results are compared with the default's"
SUSPICIOUS_SPREAD = 0.1  # relative to the median; a larger spread of timings is suspicious


@dataclass(slots=True, eq=False)
class _Job:
    """A candidate under way, built even if known if `again`, by `deadline` on the monotonic clock, `limit` seconds on."""

    id: int
    candidate: Candidate
    again: bool = False
    worker: WorkerProcess | None = None
    digest: str = ""
    build_seconds: float = 0.0
    limit: float = 0.0
    deadline: float = float("inf")


@dataclass(slots=True)
class _Builds:
    """Jobs that wait for a build, and those being built, by worker."""

    waiting: deque[_Job] = field(default_factory=deque)
    running: dict[WorkerProcess, _Job] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.waiting or self.running)


class LocalMeasurer(Measurer):
    """The measurer of this machine: builds, times and checks candidates of one task in worker processes, which it ends on exit.

    `workers` build at once (default: as many as processors, at most 4). `builder` names the module that turns traces into kernels
    (default: `search.measure.builder`, for GPUs `search.measure.gpu_builder`). `seed` draws the data, except for the `inputs`
    given by name. `best`, the shortest checked time so far, decides the cutoff of slow candidates. The `lock` on the device is
    held while a kernel runs. A measurer that only `builds` serves `objects`, also on a machine that cannot run the target.

    A group of candidates is built on all workers at once, and then run: nothing is built while a kernel is timed. Where kernels
    leave `spare` cores, the next candidates are built there instead, each while another is timed.

    A `paced` measurer times a kernel of known work before and after each candidate. Where the machine is slower than it was, as
    by other programs or its clock, times are divided by how much.
    """

    def __init__(
        self,
        task: Task,
        *,
        workers: int | None = None,
        builder: str | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        inputs: Mapping[str, np.ndarray] | None = None,
        lock: DeviceLock | None = None,
        builds: bool = False,
        paced: bool = True,
    ):
        found, target = backend(task.target), Target(task.target)
        self._device = found.device is not None
        if not self._device and not builds and (missing := found.missing(target)):
            raise ValueError(f"kernels for `{task.target}` cannot be measured here: {missing}")
        given = given_inputs(task.func, inputs or {})
        self.task, self.limits, self.seed = task, limits or Limits(), int(seed)
        self._lock: AbstractContextManager[Any] = lock or nullcontext()
        self.best: float | None = None
        self.build_seconds = self.run_seconds = 0.0
        self._results: dict[str, Measurement] = {}
        self._ids = itertools.count(1)
        self._builds = _Builds()  # of submitted candidates
        self._submitted: deque[_Job] = deque()  # in the order of their runs
        self._again: deque[_Job] = deque()  # to build and run once more, after the others
        self._ended: deque[Measurement] = deque()
        self._ahead: dict[int, _Job] = {}  # built before their turn, by the identity of their candidate
        self._turn = RLock()  # held to build on the workers; `prepare` uses the first one without it
        self._built: deque[float] = deque(maxlen=64)  # seconds of the latest builds
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="tir-measure-"))
        except OSError as error:  # the temporary folder is full, missing or another user's
            raise WorkerError(f"no folder for the data could be made: {error}; TMPDIR can name another place") from None
        GUARD.hold(str(self._directory))
        try:
            for number, array in given.items():
                np.save(given_file(self._directory, number), array)
        except OSError as error:
            self.close()
            raise WorkerError(f"the inputs could not be written to {self._directory.parent}: {error}") from None
        self._calibration: wire.Message | None = None  # the request to time the calibration kernel
        self._paced = paced and not self._device and builder is None and not builds
        self._shortest = math.inf  # seconds of the calibration kernel
        self._resident = resident = self.limits.memory or ((whole := memory()) and whole // 2)
        first_message = {
            "script": task.func.script(),
            "target": f"{task.target} -l1 {target.l1} -l2 {target.l2} -l3 {target.l3}",  # not those that a worker finds
            "workload": None if task.workload is None else asdict(task.workload),
            "directory": str(self._directory),
            "builder": builder or found.builder,
            "memory": self.limits.memory if self._device else resident,
        }
        self._workers: list[WorkerProcess] = []
        count = workers or min(MAX_WORKERS, host_cores())
        self._together = count * BUILDS_A_WORKER if count > 1 else 1  # candidates of a group
        self.spare = 0 if self._device or builds else max(0, physical_cores() - task.threads)
        try:
            for _ in range(count):
                inherited = () if lock is None else (lock.descriptor,)
                self._workers.append(WorkerProcess(first_message, task.threads, resident, inherited))
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers and remove their files; may be called twice."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
        GUARD.release(str(self._directory))

    def pause(self) -> None:
        """End the worker processes until the next request; the data and all results are kept."""
        with self._turn:
            for worker in self._workers:
                worker.kill()
            self._builds.waiting.extendleft(self._builds.running.values())
            self._builds.running.clear()

    # --- the reference -------------------------------------------------------------------------------------------------

    def prepare_data(self, distribution: int = 0) -> None:
        """Draw the inputs, and compute the expected results of a named workload. WorkerError if that fails."""
        self._wait_for_builds()
        answer = self._ask(self._workers[0], self.limits.setup, op="prepare", seed=self.seed, distribution=distribution)
        if answer["outcome"] != "ok":
            reason = answer.get("message", answer["outcome"])
            raise WorkerError(f"no input data could be made in {self._directory.parent}: {reason}")

    def prepare(self) -> Baseline:
        """Draw the inputs, compute the expected results, and time the program as written, once if it is slow.

        Without a workload of `tir.workloads`, the reference is the function in float64, with bounds of rounding errors. Inputs
        are drawn from other ranges if results are not finite, vanish, or have bounds so large that they hide faults. Where no
        operation rounds, the reference is the results of the program as written, or of the default schedule if it takes longer
        than `limits.baseline`. WorkerError if no reference can be made.
        """
        known = self.task.workload is not None
        answers: list[wire.Message] = []
        for distribution in range(1 if known else len(DISTRIBUTIONS)):
            measurement, answer, note = self._run_baseline_on(distribution)
            answers.append(answer)
            if answer.get("good", True):
                break
        else:
            bounded = [n for n, said in enumerate(answers) if not said["loose"]]
            if not bounded:
                raise WorkerError(
                    f"no inputs were found for which results can be checked: {answer['loose']}; sum up in a wider type"
                )
            measurement, answer, note = self._run_baseline_on(bounded[0])
        if measurement.outcome == "ok":
            self.best = measurement.seconds if self.best is None else min(self.best, measurement.seconds)
            self._results.setdefault(measurement.digest, measurement)
        elif not known and (measurement.outcome == "wrong_result" or "good" not in answer):
            raise WorkerError(
                f"the program as written fails and cannot be the reference: {measurement.outcome}: {measurement.message}"
            )
        return Baseline(measurement, answer.get("tolerance"), note)

    def _run_baseline_on(self, distribution: int) -> tuple[Measurement, wire.Message, str]:
        """The measurement of the program as written on a distribution, the worker's answer, and a note on the reference."""
        known, note = self.task.workload is not None, ""
        self.prepare_data(distribution)
        measurement, answer = self._run_baseline() if known or not self._device else (Measurement(BASELINE, "run_timeout"), {})
        if measurement.outcome == "run_timeout" and not known:
            answer = self._reference()
            if self._device:
                measurement = replace(measurement, message=NO_BASELINE)
            else:
                note = f"the program as written takes over {self.limits.baseline:.3g} s: {DEFAULT_REFERENCE_NOTE}"
        return measurement, answer, note

    def _run_baseline(self) -> tuple[Measurement, wire.Message]:
        """The measurement of the program as written, and the worker's answer. Its results become the reference if none exists."""
        worker = self._workers[0]
        job = self._job(BASELINE, again=True)
        if failed := self._build([job], [worker]):
            return failed[job], {}
        answer = self._ask(worker, self.limits.baseline, op="baseline", id=job.id)
        self._drop([job])
        return self._measurement(job, answer), answer

    def _reference(self) -> wire.Message:
        """Make the reference by the default schedule, on a processor; returns the worker's answer."""
        target = "llvm" if self._device else self.task.target
        trace = self.task.default_trace(target)
        return self._ask(self._workers[0], self.limits.setup, op="reference", trace=trace, target=target)

    def remember(self, measurements: Sequence[Measurement]) -> None:
        """Take measurements of earlier runs: their digests are known, and the fastest checked one is the one to beat."""
        for m in measurements:
            if m.digest:
                self._results.setdefault(m.digest, m)
            if m.outcome == "ok" and m.max_error is not None:
                self.best = m.seconds if self.best is None else min(self.best, m.seconds)

    def peak(self, dtype: str = "float32") -> float | None:
        """The measured peak on the task's threads, floating-point operations a second; None if unknown."""
        answer = self._ask(self._idle(), 20.0, op="peak", threads=self.task.threads, dtype=dtype)
        return answer["flops"] if answer["outcome"] == "ok" else None

    def calibrate(self, worker: WorkerProcess | None = None) -> float | None:
        """Current seconds of a call of the calibration kernel, the same for all tasks of a target; None if it failed."""
        if self._calibration is None:
            instance = workloads.make("gmm", CALIBRATION_SHAPE)
            task = type(self.task).of(instance.func, self.task.target)
            self._calibration = {"script": task.func.script(), "trace": task.default_trace()}
        answer = self._ask(worker or self._idle(), self.limits.run, op="calibrate", **self._calibration)
        return min(answer["samples"]) if answer["outcome"] == "ok" else None

    def objects(self, candidate: Candidate) -> dict[str, str] | Measurement:
        """The object files of a candidate, in base64, by their keys in any `ObjectCache`; or a measurement of a failed build."""
        answer = self._ask(self._workers[0], self.limits.build, op="objects", trace=candidate.trace)
        if answer["outcome"] == "ok":
            return answer["objects"]
        outcome = "build_timeout" if answer["outcome"] == "run_timeout" else answer["outcome"]
        return self._measurement(self._job(candidate), {**answer, "outcome": outcome})

    # --- candidates ----------------------------------------------------------------------------------------------------

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """Have the candidates measured. Idle workers begin to build them; the others are built while `results` waits."""
        with self._turn:
            self._collect(0.0)
            jobs = [self._ahead.pop(id(c)) if id(c) in self._ahead else self._job(c) for c in candidates]
            self._submitted.extend(jobs)
            self._builds.waiting.extend(job for job in jobs if not job.digest)
            if not (self.spare and self._ready):
                self._start(self._builds, self._workers)

    def results(self, timeout: float | None = None) -> Iterator[Measurement]:
        """One measurement for each submitted candidate, as it ends. Candidates are built in groups (of one with a single worker).
        Those of a group run one after another, before the next group is built. The `timeout` does not stop a run.

        Each is compared with the reference unless it was cut off as slow. A new best is timed once more before it counts, and
        again while its timings disagree.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while self._ended or self._submitted or self._again:
            if self._ended:
                yield self._ended.popleft()
            elif time.monotonic() >= deadline:
                return
            else:
                with self._turn:
                    self._advance(deadline)

    def cancel(self) -> None:
        """Forget submitted candidates without a result; builds under way go on to their end."""
        for left in (self._builds.waiting, self._submitted, self._again, self._ended):
            left.clear()

    def _advance(self, deadline: float) -> None:
        """Wait for builds until `deadline` on the monotonic clock; without builds under way, run a candidate."""
        start, building = time.perf_counter(), self._builds.running
        beside = min(self.spare - self.choosing, len(self._workers) - 1)  # workers that may build while a kernel is timed
        if building and not self.spare:
            more = len(building) + sum(bool(job.digest) for job in self._submitted) < self._together
        else:
            more = not self._ready
        if more:
            self._start(self._builds, self._workers)
        if building and (not self._ready or len(building) > beside or self._submitted[0].worker in building):
            self._collect(deadline)
            self.build_seconds += time.perf_counter() - start
            return
        if not self._submitted:
            self._submitted, self._again = self._again, self._submitted
            self._builds.waiting.extend(self._submitted)
            return
        job = self._submitted.popleft()
        if (known := self._results.get(job.digest)) is not None:
            copy = replace(known, candidate=job.candidate, duplicate=True, build_seconds=job.build_seconds)
            self._ended.append(copy)
            self._drop([job])
        elif job.worker is None or job.id not in job.worker.kernels or not job.worker.running:
            job.again, job.digest = True, ""  # died with its worker, or left out as a copy of another that did
            self._again.append(job)
        else:
            idle = [w for w in self._workers if w.ready and not w.kernels and w not in building]
            self._start(self._builds, idle[: beside - len(building)])
            measurement = self._run(job)
            self.run_seconds += time.perf_counter() - start
            self._results[job.digest] = measurement
            self._ended.append(measurement)
            self._drop([job])

    @property
    def _ready(self) -> bool:
        """True where the next candidate to run is built."""
        return bool(self._submitted and self._submitted[0].digest)

    def _collect(self, until: float = float("inf")) -> None:
        """Wait for builds of submitted candidates; failures become results."""
        for job, failure in self._wait(self._builds, until):
            if failure is not None and job in self._submitted:
                self._submitted.remove(job)
                self._ended.append(failure)

    def _wait_for_builds(self) -> None:
        """Wait until no submitted candidate is being built, so that the workers can take other requests."""
        while self._builds.running:
            self._collect()

    def _idle(self) -> WorkerProcess:
        """An idle worker, one that is ready if there is any, started again after `pause`."""
        self._wait_for_builds()
        worker = next((w for w in self._workers if w.ready and w.running), self._workers[0])
        if not worker.running:
            worker.restart()
        return worker

    def build_ahead(self, candidates: Sequence[Candidate], enough: Callable[[], bool]) -> None:
        """Build the next candidates on idle workers until `enough()`; another thread may call it during `prepare`."""
        jobs = [self._job(c) for c in candidates]
        with self._turn:
            self._build(jobs, self._workers[1:], enough)
            self._ahead |= {id(job.candidate): job for job in jobs if job.digest}

    def compare(
        self, candidates: Sequence[Candidate], *, numpy: bool = False, rounds: int = 100, seconds: float = 2.0
    ) -> Comparison:
        """Check the candidates, then time them in turns, in one process, for about `seconds`. At least 3 rounds run, unless they
        take more than 2 * `seconds` + 1. With `numpy` the last third of the time is numpy's.

        If the process dies with several candidates, each is tried alone, and the sound ones are compared again.
        """
        jobs, worker = [self._job(c, again=True) for c in candidates], self._idle()
        failed = self._build(jobs, [worker])
        built = [job for job in jobs if job not in failed]
        limit = max(self.limits.run, self.limits.run_limit(None))
        answer = self._ask(worker, limit, op="compare", ids=[j.id for j in built], numpy=numpy, rounds=rounds, seconds=seconds)
        if answer["outcome"] == "ok":
            verdicts, samples = answer["verdicts"], answer["samples"]
            own = {j: {**verdicts[str(j.id)], "samples": samples[str(j.id)]} for j in built}
            bound = next((v["tolerance"] for v in verdicts.values() if v.get("tolerance") is not None), None)
            rest = Comparison((), tuple(samples.get("numpy", ())), bound)
        else:
            own, rest = dict.fromkeys(built, answer), Comparison(())
        results = failed | {j: self._measurement(j, said) for j, said in own.items()}
        self._drop(built)
        if answer["outcome"] != "ok" and len(built) > 1:
            results |= {j: self.compare([j.candidate], rounds=1).candidates[0] for j in built}
            sound = [j for j, m in results.items() if m.outcome == "ok"]
            if 0 < len(sound) < len(built):
                rest = self.compare([j.candidate for j in sound], numpy=numpy, rounds=rounds, seconds=seconds)
                results |= dict(zip(sound, rest.candidates, strict=True))
        return replace(rest, candidates=tuple(results[j] for j in jobs))

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _job(self, candidate: Candidate, again: bool = False) -> _Job:
        return _Job(next(self._ids), candidate, again)

    def _drop(self, jobs: Sequence[_Job]) -> None:
        for worker in self._workers:
            if ids := [j.id for j in jobs if j.worker is worker and j.id in worker.kernels]:
                worker.kernels.difference_update(ids)
                worker.send(op="drop", ids=ids)

    def _build(
        self, jobs: Sequence[_Job], workers: Sequence[WorkerProcess], enough: Callable[[], bool] | None = None
    ) -> dict[_Job, Measurement]:
        """Build the jobs that are not yet built, on `workers` in parallel, until `enough()`; returns the failures."""
        builds = _Builds(deque(job for job in jobs if not job.digest))
        failures: dict[_Job, Measurement] = {}
        while True:
            if not workers or (enough is not None and enough()):
                builds.waiting.clear()
            if not builds:
                return failures
            self._start(builds, workers)
            failures |= {job: failure for job, failure in self._wait(builds) if failure is not None}

    def _start(self, builds: _Builds, workers: Sequence[WorkerProcess]) -> None:
        """Give each idle worker one of the waiting jobs."""
        for worker in workers:
            if builds.waiting and worker not in builds.running:
                if not worker.running:
                    worker.restart()
                job = builds.running[worker] = builds.waiting.popleft()
                job.worker = worker
                job.deadline = time.monotonic() + self.limits.setup
                known = [d for d in list(self._results) if d not in worker.known]
                worker.known.update(known)
                worker.send(op="build", id=job.id, trace=job.candidate.trace, known=known, again=job.again)

    def _wait(self, builds: _Builds, until: float = float("inf")) -> list[tuple[_Job, Measurement | None]]:
        """Wait for the building workers until `until`; returns the ended jobs, each with its failure or None."""
        ended: list[tuple[_Job, Measurement | None]] = []
        deadlines = {worker: job.deadline for worker, job in builds.running.items()}
        for worker in waited(deadlines, until) if deadlines else ():
            job = builds.running[worker]
            message = worker.inbox.pop(0) if worker.inbox else None
            if message is not None and "event" in message:
                job.limit = self.limits.build_limit(tuple(self._built))
                job.deadline = time.monotonic() + job.limit
                continue
            del builds.running[worker]
            if message is None:
                message = self._autopsy(worker, "build_timeout", job.limit)
            if message["outcome"] == "ok":
                job.digest, job.build_seconds = message["digest"], message["build_seconds"]
                if message["built"]:
                    worker.kernels.add(job.id)
                    self._built.append(job.build_seconds)
            ended.append((job, None if message["outcome"] == "ok" else self._measurement(job, message)))
        return ended

    def _run(self, job: _Job) -> Measurement:
        """Time a built candidate, check it unless it is cut off as slow, and time a new best again."""
        measurement = self._time(job, self.best, check=True)
        if measurement.outcome != "ok" or measurement.cut or (self.best is not None and measurement.seconds >= self.best):
            return measurement
        timings = [measurement]
        while len(timings) < 2 or (len(timings) < MAX_CONFIRMATIONS and _suspicious([m.samples for m in timings])):
            more = self._time(job, None, check=False)
            if more.outcome != "ok":
                return more
            timings.append(more)
        samples = tuple(s for timing in timings for s in timing.samples)
        measurement = replace(measurement, samples=samples, pace=statistics.median(m.pace for m in timings))
        self.best = measurement.seconds if self.best is None else min(self.best, measurement.seconds)
        return measurement

    def _time(self, job: _Job, best: float | None, check: bool) -> Measurement:
        """Time a built candidate once, beside the calibration kernel."""
        worker, limits = job.worker, self.limits
        assert worker is not None  # that built it
        often = {name: getattr(limits, name) for name in ("cutoff", "min_seconds", "min_runs", "max_runs")}
        before = self._pace(worker)
        if job.id not in worker.kernels:  # the calibration kernel ended the process
            job.again, job.digest = True, ""
            if failed := self._build([job], [worker]):
                return failed[job]
        to_beat = None if best is None else best * before
        limit = limits.run_limit(self.best and self.best * before)
        answer = self._ask(worker, limit, op="run", id=job.id, best=to_beat, check=check, **often)
        measurement = self._measurement(job, answer)
        if measurement.outcome != "ok":
            return measurement
        pace = math.sqrt(before * self._pace(worker))
        return replace(measurement, samples=tuple(s / pace for s in measurement.samples), pace=pace)

    def _pace(self, worker: WorkerProcess) -> float:
        """The time of the calibration kernel over its shortest so far, 1 up to MAX_DRIFT. One that fails is not tried again."""
        seconds = self.calibrate(worker) if self._paced else None
        if seconds is None:
            self._paced = False
            return 1.0
        self._shortest = min(self._shortest, seconds)
        return ratio if (ratio := seconds / self._shortest) > MAX_DRIFT else 1.0

    def _ask(self, worker: WorkerProcess, limit: float, **request: Any) -> wire.Message:
        """Send a request and wait for its answer, at most `limit` seconds after each `running` event; restart a dead worker."""
        worker.wait_ready()
        with self._lock:
            return self._answer(worker, limit, **request)

    def _answer(self, worker: WorkerProcess, limit: float, **request: Any) -> wire.Message:
        worker.send(**request)
        deadline = time.monotonic() + self.limits.setup
        while True:
            message = worker.receive(deadline)
            if message is None:
                return self._autopsy(worker, "run_timeout", limit)
            if "event" not in message:
                if message.get("lost"):
                    worker.restart()
                return message
            allowed = limit * message.get("repeats", 1) + (self.limits.min_seconds if "repeats" in message else 0)
            deadline = time.monotonic() + (self.limits.setup if message["event"] == "checking" else allowed)

    def _autopsy(self, worker: WorkerProcess, timeout: Outcome, limit: float) -> wire.Message:
        """The outcome of the candidate of a worker that died or ran out of time; the worker is restarted."""
        if worker.excess is not None:
            held, most = (f"{n / 2**30:.3g} GiB" for n in (worker.excess, self._resident or 0))
            message = {"outcome": "memory", "message": f"killed: it came to hold {held} more than before, of {most} allowed"}
        elif not worker.ended:
            message = {"outcome": timeout, "message": f"killed after {limit:.3g} s"}
        else:
            death, said = worker.death(), worker.stderr_tail()
            last = said.splitlines()[-1] if said else ""
            starved = death == "SIGKILL" or "bad_alloc" in said or "out of memory" in said.lower()
            message = {"outcome": "memory" if starved else "crash", "message": f"{death}: {last}" if last else death}
        worker.restart()
        return message

    def _measurement(self, job: _Job, message: wire.Message) -> Measurement:
        return Measurement(
            job.candidate,
            message["outcome"],
            tuple(message.get("samples", ())),
            message.get("message", ""),
            message.get("cut", False),
            message.get("build_seconds", job.build_seconds),
            job.digest,
            max_error=message.get("max_error"),
            provenance=job.worker.provenance if job.worker is not None else None,
        )


def _suspicious(timings: Sequence[Sequence[float]]) -> bool:
    """True if the timings of a kernel disagree, or the last one has a wide spread, as on a busy machine."""
    medians = [statistics.median(t) for t in timings]
    quartiles = statistics.quantiles(timings[-1], n=4) if len(timings[-1]) > 1 else (medians[-1],) * 3
    return max(medians) > (1 + SUSPICIOUS_SPREAD) * min(medians) or quartiles[2] - quartiles[0] > SUSPICIOUS_SPREAD * quartiles[1]
