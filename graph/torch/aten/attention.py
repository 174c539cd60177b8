"""Attention."""

from __future__ import annotations

import numpy as np

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .moving import expand, reshaped
from .reductions import reduced
from .types import aten, cast


def attended(
    apply: Apply,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    causal: bool,
    scale: float | None,
    grouped: bool = False,
) -> Value:
    """softmax(scale query key^T + mask) value, of the last two dimensions; a condition lets through where it holds.

    Where heads of queries are `grouped`, several read one of keys and values.
    """
    if grouped and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated(apply, v, query.shape[-3] // v.shape[-3]) for v in (key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    order = (*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2)
    scores = apply("MatMul", query, apply("Transpose", key, perm=order))
    scores = apply("Mul", scores, cast(apply, float(factor), scores.dtype))
    rows, columns = scores.shape[-2:]
    if causal:
        hidden = np.triu(np.ones((rows, columns), bool), 1)
        scores = apply("Where", apply.constant(hidden), cast(apply, float("-inf"), scores.dtype), scores)
    through = None if mask is None or mask.dtype != "bool" else mask
    if through is not None:
        scores = apply("Where", through, scores, cast(apply, float("-inf"), scores.dtype))
    elif mask is not None:
        scores = apply("Add", scores, cast(apply, mask, scores.dtype))
    found = apply("MatMul", apply("Softmax", scores, axis=len(scores.shape) - 1), value)
    known = None if through is None else apply.known(through)
    if through is None or (known is not None and known.any(-1).all()):
        return found
    seeing = reduced(apply, "ReduceMax", through, -1, True)  # a query that sees no key gives 0
    return apply("Where", seeing, found, apply.constant(0, found.dtype))


def _repeated(apply: Apply, x: Value, times: int) -> Value:
    """Each head several times in a row."""
    *outer, heads, rows, columns = x.shape
    split = reshaped(apply, x, (*outer, heads, 1, rows, columns))
    return reshaped(apply, expand(apply, split, (*outer, heads, times, rows, columns)), (*outer, heads * times, rows, columns))


@aten("scaled_dot_product_attention")
def attention(apply, query, key, value, mask=None, dropout=0.0, causal=False, *, scale=None, enable_gqa=False):
    _need_inference(dropout)
    return attended(apply, query, key, value, mask, causal, scale, enable_gqa)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(apply, query, key, value, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    """The result, and the logarithms of the sums of rows, which inference does not read."""
    _need_inference(dropout)
    return attended(apply, query, key, value, attn_mask, causal, scale, True), _unread(apply, query)


@aten("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def plain_attention(
    apply, query, key, value, mask=None, dropout=0.0, causal=False, dropout_mask=None, *, scale=None, enable_gqa=False
):
    _need_inference(dropout)
    return attended(apply, query, key, value, mask, causal, scale, enable_gqa), _unread(apply, query)


def _need_inference(dropout: float) -> None:
    if dropout:
        raise ValueError("dropout is not supported: call model.eval()")


def _unread(apply: Apply, query: Value) -> Value:
    return apply.constant(np.zeros(query.shape[:-1]), dtypes.computed(query.dtype))
