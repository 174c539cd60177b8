"""A few random networks, and that a wrong one is found."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from graph.onnx import load_onnx
from graph.passes import optimize
from tests.sweeps import one_in
from tir import dtypes

from . import fuzz
from .fuzz import checked, difference
from .random_graphs import EXTENTS, Drawing, Dropped
from .random_nodes import drawn


@one_in(2)
@pytest.mark.parametrize(
    ("compiled", "seeds"), [*((True, range(n, n + 1)) for n in range(4)), *((False, range(n, n + 6)) for n in range(8, 32, 6))]
)
def test_random_networks(compiled, seeds):
    assert [f for n in seeds if (f := checked(n, compiled)) is not None] == []


def test_calls_keep_the_nodes_they_are_from():
    for seed in range(40):
        case = drawn(np.random.default_rng(seed))
        graph = optimize(load_onnx(case.proto()))
        names = {node.name or next(iter(node.output)) for node in case.proto().graph.node}
        assert {call.node for call in graph.calls} <= names, seed


def subtracting(call):
    return replace(call, operator="Sub") if call.operator == "Add" else call


def swapping(call):
    return replace(call, inputs=call.inputs[::-1]) if call.operator in ("Sub", "Div") else call


@pytest.mark.parametrize(("wrong", "operators"), [(subtracting, {"Add"}), (swapping, {"Sub", "Div"})])
def test_a_fault_is_found_and_made_small(monkeypatch, wrong, operators):
    monkeypatch.setattr(fuzz, "optimize", lambda graph: graph.with_(calls=tuple(map(wrong, graph.calls))))
    failure = next(f for n in range(40) if (f := checked(n, compiled=False)) is not None)
    assert failure.stage == "passes" and len(drawn(np.random.default_rng(failure.seed)).nodes) > 1
    assert len(failure.case.nodes) == 1 and "wrong, at" in str(failure)
    assert operators & {call.operator for call in load_onnx(failure.case.proto()).calls}  # an Attention adds its mask, too


def test_faults_are_found_in_halves():
    """Of results of halves, elements that are those of other places, and elements of the other sign."""
    rng, moved, turned = np.random.default_rng(0), [], []
    for case in (drawn(np.random.default_rng(seed)) for seed in range(25)):
        for known in (case.known[n] for n in case.outputs if dtypes.is_half(case.values[n].dtype.name)):
            y, slack = known.numbers.ravel(), known.slack.ravel()
            other = rng.permuted(y)
            moved += list((abs(y - other) > slack)[y != other])
            turned += list((abs(2 * y) > slack)[y != 0])
    assert len(moved) > 1000 and np.mean(moved) > 0.95 and np.mean(turned) > 0.97


def test_differences():
    a, b = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    assert difference([a], [a], [0]) == "" and difference([a], [b], [0.5]) == ""
    assert difference([a], [b], [0.4]) == "output 0: 1 of 2 wrong, at (1,) wanted 2.0, found 2.5, bound 0.4"
    assert difference([a], [a.reshape(1, 2)], [1]) == "output 0: wanted float64[2], found float64[1, 2]"
    assert difference([a], [np.array([1.0, np.nan])], [1]) != ""


def test_differences_of_special_values_and_integers():
    special = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert difference([special], [special], [0]) == ""
    for at, other in enumerate([0.0, -np.inf, np.nan, np.inf]):
        found = special.copy()
        found[at] = other
        assert f"1 of 4 wrong, at ({at},)" in difference([special], [found], [100.0])
    bytes_ = np.array([0, 255], "u1")
    assert difference([bytes_], [np.array([1, 254], "u1")], [1]) == ""
    assert "2 of 2 wrong" in difference([bytes_], [np.array([2, 0], "u1")], [1])


def drawing(**inputs):
    d = Drawing(np.random.default_rng(0))
    d.special, d.extents = False, EXTENTS
    for name, array in inputs.items():
        d.given(d.inputs, name, array)
    return d


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_what_may_be_off_follows_the_element_type_and_what_is_computed(dtype):
    d = drawing(x=np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6).astype(dtype), w=np.full(6, 0.7, "f4").astype(dtype))
    moved = d.add("Concat", ["x", "x"], axis=0)
    first = d.add("Mul", [moved, "w"])
    second = d.add("Mul", [first, "w"])
    nothing = d.add("Sub", [first, first])
    eps = float(ml_dtypes.finfo(dtype).eps)
    slack = {n: d.known[n].slack / eps for n in (moved, first, second, nothing)}
    parts = {n: slack[n] / abs(d.known[n].numbers) for n in (first, second)}
    assert not slack[moved].any() and 0 < parts[first].mean() < parts[second].mean() and slack[second].mean() < 64
    assert parts[first].min() > 0.5  # a rounding
    assert slack[nothing].max() < 2 * slack[first].max()
    assert d.values[second].dtype == dtype and d.known[second].doubt.max() < 200 * np.finfo("float32").eps


def test_nodes_that_a_rounding_decides_are_dropped():
    d = drawing(x=np.array([1.0, 2.0, 3.0], "float16"), y=np.array([1.0, 2.0, 4.0], "float16"))
    assert d.values[d.add("Less", ["x", "y"])].tolist() == [False, False, True]
    third = d.add("Div", ["x", "y"])
    for operator in ("Floor", "Sign"):
        d.add(operator, ["x"])
    with pytest.raises(Dropped):
        d.add("Floor", [third])
    with pytest.raises(Dropped):
        d.add("Equal", [third, third[:0] + "x"])


def test_a_result_that_is_mostly_rounding_is_dropped():
    d = drawing(x=np.linspace(0, 90, 12).astype(ml_dtypes.bfloat16), one=np.ones((), ml_dtypes.bfloat16))
    near = d.add("Add", ["x", "one"])
    with pytest.raises(Dropped):
        d.add("Sub", [near, "x"])


def test_special_values_that_the_standard_does_not_speak_of_are_dropped():
    d = drawing(x=np.array([np.nan, 1.0, np.inf], "float32"), s=np.array(0.5, "float32"), z=np.array(0, "int8"))
    d.special = True
    for operator, inputs in (("QuantizeLinear", ["x", "s", "z"]), ("ArgMax", ["x"]), ("Cast", ["x"])):
        with pytest.raises(Dropped):
            d.add(operator, inputs, **({"to": 7} if operator == "Cast" else {}))
    assert d.values[d.add("ReduceMin", ["x"])].item() == 1.0
