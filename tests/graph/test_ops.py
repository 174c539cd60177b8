"""Each operator, by the interpreter, against ONNX's own evaluator, on odd shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tir
from graph.ir import Value
from graph.onnx import load_onnx
from graph.ops import find, function, names, result_types
from graph.reference import evaluate
from tests.sweeps import one_in

from .models import OPSET, close, exact, model

RNG = np.random.default_rng(0)


def real(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float64")


def whole(*shape, low=-9, high=9):
    return RNG.integers(low, high, shape).astype("int64")


def truth(*shape):
    return RNG.integers(0, 2, shape).astype(bool)


# Operator, inputs, constants behind them, attributes, opset.
CASES = [
    *[(op, [real(3, 7)], [], {}, OPSET) for op in ("Abs", "Ceil", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Neg")],
    *[(op, [real(5, 1, 3)], [], {}, OPSET) for op in ("Elu", "LeakyRelu", "Reciprocal", "Relu", "Sigmoid", "Tanh", "Identity")],
    *[(op, [real(7, low=0.1)], [], {}, OPSET) for op in ("Log", "Sqrt")],
    *[(op, [real(3, 7, low=-0.9, high=0.9)], [], {}, OPSET) for op in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh")],
    *[(op, [real(3, 7, low=-0.9, high=0.9)], [], {}, OPSET) for op in ("Asinh", "Atanh", "Sign", "Round")],
    ("Acosh", [real(3, 7, low=1, high=9)], [], {}, OPSET),
    ("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])], [], {}, OPSET),
    *[(op, [whole(3, 7)], [], {}, OPSET) for op in ("Abs", "Neg", "Sign", "BitwiseNot")],
    *[(op, [whole(3, 7, low=0).astype("uint8")], [], {}, OPSET) for op in ("Abs", "Sign", "BitwiseNot")],
    *[(op, [whole(3, 7), whole(7)], [], {}, OPSET) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min")],
    *[("BitShift", [whole(3, 7, low=0).astype("uint16"), whole(7, low=0, high=20).astype("uint16")], [], {"direction": d}, OPSET)
      for d in ("LEFT", "RIGHT")],
    ("Mod", [whole(5, 7), whole(7, low=1)], [], {}, OPSET),
    ("Mod", [whole(5, 7), whole(7, high=0)], [], {}, OPSET),
    ("Mod", [whole(5, 7), whole(7, high=0)], [], {"fmod": 1}, OPSET),
    ("Mod", [real(5, 7), real(7, low=0.1)], [], {"fmod": 1}, OPSET),
    *[(op, [np.array([1.0, np.nan, np.inf, -np.inf])], [], {}, OPSET) for op in ("IsNaN", "IsInf")],
    ("IsInf", [np.array([1.0, np.nan, np.inf, -np.inf])], [], {"detect_negative": 0}, OPSET),
    ("Shrink", [real(3, 7)], [], {"bias": 0.25, "lambd": 0.75}, OPSET),
    ("Swish", [real(3, 7)], [], {"alpha": 1.5}, 24),
    ("Pow", [whole(3, 7), whole(7, low=0, high=5)], [], {}, OPSET),
    ("LeakyRelu", [real(7)], [], {"alpha": 0.3}, OPSET),
    ("HardSigmoid", [real(7)], [], {"alpha": 0.4, "beta": 0.3}, OPSET),
    ("Elu", [real(7)], [], {"alpha": 0.4}, OPSET),
    ("Gelu", [real(7)], [], {}, 20),
    ("Gelu", [real(7)], [], {"approximate": "tanh"}, 20),
    *[(op, [real(3, 7)], [], {}, OPSET) for op in ("Celu", "Mish", "Selu", "Softplus", "Softsign", "ThresholdedRelu")],
    ("Softplus", [real(7, low=-800, high=800)], [], {}, OPSET),
    ("Celu", [real(7)], [], {"alpha": 0.5}, OPSET),
    ("Xor", [truth(3, 5), truth(5)], [], {}, OPSET),
    ("PRelu", [real(3, 5, 2), real(5, 1)], [], {}, OPSET),
    ("Mean", [real(2, 3, 5), real(5), real(2, 1, 1)], [], {}, OPSET),
    ("LogSoftmax", [real(3, 5, 7, low=-9, high=9)], [], {"axis": 1}, OPSET),
    ("ReduceL1", [whole(3, 5, 7)], [np.array([1])], {}, OPSET),
    ("ReduceL2", [real(3, 5, 7)], [np.array([1, 2])], {"keepdims": 0}, OPSET),
    ("ReduceSumSquare", [real(3, 5, 7)], [np.array([1])], {}, OPSET),
    ("ReduceLogSum", [real(3, 5, 7, low=0.1)], [np.array([-1])], {}, OPSET),
    ("Not", [truth(7)], [], {}, OPSET),
    ("Clip", [real(3, 5)], [np.float64(-0.5), np.float64(1.0)], {}, OPSET),
    ("Clip", [real(3, 5)], [np.float64(-0.5)], {}, OPSET),
    ("Clip", [real(3, 5)], [None, np.float64(0.5)], {}, OPSET),
    ("Cast", [real(3, 5)], [], {"to": 7}, OPSET),
    ("Cast", [whole(3, 5)], [], {"to": 1}, OPSET),
    ("Cast", [whole(3, 5, low=-1, high=2)], [], {"to": 9}, OPSET),
    *[(op, [real(3, 1, 5), real(7, 1)], [], {}, OPSET) for op in ("Add", "Sub", "Mul", "Div", "Less", "Greater")],
    *[(op, [whole(3, 5), whole(5)], [], {}, OPSET) for op in ("Equal", "LessOrEqual", "GreaterOrEqual", "Mul")],
    ("Div", [whole(7, 9, low=-50, high=50), whole(9, low=1, high=7)], [], {}, OPSET),
    ("Div", [whole(7, 9, low=-50, high=50), whole(9, low=-7, high=0)], [], {}, OPSET),
    *[(op, [truth(3, 5), truth(5)], [], {}, OPSET) for op in ("And", "Or")],
    ("Pow", [real(3, 5, low=0.1), real(5)], [], {}, OPSET),
    ("Pow", [real(3, 5), np.array(2, "int64")], [], {}, OPSET),
    *[(op, [real(3, 1), real(5), real(2, 1, 1)], [], {}, OPSET) for op in ("Sum", "Max", "Min")],
    ("Sum", [real(3)], [], {}, OPSET),
    ("Where", [truth(3, 1), real(5), real(2, 3, 1)], [], {}, OPSET),
    ("BatchNormalization", [real(2, 5, 3), real(5), real(5), real(5), real(5, low=0.1)], [], {"epsilon": 0.01}, OPSET),
    ("Conv", [real(2, 3, 9, 7), real(5, 3, 3, 2)], [], {}, OPSET),
    ("Conv", [real(1, 3, 9, 7), real(5, 3, 3, 3), real(5)], [], {"pads": [1, 0, 2, 1], "strides": [2, 3]}, OPSET),
    ("Conv", [real(1, 4, 9, 7), real(6, 2, 3, 1), real(6)], [], {"group": 2, "dilations": [2, 1], "pads": [2, 0, 2, 0]}, OPSET),
    ("Conv", [real(1, 5, 9, 7), real(5, 1, 3, 3)], [], {"group": 5, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}, OPSET),
    ("Conv", [real(1, 5, 9, 7), real(10, 1, 3, 3)], [], {"group": 5}, OPSET),
    ("Conv", [real(1, 6, 5), real(3, 2, 1)], [], {"group": 3}, OPSET),
    ("Conv", [real(1, 3, 9, 7), real(5, 3, 3, 2)], [], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, OPSET),
    ("Conv", [real(1, 3, 9, 7), real(5, 3, 2, 2)], [], {"auto_pad": "SAME_LOWER"}, OPSET),
    ("Conv", [real(2, 3, 9), real(5, 3, 4)], [], {"pads": [2, 1]}, OPSET),
    ("Conv", [real(1, 2, 4, 5, 6), real(3, 2, 2, 3, 3), real(3)], [], {"pads": [0, 1, 1, 0, 1, 1]}, OPSET),
    ("MaxPool", [real(2, 3, 9, 7)], [], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, OPSET),
    ("MaxPool", [real(1, 3, 9, 8)], [], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, OPSET),
    ("MaxPool", [real(1, 3, 9, 8)], [], {"kernel_shape": [2, 2], "dilations": [2, 3]}, OPSET),
    ("AveragePool", [real(2, 3, 9, 7)], [], {"kernel_shape": [3, 2]}, OPSET),
    ("AveragePool", [real(1, 3, 9, 7)], [], {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 2, 1]}, OPSET),
    ("AveragePool", [real(1, 2, 9)], [], {"kernel_shape": [3], "pads": [1, 2], "count_include_pad": 1}, OPSET),
    ("GlobalAveragePool", [real(2, 3, 5, 7)], [], {}, OPSET),
    ("GlobalMaxPool", [real(2, 3, 5, 7)], [], {}, OPSET),
    ("MatMul", [real(3, 5), real(5, 7)], [], {}, OPSET),
    ("MatMul", [real(2, 1, 3, 5), real(4, 5, 7)], [], {}, OPSET),
    ("MatMul", [real(2, 3, 5), real(5, 7)], [], {}, OPSET),
    ("MatMul", [real(5), real(2, 5, 7)], [], {}, OPSET),
    ("MatMul", [real(2, 3, 5), real(5)], [], {}, OPSET),
    ("MatMul", [real(5), real(5)], [], {}, OPSET),
    ("Gemm", [real(3, 5), real(5, 7)], [], {}, OPSET),
    ("Gemm", [real(5, 3), real(7, 5), real(7)], [], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, OPSET),
    ("Gemm", [real(3, 5), real(5, 7), real(3, 1)], [], {}, OPSET),
    ("Softmax", [real(3, 5, 7)], [], {"axis": 1}, OPSET),
    ("Softmax", [real(3, 5, 7)], [], {}, OPSET),
    ("LayerNormalization", [real(3, 5, 7), real(7), real(7)], [], {}, OPSET),
    ("LayerNormalization", [real(3, 5, 7), real(5, 7)], [], {"axis": 1, "epsilon": 0.1}, OPSET),
    ("RMSNormalization", [real(3, 5, 7), real(5, 7)], [], {"axis": 1, "epsilon": 0.1}, 23),
    ("ReduceSum", [real(3, 5, 7)], [np.array([1])], {}, OPSET),
    ("ReduceSum", [real(3, 5, 7)], [], {"keepdims": 0}, OPSET),
    ("ReduceSum", [real(3, 5)], [], {"noop_with_empty_axes": 1}, OPSET),
    ("ReduceMean", [real(3, 5, 7)], [np.array([0, -1])], {"keepdims": 0}, OPSET),
    ("ReduceMean", [real(3, 5, 7)], [], {"axes": [2]}, 13),
    ("ReduceMax", [real(3, 5, 7)], [np.array([-2])], {}, OPSET),
    ("ReduceMin", [real(3, 5, 7)], [np.array([0])], {}, OPSET),
    ("ReduceProd", [real(3, 5)], [np.array([0])], {}, OPSET),
    ("Reshape", [real(3, 4, 5)], [np.array([0, 2, -1])], {}, OPSET),
    ("Flatten", [real(3, 4, 5)], [], {"axis": 2}, OPSET),
    ("Flatten", [real(3, 4, 5)], [], {"axis": 0}, OPSET),
    ("Squeeze", [real(3, 1, 5, 1)], [np.array([-1])], {}, OPSET),
    ("Squeeze", [real(3, 1, 5, 1)], [], {}, OPSET),
    ("Unsqueeze", [real(3, 5)], [np.array([0, -1])], {}, OPSET),
    ("Transpose", [real(3, 4, 5)], [], {}, OPSET),
    ("Transpose", [real(3, 4, 5)], [], {"perm": [1, 2, 0]}, OPSET),
    ("Concat", [real(3, 2), real(3, 1), real(3, 5)], [], {"axis": -1}, OPSET),
    ("Concat", [real(3)], [], {"axis": 0}, OPSET),
    ("Slice", [real(7, 9)], [np.array([1, -3]), np.array([100, -1])], {}, OPSET),
    ("Slice", [real(7, 9)], [np.array([-1]), np.array([-100]), np.array([1]), np.array([-2])], {}, OPSET),
    ("Slice", [real(7, 9)], [], {"starts": [2], "ends": [5], "axes": [0]}, 9),
    ("Gather", [real(5, 7), np.array([[0, -1, 4], [2, 2, -5]])], [], {}, OPSET),
    ("Gather", [real(5, 7), np.array(3, "int32")], [], {"axis": 1}, OPSET),
    ("Expand", [real(3, 1)], [np.array([2, 1, 5])], {}, OPSET),
    ("Expand", [real()], [np.array([], "int64")], {}, OPSET),
    ("Pad", [real(3, 5)], [np.array([0, 2, 1, 0]), np.float64(7)], {}, OPSET),
    ("Pad", [real(3, 5)], [np.array([2, 1]), None, np.array([-1])], {}, OPSET),
    *[("Pad", [real(3, 5)], [np.array([2, 0, 1, 4])], {"mode": m}, 19) for m in ("reflect", "edge", "wrap")],
    ("CenterCropPad", [real(3, 7, 4)], [np.array([6, 3])], {"axes": [0, -2]}, OPSET),
    ("Tile", [real(3, 5)], [np.array([2, 3])], {}, OPSET),
    ("Trilu", [real(2, 3, 5)], [], {}, OPSET),
    ("Trilu", [whole(5, 3)], [np.array(-1)], {"upper": 0}, OPSET),
    ("EyeLike", [whole(3, 5)], [], {"k": 1, "dtype": 1}, OPSET),
    ("DepthToSpace", [real(2, 12, 3, 5)], [], {"blocksize": 2}, OPSET),
    ("DepthToSpace", [real(2, 12, 3, 5)], [], {"blocksize": 2, "mode": "CRD"}, OPSET),
    ("SpaceToDepth", [real(2, 3, 4, 6)], [], {"blocksize": 2}, OPSET),
    ("GatherElements", [real(5, 7), whole(5, 3, low=-7, high=7)], [], {"axis": 1}, OPSET),
    ("GatherND", [real(2, 5, 7), whole(2, 3, 1, low=-5, high=5)], [], {"batch_dims": 1}, OPSET),
    ("GatherND", [real(5, 7, 2), whole(3, 2, low=0, high=5)], [], {}, OPSET),
    *[("ScatterElements", [real(5, 7), whole(4, 7, low=-5, high=5), real(4, 7)], [], {"reduction": r}, OPSET)
      for r in ("add", "mul", "max", "min")],
    ("ScatterElements", [real(5, 7), np.array([[0, -2, 3]]), real(1, 3)], [], {"axis": 1}, OPSET),
    *[("ScatterND", [real(5, 7, 2), whole(3, 2, low=0, high=5), real(3, 2)], [], {"reduction": r}, OPSET) for r in ("add", "max")],
    ("ScatterND", [real(5, 7), np.array([[3], [-5]]), real(2, 7)], [], {}, OPSET),
    ("TensorScatter", [real(2, 7, 3), real(2, 2, 3), np.array([1, 5])], [], {}, 24),
    ("TensorScatter", [real(2, 7, 3), real(2, 4, 3), np.array([1, 5])], [], {"mode": "circular"}, 24),
    ("ReverseSequence", [real(5, 3, 2), np.array([2, 5, 1])], [], {}, OPSET),
    ("BitCast", [whole(3, 5)], [], {"to": 11}, 26),
    *[(op, [whole(3, 5, 7)], [], {"axis": 1, "select_last_index": last}, OPSET) for op in ("ArgMax", "ArgMin") for last in (0, 1)],
    ("Hardmax", [real(3, 5, 7)], [], {"axis": 1}, OPSET),
    ("CumSum", [real(3, 7)], [np.array(1)], {}, OPSET),
    ("CumSum", [whole(3, 7)], [np.array(0)], {"exclusive": 1, "reverse": 1}, OPSET),
    ("CumProd", [real(3, 7)], [np.array(1)], {"exclusive": 1}, 26),
    ("ReduceLogSumExp", [real(3, 5, 7, low=-900, high=900)], [np.array([0, 2])], {}, OPSET),
    ("InstanceNormalization", [real(2, 3, 5, 4), real(3), real(3)], [], {"epsilon": 0.25}, OPSET),
    *[("MeanVarianceNormalization", [real(2, 3, 4, 5)], [], a, OPSET) for a in ({}, {"axes": [1]}, {"axes": [0, -1]})],
    *[("LpNormalization", [real(3, 5)], [], {"p": p, "axis": 0}, OPSET) for p in (1, 2)],
    ("LRN", [real(2, 5, 3, 2)], [], {"size": 4, "alpha": 0.25, "beta": 0.5, "bias": 2.0}, OPSET),
    ("ConvTranspose", [real(1, 3, 4, 5), real(3, 5, 3, 2), real(5)], [], {"strides": [2, 3], "pads": [1, 0, 0, 1]}, OPSET),
    ("Col2Im", [real(1, 12, 9)], [np.array([5, 4]), np.array([3, 2])], {}, OPSET),
    ("LpPool", [real(1, 3, 9, 7)], [], {"kernel_shape": [3, 2], "strides": [2, 1], "p": 3}, OPSET),
    ("MaxUnpool", [real(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])], [], {"kernel_shape": [2, 2], "strides": [2, 2]}, OPSET),
    *[("Einsum", xs, [], {"equation": e}, OPSET) for e, xs in (
        ("bij,bjk->bik", [real(2, 3, 5), real(2, 5, 7)]), ("...ii->...i", [real(2, 5, 5)]), ("ij,jk", [real(3, 5), real(5, 7)]),
        ("ij->", [real(3, 5)]))],
    *[("Det", [real(3, n, n)], [], {}, OPSET) for n in (1, 2, 3, 4)],
    ("QuantizeLinear", [real(3, 5, 2), real(5, low=0.1), whole(5).astype("int8")], [], {}, 21),
    ("DequantizeLinear", [whole(3, 5, 2).astype("int8"), real(5, low=0.1), whole(5).astype("int8")], [], {}, 21),
    ("AffineGrid", [real(2, 2, 3)], [np.array([2, 3, 5, 4])], {}, 20),
    ("AffineGrid", [real(1, 3, 4)], [np.array([1, 3, 5, 4, 3])], {"align_corners": 1}, 20),
    *[("GridSample", [real(1, 2, 5, 4), real(1, 3, 3, 2, low=-1.3, high=1.3)], [],
       {"mode": m, "padding_mode": p, "align_corners": a}, 20)
      for m, p, a in (("linear", "zeros", 0), ("nearest", "border", 0), ("cubic", "zeros", 1), ("linear", "reflection", 1))],
]  # fmt: skip

# Operators that compute nothing: their results are exact.
MOVING = (
    "Concat", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
    "Where", "Max", "Min", "MaxPool", "CenterCropPad", "Tile", "Trilu", "EyeLike", "DepthToSpace", "SpaceToDepth", "GatherElements",
    "GatherND", "TensorScatter", "ReverseSequence", "MaxUnpool", "BitCast", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Neg", "Abs", "Relu", "Clip", "Round", "Floor", "Ceil",
)  # fmt: skip

# ONNX's evaluator has constants of these in float32, whatever the input is.
SINGLE = (
    "AffineGrid", "DequantizeLinear", "GridSample", "QuantizeLinear",
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "MeanVarianceNormalization", "RMSNormalization", "Selu", "Shrink", "Swish",
)  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "inputs", "operands", "attributes", "opset"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_operator(operator, inputs, operands, attributes, opset):
    given = {
        f"x{n}": np.asarray(a, "float32" if operator in SINGLE and a.dtype.kind == "f" else None) for n, a in enumerate(inputs)
    }
    constants = {f"c{n}": np.asarray(a) for n, a in enumerate(operands) if a is not None}
    arguments = [*given, *("" if a is None else f"c{n}" for n, a in enumerate(operands))]
    proto = model([helper.make_node(operator, arguments, ["y"], **attributes)], given, ["y"], constants, opset)
    (wanted,) = exact(proto, given)
    graph = load_onnx(proto)
    (found,) = evaluate(graph, given)
    assert (found.dtype, found.shape) == (wanted.dtype, np.shape(wanted))
    terms = max((a.size for a in inputs), default=1)
    exactly = operator in MOVING or found.dtype.kind != "f"
    close(found, np.asarray(wanted), 0 if exactly else 2 * terms + 8)


@pytest.mark.parametrize("split", [{"axis": 1}, {"axis": -1, "num_outputs": 3}])
def test_split(split):
    x = real(2, 7) if "num_outputs" in split else real(2, 6)
    proto = model(
        [helper.make_node("Split", ["x"], ["a", "b", "c"], **split)],
        {"x": x},
        ["a", "c"],
        opset=18 if "num_outputs" in split else 11,
    )
    found = evaluate(load_onnx(proto), {"x": x})
    wanted = np.split(x, [3, 6] if "num_outputs" in split else 3, axis=1)
    assert [a.tolist() for a in found] == [wanted[0].tolist(), wanted[2].tolist()]


def test_layer_normalization_gives_its_statistics():
    x = real(3, 5, 7).astype("float32")
    outputs = ["y", "mean", "factor"]
    proto = model([helper.make_node("LayerNormalization", ["x", "w"], outputs, axis=1)], {"x": x}, outputs, {"w": x[0]})
    for found, wanted in zip(evaluate(load_onnx(proto), {"x": x}), exact(proto, {"x": x}), strict=True):
        close(found, wanted, 2 * 35 + 8)


def test_softmax_before_version_13_flattens():
    x = real(3, 5, 7)
    proto = model([helper.make_node("Softmax", ["x"], ["y"], axis=1)], {"x": x}, ["y"], opset=11)
    (found,) = evaluate(load_onnx(proto), {"x": x})
    power = np.exp(x - x.max(axis=(1, 2), keepdims=True))
    close(found, power / power.sum(axis=(1, 2), keepdims=True), 2 * x.size)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "dilation", "pads"), [(9, 3, 2, 2, (2, 1)), (8, 3, 2, 1, (0, 1)), (7, 2, 3, 1, (1, 0))]
)
def test_average_pool_with_ceil_mode_counts_what_lies_in_the_image(extent, kernel, stride, dilation, pads, include):
    x = real(1, 2, extent)
    attributes = {"kernel_shape": [kernel], "strides": [stride], "pads": [*pads], "ceil_mode": 1, "count_include_pad": include}
    proto = model([helper.make_node("AveragePool", ["x"], ["y"], dilations=[dilation], **attributes)], {"x": x}, ["y"], opset=19)
    (found,) = evaluate(load_onnx(proto), {"x": x})
    for n in range(found.shape[2]):
        places = [n * stride - pads[0] + k * dilation for k in range(kernel)]
        inside = [p for p in places if 0 <= p < extent]
        counted = [p for p in places if p < extent + pads[1]] if include else inside
        close(found[0, :, n], x[0][:, inside].sum(axis=1) / len(counted), 16)


def result(operator, inputs, operands=(), opset=OPSET, count=1, **attributes):
    """What an operator makes, by the interpreter; `count` outputs."""
    given = {f"x{n}": np.asarray(a) for n, a in enumerate(inputs)}
    constants = {f"c{n}": np.asarray(a) for n, a in enumerate(operands)}
    names = [f"y{n}" for n in range(count)]
    proto = model([helper.make_node(operator, [*given, *constants], names, **attributes)], given, names, constants, opset)
    found = evaluate(load_onnx(proto), given)
    return found[0] if count == 1 else found


def test_negative_pads_take_elements_away():
    x = real(7, 5)
    found = result("Pad", [x], [np.array([-1, 2, 3, -2]), np.array([7.0])])
    np.testing.assert_array_equal(found, np.pad(x, ((0, 3), (2, 0)), constant_values=7)[1:, :-2])


def test_powers_of_integers():
    x, y = np.array([2, -1, -1, 1, 3, 2, -3, 0, 2]), np.array([-1, 65, 1000, -7, -2, 62, 3, 65, 64])
    np.testing.assert_array_equal(result("Pow", [x, y]), [0, -1, 1, 1, 0, 2**62, -27, 0, 0])


@pytest.mark.parametrize("exponent", ["int8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("base", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_powers_of_integers_wrap_around(base, exponent):
    """All bits of an exponent count; powers of Python's integers, modulo the width."""
    signed, last = np.iinfo(base).min < 0, np.iinfo(exponent).max
    x = np.array([[0], [1], [-1 if signed else 2], [3], [-7 if signed else 7], [np.iinfo(base).max]], base)
    y = np.array([0, 1, 2, 63, 64, 65, 66, 109, 127, last, last // 3, np.iinfo(exponent).min], exponent)

    def power(a: int, e: int) -> int:
        if e < 0:
            return 0 if abs(a) != 1 else a ** (e % 2)
        return pow(a, e, 1 << 8 * x.itemsize)

    wanted = np.array([[power(int(a), int(e)) & 2 ** (8 * x.itemsize) - 1 for e in y] for (a,) in x], f"u{x.itemsize}")
    graph = load_onnx(model([helper.make_node("Pow", ["x", "y"], ["z"])], {"x": x, "y": y}, ["z"]))
    np.testing.assert_array_equal(evaluate(graph, {"x": x, "y": y})[0], wanted.view(base))
    np.testing.assert_array_equal(tir.compile(graph)(x, y)[0], wanted.view(base))


def test_scatter_is_scatter_elements():
    xs = [real(5, 7), np.array([[0, -2, 3]]), real(1, 3)]
    np.testing.assert_array_equal(result("Scatter", xs, opset=10, axis=1), result("ScatterElements", xs, axis=1))


def test_of_updates_at_one_place_the_last_counts():
    found = result("ScatterElements", [np.zeros(3), np.array([1, 1, -2]), np.array([1.0, 2.0, 3.0])])
    np.testing.assert_array_equal(found, [0, 3, 0])


def test_global_lp_pool():
    x = real(1, 3, 5, 7)
    close(result("GlobalLpPool", [x], p=3), (np.abs(x) ** 3).sum(axis=(2, 3), keepdims=True) ** (1 / 3), 2 * x.size)


def test_one_hot():
    indices, values = np.array([[1, -1], [5, 0]]), np.array([2.0, 7.0])
    proto = model(
        [helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=1)], {"i": indices, "v": values}, ["y"], {"d": np.array([3])}
    )
    (found,) = evaluate(load_onnx(proto), {"i": indices, "v": values})
    wanted = np.where(np.arange(3)[None, :, None] == np.where(indices < 0, indices + 3, indices)[:, None, :], 7.0, 2.0)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(largest):
    x = whole(3, 7, low=-2, high=3)
    values, indices = result("TopK", [x], [np.array([4])], count=2, largest=largest)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=1))


@pytest.mark.parametrize("column_major", [0, 1])
def test_max_pool_says_where(column_major):
    x = real(2, 3, 7, 5)
    values, indices = result(
        "MaxPool", [x], count=2, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2], storage_order=column_major
    )
    flat = x.transpose(0, 1, 3, 2).ravel() if column_major else x.ravel()
    np.testing.assert_array_equal(flat[indices], values)


@pytest.mark.parametrize("column_major", [0, 1])
def test_max_pool_says_where_the_first_of_equal_elements_is_by_rows(column_major):
    x = whole(2, 3, 7, 5, low=-1, high=2)
    _, indices = result("MaxPool", [x], count=2, kernel_shape=[3, 2], storage_order=column_major)
    numbers = np.arange(x.size).reshape(2, 3, 5, 7).transpose(0, 1, 3, 2) if column_major else np.arange(x.size).reshape(x.shape)
    for n, c, i, j in np.ndindex(*indices.shape):
        window = n, c, slice(i, i + 3), slice(j, j + 2)
        assert indices[n, c, i, j] == numbers[window].ravel()[x[window].argmax()]


@pytest.mark.parametrize(("auto_pad", "group"), [("NOTSET", 2), ("SAME_UPPER", 1), ("SAME_LOWER", 4), ("VALID", 2)])
def test_conv_transpose(auto_pad, group):
    """Each element of the input adds the kernel times it; what lies in the padding is cut off."""
    x, w, stride, dilation = real(2, 4, 7), real(4, 3, 4), 3, 2
    pads = {"pads": [2, 1]} if auto_pad == "NOTSET" else {}
    found = result("ConvTranspose", [x, w], auto_pad=auto_pad, group=group, strides=[stride], dilations=[dilation], **pads)
    full = np.zeros((2, 3 * group, stride * 6 + dilation * 3 + 1))
    for n, c, i, m, k in np.ndindex(2, 4, 7, 3, 4):
        full[n, c // (4 // group) * 3 + m, i * stride + k * dilation] += x[n, c, i] * w[c, m, k]
    total = full.shape[2] - found.shape[2]
    before = {"NOTSET": 2, "VALID": 0, "SAME_UPPER": total // 2, "SAME_LOWER": total - total // 2}[auto_pad]
    close(found, full[:, :, before : before + found.shape[2]], 64)


ELSEWHERE = {"Split", "Scatter", "OneHot", "TopK"}  # operators with tests of their own


def test_every_operator_has_a_case():
    found = {name: find(name) or find(name, OPSET) for name in names()}
    ours = {  # a page adds one
        name
        for name, o in found.items()
        if o and not o.composite and o.define.__module__.startswith("graph.ops.") and "." not in name
    }
    cases = {case[0] for case in CASES}
    assert ours == {name for name in cases if not found[name].composite} | ELSEWHERE


def altered(value):
    """Values beside one: another element type, a dimension more, a dimension less, extents one larger and one smaller."""
    yield Value(value.name, value.shape, "int32" if value.dtype != "int32" else "float32")
    yield Value(value.name, (3, *value.shape), value.dtype)
    yield Value(value.name, value.shape[1:], value.dtype) if value.shape else Value(value.name, (2,), value.dtype)
    for n, extent in enumerate(value.shape):
        for other in {extent + 1, extent - 1, 1} - {0, extent}:
            yield Value(value.name, (*value.shape[:n], other, *value.shape[n + 1 :]), value.dtype)


@one_in(4)
@pytest.mark.parametrize("part", range(4))
def test_operands_that_do_not_fit_are_refused(part):
    """Of each case, with one operand altered: either the operator refuses it, or what it makes is well formed and in bounds."""
    refused = 0
    for call in list(dict.fromkeys(case_call(case) for case in CASES if len(case[1]) > 1))[part::4]:
        for n, operand in enumerate(call.inputs):
            for other in altered(operand):
                changed = replace(call, inputs=(*call.inputs[:n], other, *call.inputs[n + 1 :]))
                try:
                    types = result_types(changed)
                except (TypeError, ValueError):
                    refused += 1
                    continue
                outputs = tuple(Value(f"y{n}", *t) for n, t in enumerate(types))
                problems = tir.verify(function(replace(changed, outputs=outputs))).errors
                assert not problems, (str(changed), problems)
    assert refused > 50


def case_call(case):
    """A case as a call that has no outputs yet."""
    operator, inputs, operands, attributes, opset = case
    given = {f"x{n}": np.asarray(a) for n, a in enumerate(inputs)}
    constants = {f"c{n}": np.asarray(a) for n, a in enumerate(operands) if a is not None}
    arguments = [*given, *("" if a is None else f"c{n}" for n, a in enumerate(operands))]
    proto = model([helper.make_node(operator, arguments, ["y"], **attributes)], given, ["y"], constants, opset)
    (call,) = load_onnx(proto).calls
    return replace(call, outputs=())


def test_the_page_lists_all_operators():
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    (listed,) = re.findall(r"## Operators\n\nThese (\d+) .*?```text\n(.*?)```", page, flags=re.S)
    ours = {n for n in names() if "." not in n and n not in ("Repeat", "RepeatTwice")}  # the page adds them
    assert set(listed[1].split()) == ours and int(listed[0]) == len(ours)
    (theirs,) = re.findall(r"com\.microsoft are read.*?```text\n(.*?)```", page, flags=re.S)
    assert {f"com.microsoft.{n}" for n in theirs.split()} == {n for n in names() if n.startswith("com.microsoft.")}
    (theirs,) = re.findall(r"Of ai\.onnx\.ml.*?```text\n(.*?)```", page, flags=re.S)
    refused = {"ai.onnx.ml.ZipMap"}  # in words of its own
    assert {f"ai.onnx.ml.{n}" for n in theirs.split()} == {n for n in names() if n.startswith("ai.onnx.ml.")} - refused
