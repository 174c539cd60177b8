"""Well-formed graphs, and the error for each kind that is not."""

from __future__ import annotations

import numpy as np
import pytest

from graph.ir import Call, Graph, GraphError, Value, verify

X, Y, Z = (Value(name, (7, 3), "float32") for name in "xyz")
RELU = Call("Relu", (X,), (Y,))


def graph(**changes):
    return Graph("g", (X,), (RELU,), (Y,)).with_(**changes)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls": ()}, "the list of outputs reads `y`, which is not defined before it"),
        ({"calls": (RELU, RELU)}, "call Relu of `y` defines `y`, which is defined already"),
        (
            {"calls": (Call("Relu", (Z,), (Y,)), Call("Relu", (X,), (Z,)))},
            "call Relu of `y` reads `z`, which is not defined before it",
        ),
        (
            {"calls": (Call("Relu", (Value("x", (3, 7), "float32"),), (Y,)),)},
            "call Relu of `y` reads `x` as float32[3, 7], but it is float32[7, 3]",
        ),
        ({"inputs": (X, X)}, "input `x` defines `x`, which is defined already"),
        ({"inputs": (Value("x", (7, 3), "float8"),)}, "input `x` has the element type float8, which is not there"),
        ({"constants": {"w": np.zeros((7, 0))}}, "constant `w` has the shape [7, 0]; extents must be at least 1"),
        ({"calls": (Call("Relu", (X,), ()),)}, "a call of Relu has no output"),
    ],
)
def test_malformed(changes, message):
    with pytest.raises(GraphError) as caught:
        verify(graph(**changes))
    assert str(caught.value) == f"graph g: {message}"


def test_no_output():
    with pytest.raises(GraphError, match=r"^graph g has no output$"):
        verify(graph(outputs=()))


def test_names():
    assert graph(constants={"w": np.zeros(3)}).names() == {"x", "y", "w"}
