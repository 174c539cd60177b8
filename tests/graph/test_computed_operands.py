"""Operands that a network computes, where the file states the shape of the result: it is what it is for constants."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tir
from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import ELEMENT, close, model

X = np.random.default_rng(0).permutation(60).reshape(3, 4, 5).astype("float32")
INTEGERS = X.astype("int32")

# Operator, inputs, which of them are computed, attributes.
CASES = {
    "reshape": ("Reshape", [X, np.array([4, 15])], [1], {}),
    "reshape to nothing": ("Reshape", [X[:0], np.array([0, 7])], [1], {"allowzero": 1}),
    "expand": ("Expand", [X[:, :1], np.array([2, 1, 4, 1])], [1], {}),
    "tile": ("Tile", [X, np.array([2, 1, 3])], [1], {}),
    "fill": ("ConstantOfShape", [np.array([2, 3])], [0], {"value": numpy_helper.from_array(np.array([7], "int32"))}),
    "fill with zeros": ("ConstantOfShape", [np.array([2, 3])], [0], {}),
    "range": ("Range", [np.float32(3), np.float32(-2), np.float32(-1.5)], [0, 1, 2], {}),
    "range up to a computed end": ("Range", [np.int64(3), np.int64(11), np.int64(3)], [1], {}),
    "top": ("TopK", [X, np.array([3])], [1], {"axis": 1, "largest": 0}),
    "slice": ("Slice", [X, np.array([1, -3]), np.array([3, 2**40]), np.array([1, 2])], [1, 2], {}),
    "slice from before the first": ("Slice", [X, np.array([-9]), np.array([2])], [1, 2], {}),
    "slice up to a computed end": ("Slice", [X, np.array([1]), np.array([3]), np.array([-1])], [2], {}),
    "slice backward": ("Slice", [X, np.array([9, -2]), np.array([-9, 0]), np.array([0, 2]), np.array([-1, -2])], [1, 2], {}),
    "slice of int32 places": ("Slice", [INTEGERS, *(np.array([n], "int32") for n in (1, 4, 2, 2))], [1, 2], {}),
    "pad": ("Pad", [X, np.array([1, 0, 1, 0, 2, 3]), np.float32(0.5)], [1], {}),
    "pad with zeros": ("Pad", [INTEGERS, np.array([0, 1, 0, 2, 0, 0])], [1], {}),
    "pad along axes": ("Pad", [X, np.array([2, 1]), np.float32(7), np.array([1])], [1, 2], {}),
}  # fmt: skip


def file(case, stated=True):
    """The file of a case, in which the shape of the result may be stated, its inputs, and the results that they should have."""
    operator, inputs, computed, attributes = CASES[case]
    arrays = {f"x{n}": np.asarray(a) for n, a in enumerate(inputs)}
    outputs = ["y", "places"][: 1 + (operator == "TopK")]
    given = {name: a for n, (name, a) in enumerate(arrays.items()) if n in computed or (n == 0 and operator != "Range")}
    constants = {name: a for name, a in arrays.items() if name not in given}
    proto = model([helper.make_node(operator, list(arrays), outputs, **attributes)], given, outputs, constants)
    wanted = ReferenceEvaluator(proto).run(None, given)
    if stated:
        proto.graph.value_info.append(helper.make_tensor_value_info("y", ELEMENT[wanted[0].dtype], wanted[0].shape))
    return proto, given, wanted


@pytest.mark.parametrize("case", CASES)
def test_a_computed_operand_is_worth_what_a_constant_is(case):
    proto, given, wanted = file(case)
    graph = load_onnx(proto)
    for found in (evaluate(graph, given), tir.compile(graph, "llvm -num-cores 1")(given)):
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype
            close(a, b, 0)


@pytest.mark.parametrize("case", CASES)
def test_without_a_stated_shape_the_refusal_says_so(case):
    with pytest.raises(GraphError, match=r"must be constant, or the file must state the shape of its result$"):
        load_onnx(file(case, stated=False)[0])


@pytest.mark.parametrize(("size", "known"), [("n", {"n": 5}), ("n + m", {"n": 3, "m": 2})])
def test_a_stated_size_has_a_name(size, known):
    """Slices of rows of an open size, or of a sum of two, from a computed place on."""
    nodes = [helper.make_node("Slice", ["x", "first", "last", "axes"], ["y"])]
    places = {"first": np.array([2]), "last": np.array([5])}
    inputs = {"x": (1, (size, 7)), **{name: (1, (name,)) for name in known}, **places}
    proto = model(nodes, inputs, ["y"], {"axes": np.array([1])})
    proto.graph.value_info.append(helper.make_tensor_value_info("y", 1, (size, 3)))
    x, others = np.arange(35, dtype="float32").reshape(5, 7), [np.zeros(n, "float32") for n in known.values()]
    compiled = tir.compile(load_onnx(proto, known))
    for first in (-6, 0, 2, 4):
        close(compiled(x, *others, np.array([first]), np.array([0]))[0], x[:, first % 7 :][:, :3], 0)


def test_computed_pads_may_be_negative():
    proto, given, _ = file("pad")
    proto.graph.value_info[0].type.tensor_type.shape.dim[2].dim_value = 4
    found = evaluate(load_onnx(proto), given | {"x1": np.array([-1, 0, 2, 2, 2, -3])})[0]
    close(found, np.pad(X[1:, :, :2], ((0, 2), (0, 2), (2, 0)), constant_values=0.5), 0)


def test_what_does_not_fit_the_stated_shape_is_refused():
    proto, _, _ = file("tile")
    proto.graph.value_info[0].type.tensor_type.shape.dim[1].dim_value = 6
    with pytest.raises(GraphError, match=r"its result has the shape \[6, 4, 15\], and the file states \[6, 6, 15\]"):
        load_onnx(proto)
    proto, _, _ = file("pad")
    proto.graph.node[0].attribute.append(helper.make_attribute("mode", "edge"))
    with pytest.raises(GraphError, match="its pads must be constant where its mode is edge"):
        load_onnx(proto)
    proto, _, _ = file("slice")
    proto.graph.input.append(helper.make_tensor_value_info("x3", ELEMENT[np.dtype("int64")], (2,)))
    del proto.graph.initializer[:]
    with pytest.raises(GraphError, match="its axes, `x3`, must be constant"):
        load_onnx(proto)
