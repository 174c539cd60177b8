"""Arguments of public functions that are nothing that they take: one clear error, where they are given."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from tir import te

A = te.placeholder((7,), name="A")
FUNC = te.create_prim_func([A, te.compute((7,), lambda i: A[i] + 1.0, name="B")])


@pytest.fixture(scope="module")
def kernel():
    return tir.build(FUNC, "llvm -num-cores 1")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: tir.build(FUNC, cache={}), "build: the cache is an ObjectCache or None, got {}"),
    (lambda: tir.dump(FUNC, after=[None]), "dump: a stage is given by name, got [None]"),
    (lambda: tir.specialize(None, {}), "specialize takes a PrimFunc, got NoneType"),
    (lambda: tir.specialize(FUNC, 3), "specialize takes sizes by name, such as {'n': 128}, got 3"),
    (lambda: tir.compare(3), "compare takes programs in a list or by name, got int"),
    (lambda: tir.jit("product"), "jit takes a function of tensors, got 'product'"),
    (lambda: tir.load_onnx(3), "load_onnx takes the path of a file or an onnx.ModelProto, got 3"),
    (lambda: tir.load_onnx("x.onnx", 3), "load_onnx: shapes is a dict of shapes by the names of inputs, got 3"),
    (lambda: tir.autotune(FUNC, trials=0, sizes=3), "sizes is a dict of sizes by name, such as {'n': (1, 128)}, got 3"),
    (lambda: tir.Schedule(FUNC).undo("all"), "undo: a number of steps is an integer, got 'all'"),
    (lambda: tir.Schedule(FUNC).undo(to=True), "undo: a number of steps is an integer, got True"),
    (lambda: tir.Schedule(FUNC).diff(None), "diff: a number of steps is an integer, got None"),
])  # fmt: skip
def test_types(call, message):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(("call", "message"), [
    (lambda: tir.compile(FUNC, []), "a target is a string such as 'llvm -num-cores 2', got []"),
    (lambda: tir.jit(target=0)(len), "a target is a string such as 'llvm -num-cores 2', got 0"),
    (lambda: tir.Schedule(FUNC, seed=-1), "Schedule: the seed must be at least 0, got -1"),
])  # fmt: skip
def test_values(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("look", ["get_block", "get_loops", "get_child_blocks", "get_producers", "get_consumers"])
def test_names_are_texts(look):
    with pytest.raises(tir.ScheduleError, match=rf"^{look}\(\['B'\]\): loops and blocks are given by name, got \['B'\]"):
        getattr(tir.Schedule(FUNC), look)(["B"])


@pytest.mark.parametrize(("call", "message"), [
    (lambda k, a: k.time(a, a.copy(), seconds="long"), "time: seconds is a number, got 'long'"),
    (lambda k, a: k.time(a, a.copy(), runs=2.5), "time: runs is an integer, got 2.5"),
    (lambda k, a: k.export(3), "export takes the path of a file and the name of a C function, got 3 and None"),
    (lambda k, a: k.export("b.o", 3), "export takes the path of a file and the name of a C function, got 'b.o' and 3"),
])  # fmt: skip
def test_kernels(kernel, call, message):
    with pytest.raises(TypeError) as caught:
        call(kernel, np.zeros(7, "float32"))
    assert str(caught.value) == message


@pytest.mark.parametrize(("options", "message"), [
    ({"seconds": -1}, "time: seconds is at least 0, got -1"),
    ({"seconds": float("nan")}, "time: seconds is at least 0, got nan"),
    ({"runs": 0}, "time: runs is at least 1, got 0"),
    ({"max_runs": 0}, "time: max_runs is at least 1, got 0"),
])  # fmt: skip
def test_timings(kernel, options, message):
    with pytest.raises(ValueError) as caught:
        kernel.time(np.zeros(7, "float32"), np.zeros(7, "float32"), **options)
    assert str(caught.value) == message
