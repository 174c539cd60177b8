"""Exported networks: C programs map their weights, are linked with them and run; headers; refusals."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from onnx import helper

import tir
from codegen import ExportError
from graph.onnx import load_onnx
from tests.codegen.c_programs import CC, REFUSED, has_openmp, needs_cc
from tests.codegen.harness import ONE, TWO
from tests.sweeps import quick

from .models import model, residual

# Reads the input from one file and writes the outputs to another; each is of as many bytes as the program is told.
MAIN = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "small.h"

int main(int count, char **words) {
    if (count != 3) return 2;
    FILE *in = fopen("in", "rb"), *out = fopen("out", "wb");
    size_t in_bytes = strtoul(words[1], NULL, 10), out_bytes = strtoul(words[2], NULL, 10);
    void *x = malloc(in_bytes), *y = malloc(out_bytes), *arena = aligned_alloc(SMALL_ALIGNMENT, SMALL_ARENA_BYTES);
    const void *weights = mmap(NULL, SMALL_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, open("small.weights", O_RDONLY), 0);
    if (!in || !out || !arena || weights == MAP_FAILED || fread(x, in_bytes, 1, in) != 1) return 3;
    if (small(weights, arena, x, y) || small(weights, arena, x, y)) return 4;
    if (fwrite(y, out_bytes, 1, out) != 1) return 5;
    RELEASE
    return fclose(in) || fclose(out);
}
"""


@cache
def compiled_residual(target: str):
    """A network for a target, compiled once, and arrays for it."""
    proto, inputs = residual(np.random.default_rng(0), "float32")
    return tir.compile(load_onnx(proto), target), inputs


def run_program(folder, links, x, y) -> np.ndarray:
    """What a program in C that is linked with the network makes of x: an array like y."""
    release = "small_release();" if "small_release" in (folder / "small.h").read_text() else ""
    (folder / "main.c").write_text(MAIN.replace("RELEASE", release))
    (folder / "in").write_bytes(x.tobytes())
    words = [CC, "-Wall", "-Wextra", "-Werror", "-o", "program", "main.c", *links]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = {"PATH": "", "OMP_NUM_THREADS": "2"}  # neither Python nor LLVM can be found
    done = subprocess.run([folder / "program", str(x.nbytes), str(y.nbytes)], cwd=folder, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(folder / "out", y.dtype).reshape(y.shape)


@quick(lambda target: target == ONE)
@needs_cc
@pytest.mark.skipif(sys.platform == "win32", reason="maps a file as POSIX does")
@pytest.mark.parametrize(("suffix", "target"), [(".o", ONE), (".so", ONE), (".so", TWO)])
def test_c_program(tmp_path, suffix, target):
    if target == TWO and not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    net, inputs = compiled_residual(target)
    file = tmp_path / ("libsmall.so" if suffix == ".so" else "small.o")
    assert net.export(file) == tmp_path / "small.h"
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("probe")) == sorted(
        [file.name, "small.h", "small.weights"]
    )
    (y,) = net(inputs)
    links = ["small.o"] if suffix == ".o" else [f"-L{tmp_path}", "-lsmall", f"-Wl,-rpath,{tmp_path}"]
    assert np.array_equal(run_program(tmp_path, [*links, "-lm"], inputs["x"], y), y)


@needs_cc
def test_only_the_network_is_seen_outside(tmp_path):
    """Kernels of two networks in one program have the same names."""
    x = np.ones((3, 300_000), "float32")  # large enough for memory that is kept
    net = tir.compile(load_onnx(model([helper.make_node("Softmax", ["x"], ["y"])], {"x": x}, ["y"])), ONE)
    net.export(tmp_path / "one.o")
    net.export(tmp_path / "two.o")
    (tmp_path / "main.c").write_text("int one(), two(); int main(void) { return one == two; }\n")
    words = [CC, "-o", "program", "main.c", "one.o", "two.o", "-lm"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_header(tmp_path):
    w = np.arange(13 * 5, dtype="float32").reshape(13, 5)
    nodes = [helper.make_node("MatMul", ["7", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["arena"])]
    nodes.append(helper.make_node("Softmax", ["arena"], ["int"]))
    net = tir.compile(
        load_onnx(model(nodes, {"7": np.ones((3, 13), "float32")}, ["7", "arena", "int"], {"w": w})), f"{ONE} -mcpu x86-64-v3"
    )
    header = net.export(tmp_path / "net.o").read_text()
    assert net.plan.nbytes == 60 and (tmp_path / "net.weights").stat().st_size == 4096
    stored = np.fromfile(tmp_path / "net.weights", "uint8")
    assert (
        np.array_equal(stored[: net.plan.weights_nbytes], net.weights["weights"]) and not stored[net.plan.weights_nbytes :].any()
    )
    assert header.splitlines() == [
        "/* net: the network `test`, compiled by tir for x86-64-v3.",
        "   Link with net.o -lm.",
        "   weights are the NET_WEIGHTS_BYTES bytes of the file net.weights, read-only, as",
        '   mmap(NULL, NET_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, open("net.weights", O_RDONLY), 0) gives them;',
        "   arena is memory for this call alone, as aligned_alloc(NET_ALIGNMENT, NET_ARENA_BYTES) gives it.",
        "   Both begin at a multiple of NET_ALIGNMENT.",
        "   Arrays are row-major without gaps, each aligned to its elements; one that is written overlaps no other.",
        "   It returns 0; 1 if there is no memory for its temporaries; or more where an integer is divided by zero. Unless it",
        "   returns 0, the results are undefined. */",
        "",
        "#ifndef TIR_NET_H",
        "#define TIR_NET_H",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "#define NET_WEIGHTS_BYTES 4096",
        "#define NET_ARENA_BYTES 64",
        "#define NET_ALIGNMENT 64",
        "",
        "/*",
        "   weights[NET_WEIGHTS_BYTES]  read",
        "   arena[NET_ARENA_BYTES]      written",
        "   _7[3][13]                   read",
        "   _7_1[3][13]                 written",
        "   arena_1[3][5]               written",
        "   int_1[3][5]                 written",
        "*/",
        "int net(const void *weights, void *arena, const float *_7, float *_7_1, float *arena_1, float *int_1);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
    ]


@pytest.mark.parametrize(("file", "name", "message"), REFUSED, ids=[f"{f}-{n}" for f, n, _ in REFUSED])
def test_refusals(tmp_path, file, name, message):
    x = np.ones((2, 3), "float32")
    net = tir.compile(load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"])), ONE)
    with pytest.raises(ExportError) as raised:
        net.export(tmp_path / file, name)
    assert str(raised.value) == message and not list(tmp_path.iterdir())


def test_a_library_needs_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    x = np.ones((2, 3), "float32")
    net = tir.compile(load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"])), ONE)
    with pytest.raises(ExportError, match="cc or gcc or clang is not installed; install one"):
        net.export(tmp_path / "k.so")
    with pytest.raises(ExportError, match="does not exist"):
        net.export(tmp_path / "nowhere" / "k.o")
    assert not list(tmp_path.iterdir())
