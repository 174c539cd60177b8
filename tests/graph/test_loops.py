"""Loops that run as such: against ONNX's own evaluator, by the interpreter and compiled."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tir
from codegen.steps import Repeat
from graph.check import check_kernels
from graph.compilation import MAX_PLANNED_STEPS, final
from graph.ir import Graph, GraphError, verify
from graph.loops import is_loop, loops_of, ordered
from graph.model import Model
from graph.onnx import load_onnx
from graph.ops import control
from graph.ops.loops import MIN_LOOPED_STEPS
from graph.passes.check import check_passes
from graph.passes.loops import write_out_loops
from graph.reference import evaluate
from graph.tables import Planned

from .models import ELEMENT, model, onnxruntime

TARGET = "llvm -num-cores 1"
X = (np.arange(6, dtype="float32").reshape(2, 3) - 2) / 4
STEPS = 13
KINDS = {"i": TensorProto.INT64, "goes": TensorProto.BOOL, "on": TensorProto.BOOL}


def body(nodes, inputs, outputs, constants=()):
    """A graph that a node holds; a node is (operator, inputs, outputs, attributes)."""
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in dict(constants).items()]
    infos = (
        [helper.make_tensor_value_info(n, KINDS.get(n, TensorProto.FLOAT), [] if n == "i" else None) for n in names]
        for names in (inputs, outputs)
    )
    return helper.make_graph([helper.make_node(*n[:3], **dict(*n[3:])) for n in nodes], "body", *infos, weights)


def compared(proto, given, count=None):
    """The model of a file, whose outputs are those of its steps one after the other, as are those of the interpreter and after
    each pass; and of onnxruntime, where it is installed. `count` is the input that is the number of steps."""
    graph = load_onnx(proto)
    net = tir.compile(graph, TARGET, cache=None)
    check_passes(graph, given)
    known = {} if count is None else {count: given[count]}
    fixed = onnx.ModelProto.FromString(proto.SerializeToString())
    for name, array in known.items():
        fixed.graph.input.remove(next(i for i in fixed.graph.input if i.name == name))
        fixed.graph.initializer.append(numpy_helper.from_array(array, name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "MIN_LOOPED_STEPS", 1 << 70)
        written_out = load_onnx(fixed)
    assert not loops_of(written_out)
    wanted = [evaluate(written_out, {name: a for name, a in given.items() if name not in known})]
    if onnxruntime is not None:
        proto.ir_version = 10
        for info, value in zip(proto.graph.output, graph.outputs, strict=True):  # it takes none without a type
            info.type.tensor_type.elem_type = ELEMENT[np.dtype(value.dtype)]
        session = onnxruntime.InferenceSession(proto.SerializeToString())
        wanted.append(session.run(None, {i.name: given[i.name] for i in session.get_inputs()}))
    for expected in wanted:
        for found in (evaluate(graph, given), net(given), net(given)):
            for a, b in zip(found, expected, strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=256 * np.finfo("float32").eps, atol=1e-6)
    return net


def repeats(net):
    return [step for step in net.steps if isinstance(step, Repeat)]


# What a step reads: the number `i`, `goes`, states `v` and `w`; outside are `x` and `bias`, which a call makes. It gives the new
# states and one row.
BODIES = {
    "row is state": ([("Tanh", ["v"], ["a"]), ("Add", ["a", "w"], ["b"])], ["b", "w"], "b"),
    "states change places": ([("Neg", ["v"], ["r"])], ["w", "v"], "r"),
    "both states are one": ([("Mul", ["v", "w"], ["p"]), ("Cos", ["p"], ["a"])], ["a", "a"], "a"),
    "a state goes to the other": ([("Sin", ["v"], ["a"])], ["a", "v"], "w"),
    "row is a state as it was": ([("Sin", ["v"], ["a"]), ("Cos", ["w"], ["b"])], ["a", "b"], "v"),
    "row is from outside": ([("Sub", ["w", "bias"], ["b"])], ["v", "b"], "bias"),
    "row is an input": ([("Sub", ["w", "bias"], ["b"])], ["x", "b"], "x"),
    "nothing is computed": ([], ["w", "v"], "v"),
    "the number counts": ([("Cast", ["i"], ["f"], {"to": 1}), ("Add", ["v", "f"], ["a"])], ["a", "w"], "f"),
    "a view": ([("Reshape", ["v", "six"], ["u"]), ("Cos", ["u"], ["q"]), ("Reshape", ["q", "two"], ["a"])], ["a", "w"], "u"),
    "a join": ([("Concat", ["v", "bias"], ["j"], {"axis": 0}), ("Neg", ["w"], ["b"]), ("Slice", ["j", "one", "three"], ["a"])], ["a", "b"], "j"),
    "a product": ([("MatMul", ["v", "m"], ["p"]), ("Tanh", ["p"], ["a"]), ("Add", ["w", "x"], ["b"])], ["a", "b"], "p"),
}  # fmt: skip
OUTSIDE = {
    "six": np.array([6]), "two": np.array([2, 3]), "one": np.array([1]), "three": np.array([3]),
    "m": np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype("float32"), "c": np.array(True), "n": np.array(STEPS),
}  # fmt: skip


def loop(name, outside=OUTSIDE, count="n", inputs=()):
    nodes, states, row = BODIES[name]
    news = [("Identity", [s], [f"new{n}"]) for n, s in enumerate(states)]
    held = body(
        [("Identity", ["goes"], ["on"]), *nodes, ("Identity", [row], ["row"]), *news],
        ["i", "goes", "v", "w"], ["on", "new0", "new1", *(["row"] if count == "n" else [])],
    )  # fmt: skip
    node = helper.make_node("Loop", [count, "c", "x", "bias"], ["y", "z", *(["rows"] if count == "n" else [])], body=held)
    given = {"x": X} | dict(inputs)
    constants = {key: a for key, a in outside.items() if key not in given}
    return model([helper.make_node("Exp", ["x"], ["bias"]), node], given, list(node.output), constants), given


@pytest.mark.parametrize("name", BODIES)
def test_loops(name):
    net = compared(*loop(name))
    assert len(repeats(net)) == 1


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("count", [0, 1, 2, 11])
def test_a_count_that_is_data(name, count):
    given = {"count": np.array(count)}
    compared(*loop(name, count="count", inputs=given), "count")


@pytest.mark.parametrize("limit", [-1.0, 0.5, 3.0, 1e9])
@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_condition_that_is_data(limit, starts, shape):
    nodes = [("Add", ["v", "x"], ["a"]), ("ReduceMax", ["a"], ["s"], {"keepdims": 0}), ("Less", ["s", "limit"], ["on"])]
    node = helper.make_node("Loop", ["n", "starts", "x"], ["y"], body=body(nodes, ["i", "goes", "v"], ["on", "a"]))
    given = {"x": X, "limit": np.array(limit, "float32"), "starts": np.full(shape, starts)}
    net = compared(model([node], given, ["y"], {"n": np.array(STEPS)}), given)
    node.input[0] = ""  # as long as the condition holds
    given["limit"] = np.array(min(limit, 50), "float32")
    endless = model([node], given, ["y"])
    (y,) = tir.compile(load_onnx(endless), TARGET)(given)
    wanted, goes = X, starts
    while goes:
        wanted = wanted + X
        goes = wanted.max() < given["limit"]
    assert np.array_equal(y, wanted) and len(repeats(net)) == 1


@pytest.mark.parametrize("count", ["n", "count"])
def test_a_condition_that_is_false_from_the_start(count):
    given = {"x": X} | ({"count": np.array(STEPS)} if count == "count" else {})
    nodes = [("Identity", ["goes"], ["on"]), ("Add", ["v", "x"], ["a"])]
    node = helper.make_node("Loop", [count, "c", "x"], ["y", "rows"], body=body(nodes, ["i", "goes", "v"], ["on", "a", "v"]))
    net = tir.compile(load_onnx(model([node], given, ["y", "rows"], OUTSIDE | {"c": np.array(False)})), TARGET, cache=None)
    y, rows = net(given)
    assert np.array_equal(y, X) and rows.shape == (0, *X.shape)


@pytest.mark.parametrize("steps", [0, 1, 2, MIN_LOOPED_STEPS, STEPS])
@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (-1, -1), (2, 1)])
@pytest.mark.parametrize("backward", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scans(steps, axes, backward):
    nodes = [("Mul", ["v", "s"], ["a"]), ("Add", ["a", "u"], ["b"]), ("Neg", ["b"], ["row"])]
    held = body(nodes, ["v", "s", "u"], ["b", "row"])
    node = helper.make_node(
        "Scan", ["x", "first", "second"], ["y", "rows"], body=held, num_scan_inputs=2, scan_input_axes=[axes[0], 0],
        scan_input_directions=[backward[0], backward[1]], scan_output_axes=[axes[1]], scan_output_directions=[backward[1]],
    )  # fmt: skip
    rng = np.random.default_rng(1)
    shape = list(X.shape)
    shape.insert(axes[0] % 3, steps)
    arrays = (rng.uniform(-1, 1, s).astype("float32") for s in (shape, (steps, 3)))
    given = {"x": X, **dict(zip(("first", "second"), arrays, strict=True))}
    if steps:
        net = compared(model([node], given, ["y", "rows"]), given)
        assert len(repeats(net)) == (steps >= MIN_LOOPED_STEPS)
    else:
        proto = model([node], given, ["y", "rows"])
        y, rows = tir.compile(load_onnx(proto), TARGET)(given)
        shape = list(X.shape)
        shape.insert(axes[1] % 3, 0)
        assert np.array_equal(y, X) and rows.shape == tuple(shape)


@pytest.mark.parametrize("order", ["vw", "wv"])
def test_loops_in_loops(order):
    """The inner one reads the state and the number of the outer one; its rows are a row of the outer one."""
    inside = body(
        [("Identity", ["goes1"], ["on1"]), ("Cast", ["i"], ["f"], {"to": 1}), ("Add", ["p", "f"], ["q"]), ("Mul", ["q", "v"], ["r"]), ("Tanh", ["r"], ["t"])],
        ["i1", "goes1", "p"], ["on1", "t", "r"],
    )  # fmt: skip
    for value, kind in (
        (inside.input[0], TensorProto.INT64),
        (inside.input[1], TensorProto.BOOL),
        (inside.output[0], TensorProto.BOOL),
    ):
        value.type.CopyFrom(helper.make_tensor_type_proto(kind, []))
    inner = helper.make_node("Loop", ["n", "c", order[0]], ["s", "all"], body=inside)
    held = body(
        [("Identity", ["goes"], ["on"]), ("Add", ["s", "w"], ["u"])],
        ["i", "goes", "v", "w"],
        ["on", *(("u", "s") if order == "vw" else ("s", "u")), "all", "s2"],
    )
    held.node.insert(1, inner)
    held.node.append(helper.make_node("Neg", ["s"], ["s2"]))
    node = helper.make_node("Loop", ["n", "c", "x", "x"], ["y", "z", "every", "others"], body=held)
    net = compared(model([node], {"x": X}, list(node.output), OUTSIDE), {"x": X})
    (outer,) = repeats(net)
    assert len([step for step in outer.steps if isinstance(step, Repeat)]) == 1


def test_one_loop_after_the_other_and_beside_it():
    step = body([("Identity", ["goes"], ["on"]), ("Sin", ["v"], ["a"])], ["i", "goes", "v"], ["on", "a", "v"])
    nodes = [
        helper.make_node("Loop", ["n", "c", x], [f"{y}", f"{y}r"], body=step) for x, y in (("x", "a1"), ("a1", "a2"), ("x", "a3"))
    ]
    nodes.append(helper.make_node("Add", ["a2", "a3"], ["y"]))
    net = compared(model(nodes, {"x": X}, ["y", "a1r", "a2r", "a3r"], OUTSIDE), {"x": X})
    assert len(repeats(net)) == 3


def test_what_depends_on_no_step_is_computed_once():
    nodes = [("MatMul", ["bias", "m"], ["p"]), ("Mul", ["v", "p"], ["a"])]
    BODIES["outside"] = (nodes, ["a", "w"], "a")
    net = compared(*loop("outside"))
    del BODIES["outside"]
    profile = net.profile(X, runs=1)
    assert {k.name.partition("(")[0]: k.calls for k in profile.kernels} == {"exp": 1, "matmul": 1, "mul": STEPS}


def test_the_number_of_rows_must_be_known():
    nodes = [("ReduceMax", ["v"], ["s"], {"keepdims": 0}), ("Less", ["s", "limit"], ["on"]), ("Add", ["v", "v"], ["w"])]
    node = helper.make_node(
        "Loop", ["n", "c", "x"], ["y", "all"], name="loop", body=body(nodes, ["i", "goes", "v"], ["on", "w", "s"])
    )
    constants = {"n": np.array(100), "c": np.array(True)}
    with pytest.raises(
        GraphError, match="Loop of opset 18: its condition is not constant, on which the shape of its scan outputs depends"
    ):
        load_onnx(model([node], {"x": X, "limit": np.array(9, "float32")}, ["y", "all"], constants))
    node.input[0] = "count"
    with pytest.raises(GraphError, match="Loop of opset 18: the number of its steps is not constant, on which the shape"):
        load_onnx(model([node], {"x": X, "limit": np.array(9, "float32"), "count": np.array(3)}, ["y", "all"], constants))


def test_a_model_of_a_loop_in_all_its_forms(tmp_path):
    proto, given = loop("a product")
    graph = load_onnx(proto)
    assert Graph.parse(graph.text(), graph.constants).text() == graph.text()
    net = tir.compile(graph, TARGET, cache=None)
    wanted = net(given)
    for other in (pickle.loads(pickle.dumps(net)), tir.load(net.save(tmp_path / "net.model"))):
        assert all(map(np.array_equal, other(given), wanted))
        assert sum(k.calls for k in other.profile(given, runs=1).kernels) == 1 + STEPS * (len(net.groups) - 1)
    narrow = tir.compile(graph, TARGET, cache=None, precision="bfloat16")(given)
    assert all(np.allclose(a, b, atol=0.1) for a, b in zip(narrow, wanted, strict=True))


def test_names_of_loops_may_have_any_letters():
    """Exporters of torch name a node by its module, as in `/lstm/LSTM`, of which the name of its loop is made."""
    proto, given = loop("a product")
    (node,) = (n for n in proto.graph.node if n.op_type == "Loop")
    node.name = '/rnn/"Loop" é%\\'
    graph = load_onnx(proto)
    for a, b in zip(tir.compile(graph, TARGET, cache=None)(given), evaluate(graph, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_calls_between_are_in_order():
    graph = load_onnx(loop("a product")[0])
    (one,) = loops_of(graph)
    calls = list(ordered(graph.with_(calls=tuple(sorted(graph.calls, key=lambda c: c.operator != "Exp")))).calls)
    between = calls[calls.index(one.begin) + 1 : calls.index(one.end)]
    assert {v for c in between for v in c.outputs} == one.values - set(one.begin.outputs)


@pytest.mark.parametrize("name", BODIES)
def test_kernels_of_loops_are_checked_step_by_step(name):
    proto, given = loop(name)
    graph = load_onnx(proto)
    net, seen = tir.compile(graph, TARGET, cache=None), []
    found = check_kernels(final(graph, net.target), net, given, seen.append)
    assert all(map(np.array_equal, found, net(given)))
    assert len(seen) == sum(k.calls for k in net.profile(given, runs=1).kernels)


@pytest.mark.parametrize("name", BODIES)
def test_loops_written_out_for_targets_without_them(name):
    proto, given = loop(name)
    graph = load_onnx(proto)
    written = verify(write_out_loops(graph))
    assert not loops_of(written) and any(map(is_loop, graph.calls))
    assert all(map(np.array_equal, evaluate(written, given), evaluate(graph, given)))


def test_what_loops_refuse():
    proto, _ = loop("a product", count="count", inputs={"count": np.array(3)})
    graph = load_onnx(proto)
    with pytest.raises(GraphError, match=r"^graph test: the loop that makes `y` has a computed number of steps$"):
        write_out_loops(graph)
    with pytest.raises(GraphError, match=r"test: donate is not supported in networks with loops of 9 or more steps$"):
        rows = helper.make_node("ScatterND", ["past", "at", "x"], ["present"])
        proto, _ = loop("a product")
        proto.graph.node.append(rows)
        past, at = (helper.make_tensor_value_info(n, k, s) for n, k, s in (("past", 1, [4, 3]), ("at", 7, [2, 1])))
        proto.graph.input.extend([past, at])
        proto.graph.output.append(helper.make_tensor_value_info("present", 1, None))
        tir.compile(load_onnx(proto), TARGET, cache=None, donate={"past": "present"})


@pytest.mark.parametrize(("steps", "kind"), [(10, Planned), (MAX_PLANNED_STEPS + 1, Model)])
def test_recurrences_of_open_sizes(steps, kind):
    """One plan serves all numbers of sequences where steps can be written out; others are loops of their own."""
    rng, units = np.random.default_rng(0), 5
    constants = {"w": (1, 3 * units, 4), "r": (1, 3 * units, units)}
    constants = {name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in constants.items()}
    proto = model([helper.make_node("GRU", ["x", "w", "r"], ["y"])], {"x": (1, [steps, "n", 4])}, ["y"], constants)
    net = tir.compile(load_onnx(proto), TARGET, cache=None, sizes={"n": (1, 6)})
    for n in (1, 3, 5, 6):
        x = rng.uniform(-1, 1, (steps, n, 4)).astype("float32")
        fixed = load_onnx(proto, shapes={"n": n})
        np.testing.assert_allclose(net(x)[0], evaluate(fixed, {"x": x})[0], atol=1e-5)
    assert isinstance(net._network({"n": 3}), kind)
