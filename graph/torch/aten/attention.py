"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tir import dtypes

from ...ir import Value
from ...ops.attention import attended
from ...ops.registry import Apply
from .moving import expand, reshaped
from .products import linear
from .reductions import reduced
from .types import aten


def seen(
    apply: Apply,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
    dropout: float,
) -> Value:
    """Attention in which a query without keys gives 0. With `grouped`, heads share keys and values. Refuses a dropout."""
    if dropout:
        raise ValueError("dropout is not supported: call model.eval()")
    if grouped and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated(apply, v, query.shape[-3] // v.shape[-3]) for v in (key, value))
    found, _ = attended(apply, query, key, value, scale, (mask,), 0 if causal else None)
    if mask is None:
        return found
    through = mask
    if mask.dtype != "bool":
        through = apply("Not", apply("Equal", mask, apply.constant(-math.inf, mask.dtype)))
    known = apply.known(through)
    if known is not None and known.any(-1).all():
        return found
    return apply("Where", reduced(apply, "ReduceMax", through, -1, True), found, apply.constant(0, found.dtype))


def _repeated(apply: Apply, x: Value, times: int) -> Value:
    """Each head several times in a row."""
    *outer, heads, rows, columns = x.shape
    split = reshaped(apply, x, (*outer, heads, 1, rows, columns))
    return reshaped(apply, expand(apply, split, (*outer, heads, times, rows, columns)), (*outer, heads * times, rows, columns))


@aten("scaled_dot_product_attention")
def attention(apply, query, key, value, mask=None, dropout=0.0, causal=False, *, scale=None, enable_gqa=False):
    return seen(apply, query, key, value, mask, causal, scale, enable_gqa, dropout)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(apply, query, key, value, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    """The result, and the logarithms of the sums of rows, which inference does not read."""
    return seen(apply, query, key, value, attn_mask, causal, scale, True, dropout), _unread(apply, query)


@aten("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def plain_attention(
    apply, query, key, value, mask=None, dropout=0.0, causal=False, dropout_mask=None, *, scale=None, enable_gqa=False
):
    return seen(apply, query, key, value, mask, causal, scale, enable_gqa, dropout), _unread(apply, query)


def _unread(apply: Apply, query: Value) -> Value:
    return apply.constant(np.zeros(query.shape[:-1]), dtypes.computed(query.dtype))


def _multi_head(
    apply: Apply,
    query: Value,
    key: Value,
    value: Value,
    width: int,
    heads: int,
    weight: Value,
    bias: Value,
    mask: Value | None,
    kind: Any,
) -> tuple[Value, Value]:
    """The heads' results (N, S, width), and the weights (N, heads, S, S), of operands that are projected together first."""
    weights, biases = (apply("Split", v, axis=0, num_outputs=3) for v in (weight, bias))
    n, columns = key.shape[:2]
    by_head = [
        apply("Transpose", reshaped(apply, linear(apply, x, w, b), (n, -1, heads, width // heads)), perm=(0, 2, 1, 3))
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    ]
    if mask is not None:
        if kind == 1 or mask.shape == (n, columns) != (query.shape[1], columns):  # of the keys of each row
            mask = reshaped(apply, mask, (n, 1, 1, columns))
        mask = apply("Not", mask) if mask.dtype == "bool" else mask  # which hides where it holds
    q, k, v = by_head
    found, weights = attended(apply, q, k, v, None, (mask,))
    return reshaped(apply, apply("Transpose", found, perm=(0, 2, 1, 3)), (n, query.shape[1], width)), weights


@aten("_native_multi_head_attention")
def native_multi_head_attention(
    apply, query, key, value, embed_dim, num_head, weight, bias, out_weight, out_bias, mask=None, need_weights=True,
    average_attn_weights=True, mask_type=None,
):  # fmt: skip
    mixed, attention = _multi_head(apply, query, key, value, embed_dim, num_head, weight, bias, mask, mask_type)
    weights = apply("ReduceMean", attention, axes=(1,), keepdims=0) if average_attn_weights else attention
    return linear(apply, mixed, out_weight, out_bias), weights if need_weights else apply.constant([], query.dtype)


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    apply, x, embed_dim, num_heads, weight, bias, out_weight, out_bias, use_gelu, norm_first, eps, scale_1, shift_1, scale_2,
    shift_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None,
):  # fmt: skip
    """A layer of a transformer's encoder, whose norms come before its two parts, or after them."""

    def normal(v: Value, scale: Value, shift: Value) -> Value:
        return apply("LayerNormalization", v, scale, shift, axis=-1, epsilon=float(eps))[0]

    def attended_(v: Value) -> Value:
        mixed, _ = _multi_head(apply, v, v, v, embed_dim, num_heads, weight, bias, mask, mask_type)
        return linear(apply, mixed, out_weight, out_bias)

    def fed(v: Value) -> Value:
        hidden = apply("Gelu" if use_gelu else "Relu", linear(apply, v, ffn_weight_1, ffn_bias_1))
        return linear(apply, hidden, ffn_weight_2, ffn_bias_2)

    for part, scale, shift in ((attended_, scale_1, shift_1), (fed, scale_2, shift_2)):
        x = apply("Add", x, part(normal(x, scale, shift))) if norm_first else normal(apply("Add", x, part(x)), scale, shift)
    return x
