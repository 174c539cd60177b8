"""Normalisations."""

from __future__ import annotations

from tir import te
from tir.ir import Expr

from .registry import need, operator, shape_of


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
