"""Saved models: files that load without a compiler and give the same numbers; refusals; threads at run time."""

from __future__ import annotations

import json
import pickle
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tir
from codegen import ExportError, UnsupportedProcessor
from graph import Builder, GraphError, Model, OpenGraph, OpenModel
from graph.arguments import overlap
from graph.onnx import load_onnx
from graph.sizes import OpenInput
from tests.codegen.c_programs import CC, has_openmp, needs_cc
from tests.codegen.harness import ONE, TWO

from .models import model

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="links as GNU's linker does")

# Loads a model where all that compiles or learns is blocked, and writes its outputs.
BARE = """
import sys
for name in ("llvmlite", "numba", "sklearn", "scipy", "onnx", "rich", "joblib", "ml_dtypes", "google"):
    sys.modules[name] = None
import numpy as np
import tir
net = tir.load(sys.argv[1])
given = dict(np.load("in.npz"))
np.savez("out.npz", *net(given))
again = net.bind(given, outputs=[np.empty(v.shape, v.dtype) for v in net.outputs])()
np.savez("again.npz", *again)
print(len(net.profile(given, runs=1).kernels))
heavy = {"search", "schedule", "codegen.backend"} & set(sys.modules)
assert not heavy, heavy
"""

# The same for a model of open sizes.
BARE_OPEN = (
    BARE.partition("given =")[0]
    + """
given = dict(np.load("in.npz"))
for name, x in given.items():
    np.save(f"{name}.out.npy", net(x)[0])
heavy = {"search", "schedule", "codegen.backend"} & set(sys.modules)
assert not heavy, heavy
"""
)

# Counts the threads of its process, before and after calls with one and with two.
THREADS = """
import os, sys
import numpy as np
import tir
net, x = tir.load(sys.argv[1]), np.ones((2048, 2048), "float32")
count = lambda: len(os.listdir("/proc/self/task"))
before, counts = count(), []
for net.threads in (1, 2):
    net(x)
    counts.append(count() - before)
print(counts, net.threads)
"""


@cache
def compiled(target: str):
    """A network with weights that are packed, and inputs for it."""
    x, w = np.random.default_rng(0).uniform(-1, 1, (2, 40, 40)).astype("float32")
    nodes = [helper.make_node("Gemm", ["x", "w"], ["a"], transB=1), helper.make_node("Softmax", ["a"], ["y"])]
    return tir.compile(load_onnx(model(nodes, {"x": x}, ["a", "y"], {"w": w})), target), {"x": x}


def python(code: str, *words: object, folder) -> str:
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def relu(constant: float = 3.0, target: str = ONE) -> Model:
    x, c = np.ones((2, 3), "float32"), np.full((2, 3), constant, "float32")
    nodes = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    return tir.compile(load_onnx(model(nodes, {"x": x}, ["y"], {"c": c})), target)


@cache
def opened(target: str) -> tuple[OpenModel, np.ndarray]:
    """Rows by a weight, plus a table's first rows: a plan with a constant that follows from the size. With the weight."""
    weight, table = (np.random.default_rng(0).uniform(-1, 1, (n, 40)).astype("float32") for n in (40, 64))

    def read(shapes):
        b = Builder("rows")
        x = b.input("x", shapes["x"], "float32")
        return b.graph(y=b("Add", b("MatMul", x, b.constant(weight)), b.constant(table[: x.shape[0]])))

    graph = OpenGraph("rows", (OpenInput("x", ("n", 40), "float32"),), ("y",), read)
    return tir.compile(graph, target, sizes={"n": (1, 20)}), weight


@needs_cc
@LINUX
@pytest.mark.parametrize("target", [ONE, TWO])
def test_a_saved_model_of_open_sizes_needs_numpy_alone(tmp_path, target):
    if target == TWO and not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    net, _ = opened(target)
    rng = np.random.default_rng(1)
    inputs = {f"x{n}": rng.uniform(-1, 1, (n, 40)).astype("float32") for n in (1, 2, 7, 13, 20)}
    np.savez(tmp_path / "in.npz", **inputs)
    python(BARE_OPEN, net.save(tmp_path / "net.model"), folder=tmp_path)
    for name, x in inputs.items():
        assert np.array_equal(np.load(tmp_path / f"{name}.out.npy"), net(x)[0])


@pytest.mark.parametrize("linked", [True, False])
def test_what_a_file_of_open_sizes_has(tmp_path, monkeypatch, linked):
    if not linked:
        monkeypatch.setenv("PATH", "")
    net, weight = opened(TWO)
    path = net.save(tmp_path / "net.model")
    loaded = tir.load(path)
    for run in (loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(net))):
        for n in (1, 5, 20):
            x = np.random.default_rng(n).uniform(-1, 1, (n, 40)).astype("float32")
            y = np.empty_like(x)
            assert np.array_equal(run(x)[0], net(x)[0]) and run(x, out=y)[0] is y and np.array_equal(y, net(x)[0])
            run.threads = 1
        assert run.weights_nbytes == net.weights_nbytes < 2 * weight.nbytes + 64 * 40 * 4
        assert sum(k.calls for k in run.profile(x, runs=1).kernels) == len(net.named[20,].labels)
    assert len(pickle.dumps(loaded)) < 1000 and repr(loaded) == repr(net)
    known = "it has n = 1; n = 20; n = 2 to 20"
    for n in (0, 21):
        with pytest.raises(GraphError, match=rf"^rows: the file has no code for n = {n}, and compiles none; {known}$"):
            loaded(np.ones((n, 40), "float32"))
    with pytest.raises(GraphError, match=rf"^rows: the file has no code for n = 3, and compiles none; {known}$"):
        loaded.at({"n": 3})
    assert loaded.at({"n": 20}).inputs[0].shape == (20, 40)
    with pytest.raises(TypeError, match=r"^rows is one size of a loaded model of open sizes; pickle that model$"):
        pickle.dumps(loaded.at({"n": 20}))
    with pytest.raises(GraphError, match=r"rows was loaded from a file, which can be copied$"):
        loaded.save(path)
    with pytest.raises(ExportError, match=r"no sizes of rows were named when it was compiled, so it has no code$"):
        tir.compile(net.graph, ONE).save(path)


@needs_cc
@LINUX
@pytest.mark.parametrize("target", [ONE, TWO])
def test_a_saved_model_needs_numpy_alone(tmp_path, target):
    if target == TWO and not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    net, inputs = compiled(target)
    assert net.save(tmp_path / "net.model") == tmp_path / "net.model"
    np.savez(tmp_path / "in.npz", **inputs)
    kernels = python(BARE, tmp_path / "net.model", folder=tmp_path)
    assert int(kernels) == len(set(net.labels))
    for name in ("out.npz", "again.npz"):
        found = np.load(tmp_path / name)
        assert all(np.array_equal(found[f"arr_{n}"], y) for n, y in enumerate(net(inputs)))


def test_without_a_c_compiler(tmp_path, monkeypatch):
    net, inputs = compiled(TWO)
    monkeypatch.setenv("PATH", "")
    loaded = tir.load(net.save(tmp_path / "net.model"))
    for loaded.threads in (2, 1):
        assert all(np.array_equal(a, b) for a, b in zip(loaded(inputs), net(inputs), strict=True))
    with pytest.raises(ExportError, match="a shared library is linked by a C compiler, and nocc is not installed"):
        net.save(tmp_path / "net.model", compiler="nocc")


def test_an_exported_library_loads(tmp_path):
    if CC is None:
        pytest.skip("no C compiler")
    net, inputs = compiled(ONE)
    net.export(tmp_path / "libsmall.so")
    loaded = tir.load(tmp_path / "libsmall.so")
    assert all(np.array_equal(a, b) for a, b in zip(loaded(inputs), net(inputs), strict=True))
    with pytest.raises(GraphError, match=r"^test: a library that was exported takes no times; Model.save writes one that does$"):
        loaded.profile(inputs)
    (tmp_path / "small.weights").unlink()
    with pytest.raises(GraphError, match=r"needs its weights, the file small\.weights beside it$"):
        tir.load(tmp_path / "libsmall.so")


@needs_cc
@LINUX
def test_a_library_links_as_its_header_says(tmp_path):
    relu().export(tmp_path / "net.so")
    header = (tmp_path / "net.h").read_text()
    words = shlex.split(header.partition("Link with ")[2].partition(", for a program in the same folder")[0])
    (tmp_path / "main.c").write_text('#include "net.h"\nint main(void) { return &net == 0; }\n')
    subprocess.run([CC, "-o", "program", "main.c", *words], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "program"], cwd="/", env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_cc
@LINUX
def test_threads_at_run_time(tmp_path):
    if not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    x = np.ones((2048, 2048), "float32")
    net = tir.compile(load_onnx(model([helper.make_node("Exp", ["x"], ["y"])], {"x": x}, ["y"])), TWO)
    assert python(THREADS, net.save(tmp_path / "net.model"), folder=tmp_path) == "[0, 1] 2\n"
    net.threads = 1
    assert net.threads == 1
    for number in (0, 3, "2"):
        with pytest.raises(ValueError, match=r"^threads must be 1 to 2, the number that test was compiled for, got "):
            net.threads = number


def test_weights_are_mapped_and_a_file_may_be_replaced(tmp_path):
    x = np.ones((2, 3), "float32")
    one = tir.load(relu(3.0).save(tmp_path / "net.model"))
    two = tir.load(relu(2.0).save(tmp_path / "net.model"))
    three = tir.load(compiled(ONE)[0].save(tmp_path / "net.model"))
    (weights,) = one.weights.values()
    assert not weights.flags.owndata and not weights.flags.writeable
    assert one(x)[0][0, 0] == 3 and two(x)[0][0, 0] == 2
    inputs = compiled(ONE)[1]
    assert np.array_equal(three(inputs)[0], compiled(ONE)[0](inputs)[0])


def test_loaded_models_are_called_as_compiled_ones(tmp_path):
    net = relu(2.0)
    loaded = tir.load(net.save(tmp_path / "net.model"))
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    for one in (net, loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(net))):
        assert repr(one) == f"<{type(one).__name__} test(x: float32[2, 3]) -> y: float32[2, 3]>"
        assert [v.name for v in one.outputs] == ["y"] and "weights: 24 bytes" in str(one)
        assert np.array_equal(one(x[:, ::-1])[0], np.maximum(2 * x[:, ::-1], 0))
        y = np.empty_like(x)
        (found,) = one({"x": x}, out={"y": y})
        assert found is y and np.array_equal(y, np.maximum(2 * x, 0))
        run = one.bind(x, outputs=y)
        y[:] = 0
        assert run()[0] is y and np.array_equal(y, np.maximum(2 * x, 0))


OUTS = {
    "shape": (np.empty((3, 2), "float32"), r"^output `y` must have shape \(2, 3\), got \(3, 2\)$"),
    "dtype": (np.empty((2, 3)), "^output `y` must have dtype float32, got float64$"),
    "gaps": (np.empty((3, 2), "float32").T, "^output `y` must be C-contiguous and aligned"),
    "list": ([[0]], "^output `y` must be an array, got list$"),
    "number": ([np.empty((2, 3), "float32")] * 2, r"^test: the outputs are y; out has 2 array\(s\)$"),
    "name": ({"z": np.empty((2, 3), "float32")}, "^test: the outputs are y; out has z$"),
}


@pytest.mark.parametrize("case", [*OUTS, "overlap", "readonly"])
def test_refused_outputs(case):
    net, x = relu(), np.ones((2, 3), "float32")
    fixed = np.empty((2, 3), "float32")
    fixed.flags.writeable = False
    further = {
        "overlap": (x, "^test: output `y` overlaps input `x` in memory; pass another array$"),
        "readonly": (fixed, "^output `y` is written but the array is read-only$"),
    }
    out, message = (OUTS | further)[case]
    for call in (lambda: net(x, out=out), lambda: net.bind(x, outputs=out)):
        with pytest.raises(GraphError, match=message):
            call()
    assert (x == 1).all()


def test_arrays_of_a_loaded_model_are_checked_at_once(tmp_path, monkeypatch):
    """Those that fit go to the code as they are, donated ones too; others are looked at again, and refused with a reason."""
    builder = Builder("test")
    x, u, at = (
        builder.input("x", (1, 7, 3), "float32"),
        builder.input("u", (1, 2, 3), "float32"),
        builder.input("at", (1,), "int64"),
    )
    made = builder("TensorScatter", x, u, at, axis=1)
    graph = builder.graph(y=made, z=builder("ReduceSum", made, keepdims=0))
    net = tir.load(tir.compile(graph, ONE, donate={"x": "y"}).save(tmp_path / "net.model"))
    x, u, at, z = np.zeros((1, 7, 3), "float32"), np.ones((1, 2, 3), "float32"), np.array([4]), np.empty((), "float32")
    with monkeypatch.context() as patched:
        patched.setattr(type(net), "_called_at", None)  # the closer look
        assert net(x, u, at)[0] is x and x[0, 4:6].all() and x.sum() == 6
        assert net(x, u, np.array([0]), out=z)[1] is z and z == 12
    fixed = x.copy()
    fixed.flags.writeable = False
    parts = np.zeros(21 + 5, "float32")
    for given, message in (
        ((fixed, u, at), "input `x` is written but the array is read-only"),
        ((parts[:21].reshape(1, 7, 3), parts[20:].reshape(1, 2, 3), at), "input `x` overlaps input `u` in memory"),
    ):
        with pytest.raises(GraphError, match=message):
            net(*given)


@pytest.mark.parametrize(("spans", "found"), [
    ([(0, 9, False), (2, 3, False), (9, 12, True)], False),
    ([(0, 9, False), (2, 3, False), (8, 12, True)], True),
    ([(0, 9, True), (2, 3, False), (9, 12, False)], True),
    ([(0, 9, False), (1, 4, False), (4, 4, True)], False),  # nothing is written
    ([(0, 4, True), (4, 9, True), (9, 9, False)], False),
    ([], False),
])  # fmt: skip
def test_overlaps(spans, found):
    assert overlap(spans) == found


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages")
def test_files_are_mapped_in_large_pages(tmp_path):
    net = tir.load(relu().save(tmp_path / "large.model"))
    found = Path("/proc/self/smaps").read_text().split("large.model")
    flags = [next(line for line in maps.splitlines() if line.startswith("VmFlags")) for maps in found[1:]]
    assert any(" hg" in line for line in flags), (flags, net)


def test_refused_files(tmp_path, monkeypatch):
    path = relu().save(tmp_path / "net.model")
    data = path.read_bytes()
    (tmp_path / "cut").write_bytes(data[:-5])
    (tmp_path / "empty").write_bytes(b"")
    for name in ("cut", "empty"):
        with pytest.raises(GraphError, match=f"{name} is no model that Model.save or Model.export wrote, or is cut off$"):
            tir.load(tmp_path / name)
    for change, error, message in (
        ({"format": 0}, GraphError, "has format 0, expected 3: it was saved by another version$"),
        (None, GraphError, "has format None, expected 3: it was saved by another version$"),
        ({"weights": 1 << 40}, GraphError, "weights are cut off, expected 1,099,511,627,776 bytes$"),
        ({"features": ["avx1024"]}, UnsupportedProcessor, "cannot run here: this processor has no avx1024$"),
    ):
        length = int.from_bytes(data[-16:-8], "little")
        text = json.dumps(change and json.loads(data[-16 - length : -16]) | change).encode()
        path.write_bytes(data[: -16 - length] + text + len(text).to_bytes(8, "little") + data[-8:])
        with pytest.raises(error, match=message):
            tir.load(path)
    with pytest.raises(FileNotFoundError):
        tir.load(tmp_path / "nothing")
    with pytest.raises(ExportError, match="does not exist"):
        relu().save(tmp_path / "nowhere" / "net.model")
