"""Operators of a user's domain: passes rewrite their calls by the properties that they declare, and not without these."""

from __future__ import annotations

import numpy as np
import pytest

from graph import Builder, GraphError, operator
from graph.donation import donations
from graph.ops.registry import _TABLE
from graph.passes import move_factors, remove_identities, simplify_layouts
from graph.passes.forms import canonicalise
from graph.passes.precision import in_precision
from graph.passes.quantised import keep_quantised
from graph.reference import evaluate
from tir import te

X = np.arange(-9, 12, dtype="float32").reshape(3, 7)
W = np.arange(14, dtype="float32").reshape(7, 2)


@pytest.fixture(params=[True, False], ids=["declared", "undeclared"])
def declared(request):
    """True where the operators of org.example, there while a test runs, declare their properties."""
    before, yes = {name: list(found) for name, found in _TABLE.items()}, request.param

    def add(name, define, **properties):
        operator(name, domain="org.example", **(properties if yes else {}))(define)

    def product(x, w, bias=None):
        k = te.reduce_axis((0, x.shape[1]), "k")
        made = te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="made")
        return made if bias is None else te.compute(made.shape, lambda i, j: made[i, j] + bias[j], name="biased")

    def put(x, row):
        return te.scatter(x, row.shape, lambda _, k: ((te.const(1), k), row[k], True), name="put")

    add("Top", lambda x, y: te.compute(x.shape, lambda i, j: te.maximum(x[i, j], y[i, j])), commutative=True, neutral=-np.inf)
    add("Turn", lambda x: te.compute(x.shape[::-1], lambda i, j: x[j, i]), moves=True)
    add("Odd", lambda x: te.compute((x.shape[0], x.shape[1] // 2), lambda i, j: x[i, j * 2 + 1]), moves=True)
    add("Product", product, linear=True, sums=True, bias=2, halves=1)
    add("Highest", lambda x: te.compute((x.shape[0],), lambda i: te.maximum(x[i, 0], x[i, 1])), monotone=True)
    add("Put", put, changes=True)
    yield yes
    _TABLE.clear()
    _TABLE.update(before)


def after(run, write, *arrays):
    """The operators that a pass leaves of a graph, without their domains; it computes what it did."""
    b = Builder("g")
    before = b.graph(write(b, *(b.input(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays))))
    found = run(before)
    np.testing.assert_array_equal(evaluate(found, arrays)[0], evaluate(before, arrays)[0])
    return [c.operator.rpartition(".")[2] for c in found.calls]


def test_a_neutral_operand(declared):
    def write(b, x):
        lowest = b.constant(np.full(X.shape, -np.inf, "float32"))
        return b("Relu", b("org.example.Top", lowest, b("org.example.Top", x, lowest)))

    assert after(remove_identities, write, X) == (["Relu"] if declared else ["Top", "Top", "Relu"])


def test_moves(declared):
    turned = after(simplify_layouts, lambda b, x: b("Relu", b("org.example.Turn", b("Transpose", b("Neg", x)))), X)
    assert turned == (["Neg", "Reshape", "Relu"] if declared else ["Neg", "Transpose", "Turn", "Relu"])
    parts = after(
        simplify_layouts, lambda b, x: b("Neg", b("org.example.Odd", b("org.example.Odd", x))), np.arange(48.0).reshape(3, 16)
    )
    assert parts == (["Reshape", "Slice", "Reshape", "Neg"] if declared else ["Odd", "Odd", "Neg"])


def test_a_linear_product(declared):
    def write(b, x, w):
        return b("org.example.Product", b("Mul", x, b.constant(2.0, "float32")), w)

    assert after(move_factors, write, X, W) == (["Product", "Mul"] if declared else ["Mul", "Product"])


def test_a_bias_of_zeros(declared):
    def write(b, x, w):
        return b("Relu", b("org.example.Product", x, w, b.constant(np.zeros(2, "float32"))))

    found = []
    after(lambda g: found.append(canonicalise(g)) or found[0], write, X, W)
    assert len(found[0].calls[0].inputs) == (2 if declared else 3)


def test_zeros_added_to_sums(declared):
    def write(b, x, w):
        return b("Relu", b("Add", b("org.example.Product", x, w), b.constant(np.zeros(2, "float32"))))

    assert after(remove_identities, write, X, W) == (["Product", "Relu"] if declared else ["Product", "Add", "Relu"])


def test_choices_of_quantised_numbers(declared):
    def write(b, x):
        return b("org.example.Highest", b("DequantizeLinear", x, b.constant(0.5, "float32"), b.constant(3, "int8")))

    found = after(keep_quantised, write, X.astype("int8"))
    assert found == (["Highest", "DequantizeLinear"] if declared else ["DequantizeLinear", "Highest"])


def test_operands_in_halves(declared):
    b = Builder("g")
    graph = b.graph(b("org.example.Product", b.input("x", X.shape, "float32"), b.constant(W)))
    product = next(c for c in in_precision(graph, "bfloat16").calls if c.operator == "org.example.Product")
    assert product.values[0].dtype == ("bfloat16" if declared else "float32")


def test_changes_in_place(declared):
    b = Builder("g")
    x, row = b.input("x", X.shape, "float32"), b.input("row", (7,), "float32")
    graph = b.graph(y=b("org.example.Put", x, row))
    if declared:
        assert [d.input for d in donations(graph, {"x": "y"})] == [x]
    else:
        with pytest.raises(GraphError, match=r"made by org\.example\.Put"):
            donations(graph, {"x": "y"})


def test_copies_need_no_declaration(declared):
    del declared

    @operator("Same", domain="org.example")
    def same(x):
        return te.compute(x.shape, lambda i, j: x[i, j])

    assert after(remove_identities, lambda b, x: b("Relu", b("org.example.Same", x)), X) == ["Relu"]


def test_an_unknown_property():
    with pytest.raises(TypeError, match="unexpected keyword argument 'comutative'"):
        operator("Sum2", domain="org.example", comutative=True)(lambda x, y: x)
