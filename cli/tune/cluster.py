"""`--cluster`: tuning on the workers of a Dask cluster, and their rows in the progress."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ..options import Usage, parse_target, refusing
from ..worker import MISSING

if TYPE_CHECKING:
    from distributed import Client

    from search.measure.distributed.farm import Runner
    from search.measure.distributed.measurer import DaskMeasurer

CONNECT_SECONDS = 10.0
LOOK_SECONDS = 1.0  # between two looks at the workers
SILENT_SECONDS = 10.0  # after which a worker is shown as silent


@contextmanager
def on_cluster(args: argparse.Namespace, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of a run on the cluster that the arguments name, if any; the target becomes that of its machines."""
    if getattr(args, "cluster", None) is None:
        if getattr(args, "builders", False):
            raise Usage("--builders needs --cluster: they are workers of it")
        yield options
        return
    if getattr(args, "inputs", None) is not None:
        raise Usage("--inputs does not go with --cluster: workers draw the data from the seed")
    try:
        from search.measure.distributed.measurer import DaskMeasurer
    except ImportError:
        raise Usage(f"--cluster {MISSING}") from None
    from search.measure import Limits, WorkerError
    from search.task import target_text

    target = parse_target(args.target or "llvm", args.threads)
    with ExitStack() as stack:
        client = stack.enter_context(_client(args.cluster, target, stack))
        measurer = DaskMeasurer(client, limits=Limits(run=args.timeout), seed=args.seed, builders=args.builders)
        stack.callback(measurer.farm.close)
        with refusing(f"--cluster {args.cluster}", WorkerError):
            args.target = target_text(measurer.resolve(target if args.threads else args.target or "llvm"))
        yield {**options, "measurer": measurer}


def _client(text: str, target: Any, stack: ExitStack) -> Client:
    """A client of the cluster at an address, or of one on this machine that ends with the `stack`."""
    import dask
    from distributed import Client, LocalCluster

    from search.measure.distributed.measurer import resource

    if local := re.fullmatch(r"local:([1-9]\d*)", text):
        dask.config.set({"distributed.scheduler.worker-ttl": "30s"})
        workers = {"n_workers": int(local[1]), "threads_per_worker": 1, "resources": {resource(target): 1.0}}
        return Client(stack.enter_context(LocalCluster(**workers, dashboard_address=":0")))
    if not re.fullmatch(r"[a-z]+://.+", text):
        raise Usage(f"--cluster: expected an address such as tcp://host:8786, or local:4, got {text!r}")
    with refusing(f"--cluster {text}", (OSError, ValueError, TypeError)):
        return Client(text, timeout=CONNECT_SECONDS)


class Workers:
    """The workers in the progress of a run, looked at once in LOOK_SECONDS at most."""

    def __init__(self, measurer: DaskMeasurer, target: str):
        from search.measure.distributed.farm import BUILD_RESOURCE
        from search.measure.distributed.measurer import resource

        self._farm, self._resources = measurer.farm, (resource(target), BUILD_RESOURCE)
        self.dashboard = self._farm.dashboard
        self._seen: list[Runner] = []
        self._looked = 0.0
        self._before: dict[str, tuple[float, float]] = {}  # the time of the last look, and the busy seconds until then
        self._busy: dict[str, float] = {}

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The name of each worker, its work, the share of the time that it is busy, and the number of its measurements."""
        return [
            (r.name, self._activity(r), f"{self._busy.get(r.address, 0.0):.0%}", str(r.status.get("measured", 0)))
            for r in self._refresh()
        ]

    def line(self) -> str:
        """The number of workers, and how busy they are on average."""
        runners = self._refresh()
        busy = [self._busy.get(r.address, 0.0) for r in runners]
        return f"{len(runners)} worker{'s' * (len(runners) != 1)}, {sum(busy) / len(busy):.0%} busy" if runners else "no worker"

    def _refresh(self) -> list[Runner]:
        if (now := time.monotonic()) > self._looked + LOOK_SECONDS:
            self._looked = now
            try:
                self._seen = [r for name in self._resources for r in self._farm.runners(name)]
            except (OSError, RuntimeError, ValueError):  # the scheduler has gone; it may come back
                return self._seen
            for r in self._seen:
                busy = float(r.status.get("busy", 0.0))
                when, before = self._before.get(r.address, (now, busy))
                if now > when and busy != before:
                    self._busy[r.address] = min(1.0, (busy - before) / (now - when) / r.slots)
                self._before[r.address] = (now, busy)
        return self._seen

    def _activity(self, runner: Runner) -> str:
        if runner.silent > SILENT_SECONDS:
            return f"silent for {runner.silent:.0f} s"
        if aside := runner.status.get("aside"):
            return f"put aside: {aside}"
        back = "; back after drift" if runner.status.get("returns") else ""
        return (runner.status.get("doing") or "idle") + back
