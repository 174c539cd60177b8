"""Operators on NaN, infinities, ties, far left and far right, in all types of floats; halves are rounded once."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import tir
from graph.ir import Call, Graph, Value
from graph.kinds import work
from graph.ops import result_types
from graph.reference import evaluate
from tests.sweeps import one_in, quick

erf = np.vectorize(math.erf, otypes=["f8"])


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1, small) / (1 + small)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def elu(x, alpha=1.0):
    return np.where(x < 0, np.expm1(x) * alpha, x)


def hard_sigmoid(x, alpha=0.25, beta=0.5):
    return np.clip(x * alpha + beta, 0, 1)


# Operator, attributes, what it means in float64.
FORMULAS = [
    ("Celu", {"alpha": 0.5}, lambda x: np.where(x < 0, np.expm1(x / 0.5) * 0.5, x)),
    ("Celu", {"alpha": -2.0}, lambda x: np.where(x < 0, np.expm1(x / -2) * -2, x)), ("Elu", {"alpha": -0.25}, lambda x: elu(x, -0.25)),
    ("Celu", {"alpha": 0.0}, lambda x: np.where(x < 0, 0, x)),
    ("Elu", {"alpha": 0.25}, lambda x: elu(x, 0.25)),
    ("Selu", {"alpha": 1.5, "gamma": 1.25}, lambda x: 1.25 * elu(x, 1.5)), ("Softplus", {}, softplus),
    ("Mish", {}, lambda x: x * np.tanh(softplus(x))), ("Sigmoid", {}, sigmoid), ("Swish", {}, lambda x: x * sigmoid(x)),
    ("Relu", {}, lambda x: np.maximum(x, 0)), ("Clip", {"min": -0.5, "max": 2.5}, lambda x: np.clip(x, -0.5, 2.5)),
    ("HardSigmoid", {"alpha": 0.25}, hard_sigmoid), ("HardSwish", {}, lambda x: x * hard_sigmoid(x, 1 / 6)),
    ("LeakyRelu", {"alpha": 0.125}, lambda x: np.where(x < 0, x * 0.125, x)), ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("Gelu", {}, lambda x: x * 0.5 * (1 + erf(x * 0.5**0.5))), ("Reciprocal", {}, lambda x: 1 / x), ("Sign", {}, np.sign),
    ("Gelu", {"approximate": "tanh"}, lambda x: x * 0.5 * (1 + np.tanh((x + 0.044715 * x**3) * (2 / np.pi) ** 0.5))),
    ("Shrink", {"lambd": 1.5, "bias": 1.5}, lambda x: np.where(np.abs(x) > 1.5, x - np.sign(x) * 1.5, np.where(x == x, 0, 0))),
    ("ThresholdedRelu", {"alpha": 0.25}, lambda x: np.where(x > 0.25, x, 0)), ("Erf", {}, erf), ("Tanh", {}, np.tanh),
]  # fmt: skip
CANCELLING = ("Gelu", "HardSigmoid", "HardSwish", "Shrink")  # an error of a rounding of their terms
UNITS = {"float64": 8, "float32": 5, "float16": 0.51, "bfloat16": 0.51}  # of the last place; of halves one rounding


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def numbers(dtype):
    info = ml_dtypes.finfo(dtype)
    ends = [np.nan, np.inf, -np.inf, 0.0, -0.0, float(info.max), -float(info.max), float(info.tiny), -float(info.tiny)]
    far = [-103, -90, -88, -75, -40, -30, -20, -18, -17, 17, 18, 20, 40, 88, 90, -700, 700]
    with np.errstate(over="ignore"):
        return np.concatenate(
            [ends, far, np.linspace(-12, 12, 97), np.geomspace(1e-6, 2, 37), -np.geomspace(1e-6, 2, 37)]
        ).astype(dtype)


def called(calls, arrays, outputs=1):
    """The outputs of calls, (operator, attributes), of the same arrays, in one graph: interpreted, then, if asked for, compiled."""
    inputs = tuple(Value(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays))
    made = []
    for number, (operator, attributes) in enumerate(calls):
        call = Call(operator, inputs, (), tuple(sorted(attributes.items())))
        values = (Value(f"y{number}_{n}", *t) for n, t in enumerate(result_types(call)[:outputs]))
        made.append(replace(call, outputs=tuple(values)))
    results = tuple(v for call in made for v in call.outputs)
    graph = Graph("g", inputs, tuple(made), results, {})
    raw = [a.view("u2") if a.dtype.name == "bfloat16" else a for a in arrays]
    for run in (partial(evaluate, graph), lambda given: tir.compile(graph, "llvm -num-cores 1", cache=None)(*given)):
        found = run(raw)
        yield [a.view(ml_dtypes.bfloat16) if v.dtype == "bfloat16" else a for v, a in zip(results, found, strict=True)]


@one_in(2)
@pytest.mark.parametrize("name", UNITS)
def test_activations_over_the_whole_range(name):
    dtype = dtype_of(name)
    x, info = numbers(dtype), ml_dtypes.finfo(dtype)
    unit, least = float(info.eps), float(info.tiny)
    calls = [(operator, attributes) for operator, attributes, _ in FORMULAS]
    with np.errstate(all="ignore"):
        for found in called(calls, [x]):
            for (operator, attributes, formula), y in zip(FORMULAS, found, strict=True):
                exact, y, size = formula(x.astype("f8")), y.astype("f8"), np.maximum(1, np.abs(x.astype("f8")))
                wanted = exact.astype(dtype).astype("f8")
                bound = UNITS[name] * unit * np.maximum(np.abs(exact), size * (1 if operator in CANCELLING else least))
                bound = np.maximum(bound, least if name == "bfloat16" else 0)  # processors make 0 of its subnormal numbers
                right = (y == wanted) | (np.isnan(y) & np.isnan(wanted)) | (np.isfinite(wanted) & (np.abs(y - exact) <= bound))
                assert right.all(), (operator, attributes, x[~right], y[~right], exact[~right])


@pytest.mark.parametrize("name", UNITS)
def test_a_nan_is_neither_larger_nor_smaller(name):
    x = np.array([np.nan, 1, np.nan, -np.inf, np.inf, 2], dtype_of(name))
    y = np.array([1, np.nan, np.nan, np.nan, 3, -2], dtype_of(name))
    for large, small in called([("Max", {}), ("Min", {})], [x, y]):
        np.testing.assert_array_equal(large.astype("f8"), np.maximum(x.astype("f8"), y.astype("f8")))
        np.testing.assert_array_equal(small.astype("f8"), np.minimum(x.astype("f8"), y.astype("f8")))


@one_in(2)
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("shape", [(1, 2, 5, 7), (2, 3, 3, 41)])
def test_maxima_pass_over_nan(name, shape):
    """Of nothing but NaN, in the first image, they are infinite; indices lie within bounds."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, shape).astype(dtype_of(name))
    x[rng.random(shape) < 0.6] = np.nan
    x[0, 0] = np.nan
    low, high = (np.where(np.isnan(x.astype("f8")), worst, x.astype("f8")) for worst in (-np.inf, np.inf))
    window = np.lib.stride_tricks.sliding_window_view(low, (2, 3), (2, 3)).max((-2, -1))
    calls = [
        ("ReduceMax", {"axes": (3,)}), ("ReduceMin", {"axes": (0, 2)}), ("ReduceMax", {}), ("ReduceMax", {"axes": (2, 3)}),
        ("MaxPool", {"kernel_shape": (2, 3)}),
    ]  # fmt: skip
    wanted = [
        low.max(3, keepdims=True),
        high.min((0, 2), keepdims=True),
        low.max(keepdims=True),
        low.max((2, 3), keepdims=True),
        window,
    ]
    for found in called(calls, [x]):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a.astype("f8"), b)
    chosen = [
        (operator, {"axis": axis, "select_last_index": last})
        for operator in ("ArgMax", "ArgMin")
        for axis in (1, 3)
        for last in (0, 1)
    ]
    for found in called(chosen, [x]):
        for (_, attributes), a in zip(chosen, found, strict=True):
            assert a.min() >= 0 and a.max() < shape[attributes["axis"]]


@one_in(2)
@pytest.mark.parametrize("name", UNITS)
def test_mean_variance_normalization_of_all_floats(name):
    """As the standard has it; its function and its evaluator are of float32 alone. A row of equal elements gives zeros."""
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7)).astype(dtype_of(name))
    x[0, 0] = 0.5
    calls = [("MeanVarianceNormalization", {"axes": axes}) for axes in ((0, 2, 3), (1,), (-1, 2))]
    for found in called(calls, [x]):
        for (_, attributes), y in zip(calls, found, strict=True):
            wide, axes = x.astype("f8"), attributes["axes"]
            wanted = (wide - wide.mean(axes, keepdims=True)) / (wide.std(axes, keepdims=True) + 1e-9)
            assert y.dtype == x.dtype
            np.testing.assert_allclose(y.astype("f8"), wanted, rtol=0, atol=8 * float(ml_dtypes.finfo(x.dtype).eps))


def ordered(x, k, axis, largest):
    """As numpy orders: a NaN behind all numbers; of equal ones the first first."""
    places = np.indices(x.shape)[axis]
    order = np.lexsort((-places if largest else places, x), axis=axis)
    order = np.take(np.flip(order, axis) if largest else order, range(k), axis)
    return np.take_along_axis(x, order, axis), order


@quick(lambda shape: shape not in ((1, 101), (3, 13, 2)))
@pytest.mark.parametrize(("shape", "axis", "k", "name"), [
    ((1,), 0, 1, "float32"), ((7,), 0, 7, "float16"), ((3, 13, 2), 1, 3, "float64"), ((2, 37), -1, 37, "int64"),
    ((1, 101), 1, 5, "float32"), ((2, 83), 1, 2, "float16"), ((103, 2), 0, 2, "float32"),
    ((2, 5), 1, 0, "int64"), ((2, 201), 1, 150, "float32"), ((131, 1), 0, 131, "int64"), ((1, 300), 1, 40, "float16"),
])  # fmt: skip
def test_top_k_of_ties_and_nan(shape, axis, k, name):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, shape).astype(name)
    if name != "int64":
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.5], name)
        x = np.where(rng.random(shape) < 0.4, rng.choice(special, shape), x)
    calls = [("TopK", {"axis": axis, "k": k, "largest": largest}) for largest in (0, 1)]
    found = called(calls, [x], 2)
    for results in found if x.size < 150 else [next(found)]:  # long axes are compiled once
        for largest in (0, 1):
            values, places = ordered(x, k, axis, largest)
            np.testing.assert_array_equal(results[2 * largest], values)
            np.testing.assert_array_equal(results[2 * largest + 1], places)


def test_top_k_of_a_long_axis_reads_each_element_a_few_times():
    inputs, attributes = (Value("x", (50257,), "float32"),), (("k", 50),)
    types = result_types(Call("TopK", inputs, (), attributes))
    outputs = tuple(Value(f"y{n}", *t) for n, t in enumerate(types))
    assert work(Call("TopK", inputs, outputs, attributes)) < 6 * 50257


def cubic_weights(t, a=-0.75):
    d = np.abs(np.array([t + 1, t, 1 - t, 2 - t]))
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padding", ["border", "reflection", "zeros"])
def test_cubic_samples_near_the_edge(padding, dtype):
    """Each element that a sum takes is brought into the image by itself, and places are of the grid's type."""
    x = np.random.default_rng(0).uniform(-1, 1, (1, 1, 5)).astype(dtype)
    grid = np.array([-1.4, -0.95, -0.5, 0.3, 0.99, 1.0, 1.9], dtype).reshape(1, -1, 1)
    wanted = []
    for place in (grid.ravel().astype("f8") + 1) * 2.5 - 0.5:
        first = math.floor(place)
        total = 0.0
        for n, weight in zip(range(first - 1, first + 3), cubic_weights(place - first), strict=True):
            turned = n % 10 if n % 10 < 5 else 9 - n % 10
            index = {"border": min(max(n, 0), 4), "reflection": turned, "zeros": n}[padding]
            total += weight * x[0, 0, index] if 0 <= index < 5 else 0.0
        wanted.append(total)
    for (found,) in called([("GridSample", {"mode": "cubic", "padding_mode": padding})], [x, grid]):
        np.testing.assert_allclose(found[0, 0], wanted, rtol=0, atol=64 * np.finfo(dtype).eps)


def test_samples_far_outside():
    x = np.array([[[2.0, 3.0, 4.0]]], "f4")
    grid = np.array([1e9, -1e9, 3e38, -3e38], "f4").reshape(1, -1, 1)
    cases = [{"mode": m, "padding_mode": p} for m in ("linear", "nearest", "cubic") for p in ("border", "zeros")]
    for results in called([("GridSample", case) for case in cases], [x, grid]):
        for case, found in zip(cases, results, strict=True):
            np.testing.assert_array_equal(found[0, 0], [4, 2, 4, 2] if case["padding_mode"] == "border" else [0] * 4)
