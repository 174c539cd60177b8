"""Element types of 2, 4 and 8 bits, against the package ml_dtypes, and what ONNX defines as functions, of halves."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.ops.narrow_types import NARROW
from graph.ops.registry import _TABLE
from graph.reference import evaluate
from tests.graph.onnx_backend import TirBackend

from .models import model

FLOATS = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1"]


def theirs(kind):
    return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind.upper()))


def cast(x, to, **attributes):
    """What Cast makes of an array, in the type that the graph holds it by."""
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DataType.Value(to.upper()), **attributes)
    return evaluate(load_onnx(model([node], {"x": x}, ["y"])), {"x": x})[0]


def around(kind):
    """Every number of a type, those half way between two, and their neighbours."""
    codes = np.arange(16 if kind == "float4e2m1" else 256, dtype="uint8")
    numbers = np.unique(codes.view(theirs(kind)).astype("float32"))
    numbers = numbers[np.isfinite(numbers)]
    half = (numbers[1:] + numbers[:-1]) / 2
    return np.concatenate(
        [numbers, half, np.nextafter(half, np.float32(np.inf)), np.nextafter(half, np.float32(-np.inf)), [-0.0]]
    )


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_rounded_to_even(kind):
    x = around(kind).astype("float32")
    np.testing.assert_array_equal(cast(x, kind), x.astype(theirs(kind)).astype("float32"))


@pytest.mark.parametrize("kind", FLOATS)
def test_what_is_too_large(kind):
    x, high = np.array([1e6, -1e6, np.inf, -np.inf], "float32"), NARROW[kind].high
    np.testing.assert_array_equal(cast(x, kind), [high, -high, high, -high])
    with np.errstate(over="ignore"):
        wanted = x.astype(theirs(kind)).astype("float32")
    np.testing.assert_array_equal(cast(x, kind, saturate=0), wanted)


@pytest.mark.parametrize("kind", ["int2", "uint2", "int4", "uint4"])
def test_integers_keep_their_last_bits(kind):
    x = np.arange(-40, 41).astype("int32")
    np.testing.assert_array_equal(cast(x, kind), x.astype(theirs(kind)).astype(NARROW[kind].wide))


def quantised(kind, operator="Identity"):
    """x quantised in a narrow type, something done with it, and back."""
    element = TensorProto.DataType.Value(kind.upper())
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node(operator, ["q"], ["moved"]),
        helper.make_node("DequantizeLinear", ["moved", "scale", "zero"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    zero = helper.make_tensor("zero", element, [], [1 if kind in ("int4", "uint4") else 0])
    constants = [helper.make_tensor("scale", TensorProto.FLOAT, [], [0.25]), zero]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize("kind", ["int4", "uint4", "float8e4m3fn"])
def test_quantised_numbers_move_as_they_are(kind):
    x = np.linspace(-3, 3, 15, dtype="float32").reshape(3, 5)
    (found,) = evaluate(load_onnx(quantised(kind, "Transpose")), {"x": x})
    low, high, zero = NARROW[kind].low, NARROW[kind].high, int(kind in ("int4", "uint4"))
    whole = np.clip(np.rint(x / np.float32(0.25)) + zero, low, high) if zero else (x / np.float32(0.25)).astype(theirs(kind))
    np.testing.assert_array_equal(found, (whole.astype("float32") - zero).T * np.float32(0.25))


def test_other_operators_refuse_them():
    with pytest.raises(GraphError, match="Neg of opset 23: it does not take int4; cast it"):
        load_onnx(quantised("int4", "Neg"))


def test_an_operator_takes_them_whose_definition_keeps_elements(monkeypatch):
    monkeypatch.setitem(_TABLE, "Neg", [replace(o, keeps=True) for o in _TABLE["Neg"]])
    assert "Neg" in {c.operator for c in load_onnx(quantised("int4", "Neg")).calls}


def test_the_backend_takes_and_gives_them():
    x = np.arange(-8, 8).astype(ml_dtypes.int4)
    info = [helper.make_tensor_value_info(n, TensorProto.INT4, [16]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", info[:1], info[1:])
    (found,) = TirBackend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])).run([x])
    assert found.dtype == x.dtype and (found == x).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_halves_are_rounded_once(dtype):
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    element = onnx.helper.np_dtype_to_tensor_dtype(kind)
    q, k, v = (rng.uniform(-1, 1, (1, 2, 7, 5)).astype(kind) for _ in range(3))
    infos = [helper.make_tensor_value_info(n, element, [1, 2, 7, 5]) for n in "qkvy"]
    graph = helper.make_graph([helper.make_node("Attention", [*"qkv"], ["y"], is_causal=1)], "g", infos[:3], infos[3:])
    loaded = load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]))
    (found,) = evaluate(loaded, [a.view("u2") if dtype == "bfloat16" else a for a in (q, k, v)])
    found = (found.view(kind) if dtype == "bfloat16" else found).astype("f8")
    scores = q.astype("f8") @ k.astype("f8").transpose(0, 1, 3, 2) / 5**0.5
    weights = np.exp(np.where(np.tri(7, dtype=bool), scores, -np.inf))
    exact = weights / weights.sum(axis=-1, keepdims=True) @ v.astype("f8")
    eps = float(ml_dtypes.finfo(kind).eps)
    assert (np.abs(found - exact) <= 0.5 * eps * np.abs(exact) + 64 * np.finfo("f4").eps).all()
