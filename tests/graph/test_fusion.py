"""Which calls become one kernel, and where values lie."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen import Target
from graph.fusion import fuse, post_dominators
from graph.kinds import elementwise_inputs
from graph.onnx import load_onnx
from graph.reference import evaluate, run_call
from schedule import templates
from schedule.open_schedule import OpenSchedule
from tir.constants import constants
from tir.traverse import blocks

from .models import model, node

RNG = np.random.default_rng(0)
ONE = Target("llvm -num-cores 1")


def real(*shape):
    return RNG.uniform(-1, 1, shape)


def fused(nodes, inputs, outputs, constants=None):
    graph = load_onnx(model(nodes, inputs, outputs, constants))
    return graph, fuse(graph)


def check_groups(graph, groups, inputs):
    """Each group, run by the interpreter as one function, and what lies in others, give the outputs of the graph."""
    arrays = graph.constants | inputs
    known = {v: arrays[v.name] for v in (*graph.inputs, *(v for c in graph.calls for v in c.values)) if v.name in arrays}
    free = [c for c in graph.calls if not any(c.outputs[0] in g.outputs or c in g.calls for g in groups)]
    for group in groups:
        for call in free:
            if call.outputs[0] not in known and all(v in known for v in call.values):
                known |= dict(zip(call.outputs, run_call(call, [known[v] for v in call.values]), strict=True))
        outputs = [np.empty(v.shape, v.dtype) for v in group.outputs]
        tir.run(group.func, *(np.ascontiguousarray(known[v]) for v in group.inputs), *outputs)
        known |= dict(zip(group.outputs, outputs, strict=True))
    for value, wanted in zip(graph.outputs, evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(known[value], wanted)


P, H = node("MatMul", "x w", "a"), node("Softmax", "x", "b")


@pytest.mark.parametrize(
    ("nodes", "outputs", "names"),
    [
        ([P, node("Add", "a bias", "c"), node("Tanh", "c", "y")], "y", "matmul_add_tanh"),
        ([P, node("Add", "bias a", "y")], "y", "matmul_add"),
        ([node("Exp", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y")], "y", "exp_neg_abs"),
        ([P, node("Mul", "a a", "y")], "y", "matmul_mul"),
        # What is read twice, where all that reads it leads to one call.
        ([P, node("Tanh", "a", "b"), node("Mul", "a b", "y")], "y", "matmul_tanh_mul"),
        ([P, node("Sigmoid", "a", "b"), node("Neg", "a", "c"), node("Exp", "c", "d"), node("Sum", "a b d", "y")], "y",
         "matmul_sigmoid_neg_exp_sum"),
        ([P, node("Tanh", "a", "b"), node("Mul", "a b", "c"), node("Exp", "c", "d"), node("Add", "d c", "y")], "y",
         "matmul_tanh_mul_exp_add"),
        # A value that is an output, or read by more than one group, ends its group.
        ([P, node("Tanh", "a", "y")], "a y", "matmul, tanh"),
        ([P, node("Tanh", "a", "b"), node("Mul", "a b", "c"), node("Softmax", "b", "y")], "c y", "matmul, tanh, mul, softmax"),
        ([P, node("Tanh", "a", "b"), node("Transpose", "a", "c"), node("Mul", "b c", "y")], "y", "matmul, tanh_transpose_mul"),
        # Of two anchors the one of more work takes a call along; whatever else leads to it comes, too.
        ([P, H, node("Add", "b a", "y")], "y", "softmax, matmul_add"),
        ([P, node("Exp", "v", "b"), node("Neg", "b", "c"), node("Add", "c a", "y")], "y", "matmul_exp_neg_add"),
        # What is broadcast would be computed again.
        ([node("ReduceSum", "x", "a"), node("Add", "a x", "y")], "y", "reducesum, add"),
        ([node("ReduceMax", "x last", "a"), node("Sqrt", "a", "b"), node("Add", "b x", "y")], "y", "reducemax_sqrt, add"),
        ([node("Exp", "bias", "a"), node("Add", "a x", "y")], "y", "exp, add"),
        # What moves elements computes what they are, but only once each, and a copy that is broadcast costs nothing.
        ([node("Exp", "x", "a"), node("Transpose", "a", "y")], "y", "exp_transpose"),
        ([node("Exp", "x", "a"), node("Slice", "a one two last", "b"), node("Neg", "b", "y")], "y", "exp_slice_neg"),
        ([node("Exp", "x", "a"), node("Concat", "a a", "y", axis=1)], "y", "exp, concat"),
        ([node("Exp", "x", "a"), node("Concat", "a v", "y", axis=1)], "y", "exp_concat"),
        ([node("Exp", "x", "a"), node("Gather", "a i", "y")], "y", "exp, gather"),
        ([node("Slice", "x one two last", "a"), node("Expand", "a wide", "b"), node("Tanh", "b", "y")], "y", "slice_expand_tanh"),
        ([node("Transpose", "x", "a"), node("Softmax", "a", "y")], "y", "transpose, softmax"),
        # Transposes of the operands of a product, which packs them.
        ([node("Transpose", "x", "a"), node("Transpose", "w", "b"), node("MatMul", "a b", "c"), node("Relu", "c", "y")], "y",
         "transpose_transpose_matmul_relu"),
        ([node("Transpose", "x", "a"), node("MatMul", "a a", "y")], "y", "transpose, matmul"),
        ([node("Exp", "x", "a"), node("Transpose", "a", "b"), node("MatMul", "w b", "y")], "y", "exp, transpose_matmul"),
        # What only moves elements is done again for each that reads it, where all can do that; what computes is not.
        ([node("Transpose", "x", "a"), node("MatMul", "a w", "y"), node("MatMul", "v a", "z")], "y z",
         "transpose_matmul, transpose_matmul"),
        ([node("Transpose", "x", "a"), node("MatMul", "a w", "y"), node("Softmax", "a", "z")], "y z", "transpose, matmul, softmax"),
        ([node("Exp", "x", "a"), node("Transpose", "a", "b"), node("MatMul", "b w", "y"), node("MatMul", "v b", "z")], "y z",
         "exp, transpose_matmul, transpose_matmul"),
    ],
)  # fmt: skip
def test_groups(nodes, outputs, names):
    inputs = {"x": real(5, 5), "w": real(5, 5), "v": real(5, 5), "bias": real(5)}
    constants = {name: np.array([n]) for name, n in (("one", 1), ("two", 2), ("last", -1))}
    constants |= {"i": np.array([[0, 2], [-1, 0]]), "wide": np.array([5, 5])}
    used = {name for n in nodes for name in n.input}
    graph, groups = fused(nodes, inputs, outputs.split(), {k: a for k, a in constants.items() if k in used})
    assert ", ".join(g.func.name for g in groups) == names
    check_groups(graph, groups, inputs)


def test_a_product_writes_its_rows_where_they_go():
    """But not its columns."""
    inputs = {"x": real(2, 3, 5, 7), "w": real(2, 3, 7, 5), "f": real(1)}
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a f", "b"), node("Transpose", "b", "y", perm=[0, 2, 1, 3])]
    graph, groups = fused(nodes, inputs, ["y"])
    assert [g.func.name for g in groups] == ["matmul_mul_transpose"]
    check_groups(graph, groups, inputs)
    nodes[-1] = node("Transpose", "b", "y", perm=[0, 1, 3, 2])
    assert [g.func.name for g in fused(nodes, inputs, ["y"])[1]] == ["matmul_mul", "transpose"]


def test_a_view_behind_a_part_is_read_with_it():
    """Where all that read it are products; else the view needs no kernel."""
    nodes = [
        node("Slice", "x one two one", "a"), node("Reshape", "a s", "b"), node("Transpose", "b", "c", perm=[0, 2, 1]),
        node("MatMul", "w c", "y"),
    ]  # fmt: skip
    inputs = {"x": real(2, 3, 5, 7), "w": real(2, 4, 7)}
    given = {"one": np.array([1]), "two": np.array([2]), "s": np.array([2, 5, 7])}
    graph, groups = fused(nodes, inputs, ["y"], given)
    assert [g.func.name for g in groups] == ["slice_reshape_transpose_matmul"]
    check_groups(graph, groups, inputs)
    graph, groups = fused([*nodes, node("Softmax", "b", "z")], inputs, ["y", "z"], given)
    assert [g.func.name for g in groups] == ["slice", "transpose_matmul", "softmax"]
    check_groups(graph, groups, inputs)


def test_parts_of_one_value_are_operands_of_their_own():
    nodes = [
        node("Slice", "x zero one one", "a"), node("Slice", "x one two one", "b"), node("Transpose", "a", "q", perm=[1, 2, 0, 3]),
        node("Transpose", "b", "k", perm=[1, 2, 3, 0]), node("MatMul", "q k", "y"),
    ]  # fmt: skip
    inputs = {"x": RNG.uniform(-1, 1, (37, 3, 2, 20)).astype("float32")}
    graph, (group,) = fused(nodes, inputs, ["y"], {name: np.array([n]) for n, name in enumerate(("zero", "one", "two"))})
    assert [v.name for v in group.inputs] == ["x", "x"]
    check_groups(graph, [group], inputs)
    assert rules(group.func) == ["packing"]
    made = {b.name for b in blocks(tir.default_schedule(group.func, ONE).func)}
    assert made <= {"matmul", "p0_global", "p1_global"}, "the product, and copies of what it reads"


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


def test_post_dominators():
    diamond = [[1, 2], [3], [3], [4], [5]]
    assert post_dominators(diamond) == [3, 3, 3, 4, None]
    assert post_dominators([[1, 3], [2], [3], [4]]) == [3, 2, 3, None]
    assert post_dominators([[1, 2], [3], [3]]) == [None, None, None], "both lead to the end"
    assert post_dominators([[1, 4], [2, 3], [4], [4], [5]]) == [4, 4, 4, 4, None]


def test_equal_groups_are_equal_functions():
    nodes = [
        node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("MatMul", "c v", "d"), node("Add", "d b", "e"),
        node("MatMul", "e w", "f"), node("Add", "b f", "y"),
    ]  # fmt: skip
    _, groups = fused(nodes, {"x": real(5, 5), "w": real(5, 5), "v": real(5, 5), "b": real(5)}, ["y"])
    assert groups[0].func == groups[1].func and hash(groups[0].func) == hash(groups[1].func)
    assert groups[0].func == groups[2].func, "operands of sums are in one order"


def test_names_of_long_groups_end():
    nodes = [node("Neg" if n % 2 else "Sigmoid", f"v{n}", f"v{n + 1}") for n in range(80)]
    _, (group,) = fused(nodes, {"v0": real(5, 7)}, ["v80"])
    assert len(group.func.name) < 255 and group.func.name.endswith("sigmoid_and_more")


def test_weights_are_constants_of_a_group():
    """And so are views of them: the same operators with computed operands are another function."""
    nodes = [
        node("Reshape", "w s", "v"), node("MatMul", "x v", "a"), node("MatMul", "x a", "b"), node("Add", "b bias", "y"),
    ]  # fmt: skip
    _, groups = fused(nodes, {"x": real(5, 5)}, ["y"], {"w": real(25), "s": np.array([5, 5]), "bias": real(5)})
    assert [[b.name for b in constants(g.func)] for g in groups] == [["p1"], ["p2"]]


def test_a_group_runs_when_all_its_inputs_are_there():
    """The sum joins the product before it, whose other operand is made only later."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "x", "r"), node("Reshape", "r s", "v"), node("Add", "a v", "y")]
    inputs = {"x": real(5, 5), "w": real(5, 5)}
    graph, groups = fused(nodes, inputs, ["y"], {"s": np.array([5, 5])})
    assert [g.func.name for g in groups] == ["relu", "matmul_add"]
    check_groups(graph, groups, inputs)


def rules(func):
    """The templates by which a function is scheduled."""
    s = OpenSchedule(func, ONE, at_seed=True)
    assert not templates.build(s)
    return sorted(rule.split(": ")[1] for rule in s.rules)


CONVOLUTIONS = {
    "3x3": ((1, 24, 28, 28), (32, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    "1x1": ((1, 64, 14, 14), (96, 64, 1, 1), {}),
    "stride": ((1, 24, 28, 28), (32, 24, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "few": ((1, 512, 7, 7), (64, 512, 1, 1), {}),
    "depthwise": ((1, 32, 28, 28), (32, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 32}),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_an_epilogue_keeps_the_template(kind):
    image, weight, attributes = CONVOLUTIONS[kind]
    x, w = np.zeros(image, "float32"), np.zeros(weight, "float32")
    conv = node("Conv", "x w b", "c", **attributes)
    inputs = {"x": x, "w": w, "b": w[:, 0, 0, 0]}
    steps = [conv, node("Add", "r c", "s"), node("Sigmoid", "s", "t"), node("Mul", "t s", "y")]
    shape = fused([conv], inputs, ["c"])[0].outputs[0].shape
    _, (alone,) = fused([conv], inputs, ["c"])
    _, (whole,) = fused(steps, inputs | {"r": np.zeros(shape, "float32")}, ["y"])
    assert whole.func.name == "conv_add_sigmoid_mul" and rules(whole.func) == rules(alone.func)


def test_a_product_packs_transposed_operands():
    nodes = [
        node("Transpose", "q", "a", perm=[0, 2, 1, 3]), node("Transpose", "k", "b", perm=[0, 2, 3, 1]),
        node("MatMul", "a b", "c"), node("Mul", "c f", "d"), node("Add", "d m", "y"),
    ]  # fmt: skip
    q, mask = np.zeros((1, 128, 12, 64), "float32"), np.zeros((1, 1, 1, 128), "float32")
    _, (group,) = fused(nodes, {"q": q, "k": q, "m": mask}, ["y"], {"f": np.float32(0.125)})
    assert rules(group.func) == ["packing"]


@pytest.mark.parametrize(("rows", "rule"), [(1, "reduction"), (13, "packing")])
def test_one_row_reads_transposed_columns_where_they_are(rows, rule):
    nodes = [node("Transpose", "k", "b", perm=[0, 2, 1]), node("MatMul", "q b", "y")]
    _, (group,) = fused(nodes, {"q": np.zeros((3, rows, 40), "float32"), "k": np.zeros((3, 37, 40), "float32")}, ["y"])
    assert rules(group.func) == [rule]
