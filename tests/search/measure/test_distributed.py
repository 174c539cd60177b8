"""Measuring on a Dask cluster: the same results as here, faults as outcomes, and nothing lost."""

from __future__ import annotations

import base64
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
from types import SimpleNamespace

import dask
import llvmlite.binding
import pytest
import yaml
from distributed import Client, LocalCluster

from benchmarks.pretend import PretendAgent, PretendMeasurer
from cli.tune import parser as tune_parser
from cli.worker import parser
from codegen import Target, build
from codegen.cache import Collected, object_key
from schedule import Trace, replay
from search.measure import Candidate, Limits, LocalMeasurer, WorkerError
from search.measure.distributed import agent as agents
from search.measure.distributed.agent import Agent, malformed, refusal
from search.measure.distributed.farm import Farm
from search.measure.distributed.finished import MAX_AGE_SECONDS, PURGE_SECONDS, FinishedAnswers
from search.measure.distributed.measurer import DaskMeasurer, resource
from search.measure.lock import DeviceLock
from search.records import Records
from search.task import Task
from search.tuning.autotune import autotune, default_candidate
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


def test_results_in_rounds_are_those_of_one_machine(pretending):
    own = {"policy": "evolution", "model": "none", "space": "limited"}
    home = tuned(lambda task: PretendMeasurer(task, hashed), **own)
    assert tuned(DaskMeasurer(pretending, rounds=True, seed=3), **own) == home
    assert len(home[0]) == 20


def test_results_without_rounds_are_those_of_one_machine(pretending):
    """Where the measurements don't decide what is proposed."""
    home, away = (
        tuned(measurer, policy=Listed(LISTED), first=())
        for measurer in (lambda task: PretendMeasurer(task, hashed), DaskMeasurer(pretending, seed=3))
    )
    assert away == home and len(home[0]) == 20


def test_a_farm_that_is_kept_busy_keeps_to_the_budget(pretending, tmp_path):
    measurer = DaskMeasurer(pretending, seed=5)
    own = {"seed": 5, "measurer": measurer, "records": tmp_path / "tune.db", "model": "none", "space": "limited"}
    result = autotune(SMALL, TARGET, 41, **own)
    assert result.trials == 41 and measurer.farm.under_way == 0
    rows = [(m.candidate.sketch, m.candidate.row) for m in result.measurements]
    assert len(set(rows)) == 41  # none was proposed twice while it was under way
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


def test_tasks_tune_at_once(pretending):
    order = []
    measurer = DaskMeasurer(pretending)
    found = tune_tasks(
        [SMALL, matmul(13, 7, 61), matmul(9, 5, 33)], TARGET, 48, measurer=measurer, model="none", space="limited",
        callbacks=[lambda task, event: order.append(task.key) if isinstance(event, Measured) else None],
    )  # fmt: skip
    assert found.trials == 48 and all(r is not None for r in found.results)
    assert sum(r.trials for r in found.results) == len(order) == 48
    assert measurer.farm.under_way == 0


def test_the_target_gets_what_the_machine_of_a_worker_has(pretending):
    measurer = DaskMeasurer(pretending)
    assert str(measurer.resolve(TARGET)) == str(Task.of(SMALL, TARGET).target)


# --- faults of candidates ----------------------------------------------------------------------------------------------


class FaultyAgent(Agent):
    """Builds with the builder of `test_faults`."""

    def make(self, task, limits, seed):
        return LocalMeasurer(task, limits=limits, seed=seed, workers=1, builder="faulty_builder", lock=self.lock(task.target))

    def _drift(self, measurer):
        return None


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


# --- builders ----------------------------------------------------------------------------------------------------------


class BuildingAgent(PretendAgent):
    """Notes what it builds, and of what it runs what came as object code."""

    built, ran = [], []

    def _build(self, job):
        self.built.append(job["candidate"]["row"])
        return super()._build(job)

    def _measure(self, job):
        self.ran.append((job["candidate"]["row"], [*job["objects"]]))
        return super()._measure(job)


def test_builders_compile_for_those_who_trust_them():
    def tune(client):
        measurer = DaskMeasurer(client, builders=True)
        return autotune(SMALL, TARGET, 6, policy=Listed(LISTED), first=(), measurer=measurer)

    with cluster(BuildingAgent(hashed), slots=2, workers=1, build=2) as client:
        with pytest.raises(WorkerError) as raised:
            tune(client)
        assert str(raised.value) == (
            "a worker refused the job: it runs no object code of builders unless it is started with --trust-builders"
        )
        assert BuildingAgent.built and not BuildingAgent.ran
        with dask.config.set({"tir.trust": True}):
            result = tune(client)
    assert result.trials == 6 and result.outcomes["ok"] == 6
    assert sorted(BuildingAgent.ran) == [([n], [64 * "0"]) for n in range(6)]


def test_a_builder_makes_what_the_device_would_make(tmp_path, monkeypatch):
    """Object code for a processor that the builder has not, under the name by which the device looks for it."""
    arm = "llvm -num-cores 1 -mcpu cortex-a76 -mtriple aarch64-linux-gnu"
    default = default_candidate(task := Task.of(FUNC, arm))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with LocalMeasurer(task, workers=1, builds=True) as builder:
        found = builder.objects(default)
        failed = builder.objects(Candidate("bad", (), FAULTS["no such loop"][0]))
    assert (failed.outcome, failed.message.splitlines()[0]) == (
        "illegal",
        "ScheduleError: step 1 of 1, split('nowhere', [None, 4]): `nowhere` is no loop of this function; its loops are `i`, `j` and `k`",
    )
    cache = Collected(tmp_path / "device")
    build(replay(FUNC, Trace.from_json(default.trace)).func, arm, cache=cache)
    assert {key: base64.b64decode(code) for key, code in found.items()} == cache.objects
    here = SimpleNamespace(mcpu="cortex-a76", mattr="", mtriple="")
    monkeypatch.setattr(llvmlite.binding, "get_process_triple", lambda: "aarch64-unknown-linux-gnu")
    assert object_key("text", here) == object_key("text", Target(arm))  # as the device asks


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


class DriftingAgent(PretendAgent):
    """The device of the first worker becomes slow after its second candidate, until it is looked at in vain."""

    def _slowdown(self, measurer):
        if self.slow and self._measured > 2:
            self.looks += bool(self.aside)
            return None if self.looks > 1 else 1.5
        return None

    def setup(self, worker):
        super().setup(worker)
        self.slow, self.looks = worker.name == 0, 0


def test_a_device_that_drifts_is_put_aside_and_its_rows_are_marked(tmp_path, monkeypatch):
    """And it comes back when it is as before."""
    monkeypatch.setattr(agents, "LOOK_SECONDS", 0.7)
    with cluster(DriftingAgent(hashed)) as client:
        measurer = DaskMeasurer(client)
        result = autotune(SMALL, TARGET, 20, policy=Listed(LISTED), measurer=measurer, records=tmp_path / "tune.db")
        deadline, seen = time.monotonic() + 10, []
        while not seen or not seen[-1].status.get("returns"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            seen += [r for r in measurer.farm.runners(resource(TARGET)) if r.name == "0"]
        assert "the calibration kernel takes 1.50 times as long as before" in {r.status.get("aside") for r in seen}
        assert seen[-1].status["aside"] == "" and len(measurer.farm.need(resource(TARGET))) == 2
    assert result.trials == 20 and result.outcomes["ok"] == 20
    with Records(tmp_path / "tune.db") as records:
        marked = [r.first for r in records.of(result.task.key, TARGET) if r.first.drifted]
    assert {m.message for m in marked} == {"its device drifted: a fixed kernel took 1.50 times as long as before"}
    assert len(marked) == measurer.farm.repeated == agents.MAX_DRIFTED_CANDIDATES


def test_the_calibration_kernel_is_timed_beside_candidates():
    task = Task.of(SMALL, TARGET)
    with LocalMeasurer(task, limits=replace(QUICK, baseline=1.0), workers=1) as measurer:
        assert measurer.calibrate() > 0 and measurer.calibrate() > 0
        measurer.pause()
        assert measurer.calibrate() > 0


# --- loss --------------------------------------------------------------------------------------------------------------


class SlowerAgent(PretendAgent):
    """The first worker has another processor, on which the calibration kernel takes three times as long, and what is fast on the
    others is slow."""

    def setup(self, worker):
        super().setup(worker)
        self._slow = worker.name == 0
        self._device = "slower" if self._slow else "usual"

    def answer(self, job):
        found = super().answer(job)
        measured = found.get("measurement")
        if measured is not None and job["op"] in ("measure", "prepare"):
            measured["provenance"]["fingerprint"] = measured["provenance"]["device"] = self._device
            found["calibration"] = 3.0 if self._slow else 1.0
            measured["samples"] = [3.0 * (0.3 - s) if self._slow else s for s in measured["samples"]]
        elif "provenance" in found:
            found["provenance"]["fingerprint"] = self._device
        return found


def test_times_are_compared_within_one_device(tmp_path):
    with cluster(SlowerAgent(waited), workers=3) as client:
        deadline = time.monotonic() + 10
        measurer = DaskMeasurer(client)
        while len({r.status.get("device") for r in measurer.farm.runners(resource(TARGET))} - {None}) < 2:
            assert time.monotonic() < deadline  # until the workers have told the scheduler
            time.sleep(0.05)
        assert [d.fingerprint for d in measurer.devices(TARGET)] == ["usual", "slower"]
        result = autotune(SMALL, TARGET, 20, policy=Listed(LISTED), first=(), measurer=measurer, records=tmp_path / "tune.db")
    assert {m.provenance.device for m in result.measurements} == {"usual", "slower"}
    for m in result.measurements:  # in memory, as the usual one would take by the calibration kernel
        assert m.elsewhere == ("slower" if m.provenance.device == "slower" else "")
        assert m.seconds == pytest.approx(abs(waited(m.candidate)[0] - (0.3 if m.elsewhere else 0.0)))
    assert result.seconds == min(waited(m.candidate)[0] for m in result.measurements if not m.elsewhere)
    with Records(tmp_path / "tune.db") as records:
        slow, usual = (records.of_fingerprint(result.task.key, name) for name in ("slower", "usual"))
        assert len(slow) + len(usual) >= 20 and slow and usual
        assert all(r.seconds == pytest.approx(3 * (0.3 - waited(r.first.candidate)[0])) for r in slow)


def test_what_a_killed_coordinator_did_not_take_is_found_by_the_next(pretending, tmp_path):
    task, limits = Task.of(SMALL, TARGET), Limits()
    candidates = [Candidate("lost", (n,), {"n": n}) for n in range(5)]
    first = DaskMeasurer(pretending, limits=limits, seed=11)(task)
    first.prepare()
    first.submit(candidates)
    measured = list(first.results())  # nothing is confirmed before the farm is told to, as if it were killed here
    first.farm._confirmed.clear()
    again = DaskMeasurer(pretending, limits=limits, seed=11)
    unrecorded = autotune(SMALL, TARGET, 3, policy=Listed(LISTED), first=(), seed=11, measurer=again)
    assert unrecorded.earlier == 0  # a run that keeps nothing takes nothing from one that does
    result = autotune(
        SMALL, TARGET, 3, policy=Listed(LISTED), first=(), seed=11, measurer=DaskMeasurer(pretending, limits=limits, seed=11),
        records=tmp_path / "tune.db",
    )  # fmt: skip
    assert result.earlier == len(measured) == 5 and result.trials == 3
    with Records(tmp_path / "tune.db") as records:
        assert len(records) == 8
    third = DaskMeasurer(pretending, limits=limits, seed=11)(task)
    deadline = time.monotonic() + 10
    while left := list(third.finished()):  # the second run confirms, and does not wait until workers have heard of it
        assert time.monotonic() < deadline, left


def test_what_nobody_asks_for_is_forgotten(tmp_path, monkeypatch):
    """While an agent runs, too, and with the folders of what has been taken."""
    kept = FinishedAnswers(tmp_path)
    for context, key in (("aa" * 4, "00" * 4), ("aa" * 4, "11" * 4), ("bb" * 4, "22" * 4)):
        kept.keep(context, key, {"n": key})
    kept.confirm("aa" * 4, ["00" * 4])
    assert kept.all("aa" * 4) == {"11" * 4: {"n": "11" * 4}}
    kept.confirm("aa" * 4, ["11" * 4])
    assert [path.name for path in tmp_path.iterdir()] == ["bb" * 4]
    old = time.time() - MAX_AGE_SECONDS - 1
    os.utime(tmp_path / ("bb" * 4) / ("22" * 4), (old, old))
    kept.keep("cc" * 4, "33" * 4, {})
    assert kept.get("bb" * 4, "22" * 4) is not None  # it does not look each time
    later = time.monotonic() + PURGE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    kept.keep("cc" * 4, "44" * 4, {})
    assert [path.name for path in tmp_path.iterdir()] == ["cc" * 4] and len(kept.all("cc" * 4)) == 2


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
    ({"op": []}, "a job's op must be one of resolve, prepare, build, measure, compare, peak, got []"),
    ({"op": "resolve"}, "`target` of `resolve` in a job must be a string, got None"),
    ({"versions": [1]}, "`versions` of `measure` in a job must be an object, got [1]"),
    ({"context": {}}, "`context` of `measure` in a job must be a string, got {}"),
    ({"context": "../../x"}, "a job's context must be a hash in hexadecimal digits, got '../../x'"),
    ({"task": "x"}, "`task` of `measure` in a job must be an object, got 'x'"),
    ({"task": {**DESCRIBED, "script": 3}}, "`script` of `task` in a job must be a string, got 3"),
    ({"best": "fast"}, "`best` of `measure` in a job must be a number or an integer or null, got 'fast'"),
    ({"objects": 3}, "`objects` in a job must be an object of object codes in base64"),
    ({"objects": {"0" * 64: 3}}, "`objects` in a job must be an object of object codes in base64"),
    ({"objects": {"x": ""}}, "the key of object code must be a hash in hexadecimal digits, got 'x'"),
])  # fmt: skip
def test_what_is_no_job_is_said_to_be_none(change, expected):
    assert malformed({**JOB, **change}) == expected
