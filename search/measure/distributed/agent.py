"""The agent in a Dask worker: it performs jobs by a `LocalMeasurer`, in disposable processes, as a single machine does.

A job and its answer are JSON texts. Dask sends no code, only the names of `perform`, `finished`, `confirm` and of this plugin, so
a worker must have these modules. An agent of another version refuses every job. A job has the operation `op`; its `context` (a
hash of the task, the seed, the limits and the versions) and its `key` (a hash of the context and the candidate); `versions`; and
the arguments of the operation:

resolve  target: the options that the target leaves to this machine -> options, provenance
prepare  task, seed, limits -> measurement, tolerance, note, calibration
build    task, seed, limits, candidate -> objects, object code in base64 by the keys of the cache of compiled objects; or
         measurement, if the build failed, and seconds
measure  task, seed, limits, candidate, best; objects of a builder, if any -> measurement, its seconds, and calibration, those of
         the calibration kernel; drift, the slowdown of the calibration kernel if too large
compare  task, seed, limits, candidates, numpy, rounds, seconds -> candidates, numpy, tolerance
peak     task, seed, limits, dtype -> flops

In place of an answer it sends `refused` (another version, or object code that the worker does not take), `aside` (a device not to
be trusted) or `failed` (no candidate's fault, such as a full disk), each with the reason.

Options of the machine are in Dask's configuration: `tir.device`, the name of the device in its lock, for a machine with several;
`tir.drift`, the calibration kernel's largest slowdown (default 1.1); `tir.trust`, true to run the object code of builders
(default: false).
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import statistics
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import dask
from distributed import Worker, WorkerPlugin, get_worker

from codegen import Target
from codegen.backend import backend
from codegen.cache import users_cache
from codegen.processor import machine_kind

from ...task import Task
from .. import wire
from ..limits import Limits
from ..local import LocalMeasurer
from ..lock import DeviceLock
from ..outcome import Baseline, Candidate, Measurement
from ..process import WorkerError
from ..provenance import Provenance, device, same_compiler, versions
from ..timing import MAX_DRIFT
from .finished import FinishedAnswers

NAME = "tir-agent"
_TASK: dict[str, tuple[type, ...]] = {"context": (str,), "task": (dict,), "seed": (int,), "limits": (dict,)}
_CANDIDATE = {**_TASK, "key": (str,), "candidate": (dict,)}
# By operation: the fields of its jobs, with their types.
OPERATIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "resolve": {"target": (str,)},
    "prepare": _TASK,
    "build": _CANDIDATE,
    "measure": {**_CANDIDATE, "best": (float, int, type(None))},
    "compare": {**_TASK, "candidates": (list,), "numpy": (bool,), "rounds": (int,), "seconds": (float, int)},
    "peak": {**_TASK, "dtype": (str,)},
}
_DESCRIBED: dict[str, tuple[type, ...]] = {"script": (str,), "target": (str,), "name": (str,)}  # fields of a job's task
_JSON = {
    str: "a string",
    dict: "an object",
    list: "a list",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
MAX_PREPARED = 4  # tasks whose data are kept; only one has a process
DRIFT_TIMINGS = 3  # timings of it that must agree before it counts as drifted
MAX_DRIFTED_CANDIDATES = 3  # candidates in a row during which it drifted
LOOK_SECONDS = 60.0  # between two calibrations of a device that was put aside

Job = Mapping[str, Any]
Answer = dict[str, Any]


def perform(text: str) -> str:
    """The answer of this worker's agent to a job, for a Dask task."""
    found = _agent(get_worker())
    try:
        job = wire.decoded(text)
    except ValueError as error:
        return json.dumps({"failed": f"a job must be a JSON object: {error}"})
    return json.dumps({"failed": "a worker has no agent"} if found is None else found.answer(job))


def _agent(worker: Worker) -> Agent | None:
    found = worker.plugins.get(NAME)
    return found if isinstance(found, Agent) else None


def finished(contexts: list[str], dask_worker: Worker) -> dict[str, Answer]:
    """The unconfirmed answers of these contexts on the machine of a worker, by key."""
    agent = _agent(dask_worker)
    return {} if agent is None else {k: a for c in contexts for k, a in agent.finished.all(c).items()}


async def confirm(keys: dict[str, list[str]], dask_worker: Worker) -> None:
    """Forget the answers of these jobs, by context, which a coordinator has. (Dask need not wait for coroutines.)"""
    if (agent := _agent(dask_worker)) is not None:
        for context, own in keys.items():
            agent.finished.confirm(context, own)


def malformed(job: Job) -> str:
    """The fault in a job, or empty. Contexts and keys become names of files of this machine, so they are checked."""
    op = job.get("op")
    if not isinstance(op, str) or op not in OPERATIONS:
        return f"a job's op must be one of {', '.join(OPERATIONS)}, got {op!r}"
    needed = {**OPERATIONS[op], "versions": (dict,)}
    task = job.get("task") if "task" in needed else None
    parts = [(op, job, needed)] + ([("task", task, _DESCRIBED)] if isinstance(task, dict) else [])
    for where, part, types in parts:
        for name, kinds in types.items():
            if not isinstance(part.get(name), kinds):
                wanted = " or ".join(_JSON[kind] for kind in kinds)
                return f"`{name}` of `{where}` in a job must be {wanted}, got {part.get(name)!r}"
    for name in ("context", "key"):
        if name in needed and not re.fullmatch(r"[0-9a-f]{8,64}", job[name]):
            return f"a job's {name} must be a hash in hexadecimal digits, got {job[name]!r}"
    objects = job.get("objects", {})
    if not isinstance(objects, dict) or not all(isinstance(code, str) for code in objects.values()):
        return "`objects` in a job must be an object of object codes in base64"
    if bad := [key for key in objects if not re.fullmatch(r"[0-9a-f]{64}", key)]:
        return f"the key of object code must be a hash in hexadecimal digits, got {bad[0]!r}"
    return ""


def refusal(theirs: Mapping[str, str], mine: Mapping[str, str]) -> str:
    """The reason to refuse jobs of other versions; empty for the same ones."""
    if same_compiler(dict(theirs), dict(mine)):
        return ""
    asked, here = (", ".join(f"{n} {v.get(n, 'unknown')}" for n in ("tir", "llvmlite", "llvm")) for v in (theirs, mine))
    return f"the coordinator has {asked}, this worker has {here}; programs and times would not be the same"


class Agent(WorkerPlugin):
    """Performs jobs on its worker's device, one at a time; `doing` and the seconds `busy` are among the worker's metrics."""

    name = NAME
    idempotent = True  # the first coordinator to connect installs it

    def setup(self, worker: Worker) -> None:
        self._mine = versions()
        self._turn = threading.Lock()  # of the device; Dask gives one job at a time for each resource, of which there may be two
        self._measurers: OrderedDict[str, LocalMeasurer] = OrderedDict()
        self._baselines: dict[str, Baseline] = {}
        self._builders: dict[int, tuple[str, LocalMeasurer]] = {}  # by thread, with the context
        self._locks: dict[str, DeviceLock] = {}
        self._calibrated: dict[str, float] = {}  # by target, the shortest time of the calibration kernel
        self._drifted = 0  # candidates in a row
        self._began: float | None = None
        self._busy = 0.0
        self._measured = 0
        self.doing = self.aside = ""
        self._returns = 0  # times that it came back from aside
        self._look: threading.Timer | None = None
        self.finished = FinishedAnswers()
        self.address = worker.address
        gpus = any(name.startswith("gpu:") for name in worker.state.total_resources)
        self._device = device("cuda" if gpus else "llvm")
        worker.metrics["tir"] = lambda _: self.status()

    def teardown(self, worker: Worker) -> None:
        if self._look is not None:
            self._look.cancel()
        for measurer in (*self._measurers.values(), *(made for _, made in self._builders.values())):
            measurer.__exit__()
        for lock in self._locks.values():
            lock.close()

    def status(self) -> Answer:
        """The status of this worker, for a display."""
        now = 0.0 if (began := self._began) is None else time.monotonic() - began
        own = {"doing": self.doing, "busy": self._busy + now, "measured": self._measured, "aside": self.aside}
        return {**own, "returns": self._returns, "device": self._device}

    def answer(self, job: Job) -> Answer:
        """Perform a job; any failure becomes an answer."""
        if wrong := malformed(job):
            return {"failed": wrong, "worker": self.address}
        if refused := refusal(job["versions"], self._mine):
            return {"refused": refused}
        if job.get("objects") and not dask.config.get("tir.trust", False):
            return {"refused": "it runs no object code of builders unless it is started with --trust-builders"}
        if job["op"] == "measure" and (known := self.finished.get(job["context"], job["key"])) is not None:
            return known
        if self.aside:
            return {"aside": self.aside, "worker": self.address}
        try:
            with nullcontext() if job["op"] == "build" else self._turn:  # several may be built at once
                self.doing, self._began = job["op"], (began := time.monotonic())
                try:
                    return {**getattr(self, "_" + job["op"])(job), "worker": self.address}
                finally:
                    self._busy += time.monotonic() - began
                    self.doing, self._began = "", None
        except Exception as error:  # the outermost frame: this machine is not fit for the job
            reason = str(error) if isinstance(error, WorkerError) else f"{type(error).__name__}: {error}"
            return {"failed": reason, "worker": self.address}

    # --- operations ----------------------------------------------------------------------------------------------------

    def _resolve(self, job: Job) -> Answer:
        target = Target(job["target"])
        target = Target(target, **{k: v for k, v in backend(target).here().items() if k not in job["target"]})
        own = {name: getattr(target, name) for name in ("num_cores", "vector_bits", "l1", "l2", "l3")}
        machine = {"mtriple": target.mtriple or machine_kind() + "-gnu", "mattr": target.mattr}
        return {"options": own, "machine": machine, "provenance": asdict(Provenance.here(target))}

    def _prepare(self, job: Job) -> Answer:
        measurer = self.measurer(job)
        self._drift(measurer)
        calibration = self._calibrated.get(measurer.task.target)
        return {**asdict(self._baselines[job["context"]]), "calibration": calibration}

    def _build(self, job: Job) -> Answer:
        began = time.monotonic()
        found = self.builder(job).objects(Candidate.from_json(job["candidate"]))
        if isinstance(found, Measurement):
            return {"measurement": found.as_json(), "seconds": time.monotonic() - began}
        return {"objects": found}

    def _measure(self, job: Job) -> Answer:
        began = time.monotonic()
        cache = users_cache()
        for key, code in job.get("objects", {}).items():
            if cache is not None:
                cache.put(key, base64.b64decode(code))
        measurer, candidate = self.measurer(job), Candidate.from_json(job["candidate"])
        measurer.best = min((best for best in (measurer.best, job["best"]) if best is not None), default=None)
        self.doing = f"measure {measurer.task.name}"
        (measurement,) = measurer.measure([candidate])
        self._measured += 1
        drift = self._drift(measurer)
        found: Answer = {
            "measurement": measurement.as_json(),
            "worker": self.address,
            "seconds": time.monotonic() - began,
            "calibration": self._calibrated.get(measurer.task.target),
        }
        if drift is not None:
            return {**found, "drift": drift}
        self.finished.keep(job["context"], job["key"], found)
        return found

    def _compare(self, job: Job) -> Answer:
        candidates = [Candidate.from_json(c) for c in job["candidates"]]
        options = {name: job[name] for name in ("numpy", "rounds", "seconds")}
        found = self.measurer(job).compare(candidates, **options)
        return {**asdict(found), "candidates": [m.as_json() for m in found.candidates]}

    def _peak(self, job: Job) -> Answer:
        return {"flops": self.measurer(job).peak(job["dtype"])}

    # --- measurers, builders and locks -----------------------------------------------------------------------------------

    def measurer(self, job: Job) -> LocalMeasurer:
        """The measurer of a job's task, prepared."""
        context = job["context"]
        if context not in self._measurers:
            self._pause()
            self.doing = "prepare"
            task = Task.from_json(job["task"])
            made = self.make(task, Limits(**job["limits"]), job["seed"]).__enter__()
            try:
                self._baselines[context] = made.prepare()
            except BaseException:
                made.__exit__()
                raise
            self._measurers[context] = made
            while len(self._measurers) > MAX_PREPARED:
                oldest, measurer = self._measurers.popitem(last=False)
                measurer.__exit__()
                del self._baselines[oldest]
        elif context != next(reversed(self._measurers)):
            self._pause()
            self._measurers.move_to_end(context)
        return self._measurers[context]

    def builder(self, job: Job) -> LocalMeasurer:
        """The builder for a job's task on this thread: a process of its own, until the next task."""
        thread = threading.get_ident()
        context, made = self._builders.get(thread, ("", None))
        if made is None or context != job["context"]:
            if made is not None:
                made.__exit__()
            made = LocalMeasurer(Task.from_json(job["task"]), limits=Limits(**job["limits"]), workers=1, builds=True)
            self._builders[thread] = job["context"], made
        return made

    def make(self, task: Task, limits: Limits, seed: int) -> LocalMeasurer:
        """The measurer of a task on this machine."""
        return LocalMeasurer(task, limits=limits, seed=seed, workers=1, lock=self.lock(task.target), paced=False)

    def lock(self, target: str) -> DeviceLock:
        """The lock on the device that runs kernels for a target."""
        kind = "cpu" if backend(target).device is None else f"gpu-{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"
        name = dask.config.get("tir.device", None) or kind
        if name not in self._locks:
            self._locks[name] = DeviceLock(name)
        return self._locks[name]

    def _pause(self) -> None:
        """Pause the task that measured last, because only one task has worker processes at a time."""
        if self._measurers:
            self._measurers[next(reversed(self._measurers))].pause()

    # --- drift ---------------------------------------------------------------------------------------------------------

    def _drift(self, measurer: LocalMeasurer) -> float | None:
        """The slowdown of the device, if too large, else None; if that lasts, the agent steps aside."""
        drift = self._slowdown(measurer)
        self._drifted = 0 if drift is None else self._drifted + 1
        if self._drifted >= MAX_DRIFTED_CANDIDATES:
            self.aside = f"the calibration kernel takes {drift:.2f} times as long as before"
            self._look_later()
        return drift

    def _look_later(self) -> None:
        self._look = threading.Timer(LOOK_SECONDS, self._look_again)
        self._look.daemon = True
        self._look.start()

    def _look_again(self) -> None:
        """Return from aside if the device is as fast as before."""
        with self._turn:
            try:
                drift = self._slowdown(self._measurers[next(reversed(self._measurers))])
            except WorkerError:
                drift = math.inf
            if drift is None:
                self.aside, self._drifted, self._returns = "", 0, self._returns + 1
            else:
                self._look_later()

    def _slowdown(self, measurer: LocalMeasurer) -> float | None:
        """The slowdown of the calibration kernel, if it is too large in each of DRIFT_TIMINGS timings, else None."""
        target, ratios = measurer.task.target, []
        for _ in range(DRIFT_TIMINGS):
            if (seconds := measurer.calibrate()) is None:
                return None
            shortest = self._calibrated[target] = min(self._calibrated.get(target, seconds), seconds)
            ratios.append(seconds / shortest)
            if ratios[-1] <= float(dask.config.get("tir.drift", MAX_DRIFT)):
                return None
        return statistics.median(ratios)
