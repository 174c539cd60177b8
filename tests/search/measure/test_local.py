"""Measurement: every fault of a candidate is a typed outcome, and never the end of the run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from search.measure import BASELINE, Candidate, Limits, LocalMeasurer, WorkerError
from search.measure.local import _suspicious
from search.measure.memory import resident
from search.measure.outcome import BROKEN, Measurement
from search.measure.provenance import Provenance, fingerprint
from search.measure.reference import NamedWorkload
from search.task import Task
from tests.codegen.harness import at_once
from tir import workloads

SHAPE = (7, 13, 109)
QUICK = Limits(build=1.5, run=1.5, run_floor=0.5, min_seconds=0.01, memory=2 << 30)


def candidate(**wish) -> Candidate:
    return Candidate("fake", (), wish)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(workloads.make("gmm", SHAPE).func, "llvm -num-cores 1", workload=NamedWorkload("gmm", SHAPE))


@pytest.fixture
def measurer(task, fake_builder):
    with LocalMeasurer(task, workers=2, builder=fake_builder, limits=QUICK) as m:
        yield m


def test_inputs_that_are_given_take_the_place_of_random_ones(task, fake_builder):
    """And the expected results of a known workload are those of them."""
    a = np.arange(7 * 13, dtype="float32").reshape(7, 13)
    with LocalMeasurer(task, workers=1, builder=fake_builder, limits=QUICK, inputs={"A": a}) as measurer:
        measurer.prepare_data()
        found, b, expected = (np.load(measurer._directory / name) for name in ("0.npy", "1.npy", "2.expected.npy"))
    assert np.array_equal(found, a) and b.std() > 0 and np.allclose(expected, a.astype("float64") @ b)


def test_one_worker_runs_each_of_a_group_as_soon_as_it_is_built(task, fake_builder, monkeypatch):
    with LocalMeasurer(task, workers=1, builder=fake_builder, limits=QUICK) as measurer:
        measurer.prepare_data()
        (worker,), asked = measurer._workers, []
        send = worker.send
        monkeypatch.setattr(worker, "send", lambda **request: (asked.append(request["op"]), send(**request)))
        measurer.submit([candidate(sleep=0.004), candidate(sleep=0.003), candidate(fault="illegal"), candidate()])
        found = list(measurer.results())
    assert [m.outcome for m in found] == ["ok", "ok", "illegal", "ok"]
    steps = [op for op, before in zip(asked, [None, *asked], strict=False) if op != before and op != "drop"]
    assert steps == ["build", "run", "build", "run", "build", "run"]


@pytest.mark.parametrize(
    ("spare", "choosing", "beside"), [(0, False, {0}), (1, True, {0}), (1, False, {0, 1}), (7, True, {0, 1})]
)
def test_spare_cores_build_the_next_while_one_runs(measurer, monkeypatch, spare, choosing, beside):
    measurer.prepare_data()
    measurer.spare, measurer.choosing = spare, choosing
    run, building = measurer._run, []
    monkeypatch.setattr(measurer, "_run", lambda job: (building.append(len(measurer._builds.running)), run(job))[1])
    found = outcomes([*measurer.measure(candidate(sleep=1e-3 * n) for n in range(1, 9))])
    assert found == {1e-3 * n: "ok" for n in range(1, 9)} and set(building) == beside


def test_nothing_may_be_submitted(task, fake_builder):
    with LocalMeasurer(task, workers=2, builder=fake_builder, limits=QUICK) as measurer:
        for measurer.spare in (0, 1):
            measurer.submit([])
            assert not list(measurer.results())


def test_threads_that_build_ahead_and_submit_take_turns(measurer):
    measurer.prepare_data()
    ahead = [[candidate(sleep=(10 * n + k) * 1e-3) for k in range(1, 4)] for n in range(3)]
    at_once(
        *(partial(measurer.build_ahead, some, lambda: False) for some in ahead), partial(measurer.submit, [candidate(sleep=0.1)])
    )
    together = [c for some in ahead for c in some]
    measurer.submit(together)
    found = {m.candidate.trace["sleep"]: m.digest for m in measurer.results() if m.outcome == "ok"}
    assert len(found) == len(set(found.values())) == 10
    assert all(
        found[m.candidate.trace["sleep"]] == m.digest for m in measurer.measure(together)
    )  # each is the program built for it


def outcomes(measurements: list[Measurement]) -> list[str]:
    by_candidate = {m.candidate.trace.get("fault", m.candidate.trace.get("sleep")): m.outcome for m in measurements}
    return by_candidate


def test_every_fault_is_an_outcome(measurer):
    measurer.prepare()
    measurer.best = None
    faults = {
        "illegal": "illegal",
        "build_error": "build_error",
        "build_abort": "crash",
        "build_hang": "build_timeout",
        "build_memory": "memory",
        "segfault": "crash",
        "exit": "crash",
        "hang": "run_timeout",
        "memory": "memory",
        "raise": "crash",
        "no_text": "crash",
        "long_text": "crash",
        "end": "crash",
        "files": "crash",
        "garbage": "crash",
        "child_and_crash": "crash",
        "leaves_child": "ok",
        "wrong": "wrong_result",
        "nothing": "wrong_result",
        "input": "wrong_result",
        "outside": "wrong_result",
        "print": "ok",
    }
    between = [candidate(sleep=0.001, n=n) for n in range(len(faults))]  # what one leaves behind is no other's fault
    mixed = [c for pair in zip((candidate(fault=f) for f in faults), between, strict=True) for c in pair]
    measured = list(measurer.measure(mixed))
    found = {m.candidate.trace["fault"]: m for m in measured if "fault" in m.candidate.trace}
    assert {f: m.outcome for f, m in found.items()} == faults
    assert [m.message for m in measured if "fault" not in m.candidate.trace] == [""] * len(between)
    assert found["segfault"].message.startswith("SIGSEGV")  # what its process printed last may follow
    assert found["exit"].message.startswith("exit status 3") and found["end"].message == "exit status 1: SystemExit: 3"
    assert found["no_text"].message == "Silent" and len(found["long_text"].message) <= 4000
    assert found["garbage"].message.startswith("something else wrote to the pipe of its answers")
    assert found["build_error"].message == "ValueError: no such instruction"
    assert found["hang"].message.startswith("killed after")
    assert found["input"].message == "changed the input `A`"
    assert found["outside"].message == "wrote outside of `C`"
    assert found["print"].max_error <= 1e-6
    assert all(m.samples == () and m.seconds == float("inf") for m in found.values() if m.outcome != "ok")


def test_a_failure_of_the_workers_own_code_is_no_fault_of_the_candidate(task, fake_builder):
    with LocalMeasurer(task, workers=1, builder=fake_builder, limits=QUICK) as measurer:
        measurer.prepare_data()
        (measurer._directory / "0.npy").unlink()
        (found,) = measurer.measure([candidate(sleep=0.001)])
    assert found.outcome == "fault" and not found.conclusive and found.outcome not in BROKEN
    assert re.match(r"FileNotFoundError: .*0\.npy.* \(\w+\.py:\d+, in [\w<>]+\)$", found.message)


def test_what_a_candidate_and_its_children_hold_is_limited(task, fake_builder, tmp_path):
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("the system does not tell what a process holds")
    limits = replace(QUICK, run=30.0, memory=768 << 20)
    with LocalMeasurer(task, workers=1, builder=fake_builder, limits=limits) as measurer:
        measurer.prepare()
        measurer.best = None
        (group,) = (worker._process.pid for worker in measurer._workers)
        found = {m.candidate.trace.get("fault"): m for m in measurer.measure([candidate(fault="touch"), candidate(sleep=0.001)])}
    assert {fault: m.outcome for fault, m in found.items()} == {"touch": "memory", None: "ok"}
    assert found["touch"].message.endswith("GiB more than before, of 0.75 GiB allowed")
    assert resident(group) == 0  # the child has gone with it


def test_measurements_name_the_device_and_the_versions_of_the_worker(measurer, task):
    measurer.prepare()
    (found,) = measurer.measure([candidate(sleep=0.001)])
    assert found.provenance == Provenance.here(task.target)
    back = Measurement.from_json(json.loads(json.dumps(found.as_json())))
    assert back == found and back.provenance == found.provenance


def test_a_worker_measures_for_the_caches_that_the_measurer_has_found(task, fake_builder, monkeypatch):
    """Also where it would find others, as in a process of a container that is told others."""
    monkeypatch.setattr("codegen.target.host_caches", lambda: (1 << 13, 1 << 17, 1 << 21))
    with LocalMeasurer(task, workers=1, builder=fake_builder, limits=QUICK) as measurer:
        assert measurer.prepare().measurement.provenance == Provenance.here(task.target)


def test_it_is_the_worker_that_says_what_measured(task, fake_builder, tmp_path, monkeypatch):
    text = (
        "from fake_builder import *\nfrom search.measure import provenance\nprovenance.host_name = lambda: 'another processor'\n"
    )
    (tmp_path / "elsewhere_builder.py").write_text(text + "provenance.versions = lambda: {'tir': '0.0'}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with LocalMeasurer(task, workers=1, builder="elsewhere_builder", limits=QUICK) as measurer:
        found = [measurer.prepare().measurement, *measurer.measure([candidate(sleep=0.001)])]
    there = Provenance(fingerprint(task.target, cpu="another processor"), "another processor", {"tir": "0.0"})
    assert [m.provenance for m in found] == [there, there] and there.fingerprint != fingerprint(task.target)


def test_a_pause_ends_the_processes_and_keeps_what_is_known(measurer):
    measurer.prepare()
    (before,) = measurer.measure([candidate(sleep=0.001)])
    measurer.pause()
    assert not any(worker.running for worker in measurer._workers)
    same, other = measurer.measure([candidate(sleep=0.001), candidate(sleep=0.002)])
    assert same.duplicate and same.samples == before.samples
    assert other.outcome == "ok"
    measurer.pause()
    assert [m.outcome for m in measurer.compare([candidate(sleep=0.001)], rounds=3, seconds=0.1).candidates] == ["ok"]


def test_kernels_that_die_with_their_worker_are_built_again(measurer):
    measurer.prepare()
    batch = [candidate(fault="segfault"), *(candidate(sleep=0.001 * n) for n in range(1, 6))]
    found = outcomes(list(measurer.measure(batch)))
    assert found == {"segfault": "crash"} | {0.001 * n: "ok" for n in range(1, 6)}


def test_candidates_are_submitted_and_come_as_they_end(measurer):
    measurer.prepare()
    first, second, third = (candidate(sleep=0.001 * n) for n in (1, 2, 3))
    measurer.submit([first, second])
    assert list(measurer.results(timeout=0.0)) == []  # none has ended, and none is lost
    listening = measurer.results()
    found = [next(listening)]
    measurer.submit([third])
    found += listening
    assert [(m.candidate, m.outcome) for m in found] == [(c, "ok") for c in (first, second, third)]
    assert list(measurer.results()) == []


def test_what_is_cancelled_does_not_come_and_disturbs_nobody(measurer):
    measurer.prepare()
    measurer.submit([candidate(fault="build_hang"), *(candidate(sleep=0.001 * n) for n in range(1, 6))])
    measurer.cancel()
    assert list(measurer.results()) == []
    (raced,) = measurer.compare([candidate(sleep=0.001)], rounds=3, seconds=0.1).candidates  # when the builds have ended
    assert raced.outcome == "ok"
    for found in measurer.measure([candidate(sleep=0.001 * n) for n in range(6, 9)]):
        assert found.candidate == candidate(sleep=0.006)
        break
    assert outcomes(list(measurer.measure([candidate(sleep=0.1)]))) == {0.1: "ok"}


def test_a_pause_loses_nothing_that_was_submitted(measurer):
    measurer.prepare()
    measurer.submit([candidate(sleep=0.001 * n) for n in range(1, 4)])
    measurer.pause()
    assert outcomes(list(measurer.results())) == {0.001 * n: "ok" for n in range(1, 4)}


def test_a_worker_killed_from_outside_is_replaced(measurer):
    measurer.prepare()
    for worker in measurer._workers:
        worker._process.kill()
        worker._process.wait()
    assert [m.outcome for m in measurer.measure([candidate(sleep=0.001), candidate(sleep=0.002)])] == ["ok", "ok"]


def test_slow_candidates_are_run_once_and_cut_off(measurer):
    measurer.prepare()
    measurer.best = 0.03
    slow, close, fast = (next(iter(measurer.measure([candidate(sleep=s)]))) for s in (0.2, 0.05, 0.02))
    assert slow.outcome == "ok" and slow.cut and len(slow.samples) == 1
    assert not close.cut and len(close.samples) == 2 and close.max_error is not None and slow.max_error is None
    assert fast.max_error is not None and len(fast.samples) >= 6
    assert measurer.best == fast.seconds


@pytest.mark.parametrize(("timings", "expected"), [
    ([[1.0, 1.01, 0.99], [1.0, 1.02, 1.01]], False),
    ([[1.0, 1.01, 0.99], [1.2, 1.21, 1.2]], True),  # they disagree
    ([[1.0, 1.0, 1.0], [1.0, 0.7, 1.0, 1.4, 1.01]], True),  # the last has a wide spread
    ([[1.0, 1.0, 5.0], [1.0, 1.0, 1.0]], False),  # the first had one, and was confirmed
    ([[1.0], [1.05]], False),
])  # fmt: skip
def test_timings_are_suspicious_where_they_disagree_or_spread(timings, expected):
    assert _suspicious(timings) is expected


def test_new_bests_are_timed_again_until_their_timings_agree(measurer, monkeypatch):
    measurer.prepare()
    times = iter([0.01, 0.02, 0.02, 0.02, 0.005, 0.0051])  # lucky at first; steady
    asked = []

    def ask(worker, limit, **request):
        asked.append((request["op"], request["check"]))
        return {"outcome": "ok", "samples": [next(times)], "max_error": 1e-7 if request["check"] else None}

    monkeypatch.setattr(measurer, "_ask", ask)
    (lucky,) = measurer.measure([candidate(sleep=0.01)])
    assert lucky.samples == (0.01, 0.02, 0.02, 0.02) and measurer.best == 0.02
    (steady,) = measurer.measure([candidate(sleep=0.005)])
    assert steady.samples == (0.005, 0.0051)
    assert asked == [("run", check) for check in (True, False, False, False, True, False)]


def test_times_on_a_slower_machine_are_those_of_its_fastest_moment(measurer, monkeypatch):
    """By the calibration kernel before and after each candidate; 1.05 times as long is noise, and one that fails is the last."""
    measurer.prepare()
    measurer.best, measurer._paced = 0.01, True
    known = iter([0.001, 0.001, 0.004, 0.001, 0.00105, 0.001, None])
    samples = iter([0.012, 0.03, 0.016, 0.018])
    asked = []

    def ask(worker, limit, **request):
        if request["op"] == "calibrate":
            seconds = next(known)
            return {"outcome": "crash"} if seconds is None else {"outcome": "ok", "samples": [9 * seconds, seconds]}
        asked.append((limit, request["best"]))
        return {"outcome": "ok", "samples": [next(samples)], "max_error": 1e-7}

    monkeypatch.setattr(measurer, "_ask", ask)
    found = list(measurer.measure([candidate(sleep=n / 100) for n in range(4)]))
    assert [(m.samples, m.pace) for m in found] == [((0.012,), 1.0), ((0.015,), 2.0), ((0.016,), 1.0), ((0.018,), 1.0)]
    assert [best for _, best in asked] == [0.01, 0.04, 0.01, 0.01]  # as fast as the machine is before the call
    assert asked[1][0] == measurer.limits.run_limit(0.04) and measurer.best == 0.01


def test_equal_programs_are_measured_once(measurer):
    measurer.prepare()
    first, second, third = list(measurer.measure([candidate(sleep=0.01), candidate(sleep=0.01), candidate(sleep=0.01)]))
    assert [m.duplicate for m in (first, second, third)] == [False, True, True]
    assert second.samples == first.samples
    (again,) = measurer.measure([candidate(sleep=0.01)])
    assert again.duplicate


def test_a_process_that_a_candidate_started_dies_too(measurer, task):
    measurer.prepare()
    (found,) = measurer.measure([candidate(fault="child")])
    assert found.outcome == "run_timeout"
    directory = measurer._directory
    deadline = time.monotonic() + 5
    while _users_of(str(directory)) > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _users_of(str(directory)) <= 2  # the two workers and none besides


def _users_of(directory: str) -> int:
    """How many processes have their standard error in `directory`."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            count += os.readlink(f"/proc/{pid}/fd/2").startswith(directory)
        except OSError:
            continue
    return count


def test_baseline_is_timed_and_checked(measurer):
    baseline = measurer.prepare()
    assert baseline.measurement.candidate == BASELINE
    assert baseline.measurement.outcome == "ok" and baseline.measurement.samples
    assert baseline.measurement.max_error <= baseline.tolerance
    assert measurer.best == baseline.measurement.seconds


def test_without_a_known_workload_the_program_as_written_is_the_reference(fake_builder):
    plain = Task.of(workloads.make("gmm", SHAPE).func, "llvm -num-cores 1")
    with LocalMeasurer(plain, workers=1, builder=fake_builder, limits=QUICK) as measurer:
        assert measurer.prepare().measurement.outcome == "ok"
        measurer.best = None
        found = outcomes(list(measurer.measure([candidate(fault="wrong"), candidate(fault="print")])))
    assert found == {"wrong": "wrong_result", "print": "ok"}


def test_candidates_and_numpy_are_timed_in_turns(measurer):
    measurer.prepare()
    comparison = measurer.compare(
        [candidate(sleep=0.005), candidate(fault="wrong"), candidate(fault="illegal")], numpy=True, seconds=0.1
    )
    good, wrong, illegal = comparison.candidates
    assert good.outcome == "ok" and good.seconds >= 0.005 and good.max_error <= comparison.tolerance
    assert wrong.outcome == "wrong_result" and illegal.outcome == "illegal"
    assert len(comparison.numpy) == len(good.samples) >= 3


def test_a_worker_that_cannot_start_says_why(task):
    with LocalMeasurer(task, workers=1, builder="no_such_builder") as measurer, pytest.raises(WorkerError) as error:
        measurer.prepare()
    reason = r"ModuleNotFoundError: No module named 'no_such_builder' \(worker\.py:\d+, in _start\)"
    assert re.fullmatch(rf"a worker process could not start: {reason}", str(error.value))


def test_a_worker_that_dies_at_once_says_what_it_printed(task, tmp_path, monkeypatch):
    (tmp_path / "dying_builder.py").write_text("import os, sys\nprint('no licence', file=sys.stderr, flush=True)\nos._exit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with LocalMeasurer(task, workers=1, builder="dying_builder") as measurer, pytest.raises(WorkerError) as error:
        measurer.prepare()
    assert str(error.value) == "a worker process ended before it was ready (exit status 7)\nno licence"


def test_where_no_worker_or_no_folder_can_be_had_the_error_says_so(task, fake_builder, tmp_path, monkeypatch):
    with LocalMeasurer(task, workers=1, builder=fake_builder) as measurer:
        shutil.rmtree(measurer._directory)  # as those who tidy up temporary folders may
        (worker,) = measurer._workers
        with pytest.raises(WorkerError, match=r"a worker process could not be started: .*No such file or directory"):
            worker.restart()
        measurer.close()
        with pytest.raises(WorkerError, match="the worker processes were closed"):
            worker.restart()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(WorkerError, match=r"no folder for the data could be made: .*; TMPDIR can name another place"):
        LocalMeasurer(task)


def test_closing_leaves_nothing_behind(task, fake_builder):
    measurer = LocalMeasurer(task, workers=2, builder=fake_builder, limits=QUICK, seed=np.int64(3))
    measurer.prepare()
    pids = [w._process.pid for w in measurer._workers]
    directory = measurer._directory
    measurer.close()
    measurer.close()
    assert not directory.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


TRACE = {"fault": "compiler_hangs", "of": {"version": 1, "steps": []}}
KILLED = f"""
import os, signal, sys, time
from search.measure import LocalMeasurer
from search.task import Task
from tir import workloads

sys.path.append({str(Path(__file__).parents[1])!r})
task = Task.of(workloads.make("gmm", (7, 3, 2)).func, "llvm")
paused, active, hanging = (LocalMeasurer(task, workers=1, builder=name) for name in (None, None, "faulty_builder"))
paused.prepare_data(), paused.pause(), active.prepare_data()
(worker,) = hanging._workers
worker.send(op="build", id=1, trace={TRACE}, known=[], again=False)
worker.receive(time.monotonic() + 60)
time.sleep(0.2)  # until it hangs, and keeps the lock
print(paused._directory, active._directory, f"/proc/{{worker._process.pid}}/exe", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_nothing_neither_of_paused_tasks_nor_of_workers_that_hang():
    ended = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120)
    left = [Path(name) for name in ended.stdout.split()]
    assert ended.returncode == -signal.SIGKILL and len(left) == 3, ended.stderr
    deadline = time.monotonic() + 30
    while any(path.exists() for path in left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(path.exists() for path in left)


# --- with the real compiler ----------------------------------------------------------------------------------------------


def test_the_time_of_a_tiny_kernel_is_not_that_of_checking_its_arguments():
    func = workloads.make("gmm", (1, 1, 1)).func
    tiny = Task.of(func, "llvm -num-cores 1", workload=NamedWorkload("gmm", (1, 1, 1)))
    with LocalMeasurer(tiny, workers=1, limits=Limits(min_seconds=0.001)) as measurer:
        alone = measurer.prepare().measurement
        measurer._results.clear()
        (again,) = measurer.measure([Candidate("copy", (), {"version": 1, "steps": []})])
    assert alone.outcome == again.outcome == "ok"
    assert not again.cut and len(again.samples) > 1  # a single call through Python takes many times as long
