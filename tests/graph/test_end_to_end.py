"""Networks from ONNX to kernels, against ONNX's own evaluator, in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tir
from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.passes import optimize
from graph.reference import evaluate

from .models import close, exact, model, residual, same_outputs, transformer


@pytest.fixture(scope="module")
def networks():
    """Of each network the model, an input, the graph and what it compiles to."""
    found = {}
    for make in (residual, transformer):
        proto, inputs = make(np.random.default_rng(0))
        graph = load_onnx(proto)
        found[make.__name__] = proto, inputs, graph, tir.compile(graph, "llvm -num-cores 1")
    return found


# The most roundings that the longest chain of operations to an output makes: the lengths of all sums on the way, and of other
# operations fewer than one for each term. Both networks keep values near 1, so that they are of the size of the result.
ROUNDINGS = {"residual": 3 * 25 + 8 * 9 + 12 * (1 + 9 + 9 + 1 + 1) + 12, "transformer": 24 * 6 + 13 * 2 + 24 + 96 + 24}


@pytest.mark.parametrize("name", ["residual", "transformer"])
def test_outputs(networks, name):
    proto, inputs, _, compiled = networks[name]
    (wanted,), (found,) = exact(proto, inputs), compiled(inputs)
    close(found, wanted, 4 * ROUNDINGS[name])
    (x,) = inputs.values()
    (by_position,), (bound,) = compiled(x), compiled.bind(x)()
    assert (by_position == found).all() and (bound == found).all() and bound is not found


@pytest.mark.parametrize("name", ["residual", "transformer"])
def test_passes_keep_the_outputs(networks, name):
    _, inputs, graph, _ = networks[name]
    same_outputs(graph, optimize(graph), inputs, 4 * ROUNDINGS[name])


def test_norms_are_gone_and_what_follows_is_fused(networks):
    names = [g.func.name for g in networks["residual"][3].groups]
    assert names == [
        "conv_relu", "maxpool", "conv_relu", "conv", "conv_add_relu", "conv_clip", "conv_add_relu", "reducemean", "matmul_add",
    ]  # fmt: skip
    names = [g.func.name for g in networks["transformer"][3].groups]
    operand = "slice_transpose_reshape"
    attention = f"{operand}_{operand}_matmul_mul_softmax_{operand}_matmul_transpose"
    assert names == [
        "layernormalization", "matmul_add", attention, "matmul_add_add", "layernormalization", "matmul_add_gelu", "matmul_add_add",
    ]  # fmt: skip


def test_bound_inputs_are_read_at_each_call(networks):
    _, inputs, _, compiled = networks["residual"]
    x = inputs["x"].copy()
    run = compiled.bind(x)
    (first,) = run()
    x *= 2
    (second,) = run()
    assert not np.array_equal(first, second) and np.array_equal(second, compiled(x)[0])


def test_a_profile_names_all_kernels(networks):
    compiled = networks["residual"][3]
    profile = compiled.profile(networks["residual"][1]["x"], runs=2)
    assert sum(k.calls for k in profile.kernels) == len(compiled.groups)
    assert 0 < sum(k.seconds for k in profile.kernels) <= profile.seconds
    text = str(profile).splitlines()
    assert (
        len(text) == len(profile.kernels) + 3
        and "conv_relu" in str(profile)
        and text[0].split() == ["kernel", "calls", "time", "share"]
    )


def test_a_profile_by_node(tmp_path):
    x, w = np.ones((7, 13), "float32"), np.ones((13, 5), "float32")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Relu", ["product"], ["y"])]
    compiled = tir.compile(load_onnx(model(nodes, {"x": x}, ["y"], {"w": w})))
    profile = compiled.profile(x, runs=1)
    (node,) = profile.nodes
    assert node.nodes == ("product", "y") and node.runs == 1 and node.flop == 2 * 7 * 13 * 5 + 7 * 5
    packed = sum(v.nbytes for v in compiled.groups[0].inputs) - x.nbytes
    assert packed >= w.nbytes and node.nbytes == x.nbytes + packed + 4 * 7 * 5
    assert node.share(1e9, 1e12) == pytest.approx(node.flop / 1e9 / node.seconds)
    assert node.share(1e12, 1e9) == pytest.approx(node.nbytes / 1e9 / node.seconds)
    head, row = (line.split() for line in profile.by_node(1e9, 1e9).splitlines())
    assert head == ["node", "time", "operations", "bytes", "of", "the", "bound"]
    assert row[:3] == ["product", "…", "y"] and row[-3] == "945"
    first, copies = profile.trace(1e9, 1e9)["traceEvents"]
    assert first["name"] == "product … y" and first["ph"] == "X" and first["args"]["flop"] == 945
    assert first["dur"] == pytest.approx(1e6 * node.seconds, abs=1e-3) and copies["ts"] == pytest.approx(first["dur"], abs=1e-3)
    (known,) = tir.load(compiled.save(tmp_path / "net.model")).profile(x, runs=1).nodes
    assert known.flop is None and known.share(1.0, 1.0) is None


def test_equal_groups_are_one_kernel():
    rng = np.random.default_rng(0)
    nodes, constants, x = [], {}, "x"
    for n in range(3):
        constants[f"w{n}"] = rng.uniform(-1, 1, (13, 13)).astype("float32")
        nodes += [helper.make_node("MatMul", [x, f"w{n}"], [f"p{n}"]), helper.make_node("Tanh", [f"p{n}"], [f"t{n}"])]
        x = f"t{n}"
    given = {"x": rng.uniform(-1, 1, (7, 13)).astype("float32")}
    compiled = tir.compile(load_onnx(model(nodes, given, [x], constants)))
    assert len(compiled.groups) == 3 and len(set(compiled.kernels)) == 1
    wanted = given["x"].astype("float64")
    for n in range(3):
        wanted = np.tanh(wanted @ constants[f"w{n}"].astype("float64"))
    # A row of weights has a sum of absolute values below 13, which is what an error of one layer grows by in the next.
    close(compiled(given)[0], wanted.astype("float32"), 16 * (1 + 13 + 13 * 13))


def test_outputs_that_are_inputs_constants_and_views():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    proto = model(nodes, {"x": x}, ["x", "y", "z", "s"], {"s": np.array([3, 2])})
    found = tir.compile(load_onnx(proto))(x)
    for a, b in zip(found, [x, x.reshape(3, 2), x.reshape(3, 2), np.array([3, 2])], strict=True):
        np.testing.assert_array_equal(a, b)
    found[0][:] = 7
    assert x[0, 0] == 0


def test_constants_that_are_not_aligned(tmp_path):
    w = np.arange(15, dtype="float64").reshape(3, 5)
    (tmp_path / "w.bin").write_bytes(b"\0" * 3 + w.tobytes())
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": w.T}, ["y"], {"w": w})
    onnx.external_data_helper.set_external_data(proto.graph.initializer[0], "w.bin", offset=3, length=w.nbytes)
    proto.graph.initializer[0].ClearField("raw_data")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    np.testing.assert_array_equal(tir.compile(load_onnx(tmp_path / "m.onnx"))(w.T.copy())[0], w.T @ w)


def test_wrong_inputs(networks):
    _, inputs, _, compiled = networks["residual"]
    x = inputs["x"]
    for call, message in (
        (lambda: compiled(), "test: the inputs are x; got 0 array(s)"),
        (lambda: compiled({"y": x}), "test: the inputs are x; `x` is missing, got `y`"),
        (lambda: compiled(x[:1]), "input `x` must have shape (2, 3, 29, 23), got (1, 3, 29, 23)"),
        (lambda: compiled.bind(x.astype("float32")), "input `x` must have dtype float64, got float32"),
    ):
        with pytest.raises(GraphError) as caught:
            call()
        assert str(caught.value) == message


def test_what_cannot_be_compiled():
    with pytest.raises(
        TypeError, match=r"^compile takes a Graph, such as tir.load_onnx gives, a PrimFunc or a list of tensors, got str$"
    ):
        tir.compile("resnet.onnx")


@pytest.mark.parametrize(("step", "inputs", "constants"), [
    (helper.make_node("ReduceMin", ["x", "axes"], ["y"], keepdims=0), {"x": (10, 3, 1, 1)}, {"axes": np.array([2, 3])}),
    (helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"]), {"x": (1, 5, 1), "s": (1,), "b": (1,)}, {}),
    (helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[1, 2]), {"x": (2, 1, 4, 5), "w": (2, 1, 1, 1), "b": (2,)}, {}),
], ids=lambda given: getattr(given, "op_type", ""))  # fmt: skip
def test_axes_of_one_element(step, inputs, constants):
    rng = np.random.default_rng(0)
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in inputs.items()}
    graph = load_onnx(model([step], arrays, ["y"], constants))
    close(tir.compile(graph, "llvm -num-cores 1")(arrays)[0], evaluate(graph, arrays)[0], 8)
