"""Operators of the domain com.microsoft, which onnxruntime's optimiser and quantiser leave in files, as composites.

Their definitions are those of onnxruntime's documentation of its contributed operators.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from tir import dtypes

from ..ir import Value
from .registry import Apply, composite

DOMAIN = "com.microsoft"


def _microsoft(name: str, operands: dict[int, str] | None = None):
    return composite(name, operands=operands, domain=DOMAIN)


# --- activations and products with what follows them ---------------------------------------------------------------------


def _number(apply: Apply, number: float, like: Value) -> Value:
    return apply.constant(number, like.dtype)


@_microsoft("Gelu")
def gelu(apply, x):
    return apply("Gelu", x)


@_microsoft("BiasGelu")
def bias_gelu(apply, x, bias):
    return apply("Gelu", apply("Add", x, bias))


@_microsoft("FastGelu")
def fast_gelu(apply, x, bias=None):
    return apply("Gelu", x if bias is None else apply("Add", x, bias), approximate="tanh")


@_microsoft("QuickGelu")
def quick_gelu(apply, x, *, alpha=1.702):
    """x sigmoid(alpha x)."""
    return apply("Swish", x, alpha=float(alpha))


@_microsoft("BiasSplitGelu")
def bias_split_gelu(apply, x, bias):
    """The left half of the last dimension times the Gelu of the right one."""
    left, right = apply("Split", apply("Add", x, bias), axis=len(x.shape) - 1, num_outputs=2)
    return apply("Mul", left, apply("Gelu", right))


@_microsoft("BiasAdd")
def bias_add(apply, x, bias, skip):
    return apply("Add", apply("Add", x, bias), skip)


def _activated(apply: Apply, x: Value, name: str, parameters: tuple[float, ...] = (), **named: float) -> Value:
    """An activation by its name in attributes, with its parameters in the order of the operator's."""
    if not name:
        return x
    order = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"), "HardSwish": ()}
    given = dict(zip(order.get(name, ()), parameters, strict=False)) | named
    return apply(name, x, **given)


@_microsoft("FusedConv")
def fused_conv(apply, x, weight, bias=None, added=None, *, activation="", activation_params=(), **window):
    """A convolution, plus another tensor, and an activation."""
    found = apply("Conv", x, weight, bias, **window)
    found = found if added is None else apply("Add", found, added)
    return _activated(apply, found, activation, tuple(activation_params))


@_microsoft("FusedGemm")
def fused_gemm(
    apply, a, b, c=None, *, activation="", activation_alpha=None, activation_beta=None, activation_gamma=None, **attributes
):  # fmt: skip
    found = apply("Gemm", a, b, c, **attributes)
    named = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return _activated(apply, found, activation, **{k: v for k, v in named.items() if v is not None and activation != "Relu"})


def _matrix(apply: Apply, x: Value, transposed: int, batch_first: int) -> Value:
    """A stack of matrices: with `batch_first` the first dimension is that of the rows and comes after the batch."""
    order = list(range(len(x.shape)))
    if batch_first:
        order = [*order[1:-1], 0, order[-1]]
    if transposed and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else apply("Transpose", x, perm=tuple(order))


@_microsoft("FusedMatMul")
@_microsoft("TransposeMatMul")
def fused_matmul(apply, a, b, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    found = apply("MatMul", _matrix(apply, a, transA, transBatchA), _matrix(apply, b, transB, transBatchB))
    return found if alpha == 1 else apply("Mul", found, _number(apply, alpha, found))


@_microsoft("FusedMatMulActivation")
def fused_matmul_activation(apply, a, b, *, activation, **attributes):
    parameters = {k.removeprefix("activation_"): attributes.pop(k) for k in [*attributes] if k.startswith("activation_")}
    parameters.pop("axis", None)
    return _activated(apply, fused_matmul(apply, a, b, **attributes), activation, **parameters)


@_microsoft("GemmFastGelu")
def gemm_fast_gelu(apply, x, weight, bias=None):
    return fast_gelu(apply, apply("MatMul", x, weight), bias)


# --- norms ---------------------------------------------------------------------------------------------------------------


def _layer_norm(apply: Apply, x: Value, scale: Value, bias: Value | None, epsilon: float) -> Value:
    return apply("LayerNormalization", x, scale, bias, axis=-1, epsilon=float(epsilon))[0]


@_microsoft("SkipLayerNormalization")
def skip_layer_normalization(apply, x, skip, scale, beta=None, bias=None, *, epsilon=1e-12):
    """The norm of a sum, and as the fourth output the sum."""
    total = apply("Add", x, skip)
    total = total if bias is None else apply("Add", total, bias)
    return _layer_norm(apply, total, scale, beta, epsilon), None, None, total


@_microsoft("SkipSimplifiedLayerNormalization")
def skip_rms_normalization(apply, x, skip, scale, bias=None, *, epsilon=1e-12):
    total = apply("Add", x, skip)
    total = total if bias is None else apply("Add", total, bias)
    return apply("RMSNormalization", total, scale, axis=-1, epsilon=float(epsilon)), None, None, total


@composite("SimplifiedLayerNormalization")
def rms_normalization(apply, x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Of ONNX's own domain in files, though onnxruntime's."""
    return apply("RMSNormalization", x, scale, axis=axis, epsilon=float(epsilon))


@_microsoft("EmbedLayerNormalization")
def embed_layer_normalization(
    apply, ids, segments, words, positions, segment=None, gamma=None, beta=None, mask=None, position_ids=None, *,
    epsilon=1e-12, mask_index_type=None,
):  # fmt: skip
    """The norm of the sum of embeddings of words, positions and segments; the lengths of rows; and the sum."""
    total = apply("Gather", words, ids, axis=0)
    if position_ids is None:
        length = ids.shape[1]
        places = apply("Slice", positions, starts=(0,), ends=(length,), axes=(0,))
    else:
        places = apply("Gather", positions, position_ids, axis=0)
    total = apply("Add", total, places)
    if segment is not None and segments is not None:
        total = apply("Add", total, apply("Gather", segment, segments, axis=0))
    if mask is None:
        lengths = apply.constant(np.zeros(ids.shape[:1], np.int32))
    else:
        lengths = apply("ReduceSum", apply("Cast", mask, to="int32"), axes=(1,), keepdims=0)
    return _layer_norm(apply, total, gamma, beta, epsilon), lengths, total


# --- attention -----------------------------------------------------------------------------------------------------------


def _by_head(apply: Apply, x: Value, heads: int) -> Value:
    """(N, S, heads H) as (N, heads, S, H)."""
    n, s, width = x.shape
    return apply("Transpose", apply("Reshape", x, shape=(n, s, heads, width // heads)), perm=(0, 2, 1, 3))


def _joined(apply: Apply, x: Value) -> Value:
    """(N, heads, S, H) as (N, S, heads H)."""
    n, heads, s, width = x.shape
    return apply("Reshape", apply("Transpose", x, perm=(0, 2, 1, 3)), shape=(n, s, heads * width))


def _hidden(apply: Apply, mask: Value, rows: int, columns: int, filter_value: float, dtype: str) -> Value:
    """The addend of scores (N, heads, rows, columns) for a mask: of lengths of keys (N), of keys (N, columns), or of queries and
    keys (N, rows, columns). Refuses other kinds."""
    n = mask.shape[0]
    if len(mask.shape) == 1:
        places = apply.constant(np.arange(columns), mask.dtype)
        through = apply("Less", places, apply("Reshape", mask, shape=(n, 1)))
        through = apply("Reshape", through, shape=(n, 1, 1, columns))
    elif mask.shape == (n, columns):
        through = apply("Reshape", apply("Cast", mask, to="bool"), shape=(n, 1, 1, columns))
    elif mask.shape == (n, rows, columns):
        through = apply("Reshape", apply("Cast", mask, to="bool"), shape=(n, 1, rows, columns))
    else:
        raise ValueError(f"a mask of {list(mask.shape)} for {rows} queries and {columns} keys is not supported")
    return apply("Where", through, apply.constant(0, dtype), apply.constant(filter_value, dtype))


def _attended(
    apply: Apply,
    query: Value,
    key: Value,
    value: Value,
    scale: float,
    added: tuple[Value | None, ...],
    first: int | None,
) -> Value:
    """softmax(scale query key^T + added) value, of operands (N, heads, S, H). Where the place of the `first` query is given, keys
    after that of a query are hidden from it."""
    scores = apply("MatMul", query, apply("Transpose", key, perm=(0, 1, 3, 2)))
    scores = apply("Mul", scores, _number(apply, scale, scores))
    for one in added:
        scores = scores if one is None else apply("Add", scores, one)
    rows, columns = scores.shape[-2:]
    if first is not None:
        later = np.triu(np.ones((rows, columns), bool), 1 + first)
        scores = apply("Where", apply.constant(later), _number(apply, float("-inf"), scores), scores)
    return apply("MatMul", apply("Softmax", scores, axis=3), value)


@_microsoft("Attention")
def attention(
    apply, x, weights, bias=None, mask=None, past=None, added=None, past_length=None, *, num_heads, unidirectional=0,
    qkv_hidden_sizes=None, mask_filter_value=-10000.0, scale=None, do_rotary=0, past_present_share_buffer=0,
    rotary_embedding_dim=0,
):  # fmt: skip
    """Attention with the product of its inputs: (N, S, width) times weights for queries, keys and values; and these together."""
    if do_rotary or past_length is not None or past_present_share_buffer:
        raise ValueError("do_rotary and a shared buffer of the past are not supported")
    product = apply("MatMul", x, weights)
    product = product if bias is None else apply("Add", product, bias)
    sizes = tuple(qkv_hidden_sizes or (product.shape[-1] // 3,) * 3)
    query, key, value = (_by_head(apply, v, num_heads) for v in apply("Split", product, axis=2, split=sizes))
    if past is not None:
        before = (apply("Gather", past, apply.constant(n, "int64"), axis=0) for n in range(2))
        key, value = (apply("Concat", old, new, axis=2) for old, new in zip(before, (key, value), strict=True))
    rows, columns = query.shape[2], key.shape[2]
    hidden = None if mask is None else _hidden(apply, mask, rows, columns, mask_filter_value, query.dtype)
    factor = scale or query.shape[-1] ** -0.5
    found = _attended(apply, query, key, value, factor, (added, hidden), columns - rows if unidirectional else None)
    present = None
    if key.shape == value.shape:
        present = apply("Concat", *(apply("Unsqueeze", v, axes=(0,)) for v in (key, value)), axis=0)
    return _joined(apply, found), present


@_microsoft("MultiHeadAttention")
def multi_head_attention(
    apply, query, key=None, value=None, bias=None, mask=None, added=None, past_key=None, past_value=None, *more, num_heads,
    mask_filter_value=-10000.0, scale=None, unidirectional=0,
):  # fmt: skip
    """Attention of queries, keys and values (N, S, width), of packed ones (N, S, heads, 3, H), or of keys and values by head."""
    if any(v is not None for v in more):
        raise ValueError("a past of another length is not supported")
    if len(query.shape) == 5:
        n, s, heads, _, width = query.shape
        packed = apply("Transpose", query, perm=(3, 0, 1, 2, 4))
        query, key, value = (
            apply("Reshape", apply("Gather", packed, apply.constant(i, "int64"), axis=0), shape=(n, s, heads * width))
            for i in range(3)
        )
    if key is None or value is None:
        raise ValueError("keys and values that are packed apart from queries are not supported")
    if bias is not None:
        width, inner = query.shape[-1], value.shape[-1] if len(value.shape) == 3 else value.shape[1] * value.shape[3]
        ends = np.cumsum([0, width, width, inner])
        parts = [apply("Slice", bias, starts=(int(a),), ends=(int(b),), axes=(0,)) for a, b in pairwise(ends)]
        query = apply("Add", query, parts[0])
        key, value = (apply("Add", v, p) if len(v.shape) == 3 else v for v, p in zip((key, value), parts[1:], strict=True))
    query, key, value = (_by_head(apply, v, num_heads) if len(v.shape) == 3 else v for v in (query, key, value))
    before = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        key, value = apply("Concat", past_key, key, axis=2), apply("Concat", past_value, value, axis=2)
    hidden = None if mask is None else _hidden(apply, mask, query.shape[2], key.shape[2], mask_filter_value, query.dtype)
    factor = scale or query.shape[-1] ** -0.5
    found = _attended(apply, query, key, value, factor, (added, hidden), before if unidirectional else None)
    return _joined(apply, found), key, value


def rotated(apply: Apply, x: Value, places: Value, cosines: Value, sines: Value, interleaved: int) -> Value:
    """(N, heads, S, H) with the first elements of each vector turned by the angles of its place (N, S)."""
    half = cosines.shape[-1]
    first = x if x.shape[-1] == 2 * half else apply("Slice", x, starts=(0,), ends=(2 * half,), axes=(3,))
    cosine, sine = (apply("Unsqueeze", apply("Gather", v, places, axis=0), axes=(1,)) for v in (cosines, sines))
    if interleaved:
        n, heads, s, _ = first.shape
        pairs = apply("Reshape", first, shape=(n, heads, s, half, 2))
        a, b = (apply("Gather", pairs, apply.constant(i, "int64"), axis=4) for i in range(2))
    else:
        a, b = apply("Split", first, axis=3, num_outputs=2)
    real = apply("Sub", apply("Mul", a, cosine), apply("Mul", b, sine))
    imaginary = apply("Add", apply("Mul", b, cosine), apply("Mul", a, sine))
    if interleaved:
        both = apply("Concat", *(apply("Unsqueeze", v, axes=(4,)) for v in (real, imaginary)), axis=4)
        turned = apply("Reshape", both, shape=first.shape)
    else:
        turned = apply("Concat", real, imaginary, axis=3)
    if first is x:
        return turned
    rest = apply("Slice", x, starts=(2 * half,), ends=(x.shape[-1],), axes=(3,))
    return apply("Concat", turned, rest, axis=3)


@_microsoft("RotaryEmbedding")
def rotary_embedding(
    apply, x, places, cosines, sines, *, interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0, scale=1.0
):  # fmt: skip
    """Vectors turned by the angles of their places, given for each (N, S), or the first place alone (1)."""
    by_head = len(x.shape) == 4
    if rotary_embedding_dim and not num_heads:
        raise ValueError("rotary_embedding_dim needs num_heads")
    width = cosines.shape[-1] * 2 if not rotary_embedding_dim else x.shape[-1] // num_heads
    heads = x.shape[1] if by_head else x.shape[-1] // width
    vectors = x if by_head else _by_head(apply, x, heads)
    n, _, s, _ = vectors.shape
    if prod(places.shape) == 1 and (n, s) != (1, 1):
        places = apply("Add", apply("Reshape", places, shape=(1, 1)), apply.constant(np.arange(s)[None], places.dtype))
        places = apply("Expand", places, shape=(n, s))
    turned = rotated(apply, vectors, apply("Reshape", places, shape=(n, s)), cosines, sines, interleaved)
    return turned if by_head else _joined(apply, turned)


def _in_rows(apply: Apply, x: Value, first: Value, before: int, columns: int) -> Value:
    """(N, heads, columns, H) of a past and new vectors (N, heads, before + new, H): in each row the new ones from its `first`
    place on, the past elsewhere."""
    n, heads, total, width = x.shape
    places = apply.constant(np.arange(columns), first.dtype)
    new = apply("Sub", places, first)
    inside = [
        apply("LessOrEqual", apply.constant(0, first.dtype), new),
        apply("Less", new, apply.constant(total - before, first.dtype)),
    ]
    moved = apply("Add", new, apply.constant(before, first.dtype))
    old = apply.constant(np.minimum(np.arange(columns), total - 1), first.dtype)
    index = apply("Reshape", apply("Where", apply("And", *inside), moved, old), shape=(n, 1, columns, 1))
    return apply("GatherElements", x, apply("Expand", index, shape=(n, heads, columns, width)), axis=2)


@_microsoft("GroupQueryAttention")
def group_query_attention(
    apply, query, key, value, past_key, past_value, lengths, total, cosines=None, sines=None, *more, num_heads, kv_num_heads,
    do_rotary=0, rotary_interleaved=0, scale=None, local_window_size=-1, softcap=0.0, smooth_softmax=0, **unread,
):  # fmt: skip
    """Causal attention in which several heads of queries read one of keys and values; `lengths` are the keys of a row, less 1.

    New keys follow those of their row, in a past that may be longer, or shared with the present. A `total` that is not constant
    is taken for the length of the past and that of the new tokens.
    """
    if local_window_size != -1 or softcap or smooth_softmax or any(v is not None for v in more):
        raise ValueError("local windows, soft caps, smooth softmax and given places are not supported")
    if key is None:
        width = query.shape[2]
        each = width // (num_heads + 2 * kv_num_heads)
        query, key, value = apply("Split", query, axis=2, split=(num_heads * each, kv_num_heads * each, kv_num_heads * each))
    query, key, value = (_by_head(apply, v, h) for v, h in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    n, _, rows, width = query.shape
    before = 0 if past_key is None else past_key.shape[2]
    known = apply.known(total)
    columns, times = before + rows if known is None else max(before, int(known.item())), num_heads // kv_num_heads
    first = None  # place of a new key in each row (n, 1), None where it is the same
    if before and (n > 1 or columns != before + rows):
        first = apply("Max", apply("Sub", apply("Reshape", lengths, shape=(n, 1)), apply.constant(rows - 1, lengths.dtype)),
                      apply.constant(0, lengths.dtype))  # fmt: skip
    if do_rotary:
        if first is None:
            places = apply.constant(np.broadcast_to(np.arange(before, before + rows), (n, rows)).astype(np.int64))
        else:
            places = apply("Add", first, apply.constant(np.arange(rows), lengths.dtype))
        query, key = (rotated(apply, v, places, cosines, sines, rotary_interleaved) for v in (query, key))
    if before:
        key, value = apply("Concat", past_key, key, axis=2), apply("Concat", past_value, value, axis=2)
    if first is not None:
        key, value = (_in_rows(apply, v, first, before, columns) for v in (key, value))
    keys, values = (
        apply("Reshape", apply("Expand", apply("Unsqueeze", v, axes=(2,)), shape=(n, kv_num_heads, times, columns, width)),
              shape=(n, num_heads, columns, width))
        for v in (key, value)
    )  # fmt: skip
    hidden = None
    if first is not None or n > 1 or apply.known(lengths) is None:  # shorter rows hide their last keys
        places, last = apply.constant(np.arange(columns), lengths.dtype), apply("Reshape", lengths, shape=(n, 1, 1, 1))
        if first is not None:
            own = apply(
                "Add", apply("Reshape", first, shape=(n, 1, 1, 1)), apply.constant(np.arange(rows)[:, None], lengths.dtype)
            )
            last = apply("Min", last, own)
        through = apply("LessOrEqual", places, last)
        low = apply.constant(float(dtypes.limits(query.dtype)[0]) / 2, query.dtype)
        hidden = apply("Where", through, apply.constant(0, query.dtype), low)
    factor = scale or width**-0.5
    found = _attended(apply, query, keys, values, factor, (hidden,), before if first is None else None)
    return _joined(apply, found), key, value


# --- quantised numbers ---------------------------------------------------------------------------------------------------


def _real(apply: Apply, x: Value, scale: Value, zero: Value | None) -> Value:
    return apply("DequantizeLinear", x, scale, zero)


def _integers(apply: Apply, x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    return apply("QuantizeLinear", x, scale, apply.constant(0, dtype) if zero is None else zero)


def _quantised_binary(name: str, operator: str) -> None:
    """Register an operator of two quantised tensors by that of their real numbers."""

    @_microsoft(name)
    def define(apply, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None):
        found = apply(operator, _real(apply, a, a_scale, a_zero), _real(apply, b, b_scale, b_zero))
        return _integers(apply, found, scale, zero, a.dtype)


_quantised_binary("QLinearAdd", "Add")
_quantised_binary("QLinearMul", "Mul")


def _quantised_unary(name: str, operator: str) -> None:
    @_microsoft(name)
    def define(apply, x, x_scale, x_zero, scale, zero=None, **attributes):
        return _integers(apply, apply(operator, _real(apply, x, x_scale, x_zero), **attributes), scale, zero, x.dtype)


_quantised_unary("QLinearSigmoid", "Sigmoid")
_quantised_unary("QLinearLeakyRelu", "LeakyRelu")


@_microsoft("QLinearSoftmax")
def quantised_softmax(apply, x, x_scale, x_zero, scale, zero=None, *, axis=-1, opset):
    if opset < 13 and axis % len(x.shape) != len(x.shape) - 1:
        raise ValueError("a softmax along several axes is not supported")
    return _integers(apply, apply("Softmax", _real(apply, x, x_scale, x_zero), axis=axis), scale, zero, x.dtype)


def _first(apply: Apply, x: Value, last: int) -> Value:
    """An image with its channels first, for one that has them last."""
    rank = len(x.shape)
    return apply("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1))) if last else x


def _last(apply: Apply, x: Value, last: int) -> Value:
    return apply("Transpose", x, perm=(0, *range(2, len(x.shape)), 1)) if last else x


@_microsoft("QLinearGlobalAveragePool")
def quantised_global_average_pool(apply, x, x_scale, x_zero, scale, zero, *, channels_last=0):
    mean = apply("GlobalAveragePool", _real(apply, _first(apply, x, channels_last), x_scale, x_zero))
    return _last(apply, _integers(apply, mean, scale, zero, x.dtype), channels_last)


@_microsoft("QLinearAveragePool")
def quantised_average_pool(apply, x, x_scale, x_zero, scale, zero=None, *, channels_last=0, **window):
    mean = apply("AveragePool", _real(apply, _first(apply, x, channels_last), x_scale, x_zero), **window)
    return _last(apply, _integers(apply, mean, scale, zero, x.dtype), channels_last)


@_microsoft("QLinearConcat")
def quantised_concat(apply, scale, zero, *parts, axis):
    real = [_real(apply, *parts[n : n + 3]) for n in range(0, len(parts), 3)]
    return _integers(apply, apply("Concat", *real, axis=axis), scale, zero, parts[0].dtype)


@_microsoft("DequantizeLinear")
def dequantize_linear(apply, x, scale, zero=None, *, axis=1):
    return apply("DequantizeLinear", x, scale, zero, axis=axis)


@_microsoft("QuantizeLinear")
def quantize_linear(apply, x, scale, zero=None, *, axis=1):
    return apply("QuantizeLinear", x, scale, zero, axis=axis)


@_microsoft("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(apply, a, b, b_scale, b_zero=None, bias=None):
    """A product of floats, quantised to uint8 as a whole, and a quantised matrix."""
    top, bottom = (apply(f"Reduce{m}", a, keepdims=0) for m in ("Max", "Min"))
    none = apply.constant(0, a.dtype)
    bottom = apply("Min", bottom, none)
    scale = apply("Div", apply("Sub", apply("Max", top, none), bottom), apply.constant(255, a.dtype))
    zero = apply("Cast", apply("Round", apply("Clip", apply("Div", apply("Neg", bottom), scale), min=0.0, max=255.0)), to="uint8")
    numbers = apply("QuantizeLinear", a, scale, zero)
    return matmul_integer_to_float(apply, numbers, b, scale, b_scale, zero, b_zero, bias)


@_microsoft("MatMulIntegerToFloat")
def matmul_integer_to_float(apply, a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    product = apply("Cast", apply("MatMulInteger", a, b, a_zero, b_zero), to="float32")
    found = apply("Mul", product, apply("Mul", a_scale, b_scale))
    return found if bias is None else apply("Add", found, bias)
