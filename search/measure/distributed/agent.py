"""The agent in a Dask worker: it performs jobs by a `LocalMeasurer`, in disposable processes, as a single machine does.

A job and its answer are JSON texts. Dask sends no code, only the names of `perform` and of this plugin, so a worker must have
these modules. An agent of another version refuses every job. A job has the operation `op`; its `context` (a hash of the task, the
seed, the limits and the versions) and its `key` (a hash of the context and the candidate); `versions`; and the arguments of the
operation:

resolve  target: the options that the target leaves to this machine -> options, provenance
prepare  task, seed, limits -> measurement, tolerance, note
measure  task, seed, limits, candidate, best -> measurement
compare  task, seed, limits, candidates, numpy, rounds, seconds -> candidates, numpy, tolerance
peak     task, seed, limits, dtype -> flops

In place of an answer it sends `refused` (another version) or `failed` (no candidate's fault, such as a full disk), each with the
reason. The option `tir.device` in Dask's configuration is the name of the device in its lock, for a machine with several.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dask
from distributed import Worker, WorkerPlugin, get_worker

from codegen import Target
from codegen.backend import backend

from ...task import Task
from .. import wire
from ..limits import Limits
from ..local import LocalMeasurer
from ..lock import DeviceLock
from ..outcome import Baseline, Candidate
from ..process import WorkerError
from ..provenance import Provenance, device, same_compiler, versions

NAME = "tir-agent"
_TASK: dict[str, tuple[type, ...]] = {"context": (str,), "task": (dict,), "seed": (int,), "limits": (dict,)}
# By operation: the fields of its jobs, with their types.
OPERATIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "resolve": {"target": (str,)},
    "prepare": _TASK,
    "measure": {**_TASK, "key": (str,), "candidate": (dict,), "best": (float, int, type(None))},
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


def malformed(job: Job) -> str:
    """The fault in a job, or empty."""
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
        self._locks: dict[str, DeviceLock] = {}
        self._began: float | None = None
        self._busy = 0.0
        self._measured = 0
        self.doing = ""
        self.address = worker.address
        gpus = any(name.startswith("gpu:") for name in worker.state.total_resources)
        self._device = device("cuda" if gpus else "llvm")
        worker.metrics["tir"] = lambda _: self.status()

    def teardown(self, worker: Worker) -> None:
        for measurer in self._measurers.values():
            measurer.__exit__()
        for lock in self._locks.values():
            lock.close()

    def status(self) -> Answer:
        """The status of this worker, for a display."""
        now = 0.0 if (began := self._began) is None else time.monotonic() - began
        return {"doing": self.doing, "busy": self._busy + now, "measured": self._measured, "device": self._device}

    def answer(self, job: Job) -> Answer:
        """Perform a job; any failure becomes an answer."""
        if wrong := malformed(job):
            return {"failed": wrong, "worker": self.address}
        if refused := refusal(job["versions"], self._mine):
            return {"refused": refused}
        try:
            with self._turn:
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
        return {"options": own, "provenance": asdict(Provenance.here(target))}

    def _prepare(self, job: Job) -> Answer:
        self.measurer(job)
        return asdict(self._baselines[job["context"]])

    def _measure(self, job: Job) -> Answer:
        measurer, candidate = self.measurer(job), Candidate.from_json(job["candidate"])
        measurer.best = min((best for best in (measurer.best, job["best"]) if best is not None), default=None)
        self.doing = f"measure {measurer.task.name}"
        (measurement,) = measurer.measure([candidate])
        self._measured += 1
        return {"measurement": measurement.as_json()}

    def _compare(self, job: Job) -> Answer:
        candidates = [Candidate.from_json(c) for c in job["candidates"]]
        options = {name: job[name] for name in ("numpy", "rounds", "seconds")}
        found = self.measurer(job).compare(candidates, **options)
        return {**asdict(found), "candidates": [m.as_json() for m in found.candidates]}

    def _peak(self, job: Job) -> Answer:
        return {"flops": self.measurer(job).peak(job["dtype"])}

    # --- measurers and locks ---------------------------------------------------------------------------------------------

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

    def make(self, task: Task, limits: Limits, seed: int) -> LocalMeasurer:
        """The measurer of a task on this machine."""
        return LocalMeasurer(task, limits=limits, seed=seed, workers=1, lock=self.lock(task.target))

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
