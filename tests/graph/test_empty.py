"""Values without elements, against ONNX's own evaluator: each operator with each of its extents 0 in turn, and networks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tir
from graph.ir import Graph, GraphError, Value, constant, verify
from graph.onnx import load_onnx
from graph.passes.check import check_passes
from graph.passes.empty import fold_empty
from graph.reference import evaluate

from .models import close, exact, model
from .test_ops import CASES

RNG = np.random.default_rng(0)
FIRST = {case[0]: case for case in reversed(CASES)}  # of each operator its first case


def real(*shape):
    return RNG.uniform(-1, 1, shape).astype("float32")


def without(array, axis):
    return np.ascontiguousarray(array.take([], axis))


def variants(inputs):
    """The inputs with one extent 0 in one of them, and in all that have that extent."""
    for n, x in enumerate(inputs):
        for axis, extent in enumerate(x.shape):
            yield [without(y, axis) if m == n else y for m, y in enumerate(inputs)]
            if extent > 1:
                new = list(inputs)
                for m, y in enumerate(inputs):
                    for a in range(y.ndim):
                        new[m] = without(new[m], a) if y.shape[a] == extent else new[m]
                yield new


@pytest.mark.filterwarnings(
    "ignore:Mean of empty slice", "ignore:Degrees of freedom", "ignore:invalid value", "ignore:divide by zero"
)
@pytest.mark.parametrize("operator", sorted(FIRST))
def test_an_operator_with_an_extent_of_0(operator):
    """What the evaluator gives, we do, or refuse; and nothing is an error but GraphError."""
    _, inputs, operands, attributes, opset = FIRST[operator]
    constants = {f"c{n}": np.asarray(a) for n, a in enumerate(operands) if a is not None}
    for arrays in variants([np.asarray(a) for a in inputs]):
        given = {f"x{n}": a for n, a in enumerate(arrays)}
        names = [*given, *("" if a is None else f"c{n}" for n, a in enumerate(operands))]
        proto = model([helper.make_node(operator, names, ["y"], **attributes)], given, ["y"], constants, opset)
        try:
            (found,) = evaluate(load_onnx(proto), given)
        except GraphError:
            continue
        try:
            (wanted,) = map(np.asarray, exact(proto, given))
        except Exception:  # whatever stops the evaluator
            continue
        if wanted.shape == found.shape:
            close(found, wanted, 64)
        else:
            assert operator in ("Conv", "MaxPool", "AveragePool"), (
                operator,
                [a.shape for a in arrays],
                found.shape,
                wanted.shape,
            )


PAST, NOW = np.zeros((1, 2, 0, 4), "float32"), real(1, 2, 3, 4)
X, NONE = real(4, 6), np.zeros((4, 0), "float32")

# Nodes, inputs, constants, outputs, opset.
NETWORKS = {
    "the first step of a cache": (
        [("Concat", ["past", "now"], ["k"], {"axis": 2}), ("Transpose", ["k"], ["t"], {"perm": [0, 1, 3, 2]}),
         ("MatMul", ["now", "t"], ["s"], {}), ("Softmax", ["s"], ["p"], {}), ("MatMul", ["p", "k"], ["y"], {})],
        {"past": PAST, "now": NOW}, {}, ["y", "k"], 18,
    ),
    "attention": (
        [("Attention", ["now", "now", "now", "", "past", "past"], ["y", "k", "v"], {"is_causal": 1})],
        {"past": PAST, "now": NOW}, {}, ["y", "k", "v"], 23,
    ),
    "some parts of a split": (
        [("Split", ["x", "n"], ["a", "b", "c"], {"axis": 1}), ("Relu", ["b"], ["d"], {}), ("Concat", ["d", "c"], ["e"], {"axis": 1})],
        {"x": X}, {"n": np.array([2, 0, 4])}, ["a", "b", "e"], 18,
    ),
    "a sum over nothing": (
        [("MatMul", ["e", "f"], ["s"], {}), ("Add", ["s", "x"], ["y"], {}), ("ReduceSum", ["e"], ["t"], {})],
        {"e": NONE, "f": np.zeros((0, 6), "float32"), "x": X}, {}, ["y", "t"], 18,
    ),
    "a product that is left with its bias": (
        [("Gemm", ["e", "f", "b"], ["y"], {})], {"e": NONE, "b": real(6)}, {"f": np.zeros((0, 6), "float32")}, ["y"], 18,
    ),
    "nothing chosen": (
        [("Gather", ["x", "i"], ["t"], {}), ("Concat", ["t", "x"], ["y"], {"axis": 0})],
        {"x": X}, {"i": np.zeros(0, "int64")}, ["y", "t"], 18,
    ),
    "nothing at all": ([("Relu", ["e"], ["t"], {}), ("Exp", ["t"], ["y"], {})], {"e": NONE}, {}, ["y"], 18),
    "an input as it is": ([("Identity", ["e"], ["y"], {}), ("Relu", ["x"], ["z"], {})], {"e": NONE, "x": X}, {}, ["y", "z"], 18),
    "shapes": (
        [("Reshape", ["e", "s"], ["t"], {"allowzero": 1}), ("Reshape", ["x", "r"], ["z"], {}), ("Pad", ["t", "p"], ["y"], {})],
        {"e": NONE, "x": X}, {"s": np.array([0, 3]), "r": np.array([0, -1]), "p": np.array([1, 0, 2, 0])}, ["t", "y", "z"], 18,
    ),
    "an empty batch": (
        [("Conv", ["i", "w"], ["c"], {"pads": [1, 1, 1, 1]}), ("Relu", ["c"], ["y"], {})],
        {"i": np.zeros((0, 3, 5, 5), "float32")}, {"w": real(4, 3, 3, 3)}, ["y"], 18,
    ),
    "the first none": ([("TopK", ["x", "k"], ["v", "i"], {})], {"x": X}, {"k": np.array([0])}, ["v", "i"], 18),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_with_values_without_elements(name):
    nodes, given, constants, outputs, opset = NETWORKS[name]
    proto = model([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], given, outputs, constants, opset)
    graph = load_onnx(proto)
    assert Graph.parse(graph.text(), graph.constants).text() == graph.text()
    for run in (lambda: evaluate(graph, given), lambda: tir.compile(graph, "llvm -num-cores 2")(given)):
        for found, wanted in zip(run(), exact(proto, given), strict=True):
            close(found, wanted, 64)


def test_no_call_is_left_where_nothing_is_computed():
    nodes, given, constants, outputs, _ = NETWORKS["nothing at all"]
    graph = load_onnx(model([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], given, outputs, constants))
    folded = fold_empty(graph)
    assert not folded.calls and folded.outputs == graph.outputs
    assert constant("y", folded.constants["y"]) == Value("y", (4, 0), "float32")
    whole = load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"]))
    assert fold_empty(whole) is whole


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16])
def test_what_is_folded_keeps_its_element_type(dtype):
    nodes = [helper.make_node("MatMul", ["e", "f"], ["s"]), helper.make_node("Add", ["s", "x"], ["y"])]
    given = {"e": np.zeros((4, 0), dtype), "f": np.zeros((0, 6), dtype), "x": X.astype(dtype)}
    graph = load_onnx(model([*nodes, helper.make_node("Relu", ["e"], ["t"])], given, ["y", "s", "t"]))
    folded = verify(fold_empty(graph))
    assert [c.operator for c in folded.calls] == ["Add"] and folded.outputs == graph.outputs
    raw = {n: a.view("u2") if dtype is ml_dtypes.bfloat16 else a for n, a in given.items()}
    check_passes(graph, raw)
    y, s, t = (a.view(dtype) for a in tir.compile(graph, "llvm -num-cores 1")(raw))
    np.testing.assert_array_equal(y, given["x"])
    assert not s.any() and s.shape == (4, 6) and t.shape == (4, 0)


def refused(message, operator, inputs, constants=None, **attributes):
    given = {f"x{n}": a for n, a in enumerate(inputs)}
    proto = model([helper.make_node(operator, [*given, *(constants or {})], ["y"], **attributes)], given, ["y"], constants)
    with pytest.raises(GraphError, match=message):
        load_onnx(proto)


def test_elements_that_are_not_there_are_refused():
    refused(r"it reads elements of \[0, 6\], which has none", "Gather", [X[:0], np.array([0])])
    refused(r"it reads elements of \[4, 0\], which has none", "GatherElements", [NONE, np.zeros((4, 1), "int64")], axis=1)
    refused(r"there is no element to choose along axis 1 of \[4, 0\]", "ArgMax", [NONE], axis=1)
    refused("there is nothing to repeat along an axis of", "Pad", [NONE], {"p": np.array([0, 1, 0, 0])}, mode="edge")
    refused("sizes, strides and dilations must be at least 1", "Conv", [real(1, 3, 5), real(2, 3, 0)])


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize(("steps", "sequences"), [(3, 0), (1, 0), (0, 2)])
def test_a_recurrence_without_sequences_or_steps(operator, gates, steps, sequences):
    weights = {"w": real(2, gates * 5, 4), "r": real(2, gates * 5, 5), "b": real(2, gates * 10)}
    node = helper.make_node(operator, ["x", *weights], ["y", "h"], hidden_size=5, direction="bidirectional")
    given = {"x": np.zeros((steps, sequences, 4), "float32")}
    y, h = tir.compile(load_onnx(model([node], given, ["y", "h"], weights, 18)), "llvm -num-cores 1")(given)
    assert y.shape == (steps, 2, sequences, 5) and h.shape == (2, sequences, 5) and not h.any()


def resized(shape, sizes, **attributes):
    x = np.zeros(shape, "float32")
    sizes = {"s": np.array(sizes)}
    proto = model([helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)], {"x": x}, ["y"], sizes, 23)
    return evaluate(load_onnx(proto), {"x": x})[0].shape


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_resize_of_no_channels(mode):
    assert resized((2, 0, 5), (2, 0, 7), mode=mode) == (2, 0, 7)
    assert resized((2, 3, 0), (2, 3, 0), mode=mode) == (2, 3, 0)
    with pytest.raises(GraphError, match="axis 2 has no elements, and cannot be resized to 7"):
        resized((2, 3, 0), (2, 3, 7), mode=mode)
