"""Well-formed graphs, and the error for each kind that is not; graphs as text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph.ir import Call, Graph, GraphError, Value, verify
from graph.onnx import load_onnx
from graph.ops.registry import function
from graph.passes import optimize
from graph.reference import evaluate

from .models import residual, transformer

X, Y, Z = (Value(name, (7, 3), "float32") for name in "xyz")
RELU = Call("Relu", (X,), (Y,))


def graph(**changes):
    return Graph("g", (X,), (RELU,), (Y,)).with_(**changes)


def test_calls_differ_in_the_types_and_signs_of_their_attributes():
    """Else the function of one would serve the other."""
    for values in ((1, True), (1, 1.0), (0.0, -0.0), ((0.0,), (-0.0,))):
        one, other = (Call("LeakyRelu", (X,), (Y,), (("alpha", value),)) for value in values)
        assert one != other and len({one, other, replace(one, node="a node")}) == 2
    assert len({function(Call("LeakyRelu", (X,), (Y,), (("alpha", alpha),))).script() for alpha in (0.0, -0.0)}) == 2


def test_text():
    calls = (
        RELU,
        Call("Clip", (Y, None), (Z,), (("max", 6.0), ("min", 0))),
        Call("Add", (Z, Value("w", (3,), "float32")), (Value("s", (7, 3), "float32"),)),
    )
    found = graph(calls=calls, outputs=(Y, Z), constants={"w": np.zeros(3, "float32"), "unread": np.zeros(3)})
    assert str(verify(found)) == "\n".join(
        [
            "graph g",
            "    input x: float32[7, 3]",
            "    constant w: float32[3]",
            "    y: float32[7, 3] = Relu(x)",
            "    z: float32[7, 3] = Clip(y, none, max=6.0, min=0)",
            "    s: float32[7, 3] = Add(z, w)",
            "    output y, z",
        ]
    )
    assert found.producers()[Z].operator == "Clip" and [c.operator for c in found.consumers()[Y]] == ["Clip"]


def same_graph(a, b):
    return (a.name, a.inputs, a.calls, a.outputs) == (b.name, b.inputs, b.calls, b.outputs)


@pytest.mark.parametrize("make", [residual, transformer])
def test_text_is_parsed(make):
    before = load_onnx(make(np.random.default_rng(0))[0])
    for found in (before, optimize(before)):
        parsed = Graph.parse(found.text(), found.constants)
        assert same_graph(parsed, found) and parsed.text() == found.text()
        assert all(parsed.constants[name] is found.constants[name] for name in parsed.constants)


NAMES = ["a", "none", "input", "onnx::Add_1", "/m/layer.0/Add", "a b", 'with "quotes"', "a,b", "x=1", "", "é", "a: b", "1", "\n"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_quoted_where_needed(name):
    x, y = Value(name, (7, 3), "float32"), Value(f"{name} of y", (), "int64")
    found = Graph(name, (x,), (Call("Relu", (x, None, x), (y,)),), (y, x))
    assert same_graph(Graph.parse(found.text()), found)


@pytest.mark.parametrize(
    "value",
    [1, -3, 0.1, 1e-30, float("inf"), -float("inf"), "", "it's", 'a, "b"]', (), (1,), (1, -2), (0.5, float("inf")), ("a,", "]")],
)
def test_attributes(value):
    found = graph(calls=(Call("Relu", (X,), (Y,), (("a", value), ("b", 1)), 11),))
    assert "Relu@11(x, a=" in found.text() and same_graph(Graph.parse(found.text()), found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a graph begins with a line `graph NAME`, got an empty text"),
        ("input x: float32[3]", "line 1: expected `graph NAME`, got 'input x: float32[3]': input x: float32[3]"),
        ("graph g\n\n  input x float32[3]", "line 3: expected a colon, got 'float32[3]': input x float32[3]"),
        ("graph g\n  input x: float32", "line 2: expected a shape, got the end of the line: input x: float32"),
        ("graph g\n  y: float32[3] = Relu(x)", "line 2: `x` is not defined before it: y: float32[3] = Relu(x)"),
        ("graph g\n  y: float32[3] = Relu(a=?)", "line 2: expected an attribute, got '?)': y: float32[3] = Relu(a=?)"),
        (
            "graph g\n  y: float32[3] = Relu(a=1.2.3)",
            "line 2: expected a number, a string or a list of numbers, got '1.2.3': y: float32[3] = Relu(a=1.2.3)",
        ),
        ("graph g\n  y: float32[3] = Relu(a=1", "line 2: expected `,` or `)`, got the end of the line: y: float32[3] = Relu(a=1"),
        ("graph g\n  constant w: float32[3]", "line 2: the constant `w` must be float32[3], and it is not given: constant w: float32[3]"),
        ("graph g\n  constant v: float32[3]", "line 2: the constant `v` must be float32[3], and got float64[3]: constant v: float32[3]"),
        ("graph g\n  input x: float32[3]\n  output x x", "line 3: expected the end of the line, got 'x': output x x"),
        ("graph g\n  input x: float32[3]", "graph g has no output"),
    ],
)  # fmt: skip
def test_texts_that_are_none(text, message):
    with pytest.raises(GraphError) as caught:
        Graph.parse(text, {"v": np.zeros(3)})
    assert str(caught.value) == message


@pytest.mark.parametrize(("changes", "message"), [
    ({"calls": ()}, "the list of outputs reads `y`, which is not defined before it"),
    ({"calls": (RELU, RELU)}, "call Relu of `y` defines `y`, which is defined already"),
    ({"calls": (Call("Relu", (Z,), (Y,)), Call("Relu", (X,), (Z,)))},
     "call Relu of `y` reads `z`, which is not defined before it"),
    ({"calls": (Call("Relu", (Value("x", (3, 7), "float32"),), (Y,)),)},
     "call Relu of `y` reads `x` as float32[3, 7], but it is float32[7, 3]"),
    ({"inputs": (X, X)}, "input `x` defines `x`, which is defined already"),
    ({"inputs": (Value("x", (7, 3), "float8"),)}, "input `x` has the element type float8, which is not supported"),
    ({"inputs": (Value("x", (7, -1), "float32"),)}, "input `x` has the shape [7, -1]; extents must be at least 0"),
    ({"constants": {"w": np.zeros(7, np.dtype("float32").newbyteorder())}},
     "constant `w` has elements of type float32 in another byte order than this machine's"),
    ({"calls": (Call("Relu", (X,), ()),)}, "a call of Relu has no output"),
])  # fmt: skip
def test_malformed(changes, message):
    with pytest.raises(GraphError) as caught:
        verify(graph(**changes))
    assert str(caught.value) == f"graph g: {message}"


def test_inputs_in_another_byte_order_are_not_read_as_they_are():
    with pytest.raises(GraphError) as caught:
        evaluate(graph(), [np.ones((7, 3), np.dtype("float32").newbyteorder())])
    expected = "input `x` must be in this machine's byte order, got >f4"
    assert str(caught.value) == expected


def test_no_output():
    with pytest.raises(GraphError, match=r"^graph g has no output$"):
        verify(graph(outputs=()))


def test_names():
    assert graph(constants={"w": np.zeros(3)}).names() == {"x", "y", "w"}
