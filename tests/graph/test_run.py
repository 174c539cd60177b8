"""`python -m tir.run`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tir
from cli.run import main

from .models import model

W = np.eye(5, dtype="float32")


@pytest.fixture
def path(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    proto = model(nodes, {"x": (TensorProto.FLOAT, ["n", 5])}, ["y"], {"w": W})
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_run(path, tmp_path, capsys):
    x = np.linspace(-1, 1, 35, dtype="float32").reshape(7, 5)
    np.savez(tmp_path / "x.npz", x=x)
    arguments = [
        "--inputs",
        str(tmp_path / "x.npz"),
        "--outputs",
        str(tmp_path / "y.npz"),
        "--threads",
        "1",
        "--profile",
        "--show",
    ]
    assert main([str(path), *arguments]) == 0
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_array_equal(found["y"], np.maximum(x, 0))
    printed = capsys.readouterr().out.splitlines()
    assert "    p: float32[7, 5] = MatMul(x, w)" in printed
    assert "  y: float32[7, 5], from 0 to 1" in printed
    assert any(line.startswith("test: 1 calls of 1 kernels, compiled in ") for line in printed)
    assert any(line.startswith("one call on 1 thread(s): ") for line in printed)
    assert any(line.startswith("matmul_relu(7x5, 5x5) -> 7x5") for line in printed)


def test_random_inputs(path, capsys):
    assert main([str(path), "--shape", "x=3,5"]) == 0
    assert "  y: float32[3, 5], from 0 to " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the shape of the input `x` is open, [n, 5]; give it: shapes={'x': (...)}"),
        (["--threads", "0"], "--threads: at least 1 was expected, got 0"),
        (["--inputs", "none.npz"], "there is no file none.npz"),
        (["--records", "none.db"], "there is no file none.db"),
        (["--shape", "x=3,7"], "the shape [3, 7] for the input `x` contradicts the file: [n, 5]"),
    ],
)
def test_bad_usage(path, capsys, arguments, message):
    assert main([str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m tir.run: error: ") and error.endswith(f"{message}\n") and error.count("\n") == 1


def test_the_door_leaves_the_function_alone(path):
    code = "import tir.run, tir; print(tir.run.__module__, tir.run.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == [tir.run.__module__, "run"]
    done = subprocess.run(
        [sys.executable, "-m", "tir.run", str(path), "--shape", "x=3,5"], capture_output=True, text=True, check=True
    )
    assert "  y: float32[3, 5]" in done.stdout
