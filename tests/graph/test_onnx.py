"""What importing folds, and the one error for each thing that is wrong with a file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.ops.registry import HOW_TO_ADD
from graph.reference import evaluate

from .models import close, exact, model

X = np.arange(6, dtype="float32").reshape(2, 3)


def refused(source, message, shapes=None):
    with pytest.raises(GraphError) as caught:
        load_onnx(source, shapes)
    assert str(caught.value) == message


def relu(**changes):
    return model([helper.make_node("Relu", ["x"], ["y"], name="act")], {"x": X, **changes}, ["y"])


def test_arithmetic_on_shapes_is_folded():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
        helper.make_node("Constant", [], ["minus"], value_ints=[-1]),
        helper.make_node("Unsqueeze", ["m", "zero"], ["u"]),
        helper.make_node("Concat", ["minus", "u"], ["t"], axis=0),
        helper.make_node("Shape", ["x"], ["tail"], start=1),
        helper.make_node("ConstantOfShape", ["tail"], ["ones"], value=numpy_helper.from_array(np.ones(1, "float32"))),
        helper.make_node("Add", ["x", "ones"], ["a"]),
        helper.make_node("Concat", ["a", "x"], ["c"], axis=0),
        helper.make_node("Reshape", ["c", "t"], ["y"]),
    ]
    constants = {"one": np.array(1), "two": np.array(2), "zero": np.array([0])}
    graph = load_onnx(model(nodes, {"x": X}, ["y"], constants))
    assert graph.text() == "\n".join(
        [
            "graph test",
            "    input x: float32[2, 3]",
            "    constant ones: float32[3]",
            "    a: float32[2, 3] = Add(x, ones)",
            "    c: float32[4, 3] = Concat(a, x, axis=0)",
            "    y: float32[2, 6] = Reshape(c, shape=[-1, 6])",
            "    output y",
        ]
    )
    assert list(graph.constants) == ["ones"]
    np.testing.assert_array_equal(evaluate(graph, [X])[0], np.concatenate([X + 1, X]).reshape(2, 6))


def test_what_the_evaluator_of_onnx_cannot_fold_is_interpreted():
    """It stumbles over GatherElements with more than 64 indices along the axis."""
    nodes = [helper.make_node("GatherElements", ["c", "i"], ["g"], axis=1), helper.make_node("Add", ["x", "g"], ["y"])]
    c, i = np.arange(70, dtype="float32").reshape(1, 70), np.arange(65)[None, ::-1].copy()
    graph = load_onnx(model(nodes, {"x": c[:, :65]}, ["y"], {"c": c, "i": i}))
    assert [call.operator for call in graph.calls] == ["Add"]
    np.testing.assert_array_equal(evaluate(graph, {"x": c[:, :65]})[0], np.full((1, 65), 64, "float32"))


def test_a_constant_in_the_type_of_a_value_is_one():
    nodes = [helper.make_node("CastLike", ["zero", "x"], ["low"]), helper.make_node("Clip", ["x", "low"], ["y"])]
    graph = load_onnx(model(nodes, {"x": X - 3}, ["y"], {"zero": np.array(0)}))
    np.testing.assert_array_equal(evaluate(graph, {"x": X - 3})[0], np.maximum(X - 3, 0))


def test_open_shapes():
    symbolic = {"x": (TensorProto.FLOAT, ["n", 3]), "z": (TensorProto.FLOAT, ["n", 3])}
    proto = model([helper.make_node("Add", ["x", "z"], ["y"])], symbolic, ["y"])
    graph = load_onnx(proto, {"x": (7, 3), "z": (7, 3)})
    assert [v.shape for v in (*graph.inputs, *graph.outputs)] == [(7, 3)] * 3
    for shapes in ({"x": (7, 3)}, {"n": 7}):
        assert [v.shape for v in load_onnx(proto, shapes).inputs] == [(7, 3)] * 2
    refused(proto, "test: the shape [7, 5] for the input `x` contradicts the file: [n, 3]", {"x": (7, 5)})
    refused(proto, "test: the shape [7] for the input `x` contradicts the file: [n, 3]", {"x": (7,)})
    refused(proto, "test: the shape [-1, 3] for the input `x` has a negative extent", {"x": (-1, 3)})
    refused(proto, "test: the size `n` is 7 in the input `x`, but 8 in `z`", {"x": (7, 3), "z": (8, 3)})
    refused(proto, "test: shapes names `y`; the inputs are x, z, open sizes n", {"y": (7, 3)})
    no_shape = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, None)}, ["y"])
    refused(
        no_shape, "test: the shape of the input `x` is open, unknown; give it: shapes={'x': (...)}, or in a shell --shape x=..."
    )


def test_all_that_is_not_there_is_listed():
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["x"], ["b"], name="second", slope=2.0),
        helper.make_node("Add", ["x", "x"], ["c"], name="third"),
        helper.make_node("Reshape", ["x", "t"], ["d"], name="fourth"),
        helper.make_node("Fancy", ["x"], ["e"], domain="org.example"),
        helper.make_node("Conv", ["x"], ["f"]),
        helper.make_node("Transpos", ["x"], ["g"], name="seventh"),
        helper.make_node("Gelu", ["x"], ["h"], name="eighth"),
        helper.make_node("MaxPool", ["x"], ["i"], name="ninth"),
    ]
    proto = model(nodes, {"x": X, "t": np.array([6])}, ["a"])
    refused(
        proto,
        "test: 8 nodes cannot be imported\n"
        "  node `first` NonZero of opset 18: there is no such operator\n"
        "  node `second` Relu of opset 18: the attribute slope is not supported\n"
        "  node `fourth` Reshape of opset 18: its shape, `t`, must be constant, or the file must state the shape of its result\n"
        "  node number 4, of `e`, org.example.Fancy of opset unknown: the file does not say which version of this domain it means\n"
        "  node number 5, of `f`, Conv of opset 18: it has 1 input(s)\n"
        "  node `seventh` Transpos of opset 18: there is no such operator; did you mean Transpose?\n"
        "  node `eighth` Gelu of opset 18: there is no such operator; it is for versions 20 and later\n"
        "  node `ninth` MaxPool of opset 18: the attribute kernel_shape is missing\n"
        f"  {HOW_TO_ADD}",
    )


def test_a_file_whose_channels_are_blocked_says_how_to_make_another():
    proto = model([helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")], {"x": X}, ["y"])
    proto.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    refused(
        proto,
        "test: 1 node cannot be imported\n"
        "  node number 0, of `y`, com.microsoft.nchwc.ReorderInput of opset 1: there is no such operator\n"
        "  onnxruntime blocked the channels for one processor: optimise the file with ORT_ENABLE_EXTENDED at most",
    )


def test_what_does_not_fit_is_listed():
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="after"),
        helper.make_node("Add", ["x", "w"], ["c"], name="sum"),
        helper.make_node("MaxPool", ["image"], ["d", "where", "more"], name="pool", kernel_shape=[2, 2]),
    ]
    image = np.zeros((1, 1, 4, 4), "float32")
    proto = model(nodes, {"x": X, "image": image}, ["b", "c", "more"], {"w": np.ones(3, "float64")})
    refused(
        proto,
        "test: 3 nodes cannot be imported\n"
        "  node `product` MatMul of opset 18: [2, 3] and [2, 3] cannot be multiplied\n"
        "  node `sum` Add of opset 18: element types differ: float32, float64\n"
        "  node `pool` MaxPool of opset 18: its output 2, `more`, is not supported",
    )


def choice(**inputs):
    """A node that negates x or doubles it; the branches read x, and one has a constant of its own."""
    y = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    negated = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "negated", [], [y])
    two = numpy_helper.from_array(np.array(2, "float32"), "two")
    doubled = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["r"])], "doubled", [], [y], [two])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=negated, else_branch=doubled)
    return model([node], {"x": X, **inputs}, ["y"], {} if "c" in inputs else {"c": np.array(False)})


def test_of_branches_a_constant_condition_chooses_one():
    graph = load_onnx(choice())
    assert [c.operator for c in graph.calls] == ["Mul"]
    np.testing.assert_array_equal(evaluate(graph, [X])[0], X * 2)


def test_operators_that_are_functions_of_others_are_written_out():
    """As ONNX defines them: with attributes, their defaults, and inputs that are left out."""
    nodes = [helper.make_node("GroupNormalization", ["a", "s", "b"], ["y"], num_groups=2)]
    image = np.random.default_rng(0).uniform(-1, 1, (3, 4, 5)).astype("float32")
    given = {"a": image, "s": image[0, :, 0], "b": image[1, :, 0]}
    proto = model(nodes, given, ["y"], opset=21)
    graph = load_onnx(proto)
    assert {c.operator for c in graph.calls} >= {"ReduceMean", "Sqrt", "Reshape"}
    for found, wanted in zip(evaluate(graph, given), exact(proto, given), strict=True):
        close(found, wanted, 64)


def test_scans_are_written_out_step_by_step():
    """Running sums from the last row to the first, and the largest row so far; a weight of the body is there once a step."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("total", "row", "next", "seen")]
    nodes = [helper.make_node("Add", ["total", "row"], ["sum"]), helper.make_node("Mul", ["sum", "half"], ["next"])]
    nodes.append(helper.make_node("Max", ["sum", "row"], ["seen"]))
    body = helper.make_graph(nodes, "body", values[:2], values[2:], [numpy_helper.from_array(np.array(0.5, "float32"), "half")])
    scan = helper.make_node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_directions=[1])
    rows = np.arange(12, dtype="float32").reshape(4, 3) - 5
    given = {"start": np.ones(3, "float32"), "x": rows}
    proto = model([scan], given, ["last", "all"])
    total, seen = given["start"], []
    for row in rows[::-1]:
        seen.append(np.maximum(total + row, row))
        total = (total + row) / 2
    for found, wanted in zip(evaluate(load_onnx(proto), given), (total, np.stack(seen)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("count", [3, 0])
def test_loops_of_a_number_of_steps(count, given):
    """x doubled at each step, plus the number of the step."""
    infos = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
    ]
    state = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("v", "w")]
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["v", "v"], ["d"]),
        helper.make_node("Add", ["d", "f"], ["w"]),
    ]
    body = helper.make_graph(nodes, "body", [*infos, state[0]], [infos[1], state[1]])
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")
    if given:
        found = evaluate(load_onnx(model([loop], {"x": X, "n": np.array(count)}, ["y"])), [X, np.array(count)])
    else:
        found = evaluate(load_onnx(model([loop], {"x": X}, ["y"], {"n": np.array(count)})), [X])
    np.testing.assert_array_equal(found[0], ((X * 2) * 2 + 1) * 2 + 2 if count else X)


def test_what_is_empty_is_nothing():
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Slice", ["x", "low", "low"], ["c"]),
        helper.make_node("Concat", ["b", "a"], ["y"], axis=1),
        helper.make_node("Concat", ["c", "x"], ["z"], axis=0),
    ]
    graph = load_onnx(model(nodes, {"x": X}, ["y", "z"], {"sizes": np.array([3, 0]), "low": np.array([1])}))
    assert not graph.constants
    for found in evaluate(graph, [X]):
        np.testing.assert_array_equal(found, X)


def test_malformed_files(tmp_path):
    path = tmp_path / "m.onnx"
    with pytest.raises(FileNotFoundError):
        load_onnx(path)
    whole = relu().SerializeToString()
    path.write_bytes(whole[:-3])
    refused(path, f"{path} is no ONNX file, or is cut off")
    path.write_bytes(whole.replace(b"\x12\x01y", b"\x12\x01\xff"))
    refused(path, f"{path} is no ONNX file, or is damaged: a name in it is no text")
    path.write_bytes(b"")
    refused(path, f"{path} is no ONNX file: it holds no graph")
    path.write_bytes(whole)
    assert load_onnx(str(path)).calls


def test_names_that_nothing_defines():
    refused(
        model([helper.make_node("Relu", ["z"], ["y"], name="act")], {"x": X}, ["y"]),
        "test: 1 node cannot be imported\n  node `act` Relu of opset 18: reads `z`, which nothing defines",
    )
    refused(model([helper.make_node("Relu", ["x"], ["z"])], {"x": X}, ["y"]), "test: no node makes the output `y`")

    refused(
        model([helper.make_node("Gemm", ["", "m"], ["y"])], {}, ["y"], {"m": X.reshape(1, -1)}),
        "test: 1 node cannot be imported\n  node number 0, of `y`, Gemm of opset 18: its input 0 is missing",
    )


def shuffled(graph, rng):
    """The nodes of a graph, and of those inside of them, in another order."""
    for inner in (a.g for n in graph.node for a in n.attribute if a.HasField("g")):
        shuffled(inner, rng)
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes[n] for n in rng.permutation(len(nodes)))


@pytest.mark.parametrize("seed", range(3))
def test_nodes_out_of_order(seed):
    """In a file, in a graph that a node holds, which reads what is around it, and in a function of the model."""
    rng = np.random.default_rng(seed)
    proto = choice()
    (branch,) = (a.g for a in proto.graph.node[0].attribute if a.name == "else_branch")
    branch.node.append(helper.make_node("Sub", ["r", "b"], ["s"]))
    branch.node.append(helper.make_node("Abs", ["s"], ["a"]))  # `a` is another one outside
    branch.output[0].name = "a"
    proto.graph.node.extend([helper.make_node("Twice", ["x"], ["a"], domain="local"), helper.make_node("Neg", ["a"], ["b"])])
    inner = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Sub", ["a", "t"], ["b"])]
    rng.shuffle(inner)
    proto.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], inner, [helper.make_opsetid("", 18)]))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    shuffled(proto.graph, rng)
    np.testing.assert_array_equal(evaluate(load_onnx(proto), [X])[0], X * 4)


def test_nodes_that_are_in_order_stay():
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in "cab"] + [helper.make_node("Sum", ["a", "b", "c"], ["y"])]
    assert [c.outputs[0].name for c in load_onnx(model(nodes, {"x": X}, ["y"])).calls] == ["c", "a", "b", "y"]


def test_nodes_that_no_order_fits():
    nodes = [("Add", ["x", "c"], ["a"]), ("Neg", ["a"], ["b"]), ("Abs", ["x"], ["d"]), ("Neg", ["b"], ["c"])]
    refused(model([helper.make_node(*n) for n in nodes], {"x": X}, ["c"]), "test: nodes form a cycle: `a` -> `b` -> `c` -> `a`")
    twice = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    refused(model(twice, {"x": X}, ["y"]), "test: `y`, which a node of Abs makes, is defined already")
    refused(model(twice[:1], {"x": X}, ["x"], {"y": X}), "test: `y`, which a node of Neg makes, is defined already")
    proto = choice()
    (branch,) = (a.g for a in proto.graph.node[0].attribute if a.name == "else_branch")
    branch.node[0].input[0] = "q"
    branch.node.append(helper.make_node("Neg", ["r"], ["q"]))
    refused(proto, "test: 1 node cannot be imported\n  node `choice` If of opset 18: nodes form a cycle: `r` -> `q` -> `r`")


def test_element_types():
    refused(relu(x=(TensorProto.STRING, [3])), "test: the input `x` has the element type string, which is not supported")
    proto = relu()
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT8E8M0, [1], [1.0]))
    refused(proto, "test: the constant `w` has the element type float8_e8m0fnu, which is not supported")


def test_constants_that_are_cut_off():
    proto = relu()
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(7, "float32"), "w"))
    proto.graph.initializer[0].raw_data = b"\0" * 27
    refused(proto, "test: the constant `w` is cut off: it has not the 7 elements of [7]")


def test_constants_in_a_file_beside(tmp_path):
    w = np.random.default_rng(0).uniform(-1, 1, (3, 100)).astype("float32")
    path = tmp_path / "m.onnx"
    onnx.save_model(
        model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": w}),
        path, save_as_external_data=True, location="w.bin", size_threshold=0,
    )  # fmt: skip
    found = load_onnx(path).constants["w"]
    assert isinstance(found.base, np.memmap) and not found.flags.writeable
    np.testing.assert_array_equal(found, w)
    (tmp_path / "w.bin").write_bytes(b"\0" * 1199)
    refused(path, f"{path}: the constant `w` is cut off: it ends at byte 1200 of `w.bin`, which has 1199")
    (tmp_path / "w.bin").unlink()
    refused(path, f"{path}: the constant `w` lies in `w.bin`, and there is no such file beside the model")
    proto = onnx.load(path, load_external_data=False)
    next(e for e in proto.graph.initializer[0].external_data if e.key == "location").value = "../w.bin"
    path.write_bytes(proto.SerializeToString())
    refused(path, f"{path}: the constant `w` lies in `../w.bin`, which is not beside the model")


def test_a_file_beside_may_be_larger_than_4_gb(tmp_path):
    """The file has holes, so that it takes a few KB of the disk."""
    w, begin, path = np.random.default_rng(0).uniform(-1, 1, (3, 5)).astype("float32"), (5 << 30) + 3, tmp_path / "m.onnx"
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": w})
    onnx.external_data_helper.set_external_data(proto.graph.initializer[0], "w.bin", offset=begin, length=w.nbytes)
    proto.graph.initializer[0].ClearField("raw_data")
    path.write_bytes(proto.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as file:
        file.seek(begin)
        file.write(w.tobytes())
    np.testing.assert_array_equal(load_onnx(path).constants["w"], w)


def test_functions_of_the_model_are_inlined():
    twice = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="local")], {"x": X}, ["y"])
    proto.functions.append(twice)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    graph = load_onnx(proto)
    assert [c.operator for c in graph.calls] == ["Add"]
    np.testing.assert_array_equal(evaluate(graph, [X])[0], X + X)
