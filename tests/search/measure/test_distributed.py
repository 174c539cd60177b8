"""Measuring on a Dask cluster: the same results as here, faults as outcomes, and nothing lost."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
import yaml
from distributed import Client, LocalCluster

from benchmarks.pretend import PretendAgent, PretendMeasurer
from cli.tune import parser as tune_parser
from cli.worker import parser
from search.measure import Candidate, LocalMeasurer, WorkerError
from search.measure.distributed.agent import Agent, malformed, refusal
from search.measure.distributed.farm import Farm
from search.measure.distributed.measurer import DaskMeasurer, resource
from search.measure.lock import DeviceLock
from search.records import Records
from search.task import Task
from search.tuning.autotune import autotune
from search.tuning.events import Measured
from search.tuning.task_scheduler import tune_tasks
from tests.programs import matmul
from tests.search import farm
from tests.search.measure.test_faults import FAULTS, FUNC, GOOD, QUICK, Listed
from tests.test_architecture import ROOT

TARGET = "llvm -num-cores 1"
SMALL = matmul(7, 13, 40)
LISTED = [Candidate("listed", (n,), {"n": n}) for n in range(20)]


@contextmanager
def cluster(agent: Agent, slots: int = 1, workers: int = 2, **more: int):
    """A client of workers in this process that have this agent."""
    options = {"processes": False, "threads_per_worker": slots, "resources": {resource(TARGET): slots, **more}}
    with LocalCluster(n_workers=workers, dashboard_address=":0", **options) as made, Client(made) as client:
        client.register_plugin(agent)
        yield client


def hashed(candidate: Candidate) -> tuple[float, float]:
    """Seconds that follow from the trace, and no waiting."""
    return 1e-3 * (1 + hashlib.sha256(json.dumps(candidate.trace).encode()).digest()[0]), 0.0


def waited(candidate: Candidate) -> tuple[float, float]:
    return hashed(candidate)[0], 0.02


@pytest.fixture(scope="module")
def pretending():
    with cluster(PretendAgent(hashed), slots=3) as client:
        yield client


# --- as at home --------------------------------------------------------------------------------------------------------


def tuned(measurer, **options):
    result = autotune(SMALL, TARGET, 20, seed=3, measurer=measurer, **options)
    return {(m.candidate.sketch, m.candidate.row, m.seconds) for m in result.measurements}, result.seconds, result.trace


def test_results_are_those_of_one_machine(pretending):
    own = {"policy": "evolution", "model": "none", "space": "limited"}
    home = tuned(lambda task: PretendMeasurer(task, hashed), **own)
    assert tuned(DaskMeasurer(pretending, seed=3), **own) == home
    assert len(home[0]) == 20


def test_a_farm_keeps_to_the_budget(pretending, tmp_path):
    measurer = DaskMeasurer(pretending, seed=5)
    own = {"seed": 5, "measurer": measurer, "records": tmp_path / "tune.db", "model": "none", "space": "limited"}
    result = autotune(SMALL, TARGET, 41, **own)
    assert result.trials == 41 and not measurer.farm._jobs
    rows = [(m.candidate.sketch, m.candidate.row) for m in result.measurements]
    assert len(set(rows)) == 41
    assert autotune(SMALL, TARGET, 5, **own).earlier == 41
    with Records(tmp_path / "tune.db") as records:
        assert len(records) == 46


def test_two_coordinators_share_a_farm(pretending, tmp_path):
    """And a file of records."""

    def tune(seed: int):
        with Client(pretending.scheduler.address) as client:
            measurer = DaskMeasurer(client, seed=seed)
            return autotune(SMALL, TARGET, 20, policy=Listed(LISTED), first=(), measurer=measurer, records=tmp_path / "tune.db")

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(tune, (31, 32)))
    assert [r.trials + r.earlier for r in results] == [20, 20] or [r.trials for r in results] == [20, 20]
    assert len({r.seconds for r in results}) == 1
    with Records(tmp_path / "tune.db") as records:
        assert len(records) == sum(r.trials for r in results)


def test_tasks_share_a_farm(pretending):
    order = []
    measurer = DaskMeasurer(pretending)
    found = tune_tasks(
        [SMALL, matmul(13, 7, 61), matmul(9, 5, 33)], TARGET, 48, measurer=measurer, model="none", space="limited",
        callbacks=[lambda task, event: order.append(task.key) if isinstance(event, Measured) else None],
    )  # fmt: skip
    assert found.trials == 48 and all(r is not None for r in found.results)
    assert sum(r.trials for r in found.results) == len(order) == 48
    assert not measurer.farm._jobs


def test_the_target_gets_what_the_machine_of_a_worker_has(pretending):
    measurer = DaskMeasurer(pretending)
    assert str(measurer.resolve(TARGET)) == str(Task.of(SMALL, TARGET).target)


# --- faults of candidates ----------------------------------------------------------------------------------------------


class FaultyAgent(Agent):
    """Builds with the builder of `test_faults`."""

    def make(self, task, limits, seed):
        return LocalMeasurer(task, limits=limits, seed=seed, workers=1, builder="faulty_builder", lock=self.lock(task.target))


def test_faults_are_outcomes_on_any_worker(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "search"))
    chosen = ("segfault", "loop", "allocate", "wrong", "no such loop")
    faults = [Candidate(name, (), FAULTS[name][0]) for name in chosen]
    with cluster(FaultyAgent()) as client:
        measurer = DaskMeasurer(client, limits=replace(QUICK, run=2.0, run_floor=1.0))
        result = autotune(
            FUNC, TARGET, 8, policy=Listed([*faults, *GOOD]), first=(), measurer=measurer, records=tmp_path / "tune.db"
        )
    found = {m.candidate.sketch: m.outcome for m in result.measurements}
    assert found == {name: FAULTS[name][1] for name in chosen} | {"tiles": "ok"}
    with Records(tmp_path / "tune.db") as records:
        assert len(records) == 8


# --- workers that are not fit ------------------------------------------------------------------------------------------


def test_other_versions_are_refused(pretending, monkeypatch):
    measurer = DaskMeasurer(pretending)
    monkeypatch.setitem(measurer.farm._versions, "tir", "0.0.1")
    with pytest.raises(
        WorkerError, match=r"^a worker refused the job: the coordinator has tir 0\.0\.1, llvmlite .*, this worker"
    ):
        measurer.resolve(TARGET)
    versions = {"tir": "1", "llvmlite": "2", "llvm": "3"}
    assert refusal(versions, {**versions, "numpy": "4"}) == ""
    assert refusal(versions, {"tir": "1", "llvm": "4"}) == (
        "the coordinator has tir 1, llvmlite 2, llvm 3, this worker has tir 1, llvmlite unknown, llvm 4; "
        "programs and times would not be the same"
    )


def test_a_target_without_workers_is_refused(pretending):
    measurer = DaskMeasurer(pretending)
    with pytest.raises(WorkerError) as raised:
        measurer.resolve("cuda -arch sm_80")
    assert str(raised.value) == f"no worker of the cluster has the resource gpu:sm_80; there are: {resource(TARGET)}"


# --- loss --------------------------------------------------------------------------------------------------------------


class OtherAgent(PretendAgent):
    """The first worker has another processor, on which all is fast."""

    def setup(self, worker):
        super().setup(worker)
        self._device = "other" if worker.name == 0 else "usual"

    def answer(self, job):
        found = super().answer(job)
        if (measured := found.get("measurement")) is not None:
            measured["provenance"]["fingerprint"] = measured["provenance"]["device"] = self._device
            measured["samples"] = [1e-9] if self._device == "other" else measured["samples"]
        elif "provenance" in found:
            found["provenance"]["fingerprint"] = self._device
        return found


def test_a_run_measures_on_the_commonest_device(tmp_path):
    with cluster(OtherAgent(waited), workers=3) as client:
        deadline = time.monotonic() + 10
        measurer = DaskMeasurer(client)
        while len({r.status.get("device") for r in measurer.farm.runners(resource(TARGET))} - {None}) < 2:
            assert time.monotonic() < deadline  # until the workers have told the scheduler
            time.sleep(0.05)
        assert [d.fingerprint for d in measurer.devices(TARGET)] == ["usual", "other"]
        result = autotune(SMALL, TARGET, 20, policy=Listed(LISTED), first=(), measurer=measurer, records=tmp_path / "tune.db")
    assert {m.provenance.device for m in result.measurements} == {"usual"}
    assert result.seconds == min(waited(m.candidate)[0] for m in result.measurements)


HOLDER = """
import os, sys, time
from pathlib import Path
from search.measure.lock import DeviceLock
lock = DeviceLock("d", Path(sys.argv[1]))
lock.__enter__()
if not (child := os.fork()):
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def taken(directory: Path) -> bool:
    """True where somebody holds the lock of `HOLDER`'s device."""
    with (directory / "tir-device-d").open("r+") as other:  # another description of the file, whose lock excludes the first
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_lock_survives_its_holder_as_long_as_what_it_started(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    child = int(holder.stdout.readline())
    lock = DeviceLock("d", tmp_path)
    assert taken(tmp_path)
    holder.kill()
    holder.wait()
    assert taken(tmp_path)
    os.kill(child, signal.SIGKILL)
    with lock:  # waits until the child has ended
        assert taken(tmp_path)
    assert not taken(tmp_path)
    lock.close()
    holder.stdout.close()


def test_the_compose_file_starts_a_scheduler_and_workers_of_one_image():
    services = yaml.safe_load((ROOT / "examples" / "farm" / "compose.yaml").read_text())["services"]
    assert set(services) == {"scheduler", "worker-1", "worker-2", "tune"}
    assert len({json.dumps([s["image"], s["build"]]) for s in services.values()}) == 1
    made = services["tune"]["build"]["dockerfile_inline"].splitlines()
    packages = run_path(str(ROOT / "setup.py"), run_name="setup")["PACKAGES"]
    assert [line for line in made if line.startswith("COPY")] == [
        "COPY pyproject.toml setup.py README.md LICENSE ./",
        *(f"COPY {name} {name}" for name in sorted([*packages, "tir"])),
    ]
    for name in ("worker-1", "worker-2"):
        args = parser().parse_args(services[name]["command"].removeprefix("python -m tir.worker ").split())
        assert (args.address, args.cores) == ("tcp://scheduler:8786", [0, 1, 2, 3])
    words = services["tune"]["entrypoint"].removeprefix("python -m tir.tune ").split()
    assert tune_parser().parse_intermixed_args([*words, "gmm"]).cluster == "tcp://scheduler:8786"


def test_dask_is_loaded_by_those_alone_who_use_it():
    code = (
        "import sys, search, search.measure, search.tuning.autotune, cli.tune.run, cli.tune.network, search.measure.local;"
        "print({'dask', 'distributed'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "set()\n"


def test_a_farm_names_its_workers(pretending):
    there = Farm(pretending)
    assert sorted((r.name, r.slots) for r in there.runners(resource(TARGET))) == [("0", 3), ("1", 3)]
    assert there.resources() == [resource(TARGET)]


def test_nothing_is_lost_where_a_worker_is_killed(tmp_path):
    """The small form of `python -m tests.search.farm`."""
    found = farm.run(tmp_path, farm.Faults(kills=1, stops=0, restarts=0, cuts=0), trials=12, wait=0.2, every=0.5, workers=2)
    assert found.recorded == 12 and found.winner == (8,)


# --- jobs that are none ------------------------------------------------------------------------------------------------

HASH = "0" * 8
DESCRIBED = {"script": "", "target": TARGET, "name": "main", "workload": None}
JOB = {"op": "measure", "context": HASH, "task": DESCRIBED, "seed": 0, "limits": {}, "key": HASH, "candidate": {}, "versions": {}}


@pytest.mark.parametrize(("change", "expected"), [
    ({}, ""),
    ({"op": []}, "a job's op must be one of resolve, prepare, measure, compare, peak, got []"),
    ({"op": "resolve"}, "`target` of `resolve` in a job must be a string, got None"),
    ({"versions": [1]}, "`versions` of `measure` in a job must be an object, got [1]"),
    ({"context": {}}, "`context` of `measure` in a job must be a string, got {}"),
    ({"task": "x"}, "`task` of `measure` in a job must be an object, got 'x'"),
    ({"task": {**DESCRIBED, "script": 3}}, "`script` of `task` in a job must be a string, got 3"),
    ({"best": "fast"}, "`best` of `measure` in a job must be a number or an integer or null, got 'fast'"),
])  # fmt: skip
def test_what_is_no_job_is_said_to_be_none(change, expected):
    assert malformed({**JOB, **change}) == expected
