"""The benchmark of GPU kernels without a GPU: rows measured on kernels that run on this processor, and children that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks import gpu, gpu_row
from benchmarks.gpu import Row, collect, main, table
from codegen.cuda import lower_cuda
from codegen.target import Target
from search.measure import Limits
from search.records import Records
from search.task import Task
from tests.codegen.cuda.emulation import compiler
from tests.search.gpu.emulated_builder import EmulatedKernel

torch = pytest.importorskip("torch")


class Emulated:
    """A device whose kernels run on this processor, and take no time."""

    def __init__(self):
        limits = Limits(build=120.0, run=60.0, min_seconds=0.0, race=0.2)
        self.target, self.torch = Target("cuda"), torch
        self.tuning = {"builder": "tests.search.gpu.emulated_builder", "workers": 1, "limits": limits}

    def put(self, tensor):
        return tensor

    def build(self, func):
        kernel = EmulatedKernel(lower_cuda(func, self.target))

        def call(*tensors):
            kernel(*(t.numpy() for t in tensors))

        call.report = lambda: SimpleNamespace(kernels=[SimpleNamespace(registers=32)], spills=0)
        return call

    def synchronize(self):
        pass

    def ours(self, kernel, tensors):
        return (2e-6, 1e-6, 3e-6)

    def theirs(self, call):
        call()
        return (4e-6,)


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "row",
    [
        Row("gmm", (37, 29, 41), goal=0.9), Row("float16", (33, 17, 40)), Row("tf32", (17, 33, 40)),
        Row("softmax", (7, 109), 7 * 109 * 8), Row("conv_bn_relu", (1, 7, 5, 3, 5, 3, 1, 1)),
        Row("attention_weights", (1, 13, 3, 7)), Row("mlp", (7, 13, 41, 5)), Row("float16 nt", (24, 40, 32)),
        Row("int8 nt", (24, 40, 32)), Row("float64 tn", (17, 13, 40)), Row("convolution float16", (1, 16, 5, 7, 24, 3, 1, 1)),
        Row("attention float16", (33, 70, 17, 2)), Row("transpose", (45,), 45 * 45 * 8), Row("argmax", (7, 109), 7 * 109 * 4),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_rows_are_right_and_faster_than_a_torch_that_is_slower(row, monkeypatch):
    monkeypatch.setattr(gpu_row, "COPIED", 1 << 10)
    result = gpu_row.measure(row, Emulated())
    assert result["ok"] and result["seconds"] == 2e-6 and result["of_torch"] == pytest.approx(2.0)
    assert (result["of_copy"] is not None) == bool(row.moved)
    assert json.loads(json.dumps(result)) == result and row.name in table([(row, result)])


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
def test_rows_are_searched_for_and_recorded(tmp_path):
    row = Row("float16", (33, 17, 40), trials=1)
    result = gpu_row.measure(row, Emulated(), tmp_path / "gpu.db", 100.0)
    assert result["ok"] and result["outcomes"] == {"ok": 1} and result["earlier"] == 0
    with Records(tmp_path / "gpu.db") as records:
        assert len(records.of(Task.of(gpu_row.product(row.name, *row.shape), "cuda").key, str(Target("cuda")))) == 1


@pytest.mark.parametrize(
    "row",
    [
        Row("float16", (33, 17, 40)), Row("int8 nt", (24, 40, 32)), Row("convolution float16", (1, 16, 5, 7, 24, 3, 1, 1)),
        Row("attention float16", (33, 70, 17, 2)), Row("transpose", (45,)), Row("argmax", (7, 109)),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_a_wrong_result_is_seen(row, monkeypatch):
    device = Emulated()
    monkeypatch.setattr(Emulated, "build", lambda self, func: device_doing_nothing())
    assert not gpu_row.measure(row, device)["ok"]


def device_doing_nothing():
    def call(*tensors):
        tensors[-1].zero_()

    call.report = lambda: SimpleNamespace(kernels=[SimpleNamespace(registers=32)], spills=0)
    return call


# --- children ------------------------------------------------------------------------------------------------------------

GOOD = {
    "ok": True, "seconds": 1e-5, "torch": 9e-6, "of_torch": 0.9, "tflops": 1.0, "of_copy": None, "registers": 64, "spills": 0
}  # fmt: skip
ROWS = [Row("gmm", (n, n, n), goal=0.95) for n in (1, 2, 3, 4, 5)]

# What a child does with each of its rows, by the first number of the shape.
ACTS = {
    1: f"print('noise'); print({json.dumps(GOOD)!r}, flush=True)",
    2: "import os; print('about to die', file=sys.stderr, flush=True); os._exit(7)",
    3: f"print({json.dumps({'ok': False, 'error': 'DeviceError: it broke'})!r}, flush=True); sys.exit(1)",
    4: "import time; time.sleep(60)",
    5: f"print({json.dumps(GOOD)!r}, flush=True)",
}


def children(started):
    def start(waiting):
        started.append([row.shape[0] for row in waiting])
        script = "import sys\n" + "\n".join(ACTS[row.shape[0]] for row in waiting)
        return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def test_rows_that_fail_lose_themselves_alone():
    started: list[list[int]] = []
    found = dict(collect(ROWS, children(started), 2.0, time.monotonic() + 60))
    assert [r["ok"] for r in found.values()] == [True, False, False, False, True]
    errors = [found[row].get("error") for row in ROWS]
    assert errors[1:4] == ["ended with code 7: about to die", "DeviceError: it broke", "no result within 2 s"]
    assert started == [[1, 2, 3, 4, 5], [3, 4, 5], [4, 5], [5]]


def test_nothing_is_started_when_the_time_is_over():
    found = [r["error"] for _, r in collect(ROWS[:2], children([]), 2.0, time.monotonic() + 1)]
    assert found == ["no time was left"] * 2


def test_results_are_kept_and_known_rows_not_measured_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "LIBRARY", tuple(ROWS[:3]))
    out = tmp_path / "deep" / "gpu.jsonl"
    started: list[list[int]] = []
    assert main(["--out", str(out)], children(started)) == 1
    printed = capsys.readouterr().out
    assert "0.90 0.95!" in printed and "ended with code 7: about to die" in printed and len(gpu.earlier(out)) == 3
    out.write_text(out.read_text() + '{"cut off')
    monkeypatch.setitem(ACTS, 2, ACTS[1])
    monkeypatch.setitem(ACTS, 3, ACTS[1])
    assert main(["--out", str(out), "--resume"], children(started)) == 0
    assert started == [[1, 2, 3], [3], [2, 3]]
    capsys.readouterr()
    assert main(["--out", str(out), "--table"], children(started)) == 0
    assert capsys.readouterr().out.count("yes") == 3 and len(started) == 3


def test_every_row_is_a_program_that_torch_has():
    from benchmarks.peers import _PROGRAMS
    from tir import workloads

    for row in (*gpu.LIBRARY, *gpu.TUNED):
        if not gpu_row.is_workload(row):
            assert gpu_row.program(row).buffers and callable(gpu_row.function(torch, row))
        else:
            assert workloads.get(row.name).sizes(row.shape) and row.name in _PROGRAMS


def test_without_a_gpu_it_says_so(capsys):
    from codegen.cuda.driver import devices

    if devices():
        pytest.skip("there is a GPU")
    assert main([]) == 2 and "there is no GPU here" in capsys.readouterr().err
