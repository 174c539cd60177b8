"""How a compiled network is called: arrays, threads, memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from onnx import helper

import tir
from codegen import UnsupportedProcessor
from graph.onnx import load_onnx
from tests.codegen.harness import at_once

from .models import model, node

RNG = np.random.default_rng(0)


def compiled(nodes, inputs, outputs, constants=None, target="llvm -num-cores 1"):
    return tir.compile(load_onnx(model(nodes, inputs, outputs, constants)), target)


@pytest.fixture(scope="module")
def product():
    """y = softmax(x w) by rows, large enough for threads to meet in it."""
    w = RNG.integers(-2, 3, (256, 256)).astype("float32")
    return w, compiled([node("MatMul", "x w", "a"), node("Softmax", "a", "y")], {"x": w}, ["a", "y"], {"w": w})


def test_calls_may_overlap_in_time(product):
    w, net = product

    def job(seed):
        x = np.random.default_rng(seed).integers(-2, 3, w.shape).astype("float32")
        run, wanted = net.bind(x), x @ w

        def calls():
            for _ in range(20):
                assert np.array_equal(run()[0], wanted) and np.array_equal(net(x)[0], wanted)

        return calls

    at_once(*map(job, range(4)))
    assert len(net._arenas) <= 4


def test_a_model_keeps_memory_for_as_many_calls_as_there_are_cores(product, monkeypatch):
    w, net = product
    monkeypatch.setattr("graph.network.host_cores", lambda: 2)
    net._arenas.clear()
    at_once(*[lambda: [net(w) for _ in range(5)]] * 4)
    assert 1 <= len(net._arenas) <= 2


def test_arrays_with_gaps_are_copied(product):
    w, net = product
    wide = np.zeros((256, 512), "float32")
    x = wide[:, ::2]
    run = net.bind(x)
    for _ in range(2):  # what is bound is read anew
        x += RNG.integers(-2, 3, x.shape)
        for found in (net(x), net({"x": x}), run()):
            assert np.array_equal(found[0], x @ w)
    odd = np.zeros(4 * x.size + 1, "uint8")[1:].view("float32").reshape(x.shape)
    odd[...] = x
    assert np.array_equal(net(odd)[0], x @ w)


def test_without_memory(product, monkeypatch):
    w, net = product
    monkeypatch.setattr(net, "_run", lambda *arrays: 1)
    for call in (lambda: net(w), net.bind(w)):
        with pytest.raises(MemoryError, match=r"^test: no memory for the temporaries of its kernels$"):
            call()


def test_integers_divided_by_zero():
    nodes = [node("Neg", "b", "c"), node("Div", "a c", "y")]
    a, b = np.arange(-20, 20, dtype="int32"), np.full(40, -3, "int32")
    net = compiled(nodes, {"a": a, "b": b}, ["y"])
    expected = np.trunc(a / 3).astype("int32")
    zero = b.copy()
    zero[31] = 0
    for call in (lambda: net(a, zero), net.bind(a, zero)):
        with pytest.raises(
            ZeroDivisionError,
            match=r"^test: neg_div\(40, 40\) -> 40, of `c` and `y`: `.*` divides by zero; the results are undefined$",
        ):
            call()
        assert np.array_equal(net(a, b)[0], expected)


def test_large_outputs_are_aligned(product):
    w, net = product
    assert all(a.ctypes.data % 64 == 0 and a.flags.writeable for _ in range(3) for a in net(w))


def test_constants_are_there_once(product):
    w, net = product
    (moved,) = net.graph.constants.values()
    assert np.array_equal(np.sort(moved, axis=None), np.sort(w, axis=None)) and not moved.flags.writeable  # packed
    assert np.shares_memory(moved, net.weights["weights"]) and moved.ctypes.data % 64 == 0


def test_kernels_of_one_name():
    """Equal operators on other shapes, and functions that differ in a number only."""
    shapes = [(7, 13), (13, 5), (5, 3)]
    constants = {f"w{n}": RNG.integers(-2, 3, s).astype("float32") for n, s in enumerate(shapes)}
    nodes = [node("MatMul", f"{a} w{n}", b) for n, (a, b) in enumerate(["xa", "ab", "by"])]
    nodes += [node("LeakyRelu", "y", "p", alpha=0.5), node("Flatten", "y", "q"), node("LeakyRelu", "q", "r", alpha=0.25)]
    x = RNG.integers(-2, 3, (109, 7)).astype("float32")
    net = compiled(nodes, {"x": x}, ["y", "p", "r"], constants)
    assert [g.func.name for g in net.groups] == ["matmul"] * 3 + ["leakyrelu"] * 2
    y = x @ constants["w0"] @ constants["w1"] @ constants["w2"]
    for found, wanted in zip(net(x), (y, np.where(y < 0, y / 2, y), np.where(y < 0, y / 4, y)), strict=True):
        assert np.array_equal(found, wanted)


def test_equal_groups_name_their_own_nodes():
    """In profiles and in errors, though they share a function."""
    x, one, zero = (np.full(7, n, "int32") for n in (13, 1, 0))
    nodes = [helper.make_node("Div", ["x", name], [f"x_{name}"], name=f"by {name}") for name in "ab"]
    net = compiled(nodes, {"x": x, "a": one, "b": one}, ["x_a", "x_b"])
    assert net.groups[0].func is net.groups[1].func
    assert [n.nodes for n in net.profile(x, one, one).nodes] == [("by a",), ("by b",)]
    for given, name in (((zero, one), "by a"), ((one, zero), "by b")):
        with pytest.raises(ZeroDivisionError, match=f"of `{name}`"):
            net(x, *given)


def test_groups_that_differ_in_the_sign_of_a_zero():
    x = np.array([-1, -2, 3, 0], "float32")
    nodes = [node("LeakyRelu", "x", name, alpha=alpha) for name, alpha in (("a", 0.0), ("b", -0.0))]
    for found, alpha in zip(compiled(nodes, {"x": x}, ["a", "b"])(x), (0.0, -0.0), strict=True):
        assert np.array_equal(np.signbit(found), np.signbit(np.where(x < 0, np.float32(alpha) * x, x)))


def test_a_model_that_goes_gives_its_memory_back():
    resource = pytest.importorskip("resource")
    x = np.ones((1, 16 << 18), "float32")  # 16 MB

    def once():
        gc.collect()
        (y,) = compiled([node("Softmax", "x", "y")], {"x": x}, ["y"])(x)
        assert y[0, 0] == 1 / x.size

    once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(6):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024  # KB; kept, it would be 96 MB


def test_a_network_without_kernels():
    x = np.arange(6, dtype="int64").reshape(2, 3)
    net = compiled([node("Flatten", "x", "y")], {"x": x}, ["y"])
    (y,) = net(x)
    assert np.array_equal(x, y) and not np.shares_memory(x, y) and str(net.profile(x, runs=1)).count("\n") == 2


def test_constants_are_prepared_when_compiling():
    """Of two products with one weight, which is then held once, as kernels read it; a bias stays as it is."""
    rng = np.random.default_rng(0)
    w, bias, x = (rng.uniform(-1, 1, shape).astype("f") for shape in ((40, 40), (40,), (9, 40)))
    nodes = [
        helper.make_node("Gemm", ["x", "w", "bias"], ["a"], transB=1, alpha=0.5),
        helper.make_node("Gemm", ["a", "w", "bias"], ["y"], transB=1, alpha=0.5),
    ]
    graph = load_onnx(model(nodes, {"x": x}, ["y"], {"w": w, "bias": bias}))
    net = tir.compile(graph, "llvm -num-cores 1", cache=None)
    names = sorted(net.graph.constants)
    assert "bias" in names and "w" not in names and len(names) == 2
    assert all(k.preparation is not None for k in net.kernels)
    (y,) = net(x)
    exact = 0.5 * (0.5 * x.astype("float64") @ w.T + bias) @ w.T + bias
    assert np.abs(y - exact).max() <= 82 * np.finfo("f").eps * ((np.abs(x) @ np.abs(w).T + 1) @ np.abs(w).T + 1).max()
    assert net.plan.weights_nbytes < 2 * w.nbytes


def test_a_network_for_another_processor_is_for_export(old_host, tmp_path):
    """What it prepares is computed by code for this processor, and is the same."""
    x, w = np.random.default_rng(0).uniform(-1, 1, (2, 40, 40)).astype("f")
    graph = load_onnx(model([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": x}, ["y"], {"w": w}))
    net = tir.compile(graph, "llvm -num-cores 1 -mcpu x86-64-v3", cache=None)
    (prepared,) = net.graph.constants.values()
    assert net.kernels[0].preparation is not None and sorted(prepared[prepared != 0]) == sorted(w.ravel())  # tiles filled up
    assert net.export(tmp_path / "net.o").exists()
    for call in (net, net.profile):
        with pytest.raises(UnsupportedProcessor, match="code for `llvm -num-cores 1 -mcpu x86-64-v3` cannot run here: "):
            call(x)


@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND"])
def test_indices_outside_read_the_nearest_element(operator):
    x, indices = np.arange(7, dtype="f"), np.array([2, 7, 10**12, -1, -7, -8, -(10**12)])
    given = indices[:, None] if operator == "GatherND" else indices
    net = compiled([node(operator, "x i", "y")], {"x": x, "i": given}, ["y"])
    assert net(x, given)[0].tolist() == [2, 6, 6, 6, 0, 0, 0]
