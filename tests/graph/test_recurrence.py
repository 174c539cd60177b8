"""Recurrences against what ONNX says of them, written in numpy; by the interpreter, and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.ops.loops import MIN_LOOPED_STEPS
from graph.reference import evaluate

from .models import close, model

T, N, INPUTS, UNITS = 5, 3, 7, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CLIP = 0.25
FUNCTIONS = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a=0.2, b=0.5: np.clip(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a=0.01: np.where(x < 0, a * x, x),
}


def one_direction(operator, x, w, r, b, h, c, p, f, lengths, input_forget=0, linear_before_reset=0):
    """Outputs (T, N, H) and the last states, time step after time step. `f` are the activations."""
    units = r.shape[1]
    (wx, wh), y = np.split(b, 2), np.zeros((len(x), x.shape[1], units))
    for t, row in enumerate(x):
        own, state = np.split(row @ w.T + wx, GATES[operator], 1), h @ r.T + wh
        parts = np.split(state, GATES[operator], 1)
        if operator == "RNN":
            new = f[0](own[0] + parts[0])
        elif operator == "GRU":
            z, reset = f[0](own[0] + parts[0]), f[0](own[1] + parts[1])
            hidden = reset * parts[2] if linear_before_reset else (reset * h) @ r[2 * units :].T + wh[2 * units :]
            new = (1 - z) * f[1](own[2] + hidden) + z * h
        else:
            i, o, forget, cell = (a + b for a, b in zip(own, parts, strict=True))
            pi, po, pf = np.split(p, 3)
            i, forget = f[0](i + pi * c), f[0](forget + pf * c)
            cell = (1 - i if input_forget else forget) * c + i * f[1](cell)
            new = f[0](o + po * cell) * f[2](cell)
            c = np.where((t < lengths)[:, None], cell, c)
        h = np.where((t < lengths)[:, None], new, h)
        y[t] = np.where((t < lengths)[:, None], new, 0)
    return y, h, c


def wanted(operator, inputs, functions, lengths=None, direction="forward", layout=0, **attributes):
    """All outputs as ONNX has them. A sequence that is read backward begins at its own end."""
    given = {"b": np.zeros((2, 2 * GATES[operator] * UNITS)), "p": np.zeros((2, 3 * UNITS)), "h": None, "c": None} | inputs
    x = given["x"].swapaxes(0, 1) if layout else given["x"]
    lengths = np.full(x.shape[1], len(x)) if lengths is None else np.array(lengths)
    outputs = []
    for d in range(len(given["w"])):
        backward = direction == "reverse" or d == 1
        order = np.array([[t if not backward or t >= n else n - 1 - t for n in lengths] for t in range(len(x))])
        states = [
            np.zeros((x.shape[1], UNITS)) if s is None else (s.swapaxes(0, 1) if layout else s)[d]
            for s in (given["h"], given["c"])
        ]
        y, *last = one_direction(
            operator, x[order, np.arange(x.shape[1])], given["w"][d], given["r"][d], given["b"][d], *states, given["p"][d],
            functions[d], lengths, **attributes,
        )  # fmt: skip
        outputs.append([y[order, np.arange(x.shape[1])], *last])
    y, h, c = (np.stack(a, 1 if a[0].ndim == 3 else 0) for a in zip(*outputs, strict=True))
    result = [y.transpose(2, 0, 1, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)] if layout else [y, h, c]
    return result if operator == "LSTM" else result[:2]


def network(operator, names, dtype="float64", lengths=None, change=None, **attributes):
    """A model of one recurrence, and its inputs: x, and of `names` (b, h, c, p) those that are there; `change` maps some."""
    rng = np.random.default_rng(0)
    count, gates, layout = 1 + (attributes.get("direction") == "bidirectional"), GATES[operator], attributes.get("layout", 0)
    state = (N, count, UNITS) if layout else (count, N, UNITS)
    shapes = {
        "x": (N, T, INPUTS) if layout else (T, N, INPUTS), "w": (count, gates * UNITS, INPUTS), "r": (count, gates * UNITS, UNITS),
        "b": (count, 2 * gates * UNITS), "h": state, "c": state, "p": (count, 3 * UNITS),
    }  # fmt: skip
    values = {name: rng.uniform(-1, 1, shape).astype(dtype) for name, shape in shapes.items() if name in {*names, *"xwr"}}
    values |= {name: cut(values[name]) for name, cut in (change or {}).items()}
    places = ["x", "w", "r", "b", "lengths", "h", "c", "p"][: 6 if operator != "LSTM" else 8]
    constants = {name: values[name] for name in "wrbp" if name in values}
    if lengths is not None:
        constants["lengths"] = np.array(lengths, "int32")
    there = [name if name in values or name in constants else "" for name in places]
    outputs = ["y", "yh", "yc"][: 3 if operator == "LSTM" else 2]
    inputs = {name: array for name, array in values.items() if name not in constants}
    proto = model(
        [helper.make_node(operator, there, outputs, **{"hidden_size": UNITS} | attributes)], inputs, outputs, constants, 22
    )
    return proto, inputs, values


DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
CHOICES = {"activations": None, "activation_alpha": (), "activation_beta": (), "clip": np.inf}
ROUNDINGS = T * (INPUTS + UNITS + 16)

CASES = [
    ("RNN", "", {}),
    ("RNN", "bh", {"direction": "bidirectional"}),
    ("RNN", "bh", {"direction": "reverse", "layout": 1, "lengths": [5, 1, 4]}),
    ("RNN", "b", {"clip": CLIP}),
    ("GRU", "bh", {"clip": CLIP}),
    ("LSTM", "bhcp", {"clip": CLIP}),
    ("RNN", "b", {"activations": ["ScaledTanh"], "activation_alpha": [0.75], "activation_beta": [0.5]}),
    ("RNN", "b", {"activations": ["Relu", "HardSigmoid"], "activation_alpha": [0.25], "direction": "bidirectional"}),
    ("GRU", "", {}),
    ("GRU", "bh", {"direction": "bidirectional"}),
    ("GRU", "b", {"linear_before_reset": 1}),
    ("GRU", "bh", {"linear_before_reset": 1, "direction": "reverse", "lengths": [2, 5, 0]}),
    ("GRU", "h", {"layout": 1, "lengths": [5, 5, 5]}),
    ("GRU", "b", {"activations": ["HardSigmoid", "Softsign"]}),
    ("LSTM", "", {}),
    ("LSTM", "bhc", {"direction": "bidirectional"}),
    ("LSTM", "bhcp", {"direction": "reverse", "lengths": [4, 5, 2]}),
    ("LSTM", "pc", {"direction": "bidirectional", "layout": 1, "input_forget": 1}),
    ("LSTM", "b", {"direction": "bidirectional", "lengths": [1, 5, 3], "layout": 1}),
    ("LSTM", "bp", {"activations": ["Affine", "LeakyRelu", "Relu"], "activation_alpha": [0.5, 0.125], "activation_beta": [0.25]}),
]  # fmt: skip


def activations(operator, directions, names=None, alphas=(), betas=(), clip=np.inf):
    """The functions of each direction. Each takes its numbers from the lists, as far as they reach; the cell's is not clipped."""
    names, alphas, betas, functions = names or DEFAULTS[operator] * directions, iter(alphas), iter(betas), []
    for n, name in enumerate(names):
        alpha = next(alphas, None) if name in ("Affine", "ScaledTanh", "HardSigmoid", "LeakyRelu") else None
        beta = next(betas, None) if name in ("Affine", "ScaledTanh", "HardSigmoid") else None
        numbers = [n for n in (alpha, beta) if n is not None]
        bound = np.inf if n % 3 == 2 and operator == "LSTM" else clip
        functions.append(lambda x, f=FUNCTIONS[name], numbers=numbers, bound=bound: f(np.clip(x, -bound, bound), *numbers))
    each = len(DEFAULTS[operator])
    return [functions[n : n + each] for n in range(0, len(functions), each)]


@pytest.mark.parametrize("steps", [T, 13])
@pytest.mark.parametrize(("operator", "names", "attributes"), CASES)
def test_recurrence(monkeypatch, operator, names, attributes, steps):
    """Of few steps, which are written out, and of some more, which are a loop."""
    monkeypatch.setitem(globals(), "T", steps)
    if "lengths" in attributes:
        attributes = attributes | {"lengths": [n and n + steps - 5 for n in attributes["lengths"]]}
    proto, inputs, values = network(operator, names, **attributes)
    others = dict(attributes)
    chosen = [others.pop(name, default) for name, default in CHOICES.items()]
    expected = wanted(operator, values, activations(operator, len(values["w"]), *chosen), **others)
    graph = load_onnx(proto)
    written = steps if steps < MIN_LOOPED_STEPS else 1
    assert sum(c.operator == f"{operator}Step" for c in graph.calls) == written * len(values["w"])
    for found in (evaluate(graph, inputs), tir.compile(graph)(inputs)):
        for a, b in zip(found, expected, strict=True):
            close(a, b, ROUNDINGS * steps)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_loop_has_one_kernel_however_many_steps_it_has(monkeypatch, direction):
    found = []
    for steps in (13, 400):
        monkeypatch.setitem(globals(), "T", steps)
        proto, inputs, values = network("LSTM", "bhc", direction=direction)
        graph = load_onnx(proto)
        net = tir.compile(graph, "llvm -num-cores 1")
        expected = wanted("LSTM", values, activations("LSTM", len(values["w"])), direction=direction)
        for a, b in zip(net(inputs), expected, strict=True):
            close(a, b, steps * ROUNDINGS)
        calls = {k.name.partition("(")[0]: k.calls for k in net.profile(inputs, runs=1).kernels}
        assert calls["lstmstep"] == steps * len(values["w"])
        found.append((len(graph.calls), [g.func.name for g in net.groups], len(set(net.kernels))))
    assert found[0] == found[1] and found[0][1].count("lstmstep") == len(values["w"])


def test_a_step_is_one_kernel_and_writes_where_it_is_read():
    graph = load_onnx(network("LSTM", "b", direction="reverse")[0])
    groups = tir.compile(graph).groups
    assert [g.func.name for g in groups] == ["matmul_add", *["lstmstep"] * T]
    assert len({g.func for g in groups}) == 3  # the product, the first step, which has no state, and the others


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"direction": "backward"}, "the direction 'backward' is not supported; expected one of forward, reverse, bidirectional"),
        ({"lengths": [5, 5]}, "sequence_lens must have the shape [3], got [2]"),
        ({"lengths": [[5, 5, 1]]}, "sequence_lens must have the shape [3], got [1, 3]"),
        ({"lengths": 5}, "sequence_lens must have the shape [3], got []"),
        ({"lengths": [5, 6, 1]}, "sequence_lens [5, 6, 1] do not fit 3 sequence(s) of 5 steps"),
        ({"hidden_size": 7}, "hidden_size 7 contradicts the weights, [1, 18, 6]"),
        ({"activations": ["Tanh"]}, "2 activation(s) are needed in each direction, got Tanh"),
        ({"activations": ["Tanh", "Sine"]}, "it is written out with GRUStep: the activation 'Sine' is not supported; expected one of Affine, LeakyRelu, ThresholdedRelu, "
         "ScaledTanh, HardSigmoid, Elu, Relu, Tanh, Sigmoid, Softsign, Softplus"),
        ({"activations": ["Tanh", "Affine"], "activation_alpha": [1.0]}, "it is written out with GRUStep: the activation Affine needs alpha and beta"),
    ],
)  # fmt: skip
def test_refusals(attributes, reason):
    proto, _, _ = network("GRU", "", **attributes)
    with pytest.raises(GraphError) as caught:
        load_onnx(proto)
    assert str(caught.value).endswith(f"GRU of opset 22: {reason}")


OPERANDS = {
    "x": "(the input|the weights of inputs)", "w": "the weights of inputs", "r": "the weights of (states|inputs)", "b": "the biases",
    "h": "initial_h", "c": "initial_c", "p": "the peepholes",
}  # fmt: skip


@pytest.mark.parametrize(("operator", "name"), [(o, n) for o in GATES for n in ("xwrbhcp" if o == "LSTM" else "xwrbh")])
def test_operands_of_another_rank_or_size(operator, name):
    """Each with a dimension too few, one too many, and without its last elements."""
    for cut in (lambda v: v[0], lambda v: v[None], lambda v: v[..., :-1]):
        proto, _, _ = network(operator, "bhcp", change={name: cut})
        with pytest.raises(GraphError, match=f"{operator} of opset 22: {OPERANDS[name]} (has|must have) "):
            load_onnx(proto)
