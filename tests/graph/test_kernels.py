"""Kernels of networks: compiled once, found again, made anew where anything differs; and functions by themselves."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

import joblib
import numpy as np
import pytest
from onnx import helper

import tir
from codegen import ObjectCache
from codegen.cuda.compile import available
from graph import kernels
from graph.kernels import CompiledFunction, decoded, encoded
from graph.onnx import load_onnx
from search.records import NearHit
from tests.codegen.matmul import packed_product
from tests.programs import matmul
from tir.notices import Degraded

from .models import model

TARGET = "llvm -num-cores 1"
W = np.random.default_rng(0).integers(-2, 3, (13, 7)).astype("float32")
X = np.ones((5, 13), "float32")


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "objects")


@pytest.fixture
def graph():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    return load_onnx(model(nodes, {"x": X}, ["a", "y"], {"w": W}))


@pytest.fixture
def made(monkeypatch):
    """The names of the functions that are scheduled."""
    found = []
    real = kernels.scheduled
    monkeypatch.setattr(kernels, "scheduled", lambda func, *rest: [found.append(func.name), real(func, *rest)][1])
    return found


def test_what_was_compiled_is_found(graph, cache, made):
    first = tir.compile(graph, TARGET, cache=cache)(X)
    assert made == ["matmul", "softmax"] and cache.statistics.stored == 2
    again = tir.compile(graph, TARGET, cache=cache)
    assert len(made) == 2 and cache.statistics.hits == 2
    assert all(np.array_equal(a, b) for a, b in zip(first, again(X), strict=True)) and np.array_equal(first[0], X @ W)
    assert "softmax" in again.kernels[1].kernel.asm() and again.kernels[0].kernel.func.name == "matmul"
    for file in cache.path.glob("??/*"):
        file.write_bytes(file.read_bytes()[:-1])
    tir.compile(graph, TARGET, cache=cache)
    assert cache.statistics.corrupt == 2


def test_another_target_or_compiler_makes_others(graph, cache, made, monkeypatch):
    tir.compile(graph, TARGET, cache=cache)
    tir.compile(graph, "llvm -num-cores 2", cache=cache)
    monkeypatch.setattr(kernels, "compiler_sources", lambda *files: "others")
    tir.compile(graph, TARGET, cache=cache)
    tir.compile(graph, TARGET, cache=None)
    assert len(made) == 8 and cache.statistics.hits == 0


def test_records_make_others(graph, cache, made, tmp_path):
    func = tir.compile(graph, TARGET, cache=cache).groups[0].func
    made.clear()
    records = tmp_path / "tune.db"
    tir.autotune(func, TARGET, trials=2, records=records, seed=0, policy="random", model="none")
    for _ in range(2):
        with pytest.warns(Degraded, match=r"^1 of 2 kernels are not tuned, default schedules are used: .*tune.db has no softmax"):
            found = tir.compile(graph, TARGET, records=records, cache=cache)
        assert np.array_equal(found(X)[0], X @ W)
    best = tir.best_schedule(func, TARGET, records=records)
    assert made == ["matmul"] and found.kernels[0].kernel.func == best.func
    with pytest.warns(Degraded, match=r"^1 of 1 kernels are not tuned, default schedules are used: .* it is recorded for other"):
        other = load_onnx(model([helper.make_node("MatMul", ["x", "w"], ["a"])], {"x": X[:3]}, ["a"], {"w": W}))
        tir.compile(other, TARGET, records=records)
    with pytest.warns(NearHit, match="not tuned for this target"):
        tir.compile(graph, "llvm -num-cores 2", records=records, cache=cache)
    alone = tir.compile(func, TARGET, records=records, cache=cache)
    assert alone.func == best.func
    with pytest.warns(Degraded, match="^not tuned, a default schedule is used: .* has no "):
        tir.compile(matmul(3, 4, 5), TARGET, records=records, cache=cache)
    with pytest.warns(Degraded, match=r"^records file .*none.db does not exist: default schedules are used"):
        tir.compile(matmul(3, 4, 5), TARGET, records=tmp_path / "none.db", cache=cache)


def test_workers_make_the_same(graph, cache, made, monkeypatch):
    """In processes of their own, and here where these die."""
    alone = tir.compile(graph, TARGET, cache=None)
    monkeypatch.setattr(kernels, "MIN_COMPILED_ALONE", 0)
    monkeypatch.setattr(kernels, "MIN_SHARED_SECONDS", -1.0)
    monkeypatch.setattr(kernels, "host_cores", lambda: 2)
    shared = tir.compile(graph, TARGET, cache=cache)
    assert made == ["matmul", "softmax"] and cache.statistics.stored == 2
    assert [k.main for k in shared.kernels] == [k.main for k in alone.kernels]

    def dies(**options):
        def results(jobs):
            yield next(function(*arguments) for function, arguments, _ in jobs)
            raise BrokenProcessPool

        return results

    monkeypatch.setattr(joblib, "Parallel", dies)
    assert [k.main for k in tir.compile(graph, TARGET, cache=None).kernels] == [k.main for k in alone.kernels]
    assert made == ["matmul", "softmax"] * 2


def test_a_function_becomes_a_kernel(cache):
    func = matmul(5, 13, 7)
    kernel = tir.compile(func, TARGET, cache=cache)
    assert kernel.func == tir.default_schedule(func, TARGET).func and cache.statistics.stored == 2  # the kernel, and its code
    c = np.empty((5, 7), "float32")
    kernel(X, W, c)
    assert np.array_equal(c, X @ W)


@pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")
def test_a_function_becomes_a_kernel_for_a_gpu():
    assert "__global__" in tir.compile(matmul(64, 64, 64), "cuda", cache=None).source


def test_parts_as_bytes():
    kernel = tir.build(packed_product(), TARGET)
    parts = [CompiledFunction.of(part) for part in kernel.parts]
    assert len(parts) == 2 and decoded(encoded(parts)) == parts and parts[0].params == kernel.main.func.params
