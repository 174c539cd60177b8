"""Normalisations."""

from __future__ import annotations

from collections.abc import Callable

from tir import dtypes, te
from tir.ir import Expr

from .elementwise import at
from .registry import narrow, need, operator, shape_of, wide
from .rows import Rows, normal_axes


@operator("BatchNormalization", 7, halves=1)
def batch_normalization(x, scale, bias, mean, variance, *, epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with given statistics of each channel, dimension 1."""
    if training_mode or not spatial:
        raise ValueError("only inference with spatial statistics is supported")
    need("the input", x, dtype="float", ranks=range(2, 9))
    for what, given in (("the scale", scale), ("the bias", bias), ("the mean", mean), ("the variance", variance)):
        need(what, given, shape_of(x)[1:2], "float")
    eps = te.const(epsilon, dtypes.computed(x.dtype))

    def formula(*i: Expr) -> Expr:
        element, *parts = (wide(e) for e in (x[i], *(p[i[1]] for p in (mean, scale, variance, bias))))
        centre, factor, spread, shift = parts
        return ((element - centre) * (factor / te.sqrt(spread + eps)) + shift).astype(x.dtype)

    return te.compute(x.shape, formula, name="batch_norm")


def _mean(rows: Rows) -> te.Tensor:
    total = rows.reduce(te.sum, lambda *i: wide(rows.x[i]), "total")
    return te.compute(total.shape, lambda *i: total[i] / te.const(rows.count, total.dtype), name="mean")


def _factor(rows: Rows, of: Callable[..., Expr], epsilon: float) -> te.Tensor:
    """1 / sqrt(the mean of the squares of `of(place)` + epsilon)."""
    squares = rows.reduce(te.sum, lambda *i: of(*i) * of(*i), "squares")
    size, eps = te.const(rows.count, squares.dtype), te.const(epsilon, squares.dtype)
    return te.compute(squares.shape, lambda *i: te.rsqrt(squares[i] / size + eps), name="factor")


def _centred(rows: Rows, mean: te.Tensor) -> te.Tensor:
    return te.compute(rows.x.shape, lambda *i: wide(rows.x[i]) - mean[rows.outer(i)], name="centred")


@operator("InstanceNormalization", halves=2)
def instance_normalization(x, scale, bias, *, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with the statistics of each image and channel."""
    need("the input", x, dtype="float", ranks=range(3, 9))
    need("the scale", scale, [shape_of(x)[1]], x.dtype)
    need("the bias", bias, [shape_of(x)[1]], x.dtype)
    rows = Rows(x, range(2, x.ndim))
    centred = _centred(rows, _mean(rows))
    factor = _factor(rows, lambda *i: centred[i], epsilon)
    scaled = te.compute(factor.shape, lambda n, c: factor[n, c] * wide(scale[c]), name="scaled")
    return te.compute(x.shape, lambda *i: (centred[i] * scaled[i[:2]] + wide(bias[i[1]])).astype(x.dtype), name="instance_norm")


@operator("MeanVarianceNormalization", 9)
def mean_variance_normalization(x, *, axes=(0, 2, 3)):
    """(x - mean) / (sqrt(variance) + 1e-9), with the statistics along some axes; halves computed in float32."""
    need("the input", x, dtype="float")
    rows = Rows(x, axes)
    centred = _centred(rows, _mean(rows))
    squares = rows.reduce(te.sum, lambda *i: centred[i] * centred[i], "squares")
    size, eps = te.const(rows.count, squares.dtype), te.const(1e-9, squares.dtype)
    spread = te.compute(squares.shape, lambda *i: te.sqrt(squares[i] / size) + eps, name="spread")
    return te.compute(x.shape, lambda *i: (centred[i] / spread[rows.outer(i)]).astype(x.dtype), name="mean_variance_norm")


@operator("LayerNormalization", 17, halves=2)
def layer_normalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias along the axes from `axis` on; the mean; and 1 / sqrt(variance +
    epsilon). All are computed in the type of `x`; for halves in float32, the type of their statistics."""
    rows = _rows_to_scale(x, axis, scale)
    need("the bias", bias, dtype=x.dtype, broadcast=shape_of(x))
    mean = _mean(rows)
    centred = _centred(rows, mean)
    factor = _factor(rows, lambda *i: centred[i], epsilon)

    def formula(*i: Expr) -> Expr:
        value = centred[i] * factor[rows.outer(i)] * wide(at(scale, i))
        return (value if bias is None else value + wide(at(bias, i))).astype(x.dtype)

    kept = [1 if n in rows.axes else e for n, e in enumerate(shape_of(x))]
    means = te.compute(kept, lambda *i: mean[rows.outer(i)], name="means")
    factors = te.compute(kept, lambda *i: factor[rows.outer(i)], name="factors")
    return te.compute(x.shape, formula, name="layer_norm"), means, factors


@operator("RMSNormalization", 23, halves=2)
def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """x / sqrt(mean of squares + epsilon) * scale along the axes from `axis` on; halves computed in float32."""
    rows = _rows_to_scale(x, axis, scale)
    factor = _factor(rows, lambda *i: wide(x[i]), epsilon)

    def formula(*i: Expr) -> Expr:
        return (wide(x[i]) * factor[rows.outer(i)] * wide(at(scale, i))).astype(x.dtype)

    return te.compute(x.shape, formula, name="rms_norm")


def _rows_to_scale(x: te.Tensor, axis: int, scale: te.Tensor) -> Rows:
    """The elements along the axes from `axis` on; refuses a scale that does not broadcast to `x`."""
    need("the input", x, dtype="float")
    (first,) = normal_axes([axis], x.ndim)
    need("the scale", scale, dtype=x.dtype, broadcast=shape_of(x))
    return Rows(x, range(first, x.ndim))


@operator("LpNormalization", halves=2)
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
