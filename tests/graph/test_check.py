"""Each kernel of a network against its function in float64: right ones pass in every dtype, and one that is wrong does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graph.compilation
import graph.kernels
import tir
from cli.run import main
from graph.check import KernelCheck, check_kernels
from graph.compilation import final
from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import random_inputs
from tests.sweeps import one_in
from tir.ir import Binary, Const, Expr, Load, Select, Store, Var, conjunction, const, nest, seq

TYPES = {
    "float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16
}  # fmt: skip
ONE = "llvm -num-cores 1"


def layers(dtype: str) -> onnx.ModelProto:
    """Softmax of a norm of a product."""
    rng, kind = np.random.default_rng(0), TYPES[dtype]
    weights = {"w": rng.uniform(-1, 1, (13, 13)) / 4, "g": rng.uniform(0.5, 1, 13)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "g"], ["b"], axis=-1),
        helper.make_node("Softmax", ["b"], ["y"], axis=-1),
    ]
    return made(nodes, kind, (7, 13), kind, {n: helper.make_tensor(n, kind, a.shape, a.ravel()) for n, a in weights.items()})


def bytes_() -> onnx.ModelProto:
    """A quantised product, of which the bytes are read as floats."""
    w = np.random.default_rng(0).integers(-127, 128, (13, 13)).astype("int8")
    values = {
        "s": np.float32(0.05),
        "z": np.int8(3),
        "t": np.float32(0.02),
        "u": np.int8(0),
        "r": np.float32(0.11),
        "o": np.int8(-5),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "t", "u", "r", "o"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "r", "o"], ["y"]),
    ]
    tensors = {n: numpy_helper.from_array(np.asarray(a), n) for n, a in {**values, "w": w}.items()}
    return made(nodes, TensorProto.FLOAT, (7, 13), TensorProto.FLOAT, tensors)


def made(nodes: list, kind: int, shape: tuple[int, ...], result: int, tensors: dict) -> onnx.ModelProto:
    found = helper.make_graph(
        nodes, "m", [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info("y", result, shape)],
        list(tensors.values()),
    )  # fmt: skip
    return helper.make_model(found, opset_imports=[helper.make_opsetid("", 21)])


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {d: lambda d=d: layers(d) for d in TYPES} | {"int8": bytes_}


def first(places: tuple[Expr, ...]) -> Expr:
    return conjunction(*(Binary("==", p, Const(0)) for p in places))


FAULTS: dict[str, Callable[[Load, tuple[Expr, ...]], Expr]] = {
    "zeros": lambda e, at: const(0, e.dtype),
    "negated": lambda e, at: const(0, e.dtype) - e,
    "one element": lambda e, at: Select(first(at), e + const(1, e.dtype), e),
    "one element is no number": lambda e, at: Select(first(at), Const(float("nan"), e.dtype), e),
}


def damage(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Load, tuple[Expr, ...]], Expr], number: int) -> None:
    """Let the kernel that is compiled as so many before it end with a fault in its last output."""
    original, count = graph.kernels._build_kernel, 0

    def built(func, target, lent=False):
        nonlocal count
        count += 1
        if count - 1 == number:
            output = func.buffers[-1]
            at = tuple(Var(f"wrong_{n}") for n in range(len(output.shape)))
            loops = list(zip(at, output.shape, strict=True))
            func = func.with_(body=seq(func.body, nest(loops, Store(output, at, fault(Load(output, at), at)))))
        return original(func, target, lent)

    monkeypatch.setattr(graph.kernels, "_build_kernel", built)


def checked(proto: onnx.ModelProto) -> list[KernelCheck]:
    network = load_onnx(proto)
    model, found = tir.compile(network, ONE, cache=None), list[KernelCheck]()
    inputs = random_inputs(network)
    again = check_kernels(final(network, model.target), model, inputs, found.append)
    assert [a.tobytes() for a in again] == [a.tobytes() for a in model(inputs)]
    return found


@one_in(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_right_kernels_pass(name):
    found = checked(NETWORKS[name]())
    assert len(found) >= 1 and all(k.error < 1 and not k.unchecked for k in found)


@one_in(4)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_wrong_kernel_is_named(name, fault, monkeypatch):
    if name == "int8" and fault == "one element is no number":
        return
    damage(monkeypatch, FAULTS[fault], 0)
    with pytest.raises(GraphError, match=r"^graph m: the kernel .* is wrong: `.*`\[.*\] should be .*, got .* of 91 elements\)$"):
        checked(NETWORKS[name]())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_command_line_checks_what_is_compiled(dtype, tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(layers(dtype), path)
    assert main([str(path), "--check", "--target", ONE]) == 0
    assert "of kernels checked: errors up to 0." in capsys.readouterr().out


def test_the_command_line_refuses_a_wrong_kernel(tmp_path, monkeypatch, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(layers("bfloat16"), path)
    monkeypatch.setattr(graph.compilation, "users_cache", lambda: None)
    damage(monkeypatch, FAULTS["one element"], 1)
    assert main([str(path), "--check", "--target", ONE]) == 1
    assert "error: graph m: the kernel " in capsys.readouterr().err


def test_what_is_overwritten_before_it_is_read_is_named(monkeypatch):
    network = load_onnx(layers("float32"))
    model = tir.compile(network, ONE, cache=None)
    arena = [v for g in model.groups for v in g.outputs if model.plan[v].base == "arena"]
    assert arena
    read = graph.check._Memory.read

    def spoiled(memory, value, written=True):
        if value == arena[0]:
            memory.bases["arena"][...] ^= 1
        return read(memory, value, written)

    monkeypatch.setattr(graph.check._Memory, "read", spoiled)
    with pytest.raises(GraphError, match=rf"^graph m: `{arena[0].name}` is overwritten before it is read$"):
        check_kernels(final(network, model.target), model, random_inputs(network), lambda check: None)
