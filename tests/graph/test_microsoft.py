"""Operators of com.microsoft by the interpreter against numpy, and against onnxruntime where that is installed."""

from __future__ import annotations

import math
from functools import cache, partial

import ml_dtypes
import numpy as np
import onnx
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
IMAGES = real(2, 4, 3, 6)  # channels last
W8, W8Q, W4 = (RNG.integers(0, 256, shape).astype("uint8") for shape in ((3, 5, 1, 1), (5, 12), (9, 16)))
S4 = real(9, 2)
NUMBERS |= {"sd": np.float32(0.005), "bq": np.full(12, 0.5, "f4"), "w8": W8, "w8q": W8Q, "w4": W4, "s4": S4}
Q, K, V = np.split(X.astype("f8") @ W3 + B3, 3, -1)
LATER = np.where(np.tril(np.ones((S, S), bool)), 0, -np.inf)


def grouped(x, active):
    """The norm of three groups of the last dimension, which becomes the second."""
    x = x.transpose(0, 3, 1, 2)
    flat = x.reshape(len(x), 3, -1)
    y = (flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + 1e-3)
    y = y.reshape(x.shape) * SCALE[:6, None, None] + SHIFT[:6, None, None]
    return (y / (1 + np.exp(-y))).transpose(0, 2, 3, 1) if active else y


def conv(x, w):
    columns = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwyx,mcyx->nmhw", columns, w)


# Signed weights beside bytes are below 64: without VNNI onnxruntime adds two products of them in 16 bits, which saturate.
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
    *[("GroupNorm", [IMAGES if last else IMAGES.transpose(0, 3, 1, 2).copy(), SCALE[:6], SHIFT[:6]],
       {"groups": 3, "activation": last, "channels_last": last, "epsilon": 1e-3}, [grouped(IMAGES, last)])
      for last in (1, 0)],
    ("SkipGroupNorm", [IMAGES, SCALE[:6], SHIFT[:6], IMAGES[:, 0, 0], BIAS[:6]], {"groups": 3, "activation": 0, "epsilon": 1e-3},
     [grouped(y := IMAGES + IMAGES[:, :1, :1] + BIAS[:6], 0).transpose(0, 2, 3, 1), y]),
    ("BiasSoftmax", [PAST[0], PAST[0][:, :, :1]], {"axis": -1, "is_inner_broadcast": 1}, [softmax(PAST[0] + PAST[0][:, :, :1])]),
    ("BiasSoftmax", [PAST[0], PAST[0][:, :1]], {"axis": 2, "is_inner_broadcast": 1},
     [softmax((PAST[0] + PAST[0][:, :1]).reshape(N, HEADS, -1)).reshape(PAST[0].shape)]),
    ("QLinearWhere", [KEYS[0] > 0, A8, "sa", "za", B8, "sb", "zb", "sc", "zc"], {},
     [quantised(np.where(KEYS[0] > 0, REAL_A, REAL_B), 0.05, 100)]),
    ("QLinearReduceMean", [A8, "sa", "za", "sc", "zc"], {"axes": [0, 2], "keepdims": 0},
     [quantised(REAL_A.mean((0, 2)), 0.05, 100)]),
    ("NhwcMaxPool", [A8[None]], {"kernel_shape": [3, 2]},
     [np.lib.stride_tricks.sliding_window_view(A8[None], (3, 2), (1, 2)).max((-1, -2))]),
    ("QLinearConv", [A8[None], "sa", "za", "w8", "sb", "zb", "sc", "zc"], {"channels_last": 1},
     [quantised(np.einsum("nhwc,mc->nhwm", REAL_A[None], 0.03 * (W8[..., 0, 0].astype("f8") - 7)), 0.05, 100)]),
    ("QAttention", [A8, "w8q", "bq", "sa", "sd", None, "za", "zb"], {"num_heads": 2},
     [attended(*(by_head(v) for v in np.split(REAL_A @ (0.005 * (W8Q.astype("f8") - 7)) + 0.5, 3, -1)))]),
    ("GatherBlockQuantized", ["w4", IDS, "s4"], {"block_size": 16},
     [(np.stack([W4 & 15, W4 >> 4], -1).reshape(9, 32) - 8.0)[IDS] * np.repeat(S4, 16, 1)[IDS]]),
    ("DynamicQuantizeMatMul", [X[0], np.rint(60 * W).astype("int8"), "sb"], {}, None),
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


def proto_of(case, fed=None):
    """The model of a case, and the inputs that are not constants: those of the numbers `fed`, by default all but named ones."""
    name, inputs, attributes, _ = case
    count = len(wanted(case))
    arrays = [{**NUMBERS, **ZEROS}[v] if isinstance(v, str) else v for v in inputs]
    names = ["" if a is None else f"x{n}" for n, a in enumerate(arrays)]
    outputs = [f"y{n}" if w is not None else "" for n, w in enumerate(wanted(case))]
    node = helper.make_node(name, names, outputs, domain="com.microsoft", **attributes)
    assert len(outputs) == count
    fed = {i for i, v in enumerate(inputs) if not isinstance(v, str)} if fed is None else fed
    given = {n: np.asarray(a) for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if n and i in fed}
    constants = {n: np.asarray(a) for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if n and i not in fed}
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


def needs_cpu(error):
    """Skip where onnxruntime has no kernel for CPUs; other errors fail."""
    assert any(words in str(error) for words in ("not implemented for CPU", "Could not find an implementation"))
    pytest.skip("onnxruntime has it for other devices alone")


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
    try:
        found = library.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    except Exception as error:  # of a kind of its own
        needs_cpu(error)
    compare(found, case)


def maybe(rng, array):
    """An optional input."""
    return array if rng.random() < 0.5 else None


def drawn_attention(rng):
    n, rows, heads, width, inner = (int(e) for e in rng.integers(1, 7, 5))
    kind, every = str(rng.choice(["int8", "uint8"])), 3 * heads * inner
    limits, before, columns = np.iinfo(kind), int(rng.integers(1, 4)), rng.random() < 0.5
    past = maybe(rng, rng.uniform(-1, 1, (2, n, heads, before, inner)).astype("f4"))
    keys = rows + (0 if past is None else before)
    masks = [None, rng.integers(0, 2, (n, keys)), rng.integers(0, 2, (n, rows, keys)), rng.integers(1, keys + 1, n)]
    mask = masks[rng.integers(len(masks))]
    weights = rng.integers(limits.min // 2, limits.max // 2 + 1, (width, every)).astype(kind)
    zero = maybe(rng, rng.integers(limits.min // 9, limits.max // 9, every if columns else ()).astype(kind))
    scale = rng.uniform(0.001, 0.01, every if columns else ()).astype("f4")
    x, bias = rng.integers(0, 256, (n, rows, width)).astype("u1"), rng.uniform(-1, 1, every).astype("f4")
    attributes = {"num_heads": heads, "unidirectional": int(rng.integers(2))}
    given = [
        x,
        weights,
        bias,
        np.float32(0.01),
        scale,
        None if mask is None else mask.astype("i4"),
        maybe(rng, np.uint8(120)),
        zero,
    ]
    return [*given, past], attributes, 2


def drawn_embedding(rng, quantised=True):
    n, rows, width, words = (int(e) for e in rng.integers(1, 9, 4))
    counts = words, rows + int(rng.integers(3)), 2
    tables = [rng.integers(0, 256, (c, width)).astype("u1") for c in counts] + [
        rng.integers(0, 256, width).astype("u1") for _ in "gb"
    ]
    scales, zeros = ([f(v) for v in rng.uniform(a, b, 5)] for f, a, b in ((np.float32, 0.001, 0.02), (np.uint8, 90, 160)))
    ids, segments, mask = (rng.integers(0, c, (n, rows)).astype("i4") for c in (words, 2, 2))
    if rng.random() < 0.5:
        segments = tables[2] = scales[2] = zeros[2] = None
    if quantised:
        return [ids, segments, *tables, mask, *scales, *zeros], {"epsilon": 1e-5}, 2
    tables = [None if t is None else t.astype("f4") for t in tables]
    return [ids, segments, *tables, maybe(rng, mask)], {"epsilon": 1e-5}, 2


def drawn_gather(rng):
    axis, along, kind = int(rng.integers(2)), int(rng.integers(2)), str(rng.choice(["uint8", "int4", "uint4"]))
    bits = 4 if kind != "uint8" else int(rng.choice([4, 8]))
    if kind == "uint8":
        axis, along = 1, 0
    shape, block = [int(e) for e in rng.integers(1, 40, 2) * 2], int(rng.choice([16, 32]))
    blocks = [-(-e // block) if n == axis else e for n, e in enumerate(shape)]
    low, high = (-8, 8) if kind == "int4" else (0, 1 << bits)
    data, zeros = (rng.integers(low, high, e).astype("i1" if kind == "int4" else "u1") for e in (shape, blocks))
    if kind != "uint8":
        data, zeros = (a.astype(getattr(ml_dtypes, kind)) for a in (data, zeros))
    elif bits == 4:
        zeros = np.pad(zeros, ((0, 0), (0, blocks[1] % 2)))
        data, zeros = (a[:, ::2] | a[:, 1::2] << 4 for a in (data, zeros))
    indices = rng.integers(0, shape[along], rng.integers(1, 4, rng.integers(1, 3)))
    attributes = {"bits": bits, "block_size": block, "quantize_axis": axis, "gather_axis": along}
    scales = rng.uniform(0.01, 0.1, blocks).astype(rng.choice(["f4", "f2"]))
    return [data, indices, scales, maybe(rng, zeros)], attributes, 1


def quantised_parameters(rng, kind):
    return [np.float32(rng.uniform(0.01, 0.05)), np.dtype(kind).type(rng.integers(50, 90))]


def drawn_of_bytes(operator):
    """A call of an operator of bytes by channels, which may be last."""

    def draw(rng):
        kind, last = str(rng.choice(["int8", "uint8"])), operator == "NhwcMaxPool" or rng.random() < 0.5
        n, c, m = (int(e) for e in rng.integers(1, 5, 3))
        image, kernel = tuple(int(e) for e in rng.integers(4, 9, 2)), tuple(int(e) for e in rng.integers(1, 4, 2))
        kind = "uint8" if "Pool" in operator and operator != "NhwcMaxPool" else kind
        limits = np.iinfo(kind)

        def numbers(*shape, kind=kind):
            return rng.integers(limits.min, limits.max + 1, shape).astype(kind)

        x = numbers(*((n, *image, c) if last else (n, c, *image)))
        own, result = quantised_parameters(rng, kind), quantised_parameters(rng, kind)
        window = {
            "kernel_shape": kernel,
            "strides": rng.integers(1, 3, 2).tolist(),
            "pads": rng.integers(0, min(kernel), 4).tolist(),
        }
        match operator:
            case "NhwcMaxPool":
                return [x], window, 1
            case "QLinearWhere":
                other = [numbers(*x.shape), *quantised_parameters(rng, kind)]
                return [rng.random(x.shape[1:]) < 0.5, x, *own, *other, *result], {}, 1
            case "QLinearConv":
                bias = maybe(rng, rng.integers(-999, 999, m).astype("i4"))
                scale, zero = (np.full(m, v) for v in (np.float32(0.02), np.int8(0)))
                w = rng.integers(-63, 64, (m, c, *kernel)).astype("i1")
                return [x, *own, w, scale, zero, *result, bias], window | {"channels_last": int(last)}, 1
        return [x, *own, *result], {"channels_last": int(last)} | (window if operator == "QLinearAveragePool" else {}), 1

    return draw


DRAWN = {
    "QAttention": drawn_attention, "GatherBlockQuantized": drawn_gather, "QEmbedLayerNormalization": drawn_embedding,
    "EmbedLayerNormalization": partial(drawn_embedding, quantised=False),
} | {
    name: drawn_of_bytes(name)
    for name in ("NhwcMaxPool", "QLinearWhere", "QLinearConv", "QLinearGlobalAveragePool", "QLinearAveragePool")
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_calls_are_those_of_onnxruntime(name):
    library = sessions()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        inputs, attributes, count = DRAWN[name](rng)
        live = {"QAttention": 0, "QEmbedLayerNormalization": 0, "EmbedLayerNormalization": 0, "GatherBlockQuantized": 1}
        fed = {live[name]} if name in live else {n for n, a in enumerate(inputs) if a is not None and np.ndim(a) > 1}
        proto, given = proto_of((name, inputs, attributes, [0] * count), fed)
        found = evaluate(load_onnx(proto), given)
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in proto.graph.node[0].output)
        proto.ir_version = 10
        session = library.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        for a, b in zip(found, session.run(None, given), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            off = np.abs(a.astype("f8") - b)
            if b.dtype.kind == "f":
                assert off.max(initial=0) <= 256 * np.finfo(b.dtype).eps * max(1, np.abs(b).max(initial=0)), seed
            else:  # a rounding may end on either side of the middle
                assert off.max(initial=0) <= 1 and (off > 0).mean() < 0.05, seed


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (("Attention", [X, W3, B3, np.ones((N, S, S, S), "int32")], {"num_heads": HEADS}, [X]),
         "a mask of [2, 5, 5, 5] for 5 queries and 5 keys is not supported"),
        (("GroupQueryAttention", [X, X, X, None, None, KEYS[:, 0], np.array(S, "int32")],
          {"num_heads": HEADS, "kv_num_heads": HEADS, "local_window_size": 2}, [X]),
         "local windows, soft caps, smooth softmax and given places are not supported"),
        (("RotaryEmbedding", [X, PLACES, COSINES, SINES], {"rotary_embedding_dim": 2}, [X]), "rotary_embedding_dim needs num_heads"),
        (("GroupNorm", [IMAGES, SCALE[:6], SHIFT[:6]], {"groups": 4, "activation": 0}, [X]),
         "4 groups of 6 channels with activation=0 are not supported"),
        (("GroupNorm", [IMAGES, SCALE[:6], SHIFT[:6]], {"groups": 3, "activation": 2}, [X]),
         "3 groups of 6 channels with activation=2 are not supported"),
        (("GatherBlockQuantized", ["w4", IDS, "s4"], {"block_size": 16, "bits": 0}, [X]),
         "numbers of 4 or 8 bits are supported, got bits=0"),
        (("GatherBlockQuantized", ["w4", IDS, "s4"], {"block_size": 0}, [X]), "blocks of 0 numbers are not supported"),
        (("QLinearConcat", ["sc", "zc"], {"axis": 1}, [X]), "each operand needs numbers, a scale and a zero point"),
        (("QLinearConcat", ["sc", "zc", A8, "sa"], {"axis": 1}, [X]), "each operand needs numbers, a scale and a zero point"),
        (("QLinearWhere", [KEYS[0] > 0, A8, "sa", "za", B8, "sb", "zb"], {}, [X]), "it has 7 input(s)"),
    ],
    ids=["mask", "window", "heads", "channels", "activation", "bits", "blocks", "none", "zero", "scale"],
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
