"""Operators of com.microsoft by the interpreter against numpy, and against onnxruntime where that is installed."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from onnx import helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import model

RNG = np.random.default_rng(0)
N, S, HEADS, H = 2, 5, 2, 16
WIDTH = HEADS * H


def real(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype("float32")


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def normal(x, scale, bias, epsilon=1e-12):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * scale + bias


def by_head(x, heads=HEADS):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def joined(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attended(q, k, v, added=0.0, causal=False):
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5 + added
    rows, columns = scores.shape[-2:]
    if causal:
        scores = np.where(np.tril(np.ones((rows, columns), bool), columns - rows), scores, -np.inf)
    return joined(softmax(scores) @ v)


def turned(x, places, cosines, sines, interleaved=False):
    """(N, heads, S, H), of which all elements turn."""
    c, s = cosines[places][:, None], sines[places][:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    pair = a * c - b * s, b * c + a * s
    return np.stack(pair, -1).reshape(x.shape) if interleaved else np.concatenate(pair, -1)


def decoded(lengths, before, columns):
    """The attention of one new token in each row, whose keys follow `lengths` keys in a past of `before`, and the keys and values
    in so many columns, NaN beyond the new ones; its operands."""
    new, past = [real(N, 1, HEADS * H) for _ in range(3)], [real(N, HEADS, before, H) for _ in range(2)]
    found, presents = [], np.full((2, N, HEADS, columns, H), np.nan)
    for n, length in enumerate(lengths):
        query, key = (turned(by_head(v[n : n + 1]), np.array([[length]]), COSINES, SINES) for v in new[:2])
        for present, old, one in zip(presents, past, (key, by_head(new[2][n : n + 1])), strict=True):
            present[n, :, :length], present[n, :, length] = old[n, :, :length], one[0, :, 0]
        found.append(attended(query, *presents[:, n : n + 1, :, : length + 1]))
    return [*new, *past, np.array(lengths, "int32")], [np.concatenate(found), *presents]


def quantised(x, scale, zero, dtype="uint8"):
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(dtype)


X, SKIP, SCALE, SHIFT, BIAS = real(N, S, WIDTH), real(N, S, WIDTH), real(WIDTH), real(WIDTH), real(WIDTH)
IMAGE, KERNEL = real(1, 3, 7, 5), real(4, 3, 3, 3)
W, W3 = real(WIDTH, WIDTH), real(WIDTH, 3 * WIDTH)
B3 = real(3 * WIDTH)
KEYS = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
HIDDEN = np.where(KEYS, 0, -10000.0)[:, None, None]
IDS, PLACES = RNG.integers(0, 9, (N, S)).astype("int32"), np.tile(np.arange(S), (N, 1)).astype("int64")
COSINES, SINES = (f(np.outer(np.arange(16), 0.5 ** np.arange(8))).astype("float32") for f in (np.cos, np.sin))
PAST = real(2, N, HEADS, 3, H)
A8, B8 = (RNG.integers(0, 256, (3, 4, 5)).astype("uint8") for _ in range(2))
NUMBERS = {name: np.float32(v) for name, v in (("sa", 0.02), ("sb", 0.03), ("sc", 0.05))}
ZEROS = {name: np.uint8(v) for name, v in (("za", 120), ("zb", 7), ("zc", 100))} | {"total": np.int32(7)}
REAL_A, REAL_B = 0.02 * (A8.astype("f8") - 120), 0.03 * (B8.astype("f8") - 7)
Q, K, V = np.split(X.astype("f8") @ W3 + B3, 3, -1)
LATER = np.where(np.tril(np.ones((S, S), bool)), 0, -np.inf)


def conv(x, w):
    columns = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwyx,mcyx->nmhw", columns, w)


# Operator, inputs (None for one that is left out), attributes, the outputs by numpy (None for one that is not read).
CASES = [
    ("BiasGelu", [X, BIAS], {}, [gelu(X + BIAS)]),
    ("FastGelu", [X, BIAS], {}, [tanh_gelu(X + BIAS)]),
    ("QuickGelu", [X], {"alpha": 1.5}, [X / (1 + np.exp(-1.5 * X))]),
    ("FusedConv", [IMAGE, KERNEL], {"activation": "Relu"}, [np.maximum(conv(IMAGE, KERNEL), 0)]),
    ("FusedConv", [IMAGE, KERNEL, SCALE[:4]], {"activation": "LeakyRelu", "activation_params": [0.25]},
     [np.where((y := conv(IMAGE, KERNEL) + SCALE[:4, None, None]) < 0, 0.25 * y, y)]),
    ("FusedGemm", [X[0], W, BIAS], {"activation": "Relu", "transB": 1, "alpha": 0.5}, [np.maximum(0.5 * X[0] @ W.T + BIAS, 0)]),
    ("FusedMatMul", [X, W], {"transB": 1, "alpha": 0.25}, [0.25 * X @ W.T]),
    ("FusedMatMul", [X, SKIP], {"transA": 1}, [X.transpose(0, 2, 1) @ SKIP]),
    ("SkipLayerNormalization", [X, SKIP, SCALE, SHIFT, BIAS], {"epsilon": 1e-5},
     [normal(X + SKIP + BIAS, SCALE, SHIFT, 1e-5), None, None, X + SKIP + BIAS]),
    ("SkipSimplifiedLayerNormalization", [X, SKIP, SCALE], {"epsilon": 1e-5},
     [(X + SKIP) / np.sqrt(((X + SKIP) ** 2).mean(-1, keepdims=True) + 1e-5) * SCALE, None, None, X + SKIP]),
    ("EmbedLayerNormalization", [IDS, IDS % 2, real(9, WIDTH), real(16, WIDTH), real(2, WIDTH), SCALE, SHIFT, KEYS], {}, None),
    ("Attention", [X, W3, B3], {"num_heads": HEADS}, [attended(*map(by_head, (Q, K, V)))]),
    ("Attention", [X, W3, B3, KEYS], {"num_heads": HEADS}, [attended(*map(by_head, (Q, K, V)), HIDDEN)]),
    ("Attention", [X, W3, B3, KEYS.sum(1).astype("int32")], {"num_heads": HEADS}, [attended(*map(by_head, (Q, K, V)), HIDDEN)]),
    ("Attention", [X, W3, B3, np.ascontiguousarray(KEYS[:, ::-1])], {"num_heads": HEADS, "unidirectional": 1, "mask_filter_value": -8.0},
     [attended(*map(by_head, (Q, K, V)), HIDDEN[..., ::-1] / 1250 + LATER)]),
    ("MultiHeadAttention", [X, SKIP[:, 1:], X[:, 1:]], {"num_heads": HEADS, "unidirectional": 1},
     [attended(*map(by_head, (X, SKIP[:, 1:], X[:, 1:])), LATER[:, : S - 1])]),
    ("Attention", [X, W3, B3, None, PAST], {"num_heads": HEADS, "unidirectional": 1},
     [attended(by_head(Q), np.concatenate([PAST[0], by_head(K)], 2), np.concatenate([PAST[1], by_head(V)], 2), causal=True),
      np.concatenate([PAST, np.stack([by_head(K), by_head(V)])], 3)]),
    ("MultiHeadAttention", [X, SKIP, X, B3, KEYS], {"num_heads": HEADS},
     [attended(*(by_head(x + b) for x, b in zip((X, SKIP, X), np.split(B3, 3), strict=True)), HIDDEN)]),
    ("MultiHeadAttention", [np.stack([by_head(v).transpose(0, 2, 1, 3) for v in (X, SKIP, X)], 3)], {"num_heads": HEADS},
     [attended(*map(by_head, (X, SKIP, X)))]),
    ("RotaryEmbedding", [X, PLACES, COSINES, SINES], {}, [joined(turned(by_head(X), PLACES, COSINES, SINES))]),
    ("RotaryEmbedding", [by_head(X), np.array([3]), COSINES, SINES], {"interleaved": 1},
     [turned(by_head(X), PLACES + 3, COSINES, SINES, True)]),
    ("GroupQueryAttention",
     [X[:1], X[:1, :, :H], SKIP[:1, :, :H], None, None, np.array([S - 1], "int32"), np.array(S, "int32"), COSINES, SINES],
     {"num_heads": HEADS, "kv_num_heads": 1, "do_rotary": 1},
     [attended(turned(by_head(X[:1]), PLACES, COSINES, SINES)[:1],
               np.repeat(turned(by_head(X[:1, :, :H], 1), PLACES, COSINES, SINES)[:1], 2, 1),
               np.repeat(by_head(SKIP[:1, :, :H], 1), 2, 1), causal=True)]),
    *[("GroupQueryAttention", [*given, total, COSINES, SINES], {"num_heads": HEADS, "kv_num_heads": HEADS, "do_rotary": 1}, found)
      for lengths, before, total in (((5, 3), 5, np.array(6, "int32")), ((4, 6), 9, "total"))
      for given, found in [decoded(lengths, before, max(before, max(lengths) + 1))]],
    *[(f"QLinear{name}", [A8, "sa", "za", B8, "sb", "zb", "sc", "zc"], {}, [quantised(f(REAL_A, REAL_B), 0.05, 100)])
      for name, f in (("Add", np.add), ("Mul", np.multiply))],
    ("QLinearSigmoid", [A8, "sa", "za", "sc", "zc"], {}, [quantised(1 / (1 + np.exp(-REAL_A)), 0.05, 100)]),
    ("QLinearLeakyRelu", [A8, "sa", "za", "sc", "zc"], {"alpha": 0.5},
     [quantised(np.where(REAL_A < 0, 0.5, 1) * REAL_A, 0.05, 100)]),
    ("QLinearGlobalAveragePool", [A8[None], "sa", "za", "sc", "zc"], {},
     [quantised(REAL_A[None].mean((2, 3), keepdims=True), 0.05, 100)]),
    ("QLinearConcat", ["sc", "zc", A8, "sa", "za", B8, "sb", "zb"], {"axis": 1},
     [quantised(np.concatenate([REAL_A, REAL_B], 1), 0.05, 100)]),
    ("MatMulIntegerToFloat", [A8[0], B8[0].T.copy(), "sa", "sb", "za", "zb"], {}, [REAL_A[0] @ REAL_B[0].T]),
    ("QGemm", [A8[0], "sa", "za", B8[0], "sb", "zb", np.arange(-2, B8[0].shape[0] - 2, dtype="int32"), "sc", "zc"],
     {"transB": 1, "alpha": 0.5},
     [quantised(0.5 * (REAL_A[0] @ REAL_B[0].T + 0.02 * 0.03 * np.arange(-2, B8[0].shape[0] - 2)), 0.05, 100)]),
    ("QGemm", [A8[0], "sa", "za", B8[0], "sb", "zb"], {"transB": 1}, [REAL_A[0] @ REAL_B[0].T]),
    ("DynamicQuantizeMatMul", [X[0], np.rint(100 * W).astype("int8"), "sb"], {}, None),
]  # fmt: skip


def by_steps(name, inputs):
    """The outputs of cases that take more than a formula."""
    if name == "EmbedLayerNormalization":
        ids, segments, words, places, segment, scale, shift, mask = inputs
        total = words[ids] + places[:S] + segment[segments]
        return [normal(total, scale, shift), mask.sum(1)]
    x, w, scale = inputs[0].astype("f8"), inputs[1].astype("f8"), 0.03
    step = np.float32(max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    zero = np.clip(np.rint(-min(x.min(), 0) / step), 0, 255)
    return [step * (quantised(x, step, zero) - zero) @ w * scale]


def proto_of(case):
    name, inputs, attributes, _ = case
    count = len(wanted(case))
    arrays = [{**NUMBERS, **ZEROS}[v] if isinstance(v, str) else v for v in inputs]
    names = ["" if a is None else f"x{n}" for n, a in enumerate(arrays)]
    outputs = [f"y{n}" if w is not None else "" for n, w in enumerate(wanted(case))]
    node = helper.make_node(name, names, outputs, domain="com.microsoft", **attributes)
    assert len(outputs) == count
    given = {n: np.asarray(a) for n, a, v in zip(names, arrays, inputs, strict=True) if n and not isinstance(v, str)}
    constants = {n: np.asarray(a) for n, a, v in zip(names, arrays, inputs, strict=True) if isinstance(v, str)}
    proto = model([node], given, [o for o in outputs if o], constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto, given


def wanted(case):
    name, inputs, _, outputs = case
    return by_steps(name, inputs) if outputs is None else outputs


def compare(found, case):
    for array, expected in zip(found, [w for w in wanted(case) if w is not None], strict=True):
        expected = np.asarray(expected)
        assert array.shape == expected.shape
        if array.dtype.kind in "iu":  # a rounding may end on either side of the middle
            assert np.abs(array.astype("int64") - expected).max() <= (1 if array.dtype == "uint8" else 0)
            assert (array != expected).mean() < 0.02
        else:
            known = ~np.isnan(expected)
            scale = np.abs(expected[known]).max()
            assert np.abs(array - expected)[known].max() <= 64 * np.finfo("float32").eps * scale


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_operators(case):
    proto, given = proto_of(case)
    compare(evaluate(load_onnx(proto), given), case)


@cache
def sessions():
    return pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_numpy_agrees_with_onnxruntime(case):
    library = sessions()
    proto, given = proto_of(case)
    del proto.graph.output[:]
    types = {"float32": 1, "uint8": 2, "int32": 6}
    for name, array in zip([o for o in proto.graph.node[0].output if o], [w for w in wanted(case) if w is not None], strict=True):
        kind = np.asarray(array).dtype
        kind = "float32" if kind.kind == "f" else "int32" if kind.name == "int64" else kind.name
        proto.graph.output.append(helper.make_tensor_value_info(name, types[kind], np.shape(array)))
    proto.ir_version = 10
    session = library.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    try:
        found = session.run(None, given)
    except Exception as error:  # of a kind of its own
        assert "not implemented for CPU" in str(error)
        pytest.skip("onnxruntime has it for other devices alone")
    compare(found, case)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (("Attention", [X, W3, B3, np.ones((N, S, S, S), "int32")], {"num_heads": HEADS}, [X]),
         "a mask of [2, 5, 5, 5] for 5 queries and 5 keys is not supported"),
        (("GroupQueryAttention", [X, X, X, None, None, KEYS[:, 0], np.array(S, "int32")],
          {"num_heads": HEADS, "kv_num_heads": HEADS, "local_window_size": 2}, [X]),
         "local windows, soft caps, smooth softmax and given places are not supported"),
        (("RotaryEmbedding", [X, PLACES, COSINES, SINES], {"rotary_embedding_dim": 2}, [X]), "rotary_embedding_dim needs num_heads"),
    ],
    ids=["mask", "window", "heads"],
)  # fmt: skip
def test_refusals(case, message):
    with pytest.raises(GraphError) as raised:
        load_onnx(proto_of(case)[0])
    assert str(raised.value).splitlines()[1].endswith(f": {message}")


def test_a_quantised_lstm_has_the_real_weights():
    """Weights are given transposed, with scales and zero points for each direction, or for each of their columns."""
    x, hidden = real(4, 2, 3), 5
    w, r = (RNG.integers(0, 256, (2, n, 4 * hidden)).astype("uint8") for n in (3, hidden))
    for columns in ((2,), (2, 4 * hidden)):
        scales, zeros = (
            [real(*columns, low=0.005, high=0.01) for _ in "wr"],
            [RNG.integers(99, 140, columns).astype("uint8") for _ in "wr"],
        )
        wide = [
            (a.astype("f4") - z.reshape(2, 1, -1)) * s.reshape(2, 1, -1) for a, s, z in zip((w, r), scales, zeros, strict=True)
        ]
        given = [w, r, scales[0], zeros[0], scales[1], zeros[1]]
        names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
        constants = dict(zip([n for n in names[1:] if n], given, strict=True))
        attributes = {"direction": "bidirectional", "hidden_size": hidden}
        quantised = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", **attributes)
        plain = helper.make_node("LSTM", ["x", "w", "r"], ["y"], **attributes)
        turned = {n: a.transpose(0, 2, 1).copy() for n, a in zip("wr", wide, strict=True)}
        made = []
        for node, own in ((quantised, constants), (plain, turned)):
            proto = model([node], {"x": x}, ["y"], own)
            proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            made += evaluate(load_onnx(proto), [x])
        np.testing.assert_allclose(*made, rtol=64 * np.finfo("f4").eps, atol=64 * np.finfo("f4").eps)
