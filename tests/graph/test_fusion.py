"""Which calls become one kernel, and where values lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph.fusion import elementwise_inputs, fuse
from graph.ir import Value
from graph.memory import ALIGNMENT, Lifetime, lifetimes, place, plan
from graph.onnx import load_onnx
from graph.passes import optimize
from graph.reference import evaluate

from .models import close, model, residual, transformer

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.uniform(-1, 1, shape)


def node(operator, inputs, output, **attributes):
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def fused(nodes, inputs, outputs, constants=None):
    graph = load_onnx(model(nodes, inputs, outputs, constants))
    return graph, fuse(graph)


def run(graph, groups, inputs):
    """All values that groups make, each group run by the interpreter as one function."""
    known = {v: inputs[v.name] for v in graph.inputs} | {
        v: graph.constants[v.name] for g in groups for v in g.inputs if v.name in graph.constants
    }
    for group in groups:
        outputs = [np.empty(v.shape, v.dtype) for v in group.outputs]
        tir.run(group.func, *(np.ascontiguousarray(known[v]) for v in group.inputs), *outputs)
        known |= dict(zip(group.outputs, outputs, strict=True))
    return known


@pytest.mark.parametrize(
    ("nodes", "outputs", "names"),
    [
        ([node("MatMul", "x w", "a"), node("Add", "a bias", "c"), node("Tanh", "c", "y")], ["y"], ["matmul_add_tanh"]),
        ([node("MatMul", "x w", "a"), node("Add", "bias a", "y")], ["y"], ["matmul_add"]),
        ([node("Exp", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y")], ["y"], ["exp_neg_abs"]),
        # What is read twice, or is an output, ends its group.
        ([node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("Mul", "a b", "y")], ["y"], ["matmul", "tanh_mul"]),
        ([node("MatMul", "x w", "a"), node("Tanh", "a", "y")], ["a", "y"], ["matmul", "tanh"]),
        ([node("MatMul", "x w", "a"), node("Mul", "a a", "y")], ["y"], ["matmul_mul"]),
        # Of two that could take a call along, the later does.
        ([node("MatMul", "x w", "a"), node("Softmax", "x", "b"), node("Add", "a b", "y")], ["y"], ["matmul", "softmax_add"]),
        # What is broadcast, or read elsewhere, is no chain.
        ([node("ReduceSum", "x", "a"), node("Add", "a x", "y")], ["y"], ["reducesum", "add"]),
        ([node("Exp", "x", "a"), node("Transpose", "a", "y")], ["y"], ["exp", "transpose"]),
        ([node("Exp", "x", "a"), node("Concat", "a a", "y", axis=0)], ["y"], ["exp", "concat"]),
        ([node("Exp", "x", "a"), node("Softmax", "a", "y")], ["y"], ["exp", "softmax"]),
    ],
)
def test_groups(nodes, outputs, names):
    inputs = {"x": real(5, 5), "w": real(5, 5), "bias": real(5)}
    graph, groups = fused(nodes, inputs, outputs)
    assert [g.func.name for g in groups] == names
    known = run(graph, groups, inputs)
    for value, wanted in zip(graph.outputs, evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(known[value], wanted)


def test_elementwise_is_read_from_the_loop_nest():
    nodes = [
        node("Where", "c x row", "a"),
        node("BatchNormalization", "x s s s s", "b"),
        node("Gemm", "x x", "d"),
        node("Gather", "x i", "e"),
    ]
    inputs = {"x": real(5, 5), "c": np.ones((5, 5), bool), "row": real(5), "s": np.ones(5), "i": np.array([[0] * 5] * 5)}
    graph, _ = fused(nodes, inputs, ["a", "b", "d", "e"])
    assert [[v.name for v in elementwise_inputs(c)] for c in graph.calls] == [["c", "x"], ["x"], [], []]


def test_equal_groups_are_equal_functions():
    nodes = [
        node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("MatMul", "c v", "d"), node("Add", "d b", "e"),
        node("MatMul", "e w", "f"), node("Add", "b f", "y"),
    ]  # fmt: skip
    _, groups = fused(nodes, {"x": real(5, 5), "w": real(5, 5), "v": real(5, 5), "b": real(5)}, ["y"])
    assert groups[0].func == groups[1].func and hash(groups[0].func) == hash(groups[1].func)
    assert groups[0].func != groups[2].func, "the bias is the left operand there"


def test_a_group_runs_when_all_its_inputs_are_there():
    """The sum joins the product before it, whose other operand is made only later."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "x", "r"), node("Reshape", "r s", "v"), node("Add", "a v", "y")]
    inputs = {"x": real(5, 5), "w": real(5, 5)}
    _, groups = fused(nodes, inputs, ["y"], {"s": np.array([5, 5])})
    assert [g.func.name for g in groups] == ["relu", "matmul_add"]


@pytest.mark.parametrize("make", [residual, transformer])
def test_values_that_live_at_once_do_not_overlap(make):
    graph = optimize(load_onnx(make(np.random.default_rng(0))[0]))
    groups = fuse(graph)
    found = plan(graph, groups)
    lives = lifetimes(graph, groups, found.places)
    values = list(lives)
    assert set(found.offsets) == set(values) and all(o % ALIGNMENT == 0 for o in found.offsets.values())
    for n, a in enumerate(values):
        for b in values[:n]:
            apart = found.offsets[a] + a.nbytes <= found.offsets[b] or found.offsets[b] + b.nbytes <= found.offsets[a]
            assert apart or not lives[a].meets(lives[b]), (a, b)
    most = max(sum(v.nbytes for v in values if lives[v].begin <= n <= lives[v].end) for n in range(-1, len(groups) + 1))
    assert most <= found.nbytes <= 1.25 * most + ALIGNMENT * len(values) < sum(v.nbytes for v in values)


def test_places():
    a, b, c, d = (Value(name, (n,), "uint8") for name, n in (("a", 100), ("b", 50), ("c", 100), ("d", 10)))
    lives = {a: Lifetime(0, 1), b: Lifetime(1, 2), c: Lifetime(2, 3), d: Lifetime(0, 3)}
    assert place({v: v.nbytes for v in lives}, lives) == {a: 0, c: 0, b: 128, d: 192}


def test_a_view_lives_as_long_as_it_is_read():
    nodes = [
        node("Exp", "x", "a"),
        node("Flatten", "a", "f"),
        node("Neg", "x", "b"),
        node("Abs", "b", "c"),
        node("Gather", "f i", "g"),
        node("Add", "g c", "y"),
    ]
    inputs = {"x": real(5, 5)}
    graph, groups = fused(nodes, inputs, ["y"], {"i": np.arange(5)})
    found = plan(graph, groups)
    lives = lifetimes(graph, groups, found.places)
    flat = next(c.outputs[0] for c in graph.calls if c.operator == "Flatten")
    source = found.places[flat].root
    position = next(n for n, g in enumerate(groups) if flat in g.inputs)
    assert source.name == "a" and lives[source].end == position
    compiled = tir.compile(graph)
    close(compiled(inputs)[0], evaluate(graph, inputs)[0], 4)
