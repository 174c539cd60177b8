"""ONNX models for the tests, and what the ONNX package's own evaluator says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.shape_inference import infer_shapes

from graph.ir import Graph
from graph.reference import evaluate

try:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as refusing

    REFUSALS = (
        refusing.Fail, refusing.InvalidArgument, refusing.InvalidGraph, refusing.NotImplemented, refusing.RuntimeException,
    )  # fmt: skip
except ImportError:  # it is not needed
    onnxruntime, REFUSALS = None, ()

OPSET = 18
EPSILON = 2.0**-16  # of norms: attributes are float32, and this one is the same in float64
ELEMENT = {
    np.dtype(name): helper.np_dtype_to_tensor_dtype(np.dtype(name))
    for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "bool", "u1", "u2", "u4", "u8", ml_dtypes.bfloat16)
}


def node(operator, inputs, outputs, **attributes):
    """A node whose inputs and outputs are names between spaces."""
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def model(nodes, inputs, outputs, constants=None, opset=OPSET) -> onnx.ModelProto:
    """A model of nodes; `inputs` are example arrays by name, or (element type, shape); `outputs` names; `constants` arrays."""
    infos = [
        helper.make_tensor_value_info(name, ELEMENT[a.dtype], a.shape)
        if isinstance(a, np.ndarray)
        else helper.make_tensor_value_info(name, *a)
        for name, a in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", infos, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


class Erf(OpRun):
    """In the precision of the input: ONNX's evaluator rounds to float32."""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class LpNormalization(OpRun):
    """Of absolute values: ONNX's evaluator adds up values with their signs."""

    def _run(self, x, axis=None, p=None):
        norm = np.sum(np.abs(x) ** p, axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class LRN(OpRun):
    """Of all channels: ONNX's evaluator leaves out those beyond the size of the batch."""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        before, after = (size - 1) // 2, size // 2
        padded = np.pad(x**2, [(0, 0), (before, after), (0, 0), (0, 0)])
        squares = sum(padded[:, n : n + x.shape[1]] for n in range(size))
        return ((x / (bias + alpha / size * squares) ** beta).astype(x.dtype),)


def exact(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX's evaluator."""
    return ReferenceEvaluator(proto, new_ops=[Erf, LpNormalization, LRN]).run(None, inputs)


def reference(proto: onnx.ModelProto) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """What computes the outputs: onnxruntime, where it is installed and has all operators for their types; else ONNX's evaluator."""
    session = None
    if onnxruntime is not None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        with suppress(*REFUSALS):
            session = onnxruntime.InferenceSession(infer_shapes(proto).SerializeToString(), options)

    def run(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        with suppress(*REFUSALS):
            if session is not None:
                return session.run(None, inputs)
        return exact(proto, inputs)

    return run


def same_outputs(before: Graph, after: Graph, inputs: dict[str, np.ndarray], roundings: int = 0) -> None:
    """Two graphs compute the same by the interpreter: bit for bit, or within some roundings of the largest element."""
    for a, b in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        close(a, b, roundings)


def close(found: np.ndarray, wanted: np.ndarray, roundings: int) -> None:
    """Every element of a result is within so many roundings of the largest that is wanted; NaN and infinities are the same."""
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    if not roundings or found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    scale = np.max(np.abs(wanted), where=finite, initial=0)
    error = np.max(np.abs(found - wanted, where=finite, out=np.zeros(found.shape)), initial=0)
    assert error <= roundings * np.finfo(found.dtype).eps * scale, (error, scale)


def residual(rng: np.random.Generator, dtype: str = "float64") -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A stem, a block with a shortcut that is projected and one without, a head: convolutions, norms with real statistics."""
    nodes, constants = [], {}

    def add(operator, inputs, **attributes):
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"n{len(nodes)}", **attributes))
        return name

    def weight(*shape, low=-1.0, high=1.0):
        name = f"w{len(constants)}"
        constants[name] = rng.uniform(low, high, shape).astype(dtype)
        return name

    def conv(x, inner, outer, kernel, stride=1, group=1):
        half = kernel // 2
        y = add("Conv", [x, weight(outer, inner // group, kernel, kernel)], strides=[stride] * 2, pads=[half] * 4, group=group)
        statistics = [weight(outer), weight(outer), weight(outer), weight(outer, low=0.5, high=2.0)]
        return add("BatchNormalization", [y, *statistics], epsilon=EPSILON)

    x = add("Relu", [conv("x", 3, 8, 5, 2)])
    x = add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = conv(add("Relu", [conv(x, 8, 12, 3, 2)]), 12, 12, 3)
    x = add("Relu", [add("Add", [y, conv(x, 8, 12, 1, 2)])])
    bounds = [weight(low=0, high=0), weight(low=6, high=6)]
    y = conv(add("Clip", [conv(x, 12, 12, 3, group=12), *bounds]), 12, 12, 1)
    x = add("Relu", [add("Add", [x, y])])
    x = add("Flatten", [add("GlobalAveragePool", [x])])
    x = add("Gemm", [x, weight(7, 12), weight(7)], transB=1)
    image = rng.uniform(-1, 1, (2, 3, 29, 23)).astype(dtype)
    return model(nodes, {"x": image}, [x], constants), {"x": image}


def transformer(rng: np.random.Generator, dtype: str = "float64") -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A block of attention with two heads and one of a GELU, each after a layer norm, with shapes computed from the input."""
    S, D, heads = 13, 24, 2
    nodes, constants = [], {}

    def add(operator, inputs, count=1, **attributes):
        names = [f"v{len(nodes)}_{n}" for n in range(count)]
        nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def weight(*shape):
        name = f"w{len(constants)}"
        constants[name] = rng.uniform(-1, 1, shape).astype(dtype)
        return name

    def number(*values, kind="int64"):
        name = f"c{len(constants)}"
        constants[name] = np.array(values if len(values) > 1 or kind == "int64" else values[0], kind)
        return name

    def linear(x, inner, outer):
        return add("Add", [add("MatMul", [x, weight(inner, outer)]), weight(outer)])

    def norm(x):
        return add("LayerNormalization", [x, weight(D), weight(D)], axis=-1, epsilon=EPSILON)

    def by_head(x):
        length = add("Gather", [add("Shape", ["x"]), number(1)])
        shape = add("Concat", [number(2), length, number(heads), number(D // heads)], axis=0)
        return add("Transpose", [add("Reshape", [x, shape])], perm=[0, 2, 1, 3])

    q, k, v = add("Split", [linear(norm("x"), D, 3 * D)], count=3, axis=2)
    score = add("MatMul", [by_head(q), add("Transpose", [by_head(k)], perm=[0, 1, 3, 2])])
    score = add("Div", [score, add("Sqrt", [number(float(D // heads), kind=dtype)])])
    mixed = add("MatMul", [add("Softmax", [score], axis=-1), by_head(v)])
    joined = add("Reshape", [add("Transpose", [mixed], perm=[0, 2, 1, 3]), number(0, 0, -1)])
    x = add("Add", ["x", linear(joined, D, D)])
    h = linear(norm(x), D, 4 * D)
    gate = add("Add", [add("Erf", [add("Div", [h, number(2**0.5, kind=dtype)])]), number(1.0, kind=dtype)])
    h = add("Mul", [add("Mul", [h, gate]), number(0.5, kind=dtype)])
    x = add("Add", [x, linear(h, 4 * D, D)])
    tokens = rng.uniform(-1, 1, (2, S, D)).astype(dtype)
    return model(nodes, {"x": tokens}, [x], constants), {"x": tokens}
