"""torch's operators as composites, by the interpreter against numpy. They need no torch; `test_programs` compares with it."""

from __future__ import annotations

import numpy as np
import pytest

import graph.torch.aten  # noqa: F401 (registers the operators)
from graph import Builder, GraphError
from graph.reference import evaluate
from graph.torch.aten.types import OTHER_DOMAINS, promoted

RNG = np.random.default_rng(0)


def real(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape)


def whole(*shape, low=-9, high=9, dtype="int64"):
    return RNG.integers(low, high, shape).astype(dtype)


def truth(*shape):
    return RNG.integers(0, 2, shape).astype(bool)


def softmax(x, axis):
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def put(x, places, values, add=False):
    x = x.copy()
    (np.add.at if add else lambda a, i, v: a.__setitem__(i, v))(x, places, values)
    return x


def smoothing(before, after):
    """Weights of elements by their distance over that of the larger grid's elements, within the image alone: (after, before)."""
    step = before / after
    distance = np.abs(np.arange(before) - ((np.arange(after)[:, None] + 0.5) * step - 0.5))
    weights = np.maximum(0, 1 - distance / max(step, 1))
    return weights / weights.sum(1, keepdims=True)


X, Y, N, B = real(3, 5, 7), real(5, 1), whole(3, 7), truth(3, 7)
TENTH, HALF = np.float32(0.1), np.array([300, 0, 6e-5], "float16")
ROWS, COLUMNS = np.array([2, 0, -1, 1]), np.array([[6], [0]])

PT2E = "quantized_decomposed"
BYTES, HALVES = whole(4, 6, low=-128, high=128, dtype="int8"), (whole(4, 6, low=-99, high=99) / 2).astype("float32")
STEPS, GROUPS = np.float32([0.5, 1, 0.25, 2]), np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])

# Operator, operands, those that are named, the result by numpy.
CASES = [
    ("add.Tensor", [X, Y], {"alpha": 3}, X + 3 * Y),
    ("add.Tensor", [N, 1.5], {}, (N + 1.5).astype("float32")),
    ("add.Tensor", [B, B], {}, B),
    ("sub.Tensor", [X, Y], {"alpha": 2}, X - 2 * Y),
    ("rsub.Scalar", [X, 2, 3], {}, 2 - 3 * X),
    ("mul.Tensor", [B, N], {}, B * N),
    ("div.Tensor", [N, 4], {}, (N / 4).astype("float32")),
    *[("div.Tensor_mode", [N, 4], {"rounding_mode": m}, f(N / 4).astype("int64")) for m, f in (("floor", np.floor), ("trunc", np.trunc))],
    *[("div.Tensor_mode", [X, -0.3], {"rounding_mode": m}, f(X / -0.3)) for m, f in (("floor", np.floor), ("trunc", np.trunc))],
    ("div.Tensor_mode", [np.float32([1, 2, -1]), 0.1], {"rounding_mode": "floor"}, np.float32([1, 2, -1]) // TENTH),
    ("div.Tensor_mode", [X[0, 0], np.zeros(7)], {"rounding_mode": "floor"}, np.sign(X[0, 0]) * np.inf),
    ("mul.Tensor", [HALF, 1e-8], {}, (HALF.astype("float32") * 1e-8).astype("float16")),
    ("div.Tensor", [HALF, np.array(1e6, "float32")], {}, (HALF.astype("float32") / 1e6).astype("float16")),
    ("hypot", [HALF, HALF], {}, np.hypot(HALF.astype("float32"), HALF.astype("float32")).astype("float16")),
    ("hypot", [np.array([np.inf, np.nan, 0]), np.array([np.nan, 1, 0])], {}, np.array([np.inf, np.nan, 0])),
    ("sign", [np.array([np.nan, -2, 0])], {}, np.array([0.0, -1, 0])),
    ("lerp.Scalar", [np.float32([1e8, 1]), np.float32([1, 2]), 1.0], {}, np.float32([1, 2])),
    ("lerp.Tensor", [np.float32([1e8, 1]), np.float32([1, 2]), np.float32([1, 0.25])], {}, np.float32([1, 1.25])),
    ("log_sigmoid", [X], {}, -np.log1p(np.exp(-X))),
    ("remainder.Scalar", [N, -4], {}, np.remainder(N, -4)),
    ("remainder.Tensor", [X, Y], {}, np.remainder(X, Y)),
    ("fmod.Scalar", [X, 0.7], {}, np.fmod(X, 0.7)),
    ("pow.Tensor_Scalar", [X, 2], {}, X**2),
    ("pow.Tensor_Scalar", [N, 3], {}, N**3),
    ("pow.Scalar", [2.0, X], {}, 2.0**X),
    ("rsqrt", [np.abs(X)], {}, 1 / np.sqrt(np.abs(X))),
    ("exp", [N], {}, np.exp(N.astype("float32"))),
    ("log1p", [np.abs(X) * 1e-9], {}, np.log1p(np.abs(X) * 1e-9)),
    ("expm1", [X * 1e-9], {}, np.expm1(X * 1e-9)),
    ("atan2", [X, Y], {}, np.arctan2(X, Y)),
    ("trunc", [X], {}, np.trunc(X)),
    ("floor", [N], {}, N),
    ("bitwise_and.Tensor", [N, N + 1], {}, N & (N + 1)),
    ("bitwise_or.Tensor", [B, ~B], {}, B | ~B),
    ("bitwise_not", [N], {}, ~N),
    ("logical_and", [N, B], {}, (N != 0) & B),
    ("logical_not", [N], {}, N == 0),
    ("ne.Scalar", [N, 2], {}, N != 2),
    ("lt.Tensor", [N, X[:, 0]], {}, N < X[:, 0]),
    ("gt.Tensor", [B, ~B], {}, B & B),
    ("isnan", [np.where(B, np.nan, 1.0)], {}, B),
    ("clamp", [X, -0.5, None], {}, np.maximum(X, -0.5)),
    ("clamp", [N, -3, 4], {}, np.clip(N, -3, 4)),
    ("hardtanh", [X], {}, np.clip(X, -1, 1)),
    ("maximum", [N, 2 * N[0]], {}, np.maximum(N, 2 * N[0])),
    ("_upsample_bilinear2d_aa.vec", [X[None], [3, 9], False, None], {}, smoothing(5, 3) @ X[None] @ smoothing(7, 9).T),
    ("_upsample_bilinear2d_aa.vec", [X[None], [2, 1], False, None], {}, smoothing(5, 2) @ X[None] @ smoothing(7, 1).T),
    ("where.self", [B, N, np.array(0.5, "float32")], {}, np.where(B, N, 0.5).astype("float32")),
    ("leaky_relu", [X, 0.3], {}, np.where(X < 0, 0.3 * X, X)),
    ("celu", [X, -0.5], {}, np.where(X < 0, -0.5 * np.expm1(X / -0.5), X)),
    ("elu", [X, 0.5, 2.0], {}, 2 * np.where(X < 0, 0.5 * np.expm1(X), X)),
    ("softplus", [X, 2.0, 1.0], {}, np.where(2 * X > 1, X, np.log1p(np.exp(2 * X)) / 2)),
    ("silu", [X], {}, X / (1 + np.exp(-X))),
    ("_to_copy", [X], {"dtype": "int32"}, X.astype("int32")),
    ("_to_copy", [N], {"dtype": "bool"}, N != 0),
    ("sum.dim_IntList", [N, [0], True], {}, N.sum(0, keepdims=True)),
    ("sum.dim_IntList", [B, []], {}, B.sum()),
    ("mean.dim", [X, [-1, 0]], {}, X.mean((0, 2))),
    ("amax", [X, [1], True], {}, X.max(1, keepdims=True)),
    ("max.dim", [X, -1], {}, [X.max(-1), X.argmax(-1)]),
    ("argmin", [X], {}, X.argmin()),
    ("any.dim", [B, 1], {}, B.any(1)),
    ("var.correction", [X, [1]], {"correction": 0}, X.var(1)),
    ("std.correction", [np.array([[0, 600]], "float16"), [1]], {"correction": 0}, np.array([300], "float16")),
    ("_native_batch_norm_legit.no_stats", [np.array([[[0, 600]]], "float16"), None, None, True, 0.1, 0.0], {},
     [np.array([[[-1, 1]]], "float16"), np.array([300], "float16"), np.array([1 / 300], "float16")]),
    ("var_mean.correction", [X, [0, 2]], {"keepdim": True}, [X.var((0, 2), ddof=1, keepdims=True), X.mean((0, 2), keepdims=True)]),
    ("cumsum", [N, 1], {}, N.cumsum(1)),
    ("_softmax", [X, 1, False], {}, softmax(X, 1)),
    ("_log_softmax", [X, -1, False], {}, np.log(softmax(X, -1))),
    ("view", [X, [5, -1]], {}, X.reshape(5, -1)),
    ("permute", [X, [-1, 0, 1]], {}, X.transpose(2, 0, 1)),
    ("unsqueeze", [X, -1], {}, X[..., None]),
    ("squeeze.dims", [Y, [0, 1]], {}, Y[:, 0]),
    ("expand", [Y, [2, -1, 4]], {}, np.broadcast_to(Y, (2, 5, 4))),
    ("slice.Tensor", [X, -1, -4, 9223372036854775807, 2], {}, X[..., -4::2]),
    ("select.int", [X, 1, -2], {}, X[:, -2]),
    ("split_with_sizes", [X, [2, 5], 2], {}, [X[..., :2], X[..., 2:]]),
    ("cat", [[N, X[:, 0], np.zeros((0,))], 1], {}, np.concatenate([N, X[:, 0]], 1)),
    ("repeat", [Y, [2, 1, 3]], {}, np.tile(Y, (2, 1, 3))),
    ("flip", [X, [0, -1]], {}, X[::-1, :, ::-1]),
    ("roll", [X, [2, -1], [0, 2]], {}, np.roll(X, (2, -1), (0, 2))),
    ("diagonal", [X, 1, 0, -1], {}, np.diagonal(X, 1, 0, -1)),
    ("as_strided", [X, [2, 3], [7, 2], 1], {}, np.lib.stride_tricks.as_strided(X.reshape(-1)[1:], (2, 3), (56, 16))),
    ("constant_pad_nd", [X, [1, -2, 0, 3], 0.5], {}, np.pad(X[..., :-2], [(0, 0), (0, 3), (1, 0)], constant_values=0.5)),
    ("reflection_pad2d", [X, [3, 1, 2, 2]], {}, np.pad(X, [(0, 0), (2, 2), (3, 1)], "reflect")),
    ("select_scatter", [X, Y[:, 0][:, None] + X[0], 0, 1], {}, put(X, 1, Y + X[0])),
    ("slice_scatter", [X, X[:, :2] + 1, 1, 0, 4, 2], {}, put(X, np.s_[:, 0:4:2], X[:, :2] + 1)),
    ("full", [[2, 3], 7], {"dtype": "int32"}, np.full((2, 3), 7, "int32")),
    ("arange.start_step", [2, 11, 3], {}, np.arange(2, 11, 3)),
    ("embedding", [X[0], COLUMNS[:1] // 6], {}, X[0][COLUMNS[:1] // 6]),
    ("gather", [N, 1, whole(2, 4, low=0, high=7)], {}, None),
    ("index.Tensor", [X, [None, ROWS]], {}, X[:, ROWS]),
    ("index.Tensor", [X, [None, ROWS, COLUMNS]], {}, X[:, ROWS, COLUMNS]),
    ("index.Tensor", [X, [ROWS % 3, None, COLUMNS]], {}, X[ROWS % 3, :, COLUMNS]),
    ("index_put", [X, [None, ROWS], Y[0]], {}, put(X, np.s_[:, ROWS], Y[0])),
    ("index_put", [X, [ROWS[:2], None, COLUMNS], X[0, 0, 0], True], {}, None),
    ("index_put", [N, [B], np.array(3)], {}, np.where(B, 3, N)),
    ("masked_scatter", [N, B, np.arange(21)], {}, None),
    ("mm", [X[0], X[1].T], {}, X[0] @ X[1].T),
    ("addmm", [Y[:, 0], X[0], X[1].T], {"beta": 2, "alpha": 0.5}, 2 * Y[:, 0] + 0.5 * X[0] @ X[1].T),
    ("_int_mm", [BYTES, BYTES.T], {}, BYTES.astype("int32") @ BYTES.T.astype("int32")),
    ("_weight_int8pack_mm", [HALVES, BYTES, STEPS], {}, HALVES @ (BYTES * STEPS[:, None]).T),
    (f"{PT2E}.quantize_per_tensor", [HALVES, 0.25, 3, -30, 20, "int8"], {},
     np.clip(np.round(HALVES / 0.25) + 3, -30, 20).astype("int8")),
    (f"{PT2E}.quantize_per_tensor.tensor", [HALVES, np.array([0.25]), np.array([3]), 0, 255, "uint8"], {},
     np.clip(np.round(HALVES / 0.25) + 3, 0, 255).astype("uint8")),
    (f"{PT2E}.quantize_per_channel", [HALVES, STEPS, np.arange(4), 0, -128, 127, "int8"], {},
     np.clip(np.round(HALVES / STEPS[:, None]) + np.arange(4)[:, None], -128, 127).astype("int8")),
    (f"{PT2E}.dequantize_per_tensor", [BYTES, 0.25, 3, -128, 127, "int8"], {}, ((BYTES - 3.0) * 0.25).astype("float32")),
    (f"{PT2E}.dequantize_per_channel", [BYTES, STEPS, None, 0, -128, 127, "int8"], {"out_dtype": "float16"},
     (BYTES * STEPS[:, None]).astype("float16")),
    (f"{PT2E}.dequantize_per_channel_group", [BYTES, GROUPS, np.int8(GROUPS), -8, 7, "int8", 3, "float32"], {},
     ((BYTES - np.repeat(GROUPS, 3, 1)) * np.repeat(GROUPS, 3, 1)).astype("float32")),
    (f"{PT2E}.choose_qparams.tensor", [np.float32([-1, 4]), -128, 127, 1e-5, "int8"], {},
     [np.float64([5 / np.float32(255)]), np.array([-128 + 51])]),
    (f"{PT2E}.choose_qparams.tensor", [np.float32([3, 4]), 0, 255, 1e-5, "uint8"], {}, [np.float64([4 / np.float32(255)]), np.array([0])]),
    ("torchao.dequantize_affine", [BYTES, [4, 6], np.float32([[0.5]]), np.int8([[1]]), "int8"], {},
     ((BYTES - 1.0) * 0.5).astype("float32")),
    ("torchao.dequantize_affine", [BYTES, [1, 6], STEPS[:, None], np.empty(0, "int8"), "int8"], {},
     (BYTES * STEPS[:, None]).astype("float32")),
    ("torchao.dequantize_affine", [BYTES, [1, 3], GROUPS, None, "int8"], {}, (BYTES * np.repeat(GROUPS, 3, 1)).astype("float32")),
    ("topk", [N, 3, 1], {}, None),
    ("sort", [X, 1, True], {}, [-np.sort(-X, 1), np.argsort(-X, 1, kind="stable")]),
    ("native_layer_norm", [X, [7], None, None, 1e-5], {}, None),
    ("scaled_dot_product_attention", [X, X, X, np.full(5, -np.inf)], {}, 0 * X),
    ("scaled_dot_product_attention", [X, X + 1, 2 * X], {}, softmax(X @ (X + 1).transpose(0, 2, 1) / 7**0.5, -1) @ (2 * X)),
]  # fmt: skip


def put_added(x):
    np.add.at(x, (ROWS[:2], slice(None), COLUMNS), X[0, 0, 0])
    return x


def computed(case):
    """The results of cases that take more than a formula."""
    name, operands, _, _ = case
    match name:
        case "gather":
            return np.take_along_axis(N[:2], operands[2], 1)
        case "index_put":
            return put_added(X.copy())
        case "masked_scatter":
            found = N.copy()
            found[B] = np.arange(21)[: B.sum()]
            return found
        case "topk":
            order = np.argsort(-N, 1, kind="stable")[:, :3]
            return [np.take_along_axis(N, order, 1), order]
        case "native_layer_norm":
            mean, factor = X.mean(-1, keepdims=True), 1 / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
            return [(X - mean) * factor, mean, factor]


def applied(builder, name, operands, named):
    """The results of an operator of values for arrays, which are the builder's inputs."""
    given = []

    def operand(v):
        if isinstance(v, np.ndarray):
            given.append(v)
            return builder.input(f"x{len(given)}", v.shape, v.dtype.name)
        return [operand(e) for e in v] if isinstance(v, list) else v

    values = [operand(v) for v in operands]
    found = builder(name if name.startswith(OTHER_DOMAINS) else f"aten.{name}", *values, **named)
    return given, found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_operators(case):
    name, operands, named, wanted = case
    wanted = computed(case) if wanted is None else wanted
    builder = Builder()
    given, values = applied(builder, name, operands, named)
    found = evaluate(builder.graph(*values), given)
    for array, expected in zip(found, wanted if isinstance(wanted, list) else [wanted], strict=True):
        expected = np.asarray(expected)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(array, expected, rtol=1e-12 if array.dtype == "float64" else 1e-5, atol=1e-12)


@pytest.mark.parametrize(("operands", "wanted"), [
    ([("float32", 1), ("float64", 0)], "float32"),
    ([("int64", 1), ("float64", 0)], "float64"),
    ([("float16", 2), ("bfloat16", 1)], "float32"),
    ([("uint8", 1), ("int8", 1)], "int16"),
    ([("int32", 1), 2], "int32"),
    ([("int32", 1), 2.5], "float32"),
    ([("bool", 1), 2], "int64"),
    ([("bool", 0), True], "bool"),
    ([("float16", 0), 2.5], "float16"),
    ([("int32", 1), ("int64", 0)], "int32"),
    ([("bool", 1), ("int16", 0)], "int16"),
])  # fmt: skip
def test_promotion(operands, wanted):
    """As `torch.result_type`."""
    b = Builder()
    values = [b.input(f"x{n}", (3,) * o[1], o[0]) if isinstance(o, tuple) else o for n, o in enumerate(operands)]
    assert promoted(*values) == wanted


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("select.int", [X, 1, 5], "index 5 is out of an extent of 5"),
        ("as_strided", [X, [2, 99], [1, 2], 0], "it reads beyond the 105 elements of its input"),
        ("index.Tensor", [X, [truth(3)]], "an index of conditions gives a shape that depends on data"),
        ("scaled_dot_product_attention", [X, X, X, None, 0.5], "dropout is not supported: call model.eval()"),
        ("torchao.dequantize_affine", [BYTES, [2, 3], STEPS.reshape(2, 2), None, "int8"],
         "blocks of [2, 3] are not supported: they may extend along one axis, or along all but one"),
        ("_upsample_bilinear2d_aa.vec", [X[None], [3, 9], True, None], "antialias with align_corners is not supported"),
        ("native_batch_norm", [X, None, None, Y[:, 0], Y[:, 0], True, 0.1, 1e-5],
         "batch norms in training are not supported: call model.eval()"),
    ],
)  # fmt: skip
def test_refusals(name, operands, message):
    with pytest.raises(GraphError) as raised:
        applied(Builder(), name, operands, {})
    assert str(raised.value).endswith(message)
