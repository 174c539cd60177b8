"""The programs in onnxruntime, where it and onnx are installed: graphs of a few operators, bound to memory once."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import sqrt
from typing import Any

import numpy as np

from tir.ir import const_shape
from tir.workloads import EPSILON, Arrays, Instance

OPSET = 17  # the first with LayerNormalization
VERSION = 8  # of the file format, that goes with it

Node = tuple[str, str, str, dict[str, Any]]  # operator, inputs and output by name, attributes


def installed() -> bool:
    """Whether onnx and onnxruntime can be imported."""
    return find_spec("onnx") is not None and find_spec("onnxruntime") is not None


def onnx_call(instance: Instance, inputs: Arrays, threads: int) -> Callable[[], Any] | None:
    """The program in onnxruntime on these arrays, weights too as inputs; None for one that is not written here."""
    import onnxruntime as ort
    from onnx import helper

    if instance.name not in _PROGRAMS:
        return None
    given, make = tuple(map(np.asarray, inputs)), _PROGRAMS[instance.name]
    shaped, nodes, constants = make(instance, given) if callable(make) else (given, make, {})
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(instance.dtype))
    graph = helper.make_graph(
        [helper.make_node(op, read.split(), made.split(), **attributes) for op, read, made, attributes in nodes],
        instance.name,
        [helper.make_tensor_value_info(f"x{n}", kind, a.shape) for n, a in enumerate(shaped)],
        [helper.make_tensor_value_info("y", kind, const_shape(instance.func.buffers[-1]))],
        [helper.make_tensor(name, kind, (), [value]) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=VERSION)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n, a in enumerate(shaped):
        binding.bind_cpu_input(f"x{n}", np.ascontiguousarray(a))
    result = np.empty(const_shape(instance.func.buffers[-1]), instance.dtype)
    binding.bind_output("y", "cpu", 0, result.dtype, result.shape, result.ctypes.data)

    def call() -> np.ndarray:
        session.run_with_iobinding(binding)
        return result

    return call


Program = tuple[Arrays, list[Node], dict[str, float]]


def _conv2d(instance: Instance, inputs: Arrays) -> Program:
    X, K = inputs
    stride, padding = instance.shape[-2:]
    groups = 1
    if K.ndim == 3:
        K, groups = K[:, None], X.shape[1]
    how = {"strides": [stride, stride], "pads": [padding] * 4, "group": groups}
    return (X, K), [("Conv", "x0 x1", "c", how), ("Relu", "c", "y", {})], {}


def _attention(instance: Instance, inputs: Arrays) -> Program:
    nodes: list[Node] = [
        ("Transpose", "x1", "t", {"perm": [0, 2, 1]}),
        ("MatMul", "x0 t", "p", {}),
        ("Mul", "p factor", "s", {}),
        ("Softmax", "s", "w", {"axis": 2}),
        ("MatMul", "w x2", "y", {}),
    ]
    return inputs, nodes, {"factor": 1 / sqrt(instance.shape[-1])}


# The nodes of each program, or what makes them of its shape, with its inputs and constants.
_PROGRAMS: dict[str, list[Node] | Callable[[Instance, Arrays], Program]] = {
    "gmm": [("MatMul", "x0 x1", "y", {})],
    "gemv": [("MatMul", "x0 x1", "y", {})],
    "add_relu": [("Add", "x0 x1", "s", {}), ("Relu", "s", "y", {})],
    "mlp": [("MatMul", "x0 x1", "c", {}), ("Exp", "c", "d", {}), ("MatMul", "d x2", "y", {})],
    "conv2d": _conv2d,
    "depthwise": _conv2d,
    "softmax": [("Softmax", "x0", "y", {"axis": 1})],
    "layernorm": [("LayerNormalization", "x0 x1 x2", "y", {"axis": 1, "epsilon": EPSILON})],
    "attention": _attention,
}
