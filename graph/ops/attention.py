"""Attention, and the operators of onnxruntime that are made of it.

Their definitions are those of onnxruntime's documentation of its contributed operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod

import numpy as np

from tir import dtypes

from ..ir import Value
from .registry import Apply, composite

_microsoft = partial(composite, domain="com.microsoft")


def attended(
    apply: Apply,
    query: Value,
    key: Value,
    value: Value,
    scale: float | None,
    masks: Sequence[Value | None],
    first: int | None = None,
) -> tuple[Value, Value]:
    """softmax(scale query key^T) value, of the last two dimensions, and the softmax. Of H numbers a scale of None is 1 / sqrt(H).

    A mask is an addend of the scores, or a condition that lets through where it holds. Where the place of the `first` query is
    given, keys after that of a query are hidden from it.
    """
    rank, scale = len(key.shape), query.shape[-1] ** -0.5 if scale is None else scale
    scores = apply("MatMul", query, apply("Transpose", key, perm=(*range(rank - 2), rank - 1, rank - 2)))
    scores = apply("Mul", scores, apply.constant(float(scale), scores.dtype))
    none = apply.constant(float("-inf"), scores.dtype)
    for mask in masks:
        if mask is not None and mask.dtype == "bool":
            scores = apply("Where", mask, scores, none)
        elif mask is not None:
            scores = apply("Add", scores, mask if mask.dtype == scores.dtype else apply("Cast", mask, to=scores.dtype))
    if first is not None:
        later = np.triu(np.ones(scores.shape[-2:], bool), 1 + first)
        scores = apply("Where", apply.constant(later), none, scores)
    weights = apply("Softmax", scores, axis=len(scores.shape) - 1)
    return apply("MatMul", weights, value), weights


def _by_head(apply: Apply, x: Value, heads: int) -> Value:
    """(N, S, heads H) as (N, heads, S, H)."""
    n, s, width = x.shape
    return apply("Transpose", apply("Reshape", x, shape=(n, s, heads, width // heads)), perm=(0, 2, 1, 3))


def _joined(apply: Apply, x: Value) -> Value:
    """(N, heads, S, H) as (N, S, heads H)."""
    n, heads, s, width = x.shape
    return apply("Reshape", apply("Transpose", x, perm=(0, 2, 1, 3)), shape=(n, s, heads * width))


def _hidden(apply: Apply, mask: Value, rows: int, columns: int, filter_value: float, dtype: str) -> Value:
    """The addend of scores for a mask: of lengths of keys (N), keys (N, columns), or queries and keys (N, rows, columns)."""
    n = mask.shape[0]
    if len(mask.shape) == 1:
        places = apply.constant(np.arange(columns), mask.dtype)
        through = apply("Less", places, apply("Reshape", mask, shape=(n, 1)))
        through = apply("Reshape", through, shape=(n, 1, 1, columns))
    elif mask.shape in ((n, columns), (n, rows, columns)):
        through = apply("Reshape", apply("Cast", mask, to="bool"), shape=(n, 1, *(mask.shape[1:-1] or (1,)), columns))
    else:
        raise ValueError(f"a mask of {list(mask.shape)} for {rows} queries and {columns} keys is not supported")
    return apply("Where", through, apply.constant(0, dtype), apply.constant(filter_value, dtype))


@_microsoft("Attention")
def attention(
    apply, x, weights, bias=None, mask=None, past=None, added=None, past_length=None, *, num_heads, unidirectional=0,
    qkv_hidden_sizes=None, mask_filter_value=-10000.0, scale=None, do_rotary=0, past_present_share_buffer=0,
    rotary_embedding_dim=0,
):  # fmt: skip
    """Attention with the product of its inputs: (N, S, width) times weights for queries, keys and values, or without weights the
    product itself; and keys and values together."""
    if do_rotary or past_length is not None or past_present_share_buffer:
        raise ValueError("do_rotary and a shared buffer of the past are not supported")
    product = x if weights is None else apply("MatMul", x, weights)
    product = product if bias is None else apply("Add", product, bias)
    sizes = tuple(qkv_hidden_sizes or (product.shape[-1] // 3,) * 3)
    query, key, value = (_by_head(apply, v, num_heads) for v in apply("Split", product, axis=2, split=sizes))
    if past is not None:
        before = (apply("Gather", past, apply.constant(n, "int64"), axis=0) for n in range(2))
        key, value = (apply("Concat", old, new, axis=2) for old, new in zip(before, (key, value), strict=True))
    rows, columns = query.shape[2], key.shape[2]
    hidden = None if mask is None else _hidden(apply, mask, rows, columns, mask_filter_value, query.dtype)
    found, _ = attended(apply, query, key, value, scale or None, (added, hidden), columns - rows if unidirectional else None)
    present = None
    if key.shape == value.shape:
        present = apply("Concat", *(apply("Unsqueeze", v, axes=(0,)) for v in (key, value)), axis=0)
    return _joined(apply, found), present


@_microsoft("QAttention")
def quantised_attention(
    apply, x, weights, bias, x_scale, scale, mask=None, x_zero=None, zero=None, past=None, *, num_heads, **attributes
):  # fmt: skip
    product = apply("com.microsoft.MatMulIntegerToFloat", x, weights, x_scale, scale, x_zero, zero, bias)
    return attention(apply, product, None, None, mask, past, num_heads=num_heads, **attributes)


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
    found, _ = attended(apply, query, key, value, scale or None, (added, hidden), before if unidirectional else None)
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


def _leading(apply: Apply, x: Value, rows: int) -> Value:
    """The first rows of (N, heads, more rows, H)."""
    return x if x.shape[2] == rows else apply("Slice", x, starts=(0,), ends=(rows,), axes=(2,))


def _present(apply: Apply, past: Value, new: Value, first: Value | None, columns: int) -> Value:
    """(N, heads, columns, H) of a past and new vectors: in each row these from its `first` place on, else behind the past."""
    if columns > past.shape[2]:
        past = _leading(apply, apply("Concat", past, new, axis=2), columns)
    return past if first is None else apply("TensorScatter", past, new, apply("Reshape", first, shape=(past.shape[0],)), axis=2)


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
    if known is not None and known.item() < rows:
        raise ValueError(f"total_sequence_length must count the {rows} new keys, got {known.item()}")
    first = None  # place of a new key in each row (n, 1)
    if past_key is not None:
        first = apply("Max", apply("Sub", apply("Reshape", lengths, shape=(n, 1)), apply.constant(rows - 1, lengths.dtype)),
                      apply.constant(0, lengths.dtype))  # fmt: skip
    if do_rotary:
        if first is None:
            places = apply.constant(np.broadcast_to(np.arange(rows), (n, rows)).astype(np.int64))
        else:
            places = apply("Add", first, apply.constant(np.arange(rows), lengths.dtype))
        query, key = (rotated(apply, v, places, cosines, sines, rotary_interleaved) for v in (query, key))
    if past_key is not None:
        behind = n == 1 and columns == before + rows  # of all keys of the past
        key, value = (
            _present(apply, *pair, None if behind else first, columns) for pair in ((past_key, key), (past_value, value))
        )
    if known is not None and int(known.item()) < columns:  # the past has room for more
        columns = int(known.item())
    keys, values = (apply("Unsqueeze", _leading(apply, v, columns), axes=(2,)) for v in (key, value))
    query = apply("Reshape", query, shape=(n, kv_num_heads, times, rows, width))
    hidden = None
    if first is not None or n > 1 or apply.known(lengths) is None:  # shorter rows hide their last keys
        places, last = apply.constant(np.arange(columns), lengths.dtype), apply("Reshape", lengths, shape=(n, 1, 1, 1, 1))
        if first is not None:
            own = apply(
                "Add", apply("Reshape", first, shape=(n, 1, 1, 1, 1)), apply.constant(np.arange(rows)[:, None], lengths.dtype)
            )
            last = apply("Min", last, own)
        through = apply("LessOrEqual", places, last)
        low = apply.constant(float(dtypes.limits(query.dtype)[0]) / 2, query.dtype)
        hidden = apply("Where", through, apply.constant(0, query.dtype), low)
    found, _ = attended(apply, query, keys, values, scale or None, (hidden,), 0 if first is None else None)
    return _joined(apply, apply("Reshape", found, shape=(n, num_heads, rows, width))), key, value
