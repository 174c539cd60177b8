"""Graphs written by a `Builder`, and operators of domains of their own, as tensor expressions and as composites."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph import Builder, Graph, GraphError, composite, operator
from graph.onnx import load_onnx
from graph.ops import alternatives, names
from graph.ops.registry import _TABLE, HOW_TO_ADD
from graph.passes import optimize
from graph.reference import evaluate
from tir import te

from .models import model

X = np.arange(-9, 12, dtype="float32").reshape(3, 7)


@pytest.fixture
def registered():
    """Operators of the domain org.example, while a test runs."""
    before = dict(_TABLE)

    @operator("Ladder", since=2, domain="org.example")
    def ladder(x, *, step=1.0):
        return te.compute(x.shape, lambda i, j: x[i, j] + i.astype(x.dtype) * te.const(step, x.dtype), name="ladder")

    @composite("Twice", domain="org.example", operands={1: "times"})
    def twice(apply, x, *, times=1, step=1.0):
        for _ in range(times):
            x = apply("org.example.Ladder", x, step=step)
        return apply("Add", x, apply.constant(1, x.dtype)), x

    yield
    _TABLE.clear()
    _TABLE.update(before)


def test_values_have_types_and_unique_names():
    b = Builder("g")
    x = b.input("x", X.shape, "float32")
    w = b.constant(np.ones((7, 2), "float32"), name="w")
    y = b("Relu", b("MatMul", x, w))
    z = b("Relu", b("Neg", y))
    parts = b("Split", x, axis=1, split=(3, 4))
    graph = b.graph(z, parts[1])
    assert graph.text() == (
        "graph g\n    input x: float32[3, 7]\n    constant w: float32[7, 2]\n    matmul: float32[3, 2] = MatMul(x, w)\n"
        "    relu: float32[3, 2] = Relu(matmul)\n    neg: float32[3, 2] = Neg(relu)\n    relu_1: float32[3, 2] = Relu(neg)\n"
        "    split: float32[3, 3], split_1: float32[3, 4] = Split(x, axis=1, split=[3, 4])\n    output relu_1, split_1"
    )
    np.testing.assert_array_equal(evaluate(graph, [X])[1], X[:, 3:])


def test_outputs_of_given_names():
    b = Builder("g")
    x = b.input("x", X.shape, "float32")
    y = b("Relu", x)
    graph = b.graph(b("Neg", y), positive=y)
    assert graph.text() == (
        "graph g\n    input x: float32[3, 7]\n    positive: float32[3, 7] = Relu(x)\n    neg: float32[3, 7] = Neg(positive)\n"
        "    output neg, positive"
    )
    with pytest.raises(GraphError, match=r"^graph g: `x` cannot be the output `same`: no call makes it$"):
        b.graph(same=x)
    with pytest.raises(GraphError, match=r"^graph g: `relu` cannot be the output `neg`: the name `neg` is taken$"):
        b.graph(neg=y)
    for outputs, named in (((y,), ("other",)), ((), ("one", "other"))):
        with pytest.raises(GraphError, match=r"^graph g: `relu` cannot be the output `\w+`: it is another output, too; Identity"):
            b.graph(*outputs, **dict.fromkeys(named, y))
    twice = b.graph(one=b("Identity", y), other=y)
    assert [v.name for v in twice.outputs] == ["one", "other"]


def test_calls_of_constants_are_computed_and_unread_ones_left_out():
    b = Builder()
    x, one = b.input("x", (3,), "float32"), b.constant([1.0, 2.0, 3.0], "float32")
    three = b("Add", one, b("Mul", one, b.constant(2.0, "float32")))
    assert not b.calls
    np.testing.assert_array_equal(b.known(three), [3, 6, 9])
    graph = b.graph(b("Add", x, three))
    assert [*graph.constants] == [three.name]
    unfolded = Builder(fold=False)
    unfolded("Neg", unfolded.constant(X))
    assert [c.operator for c in unfolded.calls] == ["Neg"]


def test_inputs_that_are_none_and_composites():
    b = Builder()
    x = b.input("x", X.shape, "float32")
    b("Clip", x, None, b.constant(2.0, "float32"))
    assert b.calls[-1].inputs[1] is None
    kept, mask = b("Dropout", x)
    assert kept is x and b.known(mask).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, x: b("Add", x, b.input("y", (2,), "float32")),
         "graph g: Add(float32[3, 7], float32[2]): shapes [3, 7] and [2] do not broadcast"),
        (lambda b, x: b("Add", x), "graph g: Add(float32[3, 7]): it has 1 input(s)"),
        (lambda b, x: b("Relu", x, slope=2.0), "graph g: Relu(float32[3, 7]): the attribute slope is not supported"),
        (lambda b, x: b("MatMull", x, x),
         f"graph g: MatMull(float32[3, 7], float32[3, 7]): there is no such operator; did you mean MatMul?; {HOW_TO_ADD}"),
        (lambda b, x: b("org.example.Never", x),
         f"graph g: org.example.Never(float32[3, 7]): there is no such operator; {HOW_TO_ADD}"),
        (lambda b, x: b("Add", None, x), "graph g: Add(none, float32[3, 7]): its input 0 is missing"),
        (lambda b, x: b("Gather", x, x), "graph g: Gather(float32[3, 7], float32[3, 7]): the indices must be of integers, got float32"),
        (lambda b, x: b("Concat", x, x), "graph g: Concat(float32[3, 7], float32[3, 7]): the attribute axis is missing"),
        (lambda b, x: b.input("x", (3,), "float32"), "graph g: the name `x` is taken"),
        (lambda b, x: b.input("y", (3,), "float99"), "graph g: the input `y` has the element type float99, which is not supported"),
        (lambda b, x: b.constant(["a"]), "graph g: a constant has the element type str32, which is not supported"),
        (lambda b, x: b.constant([1], "int99"), "graph g: a constant has the element type int99, which is not supported"),
        (lambda b, x: b("Relu", np.zeros(2)),
         "graph g: Relu([0. 0.]): its inputs are values, got ndarray; `Builder.constant` makes a value of an array"),
        (lambda b, x: b("If", (True,), then_branch=lambda: (x,), else_branch=lambda: (x,)),
         "graph g: If((True,)): its inputs are values, got tuple; `Builder.constant` makes a value of an array"),
        (lambda b, x: b.graph(), "graph g has no output"),
    ],
)  # fmt: skip
def test_refusals(call, message):
    b = Builder("g")
    x = b.input("x", X.shape, "float32")
    with pytest.raises(GraphError) as raised:
        call(b, x)
    assert str(raised.value) == message
    assert not b.calls


def test_an_operator_of_a_domain(registered):
    b = Builder("g")
    x = b.input("x", X.shape, "float32")
    more, less = b("org.example.Twice", x, times=2, step=0.5)
    graph = b.graph(more, less)
    assert [c.operator for c in graph.calls] == ["org.example.Ladder", "org.example.Ladder", "Add"]
    assert Graph.parse(graph.text(), graph.constants).text() == graph.text()
    wanted = X + np.arange(3, dtype="float32")[:, None]
    for found, array in zip(tir.compile(graph, cache=None)(X), (wanted + 1, wanted), strict=True):
        np.testing.assert_array_equal(found, array)
    assert [c.operator for c in optimize(graph).calls] == [c.operator for c in graph.calls]


def nodes_of_a_domain(version, **attributes):
    node = helper.make_node("Twice", ["x", "n"], ["y"], domain="org.example", name="node", **attributes)
    proto = model([node], {"x": X}, ["y"], {"n": np.array(3)})
    proto.opset_import.append(helper.make_opsetid("org.example", version))
    return proto


def test_a_file_with_an_operator_of_a_domain(registered):
    graph = load_onnx(nodes_of_a_domain(1, step=2.0))
    assert [(c.operator, c.opset) for c in graph.calls] == [("org.example.Ladder", 0)] * 3 + [("Add", 0)]
    np.testing.assert_array_equal(evaluate(graph, [X])[0], X + 6 * np.arange(3)[:, None] + 1)
    plain = model([helper.make_node("Ladder", ["x"], ["y"], domain="org.example")], {"x": X}, ["y"])
    plain.opset_import.append(helper.make_opsetid("org.example", 1))
    with pytest.raises(
        GraphError, match=r"org.example.Ladder of opset 1: there is no such operator; it is for versions 2 and later"
    ):
        load_onnx(plain)
    assert alternatives("org.example.Ladder", 2) and "org.example.Ladder" in names() and not alternatives("Ladder")


def test_an_operator_of_a_domain_is_folded(registered):
    """Of constants, though ONNX's evaluator does not know it."""
    node = helper.make_node("Ladder", ["c"], ["d"], domain="org.example", step=3.0)
    proto = model([node, helper.make_node("Add", ["x", "d"], ["y"])], {"x": X}, ["y"], {"c": X})
    proto.opset_import.append(helper.make_opsetid("org.example", 2))
    graph = load_onnx(proto)
    assert [c.operator for c in graph.calls] == ["Add"]
    np.testing.assert_array_equal(graph.constants["d"], X + 3 * np.arange(3, dtype="float32")[:, None])


def test_a_wrong_attribute_of_a_domain_is_named(registered):
    with pytest.raises(GraphError, match=r"node `node` org.example.Twice of opset 1: the attribute steps is not supported"):
        load_onnx(nodes_of_a_domain(1, steps=2.0))
