"""The farm of a coordinator: a Dask cluster, its runners, and the jobs under way there."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError

from ..process import WorkerError
from ..provenance import versions
from . import agent

MAX_ATTEMPTS = 3  # of a job that workers fail to perform
PATIENCE_SECONDS = 600.0  # to wait for a lost scheduler or runner
ASKING_SECONDS = 10.0  # to wait for the finished answers of workers
CONFIRMED_ANSWERS = 64  # answers
ARRIVAL_SECONDS = 2.0  # to wait for the first worker of a new cluster
RETRY_SECONDS = 0.5
LOOK_SECONDS = 2.0  # between two checks of the list of workers
POLL_SECONDS = 0.02  # between two checks for ended jobs: far less than a job takes

BUILD_RESOURCE = "build"  # the resource of workers that compile

LOST_ERRORS = (OSError, CommClosedError, TimeoutError)  # raised if the scheduler does not answer


@dataclass(eq=False)
class Job:
    """A job under way, for a worker that is `fit` (None: any). `then` is the job that takes its result. Its answer goes to
    `reply`, with the job. It was `sent` so many times, last `bound` to these workers (none: to all). So many `attempts` have
    failed; `avoided` workers do not get it again."""

    content: dict[str, Any]
    resource: str
    reply: deque[tuple[Job, dict[str, Any]]]
    fit: Callable[[Runner], bool] | None = None
    then: Job | None = None
    sent: int = 0
    bound: set[str] = field(default_factory=set)
    attempts: int = 0
    avoided: set[str] = field(default_factory=set)
    future: Future | None = None
    name: str = ""  # the scheduler's


@dataclass(frozen=True)
class Runner:
    """A worker with a resource: the number of jobs that it performs at once, and its status (see `Agent.status`)."""

    address: str
    name: str
    slots: int
    status: dict[str, Any]
    silent: float  # seconds since its last sign of life


class Farm:
    """Jobs on a Dask client's workers, which survive lost workers and schedulers; for one thread."""

    def __init__(self, client: Client, patience: float = PATIENCE_SECONDS):
        self.client, self.agent = client, agent.Agent()
        self._patience = patience
        self._jobs: set[Job] = set()
        self._confirmed: dict[str, list[str]] = {}
        self._versions = versions()
        self._looked = 0.0
        self._given: dict[str, Job] = {}  # by the key that the scheduler knows
        self.repeated = 0  # times that a job was given to another worker, though the first may have performed it
        self._enter()

    def _enter(self) -> None:
        """Install the agent on workers, and subscribe to events of lost ones."""
        self.client.register_plugin(self.agent)
        with suppress(ValueError):  # it listens already
            self.client.subscribe_topic("all", self._count_repeats)

    def _count_repeats(self, event: tuple[float, Any]) -> None:
        """Count the jobs that begin again elsewhere, at an event of the scheduler on a lost worker."""
        if isinstance(event[1], dict) and event[1].get("action") == "remove-worker":
            keys = {*event[1]["processing-tasks"], *event[1]["lost-computed-tasks"]}
            self.repeated += sum(key in self._given for key in keys)

    def close(self) -> None:
        """Unsubscribe from the cluster, whose client stays open."""
        self.flush()
        with suppress(ValueError, *LOST_ERRORS):
            self.client.unsubscribe_topic("all")

    # --- the runners ---------------------------------------------------------------------------------------------------

    @property
    def dashboard(self) -> str:
        """The address of Dask's own page."""
        return self.client.dashboard_link or ""

    def runners(self, resource: str) -> list[Runner]:
        """The present workers with a resource."""
        known = self.client.scheduler_info(n_workers=-1)["workers"]
        now = time.time()
        found = []
        for address, worker in known.items():
            if slots := int(worker["resources"].get(resource, 0)):
                status = worker.get("metrics", {}).get("tir", {})
                found.append(Runner(address, str(worker["name"]), slots, status, now - worker["last_seen"]))
        return found

    def resources(self) -> list[str]:
        """The names of the workers' resources."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return sorted({name for worker in workers for name in worker["resources"]})

    def need(self, resource: str) -> list[Runner]:
        """The runners with a resource, without those aside. WorkerError if all are aside, or none arrives in time."""
        start = time.monotonic()
        while True:
            with suppress(*LOST_ERRORS):
                found = self.runners(resource)
                if fit := [r for r in found if not r.status.get("aside")]:
                    return fit
                if found:
                    reasons = "; ".join(f"{r.name}: {r.status['aside']}" for r in found)
                    raise WorkerError(f"all workers with the resource {resource} have been put aside: {reasons}")
                if not self._jobs and time.monotonic() > start + ARRIVAL_SECONDS:  # no job is under way
                    there = ", ".join(self.resources()) or "none"
                    raise WorkerError(f"no worker of the cluster has the resource {resource}; there are: {there}")
            if time.monotonic() > start + self._patience:
                raise WorkerError(f"for {self._patience:.0f} s there was no scheduler, or no worker with the resource {resource}")
            time.sleep(RETRY_SECONDS)
            self._reconnect()

    # --- jobs ----------------------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        """The number of jobs without an answer yet."""
        return len(self._jobs)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin jobs."""
        self._jobs.update(jobs)
        self._send(jobs)

    def _send(self, jobs: Sequence[Job]) -> None:
        alike: dict[tuple[str, frozenset[str]], list[Job]] = {}  # jobs of one call of the scheduler
        for job in jobs:
            job.bound = set()
            if job.fit is not None or job.avoided:
                able = {r.address for r in self.need(job.resource) if job.fit is None or job.fit(r)}
                if not able:
                    raise WorkerError(f"no worker with the resource {job.resource} is fit to {job.content['op']} any more")
                job.bound = (able - job.avoided) or able
            # The scheduler keeps a key with its first task, so a job that is sent again gets another one.
            job.name = f"tir-{job.content['key']}" + (f"-{job.sent}" if job.sent else "")
            job.sent += 1
            self._given[job.name] = job
            alike.setdefault((job.resource, frozenset(job.bound)), []).append(job)
        for (resource, bound), own in alike.items():
            texts = [json.dumps({**job.content, "versions": self._versions}) for job in own]
            names = [job.name for job in own]
            futures = self.client.map(agent.perform, texts, key=names, resources={resource: 1}, workers=sorted(bound) or None)
            for job, future in zip(own, futures, strict=True):
                job.future = future

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Forget jobs; those that a worker has begun run to their end."""
        gone = [job for job in jobs if job in self._jobs]
        for job in gone:
            self._end(job)
        with suppress(*LOST_ERRORS):
            self.client.cancel([job.future for job in gone if job.future is not None])

    def advance(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the end of a job, and deliver all answers. Raises WorkerError."""
        deadline = time.monotonic() + timeout
        while not (ended := {job: job.future for job in self._jobs if job.future and job.future.status != "pending"}):
            if (left := deadline - time.monotonic()) <= 0 or self.client.status == "closed":
                break
            time.sleep(min(left, POLL_SECONDS))
        if not ended:
            if self.client.status == "closed" and self._jobs:
                self._begin_again(list(self._jobs))
            elif any(job.bound for job in self._jobs) and time.monotonic() > self._looked + LOOK_SECONDS:
                self._release()
            return
        good = {job: future for job, future in ended.items() if future.status == "finished"}
        answers: dict[Job, dict[str, Any]] = {}
        lost = [job for job, future in ended.items() if future.status in ("cancelled", "lost")]
        try:
            texts = self.client.gather(list(good.values()), errors="skip")
            if len(texts) == len(good):
                answers = {job: json.loads(text) for job, text in zip(good, texts, strict=True)}
            else:  # a worker was lost before it was asked
                lost += list(good)
        except (*LOST_ERRORS, CancelledError, FutureCancelledError):
            lost += list(good)
        for job, answer in answers.items():
            self._answered(job, answer)
        for job, future in ended.items():
            if future.status == "error":
                self._retry(job, str(future.exception()), None)
        if lost:
            self._begin_again(lost)

    def _answered(self, job: Job, answer: dict[str, Any]) -> None:
        """Deliver an answer, or deal with the reason for a missing one."""
        if "refused" in answer:
            self.cancel([job])
            raise WorkerError(f"a worker refused the job: {answer['refused']}")
        if "failed" in answer:
            self._retry(job, answer["failed"], answer.get("worker"))
        elif "aside" in answer or "drift" in answer:
            job.avoided.add(answer["worker"])
            self.repeated += "drift" in answer
            if "drift" in answer:
                job.reply.append((job, answer))
            self._send([job])
        else:
            self._end(job)
            job.reply.append((job, answer))

    def _end(self, job: Job) -> None:
        self._jobs.discard(job)
        self._given.pop(job.name, None)

    def _retry(self, job: Job, reason: str, worker: str | None) -> None:
        """Send a job that a worker failed to perform to others; WorkerError after MAX_ATTEMPTS."""
        job.attempts += 1
        self.repeated += 1
        if worker is not None:
            job.avoided.add(worker)
        if job.attempts >= MAX_ATTEMPTS:
            self.cancel([job])
            raise WorkerError(f"{job.attempts} workers failed to {job.content['op']}: {reason}")
        self._send([job])

    # --- loss ----------------------------------------------------------------------------------------------------------

    def _begin_again(self, jobs: Sequence[Job]) -> None:
        """Take the finished answers of jobs that the scheduler has lost, and send the others again."""
        for resource in {job.resource for job in jobs}:
            self.need(resource)
        self._enter()
        known = self.finished({job.content["context"] for job in jobs})
        lost = [job for job in jobs if job.content["key"] not in known]
        self.repeated += len(lost)
        self._send(lost)
        for job in jobs:
            if job not in lost:
                self._answered(job, known[job.content["key"]])

    def _release(self) -> None:
        """Send jobs again whose bound workers are all lost; Dask would wait for these workers."""
        self._looked = time.monotonic()
        with suppress(*LOST_ERRORS):
            there = set(self.client.scheduler_info(n_workers=-1)["workers"])
            stranded = [job for job in self._jobs if job.bound and not job.bound & there]
            self.client.cancel([job.future for job in stranded])
            self._send(stranded)

    def _reconnect(self) -> None:
        """Make a new client if the old one is closed."""
        if self.client.status == "closed":
            with suppress(*LOST_ERRORS):
                self.client = Client(self.client._start_arg, security=self.client.security, timeout=RETRY_SECONDS * 4)

    # --- finished answers ----------------------------------------------------------------------------------------------

    def finished(self, contexts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The unconfirmed answers of these contexts by the keys of their jobs, from all workers that answer in time."""

        def ask(worker: str) -> dict[str, dict[str, Any]]:
            return self.client.run(agent.finished, list(contexts), workers=[worker]).get(worker, {})

        addresses = list(self.client.scheduler_info(n_workers=-1)["workers"])
        found: dict[str, dict[str, Any]] = {}
        pool = ThreadPoolExecutor(max(1, min(32, len(addresses))))
        with suppress(TimeoutError):
            for asked in as_completed([pool.submit(ask, a) for a in addresses], timeout=ASKING_SECONDS):
                with suppress(*LOST_ERRORS):
                    found |= asked.result()
        pool.shutdown(wait=False)
        return found

    def confirm(self, context: str, key: str) -> None:
        """Confirm that the answer to a job is recorded, so that workers need not keep it."""
        self._confirmed.setdefault(context, []).append(key)
        if sum(map(len, self._confirmed.values())) >= CONFIRMED_ANSWERS:
            self.flush()

    def flush(self) -> None:
        """Send confirmations to the workers."""
        keys, self._confirmed = self._confirmed, {}
        with suppress(*LOST_ERRORS):
            if keys:
                self.client.run(agent.confirm, keys, wait=False, on_error="ignore")
