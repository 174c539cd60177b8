"""Normalisations."""

from __future__ import annotations

from tir import dtypes, te
from tir.ir import Expr

from .registry import narrow, need, operator, shape_of, wide
from .rows import Rows


@operator("BatchNormalization", 7)
def batch_normalization(x, scale, bias, mean, variance, *, epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics that are given, by channel: dimension 1."""
    if training_mode or not spatial:
        raise ValueError("only inference is there, with spatial statistics")
    need("the input", x, dtype="float", ranks=range(2, 9))
    for what, given in (("the scale", scale), ("the bias", bias), ("the mean", mean), ("the variance", variance)):
        need(what, given, shape_of(x)[1:2], x.dtype)
    eps = te.const(epsilon, x.dtype)

    def formula(*i: Expr) -> Expr:
        c = i[1]
        return (x[i] - mean[c]) * (scale[c] / te.sqrt(variance[c] + eps)) + bias[c]

    return te.compute(x.shape, formula, name="batch_norm")


@operator("InstanceNormalization", 6)
def instance_normalization(x, scale, bias, *, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with the statistics of each image and channel."""
    need("the input", x, dtype="float", ranks=range(3, 9))
    need("the scale", scale, [shape_of(x)[1]], x.dtype)
    need("the bias", bias, [shape_of(x)[1]], x.dtype)
    rows, kind = Rows(x, range(2, x.ndim)), dtypes.computed(x.dtype)
    size, eps = te.const(rows.count, kind), te.const(epsilon, kind)
    total = rows.reduce(te.sum, lambda *i: wide(x[i]), "total")
    mean = te.compute(total.shape, lambda *i: total[i] / size, name="mean")
    centred = te.compute(x.shape, lambda *i: wide(x[i]) - mean[i[:2]], name="centred")
    squares = rows.reduce(te.sum, lambda *i: centred[i] * centred[i], "squares")
    factor = te.compute(total.shape, lambda n, c: te.rsqrt(squares[n, c] / size + eps) * wide(scale[c]), name="factor")
    return te.compute(x.shape, lambda *i: (centred[i] * factor[i[:2]] + wide(bias[i[1]])).astype(x.dtype), name="instance_norm")


@operator("LpNormalization")
def lp_normalization(x, *, axis=-1, p=2):
    """x over its norm of order `p`, 1 or 2, along an axis; 0 where that is 0."""
    need("the input", x, dtype="float")
    if p not in (1, 2):
        raise ValueError(f"the order of the norm must be 1 or 2, got {p}")
    rows = Rows(x, [axis])
    total = rows.reduce(te.sum, lambda *i: te.abs(wide(x[i])) if p == 1 else wide(x[i]) * wide(x[i]), "total")
    zero = te.const(0, total.dtype)

    def formula(*i: Expr) -> Expr:
        norm = total[rows.outer(i)] if p == 1 else te.sqrt(total[rows.outer(i)])
        return te.select(te.equal(norm, zero), zero, wide(x[i]) / norm).astype(x.dtype)

    return te.compute(x.shape, formula, name="lp_norm")


@operator("LRN")
def local_response_normalization(x, *, size, alpha=1e-4, beta=0.75, bias=1.0):
    """x / (bias + alpha / size * s) ** beta, s the sum of squares of `size` channels around each."""
    need("the input", x, dtype="float", ranks=range(3, 9))
    channels, before = shape_of(x)[1], (size - 1) // 2
    near = te.reduce_axis((0, size), "near")
    zero = te.const(0, dtypes.computed(x.dtype))

    def squares(*i: Expr) -> Expr:
        c = i[1] + near - before
        element = wide(x[(i[0], c, *i[2:])])
        return te.sum(te.if_then_else(te.all(c >= 0, c < channels), element * element, zero), axis=near)

    total = te.compute(x.shape, squares, name="squares")
    weight, low, power = (te.const(number, total.dtype) for number in (alpha / size, bias, beta))
    return narrow(te.compute(x.shape, lambda *i: wide(x[i]) / te.pow(low + weight * total[i], power), name="lrn"), x.dtype)
