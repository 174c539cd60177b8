"""`python -m tir.tune MODEL.onnx`: what it prints, records and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tir
from cli.tune.network import LiveNetwork, NetworkLines
from graph import tuning
from graph.tuning import Progress, TaskProgress
from search.keys import key
from search.names import SEED_LIMIT
from search.task import Task
from search.tuning.events import RoundEnded, Started
from tests.cli.tune.commands import ROOT, wait_for
from tests.graph.fake_measurer import DEFAULT, WRITTEN, Fake, Once
from tests.graph.models import model
from tir import tune

ONE = ("--threads", "1")

# A run whose first task gets no further than its default schedule.
HANGS = """
import sys, time
from tests.graph.fake_measurer import Fake, Once
from tir.tune import main

class Hangs(Fake):
    def of(self, candidate):
        if candidate.trace is None:
            time.sleep(1000)
        return super().of(candidate)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], measurer=Hangs, policy=lambda task: Once(None)))
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A network of a product and a softmax, whose number of rows is open, as a file in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tuning, "SECONDS", 0.0)
    monkeypatch.setattr(tuning, "_by_key", lambda model, inputs, runs: {key(g.func): 1.0 for g in model.groups})  # none is slower
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"]),
    ]
    weights = {"w": np.eye(13, dtype="float32")}
    onnx.save(model(nodes, {"x": (TensorProto.FLOAT, ["n", 13])}, ["y"], weights), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def main(*arguments, traces=(None,)):
    return tune.main(["small.onnx", "--shape", "x=7,13", *arguments], measurer=Fake, policy=lambda task: Once(*traces))


def test_a_run(path, capsys):
    assert main(*ONE, "--trials", "64", "--records", "tune.db", "--report", "small.png", "--export", "net.o", "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["network"], found["target"], found["trials"]) == ("small", "llvm", 4)
    tasks = {t["kernel"]: t for t in found["tasks"]}
    assert set(tasks) == {"matmul_relu(7x13, 13x13) -> 7x13", "softmax(7x13) -> 7x13"}
    assert all((t["calls"], t["trials"]) == (1, 2) for t in tasks.values())
    assert found["seconds"]["default"] > 0 < found["seconds"]["best"]
    lines = err.splitlines()
    assert lines[:2] == ["small: compiling it with default schedules", "records: tune.db is a new file"]
    assert lines[2].startswith("2 tasks in 2 calls: ")
    rounds = [line for line in lines if " x default, " in line]
    assert len(rounds) == 4 and " 4 of 64 trials  " in rounds[-1] and rounds[0].endswith(") -> 7x13")
    assert lines[-3].startswith("small: ") and lines[-3].endswith(" x, timed in turns")
    assert lines[-1] == "exported: net.o, net.h and net.weights" and (path.parent / "net.weights").exists()
    assert lines[-2] == "how the search went: small.png" and (path.parent / "small.png").read_bytes()[:4] == b"\x89PNG"
    with tir.Records("tune.db") as records:
        assert [s.records for s in records.summaries()] == [2, 2]


def test_a_network_in_16_bits_is_tuned_and_exported(path, capsys):
    assert main(*ONE, "--trials", "2", "--precision", "bfloat16", "--export", "net.o", "--quiet", "--json") == 0
    out = capsys.readouterr().out.splitlines()
    assert any("cast" in task["kernel"] for task in json.loads(out[-1])["tasks"])


def test_a_quantised_network_is_tuned_and_exported(path, capsys):
    assert main(*ONE, "--trials", "2", "--quantise", "int8", "--export", "net.o", "--quiet") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "1 of 1 layer quantised: weights of int8, by output channel; ratios are for random inputs"
    assert out[-1] == "exported: net.o, net.h and net.weights"


def test_what_is_recorded_is_known(path, capsys):
    assert main(*ONE, "--trials", "64", "--records", "tune.db", "--quiet") == 0
    capsys.readouterr()
    assert main(*ONE, "--trials", "64", "--records", "tune.db") == 0
    out, err = capsys.readouterr()
    first = next(line for line in err.splitlines() if " x default, " in line)
    assert float(first.split()[4]) == 2.0 and "kept" not in out  # times the default


def test_kill_9_loses_nothing(path, capsys):
    arguments = ["small.onnx", "--shape", "x=7,13", *ONE, "--trials", "64", "--records", "tune.db"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", HANGS, *arguments], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        wait_for(lambda: path.with_name("tune.db").exists() and recorded() == [1], 100)  # it compiles the network first
    finally:
        process.kill()
    assert "going on from" not in process.communicate(timeout=30)[1]
    assert main(*ONE, "--trials", "64", "--records", "tune.db") == 0
    assert "going on from 1 recorded candidates of 1 of the tasks\n" in capsys.readouterr().err
    assert sorted(recorded()) == [2, 3]  # the fake measurer does not remember the first one


def recorded() -> list[int]:
    """The candidates of each task in tune.db."""
    with tir.Records("tune.db") as records:
        return [s.records for s in records.summaries()]


def test_ctrl_c_keeps_the_best(path, capsys):
    assert main(*ONE, "--trials", "64", "--records", "tune.db", "--json", traces=(None, "interrupt")) == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["trials"] == 2 and "interrupted after 2 trials" in err
    with tir.Records("tune.db") as records:
        assert [s.best for s in records.summaries()] == [WRITTEN]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--out", "best.json"], "--out does not go with a network, which takes --shape, --trials, "),
    (["--shape", "13"], "--shape: expected NAME=1,3,224,224, an input and its shape, got '13'"),
    (["--shape", "z=7"], "shapes names `z`; the inputs are x"),
    (["--records", "small.onnx"], "--records: "),
    (["--target", "cuda -arch sm_80", "--export", "net.so"], "--export is for processors, target llvm, got cuda"),
    (["--report", "no/x.html"], "--report: cannot write to the folder "),
    (["--export", "net"], "--export: export to 'net': the suffix must be .so (shared library) or .o (object file)"),
    (["--seed", str(SEED_LIMIT)], "argument --seed: expected an integer below 2**63"),
])  # fmt: skip
def test_bad_usage(path, capsys, arguments, message):
    assert main("--trials", "4", "--quiet", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m tir.tune: error: ") and message in error and error.count("\n") == 1


def test_sizes_of_a_workload_are_given_once(capsys):
    assert tune.main(["gmm", "--shape", "7,7,7", "--shape", "9,9,9"]) == 2
    assert "--shape: expected the sizes of a workload once, got 7,7,7 and 9,9,9" in capsys.readouterr().err


def test_each_line_names_the_task_of_its_round():
    tasks = [Task.of(tir.workloads.make("gmm", (n, 13, 109)).func, "llvm -num-cores 1") for n in (7, 37)]
    progress = Progress("small", tasks[0].target, [TaskProgress(t.func, t.key, 1, 1e-3) for t in tasks], 0.0)
    stream = io.StringIO()
    lines = NetworkLines(64, None, stream)
    for task in (*tasks, tasks[0]):  # the first one gets another round
        progress.note(task, ended := RoundEnded(16, 1e-3, 1.0, None, None))
        lines(progress, ended)
    assert [line.split("(")[1].split("x")[0] for line in stream.getvalue().splitlines()] == ["7", "37", "7"]


def test_the_live_table():
    func = tir.workloads.make("gmm", (7, 13, 109)).func
    task = Task.of(func, "llvm -num-cores 1")
    progress = Progress("small", task.target, [TaskProgress(func, task.key, 2, 6e-3, DEFAULT, WRITTEN, 16)], 1e-3)
    stream = io.StringIO()
    live = LiveNetwork(64, None, stream)
    try:
        live(progress, None)
        progress.note(task, started := Started(task, None, None))
        live(progress, started)
        live._live.console.print(live.render())
    finally:
        live.close()
    shown = stream.getvalue()
    assert "small: 4 ms, 1.75 x default, 16 of 64 trials" in shown
    *_, row = [line for line in shown.splitlines() if "gmm(" in line and "2.00" in line]  # a slow machine shows earlier ones
    assert "gmm(7x13, 13x109) -> 7x109" in row and "100.0%" in row and "6 ms" in row and "3 ms" in row
