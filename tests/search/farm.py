"""Tunes on a Dask cluster of real processes while they are killed, stopped and cut off, and checks that the winner is right, that
nothing measured is lost, and that nothing is measured twice without saying so: `python -m tests.search.farm`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from search.measure.distributed.agent import Agent
from search.measure.distributed.measurer import DaskMeasurer, resource
from tests.programs import matmul

ROOT = Path(__file__).resolve().parents[2]
TARGET = "llvm -num-cores 1"
SILENT = "3s"  # after which the scheduler gives the work of a worker that is not heard of to others
FUNC = matmul(7, 13, 40)
STOPPED_SECONDS = 6.0  # that a stopped worker, or a cut connection, stays so


@dataclass(frozen=True)
class Faults:
    """How often workers are killed and stopped, the scheduler is restarted, and a worker's network is cut."""

    kills: int = 10
    stops: int = 3
    restarts: int = 1
    cuts: int = 1


@dataclass(frozen=True)
class Summary:
    """What a run found: how many of its `trials` were recorded once, the candidates of which a worker wrote more than one
    measurement to its log (`repeated`), as many as the coordinator `admitted`, and the `seconds` it took."""

    trials: int
    recorded: int
    repeated: int
    admitted: int
    winner: tuple[int, ...]
    seconds: float


class LoggingAgent(Agent):
    """Waits instead of measuring, for as long as a candidate says, and appends a line to a log for each it has measured."""

    def __init__(self, log: str):
        self._log = log

    def make(self, task, limits, seed):
        from benchmarks.pretend import PretendMeasurer

        log = self._log

        class Logging(PretendMeasurer):
            def results(self, timeout=None):
                for m in super().results(timeout):
                    with open(log, "a") as file:
                        file.write(json.dumps(m.candidate.row) + "\n")
                    yield m

        return Logging(task, lambda c: (c.trace["seconds"], c.trace["wait"]) if c.trace else (1.0, 0.0))


class Listed:
    """Candidates of which the last but three is the fastest."""

    def __init__(self, count: int, wait: float):
        from search.measure import Candidate

        rng = np.random.default_rng(0)
        seconds = rng.uniform(1e-3, 2e-3, count)
        seconds[-4] = 0.5e-3
        self.left = [
            Candidate("listed", (n,), {"n": n, "seconds": float(s), "wait": float(rng.uniform(0.5, 1.5) * wait)})
            for n, s in enumerate(seconds)
        ]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass


class Proxy:
    """Passes on what comes to a port, until it is cut."""

    def __init__(self, port: int):
        self._port = port
        self._server = socket.create_server(("", 0))
        self.port = self._server.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._server.accept()
                if not self.open:
                    here.close()
                    continue
                try:
                    there = socket.create_connection((HOST, self._port))
                except OSError:  # there is no scheduler now
                    here.close()
                    continue
                self._pairs.append((here, there))
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                while not self.open:  # what is under way is stuck, as where a cable is pulled
                    time.sleep(0.05)
                sink.sendall(data)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.close()

    def close(self) -> None:
        self._server.close()


HOST = socket.gethostbyname(socket.gethostname())


class Cluster:
    """A scheduler and workers, each in a process of its own, that are started again as by a service manager."""

    def __init__(self, directory: Path, workers: int):
        self.directory = directory
        self.scheduler_port, self._dashboard = _free_port(), _free_port()
        self.proxy = Proxy(self.scheduler_port)  # the last worker reaches the scheduler through it
        self.address = f"tcp://{HOST}:{self.scheduler_port}"
        self.scheduler = self._start_scheduler()
        self.workers = [self._start_worker(n, workers) for n in range(workers)]

    def _environment(self) -> dict[str, str]:
        own = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": SILENT, "XDG_CACHE_HOME": str(self.directory)}
        return {**os.environ, **own, "PYTHONPATH": str(ROOT), "DASK_LOGGING__DISTRIBUTED": "critical"}

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.directory / "cluster.log").open("ab")
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=self._environment(), stdout=log, stderr=log, start_new_session=True
        )

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        options = ["--port", str(self.scheduler_port), "--host", HOST, "--dashboard-address", f":{self._dashboard}"]
        return self._start("-m", "distributed.cli.dask_scheduler", *options)

    def _start_worker(self, number: int, of: int) -> subprocess.Popen[bytes]:
        port = self.proxy.port if number == of - 1 else self.scheduler_port
        own = ["--device", f"pretended-{number}", "--directory", str(self.directory / f"worker-{number}")]
        return self._start("-m", "tir.worker", f"tcp://{HOST}:{port}", "--name", f"w{number}", *own)

    def pids(self) -> list[int]:
        """The processes that measure: children of those that keep them running."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(OSError):
                started = Path(f"/proc/{worker.pid}/task").glob("*/children")  # by any thread
                children = " ".join(path.read_text() for path in started).split()
                found += [int(c) for c in children if b"resource_tracker" not in Path(f"/proc/{c}/cmdline").read_bytes()]
        return found

    def restart_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = self._start_scheduler()

    def close(self) -> None:
        self.proxy.open = True
        self.proxy.close()
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def disturbed(cluster: Cluster, faults: Faults, every: float, rng: np.random.Generator) -> Iterator[str]:
    """Do the faults in random order, one `every` so many seconds."""
    kinds = ["kill"] * faults.kills + ["stop"] * faults.stops + ["restart"] * faults.restarts + ["cut"] * faults.cuts
    for kind in rng.permutation(kinds).tolist():
        time.sleep(every)
        pids = cluster.pids()
        if kind in ("kill", "stop"):
            while not (pids := cluster.pids()):
                time.sleep(0.1)
            pid = int(rng.choice(pids))
        yield kind
        with contextlib.suppress(ProcessLookupError):
            match kind:
                case "kill":
                    os.kill(pid, signal.SIGKILL)
                case "stop":
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(STOPPED_SECONDS)
                    os.kill(pid, signal.SIGCONT)
                case "cut":
                    cluster.proxy.open = False
                    time.sleep(STOPPED_SECONDS)
                    cluster.proxy.open = True
                case "restart":
                    cluster.restart_scheduler()


def run(directory: Path, faults: Faults, trials: int, wait: float, every: float, workers: int = 3, seed: int = 0) -> Summary:
    """Tune while a thread does the faults; AssertionError where something is lost."""
    from distributed import Client

    from search.records import Records
    from search.tuning.autotune import autotune

    log = directory / "measured"
    started = time.monotonic()
    with ExitStack() as stack:
        cluster = Cluster(directory, workers)
        stack.callback(cluster.close)
        client = stack.enter_context(Client(cluster.address, timeout=60))
        agent = LoggingAgent(str(log))
        client.register_plugin(agent)
        measurer = DaskMeasurer(client, patience=120.0)
        stack.callback(measurer.farm.close)
        measurer.farm.agent = agent
        client.wait_for_workers(workers, timeout=120)
        done: list[str] = []

        def disturb() -> None:
            done.extend(disturbed(cluster, faults, every, np.random.default_rng(seed)))

        thread = threading.Thread(target=disturb, daemon=True)
        thread.start()
        policy = Listed(trials, wait)
        result = autotune(FUNC, TARGET, trials, policy=policy, first=(), measurer=measurer, records=directory / "tune.db")
        thread.join()
    with Records(directory / "tune.db") as records:
        rows = [r.measurement.candidate.row for r in records.of(result.task.key)]
    counts = Counter(tuple(json.loads(line)) for line in log.read_text().splitlines() if line != "[]")
    assert result.trials == trials and result.outcomes["ok"] == trials, result.outcomes
    assert sorted(rows) == [(n,) for n in range(trials)], "a candidate was lost, or recorded twice"
    assert set(counts) == set(rows), "what was measured is not what was recorded"
    best = result.measurements[int(np.argmin([m.seconds for m in result.measurements]))].candidate.row
    assert best == (trials - 4,), best
    assert sorted(done) == sorted(["kill"] * faults.kills + ["stop"] * faults.stops + ["restart"] * faults.restarts
                                  + ["cut"] * faults.cuts)  # fmt: skip
    twice = sum(n - 1 for n in counts.values())
    assert twice <= measurer.farm.repeated, f"{twice} measurements were taken again, {measurer.farm.repeated} of them were told"
    return Summary(trials, len(rows), twice, measurer.farm.repeated, best, round(time.monotonic() - started, 1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.search.farm", description=__doc__)
    for name, count in (("kills", 10), ("stops", 3), ("restarts", 1), ("cuts", 1)):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N")
    parser.add_argument("--trials", type=int, default=300, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    args = parser.parse_args()
    faults = Faults(args.kills, args.stops, args.restarts, args.cuts)
    with tempfile.TemporaryDirectory() as directory:
        print(resource(TARGET), run(Path(directory), faults, args.trials, wait=0.6, every=3.0, seed=args.seed))


if __name__ == "__main__":
    main()
