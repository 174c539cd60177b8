"""The list of passes, and how it is checked on a network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from graph import passes
from graph.ir import Call, Graph, GraphError, constant
from graph.onnx import load_onnx
from graph.passes import Pass
from graph.passes.check import QUANTUM, check_passes, tolerances, widened
from graph.passes.unread import remove_unread
from graph.reference import evaluate, remembering, run_call
from tests.graph.models import close, model, node, residual, transformer
from tests.graph.passes.checks import CONV, NORMED, WEIGHTS, chain, real


def test_the_list():
    graph = load_onnx(model(chain(CONV, NORMED, "Relu _"), {"x": real(2, 3, 7, 5)}, ["y"], WEIGHTS))
    seen = []
    passes.optimize(graph, observe=lambda name, after: seen.append((name, len(after.calls))))
    assert [name for name, _ in seen] == [p.__name__ for p in passes.PASSES] and seen[-1][1] == 2
    with pytest.raises(GraphError):
        passes.optimize(graph.with_(calls=graph.calls[::-1]))


@pytest.mark.parametrize("make", [residual, transformer])
def test_checked_passes(make):
    proto, inputs = make(np.random.default_rng(0), "float32")
    checks = check_passes(load_onnx(proto), inputs)
    assert [c.name for c in checks] == [p.__name__ for p in passes.PASSES] and max(c.change for c in checks) < 2**-14


@pytest.mark.parametrize("to", [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT])
def test_widened(to):
    """All floats are float64; constants keep the values that they were rounded to."""
    nodes = [node("Cast", "w", "c", to=to), node("Cast", "x", "a", to=to), node("MatMul", "a c", "y")]
    x, w = real(3, 5).astype("float32"), real(5, 7).astype("float32")
    graph = load_onnx(model(nodes, {"x": x}, ["y"], {"w": w}))
    wide, inputs = widened(graph, {"x": x})
    assert {v.dtype for c in wide.calls for v in (*c.values, *c.outputs)} == {"float64"}
    (rounded,) = (a.astype("float64") for a in graph.constants.values())
    (found,) = evaluate(wide, inputs)
    close(found, x.astype("float64") @ rounded, 2 * 5)
    assert [c.change for c in check_passes(graph, {"x": x})] == [0] * len(passes.PASSES)


def test_equal_calls_run_once():
    calls = []

    def run(call, inputs):
        calls.append(call.operator)
        return run_call(call, inputs)

    nodes = [node("Neg", "x", "a"), node("Neg", "x", "b"), node("Neg", "a", "c"), node("Add", "b c", "y")]
    graph = load_onnx(model(nodes, {"x": real(3)}, ["y"]))
    remembered, x = remembering(run), np.array([0.0, 1, 2])
    for array in (x, x + 0, x + 1):
        np.testing.assert_array_equal(evaluate(graph, [array], remembered), [0 * x])
    assert calls == ["Neg", "Neg", "Add"] * 2


def test_a_pass_that_is_wrong_is_named():
    def lose_the_bias(graph):
        return graph.with_(constants={n: a * 0 if n == "b" else a for n, a in graph.constants.items()}, name="other")

    graph = load_onnx(model(chain(CONV, "Relu _"), {"x": real(2, 3, 7, 5)}, ["y"], WEIGHTS))
    with pytest.raises(GraphError, match=r"^graph test: the pass lose_the_bias changes the output `y` by 0\.\d+ of its largest"):
        check_passes(graph, [real(2, 3, 7, 5)], (passes.remove_unread, lose_the_bias))


def quantised_chain(count: int, out: str) -> Graph:
    """So many quantisations one after the other; the last output is of integers, or dequantised."""
    nodes, constants, value = [], {"scale": np.float32(0.25), "zero": np.uint8(128)}, "x"
    for n in range(count):
        nodes.append(helper.make_node("QuantizeLinear", [value, "scale", "zero"], [f"q{n}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{n}", "scale", "zero"], [value := f"d{n}"]))
    return load_onnx(model(nodes, {"x": np.empty(5, "f4")}, [f"{out}{count - 1}"], constants))


@pytest.mark.parametrize("out", ["q", "d"])
@pytest.mark.parametrize("count", [1, 4])
def test_quantisations_on_a_path_add_up_as_variances(count, out):
    """Off by sqrt(n) quanta is right, by one more wrong, in integers and in floats; elsewhere integers must be equal."""
    graph = remove_unread(quantised_chain(count, out))
    (limit,) = tolerances(graph).values()
    assert limit == QUANTUM * count**0.5
    x = np.array([-16, -3, 0, 7, 16], "f4")  # so that the largest element is 192 as an integer, and 16
    largest, step = (192, 1) if out == "q" else (16.0, 0.25)
    most = int(limit * largest / step)

    def off_by(quanta: int) -> Pass:
        def moved(g: Graph) -> Graph:
            by = np.array([0, quanta, 0, 0, 0]) * step
            value = g.outputs[0]
            added = constant("by", by.astype(value.dtype))
            y = replace(value, name="y")
            calls = tuple(replace(c, outputs=tuple(y if v == value else v for v in c.outputs)) for c in g.calls)
            return g.with_(
                calls=(*calls, Call("Add", (y, added), (value,))), constants=g.constants | {"by": by.astype(value.dtype)}
            )

        return moved

    check_passes(graph, [x], [off_by(most)])
    with pytest.raises(GraphError, match="the pass moved changes the output"):
        check_passes(graph, [x], [off_by(most + 1)])
