"""`python -m tir.run`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graph.check
import graph.reference
import tir
from cli.run import main, root_mean_square
from graph.compilation import passes_for
from graph.ops.registry import HOW_TO_ADD
from graph.passes.check import difference
from tests.graph.models import model
from tir import dtypes

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
    assert any(line.startswith("m: 1 call of 1 kernel, compiled in ") for line in printed)
    assert any(line.startswith("one call on 1 thread(s): ") for line in printed)
    assert any(line.startswith("matmul_relu(7x5, 5x5) -> 7x5") for line in printed)


def test_times_of_nodes(path, tmp_path, capsys):
    arguments = ["--shape", "n=7", "--threads", "1", "--profile", "nodes", "--trace", str(tmp_path / "m.json")]
    assert main([str(path), *arguments]) == 0
    printed = capsys.readouterr().out
    assert "of the bound" in printed and f"times of nodes: {tmp_path / 'm.json'}, for chrome://tracing" in printed
    first, _ = json.loads((tmp_path / "m.json").read_text())["traceEvents"]
    assert first["name"] == "p … y" and first["args"]["nodes"] == ["p", "y"] and first["args"]["share"] > 0
    assert main([str(path), "--shape", "n=7", "--target", "cuda", "--profile", "nodes"]) == 2
    assert "--trace and --profile nodes are for processors, target llvm, got cuda" in capsys.readouterr().err


def test_a_quantised_run(path, tmp_path, capsys):
    np.savez(tmp_path / "data.npz", x=np.linspace(-1, 1, 70, dtype="float32").reshape(2, 7, 5))
    shape = ["--shape", "x=7,5", "--threads", "1"]
    assert main([str(path), *shape, "--quantise", str(tmp_path / "data.npz")]) == 0
    assert "of 1 layer quantised: uint8 activations (mse of 2 samples), int8 weights" in capsys.readouterr().out
    assert main([str(path), *shape, "--quantise", "int4", "--show"]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 layer quantised: weights of int4, in blocks of 32" in out
    assert "w_dequantised: float32[5, 5] = DequantizeLinear(w_numbers, w_scales, axis=0, block_size=32)" in out
    assert main([str(path), *shape, "--quantise", "int3"]) == 2
    assert "--quantise: there is no file int3; expected samples in FILE.npz, int8 or int4" in capsys.readouterr().err
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 5)))
    assert main([str(path), *shape, "--quantise", str(tmp_path / "data.npz")]) == 2
    assert "--quantise: m: samples of `x` must have the shape [samples, 7, 5], got [2, 5]" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_run_in_16_bits(path, capsys, dtype):
    shape = ["--shape", "x=7,5", "--threads", "1"]
    assert main([str(path), *shape, "--precision", dtype, "--check", "--show"]) == 0
    out = capsys.readouterr().out
    assert f"w_{dtype}: {dtype}[5, 5]" in out and "y: float32[7, 5]" in out
    off = float(re.search("`y` is off by (.*) of its root mean square", out)[1])
    assert 0 < off < 4 * dtypes.unit(dtype)
    assert main([str(path), *shape, "--precision", "int8"]) == 2
    assert "--precision: precision must be bfloat16 or float16, got 'int8'" in capsys.readouterr().err


def test_an_input_without_elements(path, capsys):
    assert main([str(path), "--shape", "x=0,5", "--check"]) == 0
    assert "  y: float32[0, 5], no elements" in capsys.readouterr().out


def test_random_inputs(path, capsys):
    assert main([str(path), "--shape", "x=3,5"]) == 0
    assert main([str(path), "--shape", "n=4"]) == 0
    assert "  y: float32[3, 5], from 0 to " in capsys.readouterr().out


def test_bfloat16_is_shown_as_numbers(tmp_path, capsys):
    onnx.save(model([helper.make_node("Abs", ["x"], ["y"])], {"x": (TensorProto.BFLOAT16, [99])}, ["y"]), tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx")]) == 0
    low, high = re.search(r"y: bfloat16\[99\], from (\S+) to (\S+)", capsys.readouterr().out).groups()
    assert 0 <= float(low) < 0.1 < 0.9 < float(high) <= 1


def test_outputs_may_have_any_name(tmp_path, capsys):
    nodes = [helper.make_node("Relu", ["x"], ["file"])]
    onnx.save(model(nodes, {"x": (TensorProto.FLOAT, [7])}, ["file"]), tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx"), "--outputs", str(tmp_path / "y.npz")]) == 0
    with np.load(tmp_path / "y.npz") as found:
        assert found.files == ["file"] and found["file"].shape == (7,)


def test_export(path, tmp_path, capsys):
    assert main([str(path), "--shape", "x=7,5", "--export", str(tmp_path / "net.o")]) == 0
    assert f"exported: {tmp_path}/net.o, {tmp_path}/net.h and {tmp_path}/net.weights\n" in capsys.readouterr().out
    assert all((tmp_path / f"net.{kind}").stat().st_size for kind in ("o", "h", "weights"))


def test_check(path, capsys):
    assert main([str(path), "--shape", "x=7,5", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, name in zip(lines[2:], (one.__name__ for one in passes_for(tir.Target("llvm"))), strict=False):
        assert line.split()[0] == name and line.endswith("2 calls, changes outputs by 0")
    off = next(line for line in lines if line.startswith("  `y` is off by "))
    assert float(off.split()[4]) < 1e-6


def test_a_check_that_fails(path, capsys, monkeypatch):
    monkeypatch.setattr(graph.reference, "evaluate", lambda graph, inputs, run: [np.ones((7, 5))])
    assert main([str(path), "--shape", "x=7,5", "--check"]) == 1
    assert "error: `y` is off by 1 of its root mean square, over 0.000488\n" in capsys.readouterr().err


@pytest.mark.parametrize(("found", "wanted", "error"), [
    ([1.0, -1.0], [1.0, -1.5], 0.5 / np.sqrt(1.625)),
    ([1.0, np.inf], [1.0, np.inf], 0.0),
    ([1.0, np.nan], [1.0, np.inf], np.inf),
    ([np.nan], [np.nan], 0.0),
    ([0.0], [0.0], 0.0),
    ([1, 2], [1, 2], 0.0),
    ([1, 2], [1, 3], np.inf),
])  # fmt: skip
def test_errors_are_relative_to_the_root_mean_square(found, wanted, error):
    assert difference(np.array(found), np.array(wanted), root_mean_square) == pytest.approx(error)


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "m.onnx: the shape of the input `x` is open, [n, 5]; give it: --shape x=..., or its sizes: --shape n=..."),
    (["--shape", "n=3,5"], "m.onnx: the size `n` is one number, got [3, 5]"),
    (["--shape", "rows=3"], "m.onnx: shapes names `rows`; the inputs are x, open sizes n"),
    (["--threads", "0"], "argument --threads: expected a positive integer, got '0'"),
    (["--inputs", "none.npz"], "--inputs: there is no file none.npz"),
    (["--inputs", "bad.npz"], "--inputs: bad.npz is no file of numpy.savez, or is damaged: "),
    (["--inputs", "one.npy"], "--inputs: one.npy holds one array; numpy.savez writes several, by name"),
    (["--inputs", "cut.npz"], "--inputs: cut.npz is no file of numpy.savez, or is damaged: File is not a zip file"),
    (["--inputs", "text.npz"], "--inputs: text.npz is no file of numpy.savez, or is damaged: Object arrays cannot be loaded"),
    (["--inputs", "other.npz", "--shape", "x=3,5"], "m.onnx: shapes names `z`; the inputs are x"),
    (["--inputs", "empty.npz", "--shape", "x=3,5"], "--inputs: m: the inputs are x; `x` is missing"),
    (["--inputs", "wide.npz"], "--inputs: input `x` must have dtype float32, got float64"),
    (["--shape", "x=3,5", "--records", "none.db"], "--records: there is no file none.db"),
    (["--shape", "x=3,5", "--records", "bad.npz"], "--records: "),
    (["--shape", "x=3,5", "--outputs", "no/y.npz"], "--outputs: cannot write to the folder "),
    (["--export", "net.txt"], "--export: export to 'net.txt': the suffix must be .so (shared library) or .o (object file)"),
    (["--export", "no/net.o"], "--export: export to 'no/net.o': folder 'no' does not exist"),
    (["--shape", "x=3,5", "--target", "llvm -mcpu nothing"], "--target: "),
    (["--shape", "x=3,5", "--target", "cuda -arch sm_80", "--check"], "--check is for processors, target llvm, got cuda"),
    (["--shape", "x=3,7"], "the shape [3, 7] for the input `x` contradicts the file: [n, 5]"),
    (["--shape", "x"], "argument --shape: expected NAME=1,3,224,224, an input and its shape, got 'x'"),
    (["--shape", "x=3,-5"], "argument --shape: expected NAME=1,3,224,224, an input and its shape, got 'x=3,-5'"),
    (["--sharp"], "unrecognized arguments: --sharp"),
])  # fmt: skip
def test_bad_usage(path, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    x = np.zeros((3, 5), "float32")
    np.save("one.npy", x)
    np.savez("other.npz", z=x)
    np.savez("empty.npz")
    np.savez("wide.npz", x=x.astype("float64"))
    np.savez("text.npz", x=np.array(["a", None]))
    (tmp_path / "bad.npz").write_bytes(b"nothing of the kind")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "wide.npz").read_bytes()[:-30])
    assert main([str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m tir.run: error: ") and message in error and error.count("\n") == 1


def test_a_network_for_another_processor_is_exported_only(path, tmp_path, capsys, old_host):
    arguments = [str(path), "--shape", "x=3,5", "--target", "llvm -num-cores 1 -mcpu x86-64-v3"]
    for others in ([], ["--check", "--export", str(tmp_path / "net.o")]):
        assert main([*arguments, *others]) == 2
        error = capsys.readouterr().err
        assert "--target: llvm -num-cores 1 -mcpu x86-64-v3 cannot run here: this processor, x86-64-v2, has no avx, " in error
        assert "What works is --export without --outputs, --check, --profile and --trace" in error and error.count("\n") == 1
    assert main([*arguments, "--export", str(tmp_path / "net.o")]) == 0 and (tmp_path / "net.weights").exists()
    assert "one call on" not in capsys.readouterr().out


@pytest.mark.parametrize(("name", "message"), [
    ("none.onnx", "cannot read none.onnx: No such file or directory"),
    ("folder.onnx", "cannot read folder.onnx: Is a directory"),
    ("text.onnx", "text.onnx is no ONNX file, or is cut off"),
    ("cut.onnx", "cut.onnx: the constant `w` is cut off: it ends at byte 100 of `w.bin`, which has 99"),
    (
        "new.onnx",
        "new.onnx: 2 nodes cannot be imported\n"
        "  node number 0, of `p`, Nowhere of opset 18: there is no such operator; did you mean Where?\n"
        "  node number 1, of `y`, Never of opset 18: there is no such operator\n"
        f"  {HOW_TO_ADD}",
    ),
])  # fmt: skip
def test_a_file_that_is_no_network(path, tmp_path, monkeypatch, capsys, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "text.onnx").write_text("nothing of the kind")
    onnx.save(onnx.load(path), "cut.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[:99])
    unknown = [helper.make_node("Nowhere", ["x"], ["p"]), helper.make_node("Never", ["p"], ["y"])]
    onnx.save(model(unknown, {"x": (TensorProto.FLOAT, [7])}, ["y"]), "new.onnx")
    assert main([name]) == 2
    assert capsys.readouterr().err == f"python -m tir.run: error: {message}\n"


def test_the_door_leaves_the_function_alone(path):
    code = "import tir.run, tir; print(tir.run.__module__, tir.run.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == [tir.run.__module__, "run"]
    done = subprocess.run(
        [sys.executable, "-m", "tir.run", str(path), "--shape", "x=3,5"], capture_output=True, text=True, check=True
    )
    assert "  y: float32[3, 5]" in done.stdout
