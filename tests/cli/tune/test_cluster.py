"""`--cluster`: what a run on workers prints, and networks for machines of another kind."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from distributed import Client, LocalCluster
from onnx import TensorProto, helper
from rich.console import Console

from benchmarks.pretend import PretendAgent
from cli.tune import cluster, main
from cli.tune.cluster import Workers
from cli.tune.network import LiveNetwork
from cli.tune.progress import LiveProgress, workers_table
from graph.onnx import load_onnx
from graph.reference import evaluate
from search.measure import BASELINE, Measurement
from search.measure.distributed.farm import Runner
from search.measure.distributed.measurer import resource
from search.records import Records
from tests.graph.models import model
from tests.graph.test_export import MAIN

ARM = "llvm -num-cores 1 -mcpu cortex-a76 -mtriple aarch64-linux-gnu"


class BoardAgent(PretendAgent):
    """Its devices are boards with a processor of another kind, on which what takes more loops is faster."""

    def __init__(self):
        super().__init__(lambda candidate: (1e-3 / (1 + len(candidate.trace or ())), 0.0))

    def setup(self, worker):
        super().setup(worker)
        self._device = "a board"

    def answer(self, job):
        found = super().answer(job)
        measured = [found["measurement"]] if "measurement" in found else found.get("candidates", [])
        for described in ([found] if "provenance" in found else []) + measured:
            described["provenance"] |= {"fingerprint": "that of boards", "device": "a board"}
        return found


@pytest.fixture(scope="module")
def boards():
    workers = {"n_workers": 2, "threads_per_worker": 1, "resources": {resource(ARM): 1}, "processes": False}
    with LocalCluster(**workers, dashboard_address=":0") as made, Client(made) as client:
        client.register_plugin(BoardAgent())
        yield made


@pytest.fixture
def network(tmp_path, monkeypatch):
    """Two layers and a softmax, as a file, and what it computes of an array."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    weights = {name: rng.uniform(-1, 1, (13, 13)).astype("float32") for name in "ab"}
    onnx.save(model(nodes, {"x": (TensorProto.FLOAT, [7, 13])}, ["y"], weights), "small.onnx")
    x = rng.uniform(-1, 1, (7, 13)).astype("float32")
    return x, evaluate(load_onnx("small.onnx"), {"x": x})[0]


def test_a_network_for_another_kind_of_machine(boards, network, capsys, tmp_path):
    """Nothing runs here: its kernels are measured on the boards, and it is exported for them."""
    words = ["small.onnx", "--cluster", boards.scheduler_address, "--target", ARM, "--trials", "8", "--model", "none", "--json"]
    assert main([*words, "--records", "tune.db", "--export", "small.o"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["device"], found["trials"]) == ("a board", 8)
    assert {t["kernel"]: (t["calls"], t["trials"] > 1) for t in found["tasks"]} == {
        "matmul_relu(7x13, 13x13) -> 7x13": (2, True), "softmax(7x13) -> 7x13": (1, True),
    }  # fmt: skip
    assert found["seconds"] == {
        "default": sum(t["default"] for t in found["tasks"]),
        "best": sum(t["best"] for t in found["tasks"]),
    }
    lines = err.splitlines()
    assert lines[1:3] == ["records: tune.db is a new file", "2 tasks in 3 calls: measured on a board"]
    assert lines[3].startswith("the dashboard of the cluster: http://") and lines[3].endswith("/status")
    assert any("2 workers, " in line for line in lines[4:])
    assert next(line for line in lines if line.startswith("small: ") and "tuned" in line).endswith(
        "x, the sum of its kernels, each alone on a board"
    )
    with Records("tune.db") as records:
        assert {(s.fingerprint, s.target.split(" -l")[0]) for s in records.summaries() if s.records} == {("that of boards", ARM)}
    if not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"):
        pytest.skip("needs qemu-user and gcc for aarch64 to run what was exported; all before that was checked")
    x, y = network
    (tmp_path / "main.c").write_text(MAIN.replace("RELEASE", ""))
    (tmp_path / "in").write_bytes(x.tobytes())
    subprocess.run(["aarch64-linux-gnu-gcc", "-static", "-o", "program", "main.c", "small.o", "-lm"], check=True)
    subprocess.run(["qemu-aarch64", "program", str(x.nbytes), str(y.nbytes)], check=True)
    made = np.fromfile("out", "float32").reshape(y.shape)
    np.testing.assert_allclose(made, y, rtol=64 * np.finfo("float32").eps)


# --- what is shown -----------------------------------------------------------------------------------------------------


def runner(name: str, silent: float = 0.0, **status) -> Runner:
    return Runner(f"at {name}", name, 1, status, silent)


def shown(table) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=100).print(table)
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_the_table_shows_what_workers_do_and_how_busy_they_are(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock.now)
    looks = [
        [runner("a", doing="measure gmm", busy=1.0, measured=3), runner("b", busy=5.0), runner("c", aside="it drifts", busy=2.0)],
        [
            runner("a", doing="measure gmm", busy=5.5, measured=9),
            runner("b", 61.0, busy=7.5, measured=4),
            runner("c", returns=1, busy=2.0),
            runner("d", aside="it drifts"),
        ],
    ]
    farm = SimpleNamespace(
        dashboard="http://scheduler:8787/status", runners=lambda resource: looks[0] if resource != "build" else built
    )
    built: list[Runner] = []
    workers = Workers(SimpleNamespace(farm=farm), "llvm")
    assert workers.line() == "3 workers, 0% busy"
    looks.pop(0)
    clock.now += 5.0
    assert workers.line() == "4 workers, 35% busy"
    assert shown(workers_table(workers)) == [
        "worker does busy measured", "a measure gmm 90% 9", "b silent for 61 s 50% 4", "c idle; back after drift 0% 0",
        "d put aside: it drifts 0% 0",
    ]  # fmt: skip
    text = io.StringIO()
    progress = LiveProgress(text, workers)
    progress.prepared(Measurement(BASELINE, "ok", (1.0,)), None, None, 0)
    progress.phase = "searching"
    rows = shown(progress.render())
    progress.close()
    assert "the dashboard of the cluster: http://scheduler:8787/status" in text.getvalue()
    assert "farm 4 workers, 35% busy" in rows and rows[-5:] == shown(workers_table(workers))
    assert progress.status() == "0  failed: none  4 workers, 35% busy"
    live = LiveNetwork(10, None, io.StringIO(), workers)
    live.close()
    assert shown(live.render())[-5:] == shown(workers_table(workers))
    looks[0], built[:] = [runner(f"{n}") for n in range(15)], [Runner("at x", "x", 8, {"busy": 0.0, "doing": "build"}, 0.0)]
    clock.now += 5.0
    workers.line()
    built[:] = [Runner("at x", "x", 8, {"busy": 20.0, "doing": "build"}, 0.0)]
    clock.now += 5.0
    assert shown(workers_table(workers))[-1] == "x build 50% 0"
    looks[0] = [runner(f"{n}") for n in range(19)]
    clock.now += 5.0
    assert shown(workers_table(workers))[-1] == "and 4 more"
