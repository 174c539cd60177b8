"""Tuning a network for a GPU, its candidates run on this processor; the times of the network itself are made up."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tir
from codegen.cuda.driver import missing
from graph import tuning
from graph.device import DeviceModel, kernel_label
from graph.network import KernelTime, Profile
from search.measure import Limits, LocalMeasurer
from tests.codegen.cuda.emulation import machine
from tests.codegen.cuda.kernels import no_compiler, no_nvrtc
from tir import tune

from .models import model

WORDS = ("small.onnx", "--target", "cuda -arch sm_80", "--trials", "4")
LIMITS = Limits(build=120.0, run=60.0, min_seconds=0.0, min_runs=1, race=0.2)


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A product and a softmax, as a file in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
    weights = {"w": np.eye(13, dtype="float32")}
    onnx.save(model(nodes, {"x": (TensorProto.FLOAT, [7, 13])}, ["y"], weights), "small.onnx")


@no_compiler
@no_nvrtc
def test_a_network_is_tuned_and_its_schedules_recorded(network, monkeypatch, capsys):
    def profile(self, inputs, runs=10):
        return Profile(tuple(KernelTime(kernel_label(k.func), 1e-3, 1, k.func) for k in self.kernels), 0.0)

    machine()  # compiled before measuring processes start
    monkeypatch.setattr(DeviceModel, "profile", profile)
    monkeypatch.setattr(DeviceModel, "bind", lambda self, inputs: lambda: None)
    monkeypatch.setattr(tuning, "SECONDS", 0.0)
    measurer = partial(LocalMeasurer, builder="tests.search.gpu.emulated_builder", workers=1, limits=LIMITS)
    assert tune.main([*WORDS, "--model", "none", "--records", "tune.db", "--json"], measurer=measurer) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["network"], found["target"], found["trials"]) == ("small", "cuda -arch sm_80", 4)
    assert {t["kernel"].partition("(")[0]: t["calls"] for t in found["tasks"]} == {"matmul": 1, "softmax": 1}
    with tir.Records("tune.db") as records:
        assert all(s.best and s.target.startswith("cuda -arch sm_80") for s in records.summaries())
        assert len([*records.summaries()]) == 2


@pytest.mark.skipif(not missing(tir.Target("cuda")), reason="there is a GPU")
def test_without_a_gpu_it_says_so(network, capsys):
    assert tune.main([*WORDS]) == 2
    error = capsys.readouterr().err
    assert "python -m tir.tune: error: --target: kernels for cuda -arch sm_80 cannot be measured: " in error
