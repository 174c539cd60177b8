"""A simulated farm: how busy the search keeps 256 devices, what it costs the coordinator, and whether it finds as much.

First some candidates of a row are measured here (`--trials`, by default 192; with `--save DIR` they are kept in `DIR/ROW.db`).
Then devices are pretended, on a Dask scheduler and workers in processes of their own: a candidate takes SLOWNESS times as long as
the recorded ones that are most like it took, as on boards that are so much slower, and its time is theirs, a few per cent off,
always the same.
`utilisation` is the share of the time for which devices are busy, but for the first and the last candidate of each;
`utilisation_of_all` that from the first beginning to the last result. `best_ms` is the best pretended time after `candidates`.
`coordinator_cpu` is the CPU seconds a second that the process of the search takes, `coordinator_mib` its largest size.
The other results are what is found with equal numbers of candidates, on one device in rounds, and on many, whose time passes
without waiting: the geometric mean over `--seeds` searches.
"""

from __future__ import annotations

import hashlib
import json
import resource as usage
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

import tir
from search.measure import BASELINE, Candidate, Measurement, Measurer
from search.measure.distributed.measurer import DaskMeasurer, resource
from search.records import Records
from search.task import Task
from search.tuning.autotune import autotune
from search.tuning.events import Measured

from .model import ROWS, _task, gathered
from .options import Options
from .pretend import PretendAgent, PretendFarm, PretendMeasurer, Times
from .runner import circumstances

DEFAULT = ("gemm-512",)
TRIALS = 192  # candidates to record
SLOTS = 256
PROCESSES = 4  # that pretend them
CANDIDATES = 3072  # of the farm
COMPARED = 512  # candidates after which searches are compared
MANY = (32, 256)  # devices of these, beside one
SLOWNESS = 16.0  # of its devices: how many times longer than here they take to build and run a candidate
NEIGHBOURS = 3  # recorded candidates that a pretended one is made of
NOISE = 0.05  # of a pretended time
ROUGH = 2.0  # how many times slower candidates are of which none like them is recorded

__all__ = ["DEFAULT", "ROWS", "measure"]


class Recorded:
    """The times of candidates, from those in a records file: that of a call, and that of building and running."""

    def __init__(self, path: str, key: str):
        self._path, self._key = path, key

    @cached_property
    def _known(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """By sketch: rows, with sizes in doublings; logarithms of seconds; seconds of measuring."""
        found: dict[str, list[Measurement]] = {}
        with Records(self._path, create=False) as records:
            for record in records.of(self._key):
                if record.first.outcome == "ok":
                    found.setdefault(record.first.candidate.sketch, []).append(record.first)
        return {
            sketch: (
                np.log2(1.0 + np.array([m.candidate.row for m in own], dtype=float).reshape(len(own), -1)),
                np.log(np.array([m.seconds for m in own])),
                np.array([m.build_seconds + max(0.1, sum(m.samples)) for m in own]),
            )
            for sketch, own in found.items()
        }

    def __call__(self, candidate: Candidate) -> tuple[float, float]:
        if candidate.sketch not in self._known or candidate == BASELINE:
            each = [(np.median(times), np.median(took)) for _, times, took in self._known.values()]
            logarithm, took = np.mean(each, axis=0)
            return ROUGH * float(np.exp(logarithm)), SLOWNESS * float(took)
        rows, times, measuring = self._known[candidate.sketch]
        distance = np.abs(rows - np.log2(1.0 + np.array(candidate.row, dtype=float))).sum(axis=1)
        near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        weights = 1.0 / (0.1 + distance[near])
        noise = int.from_bytes(hashlib.sha256(json.dumps(candidate.row).encode()).digest()[:4]) / 2**32
        logarithm = float(weights @ times[near] / weights.sum()) + NOISE * (2 * noise - 1)
        return float(np.exp(logarithm)), SLOWNESS * float(weights @ measuring[near] / weights.sum())


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: the farm, and one device for the same number of candidates."""
    target = tir.Target("llvm", num_cores=options.threads)
    task = _task(row, target)
    with ExitStack() as stack:
        folder = stack.enter_context(options.folder())
        gathered(row, target, folder, options)
        times = Recorded(str(folder / f"{row}.db"), task.key)
        each = SLOTS // PROCESSES
        workers = {"resources": {resource(target): each}, "local_directory": str(folder)}
        own = {
            "n_workers": PROCESSES,
            "threads_per_worker": each,
            "worker_kwargs": workers,
            "dashboard_address": ":0",
            "worker_class": "distributed.Worker",
        }
        cluster = stack.enter_context(SubprocessCluster(**own))
        client = stack.enter_context(Client(cluster))
        client.register_plugin(PretendAgent(times))
        client.wait_for_workers(PROCESSES)
        spans: list[tuple[float, float]] = []

        def seen(event: Any) -> None:
            if isinstance(event, Measured):
                spans.append(tuple(json.loads(event.measurement.message)))

        measurer = DaskMeasurer(client, seed=options.seed)
        begin, busy = time.time(), time.process_time()
        own = {"workload": task.workload, "seed": options.seed}
        found = autotune(
            task.func,
            target,
            CANDIDATES,
            measurer=measurer,
            callbacks=[seen],
            records=folder / f"farm-{time.time_ns()}.db",
            **own,
        )
        wall, busy = time.time() - begin, time.process_time() - busy
        size = usage.getrusage(usage.RUSAGE_SELF).ru_maxrss / 1024
    counted = [m for m in found.measurements if m.outcome == "ok"]
    starts, ends = np.sort([s for s, _ in spans]), np.sort([e for _, e in spans])
    yield {
        "slots": SLOTS,
        "candidates": len(counted),
        "best_ms": 1e3 * min(m.seconds for m in counted),
        "wall_s": wall,
        "measuring_s": float(np.mean([e - s for s, e in spans])),
        "utilisation": utilisation(spans, ends[SLOTS], starts[-SLOTS]),
        "utilisation_of_all": utilisation(spans, starts[0], ends[-1]),
        "coordinator_cpu": busy / wall,
        "coordinator_mib": size,
        **circumstances(),
    }
    for slots in (1, *MANY):
        found_by = [_search(task, target, seed, times, slots) for seed in range(options.seed, options.seed + options.seeds)]
        yield {
            "slots": slots,
            "candidates": COMPARED,
            "seeds": options.seeds,
            "best_ms": 1e3 * float(np.exp(np.mean(np.log(found_by)))),
            "worst_ms": 1e3 * max(found_by),
            **circumstances(),
        }


def _search(task: Task, target: tir.Target, seed: int, times: Times, slots: int) -> float:
    """The best seconds that a search finds with so many pretended devices."""

    def measurer(task: Task) -> Measurer:
        return PretendMeasurer(task, lambda c: (times(c)[0], 0.0)) if slots == 1 else PretendFarm(task, times, slots)

    return min(
        m.seconds
        for m in autotune(task.func, target, COMPARED, measurer=measurer, workload=task.workload, seed=seed).measurements
    )


def utilisation(spans: list[tuple[float, float]], begin: float, end: float) -> float:
    """The share of the time of all devices, from `begin` to `end`, that lies in spans."""
    inside = [max(0.0, min(e, end) - max(s, begin)) for s, e in spans]
    return sum(inside) / (SLOTS * (end - begin))
