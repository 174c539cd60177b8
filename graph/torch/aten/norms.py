"""Normalisations, for inference."""

from __future__ import annotations

from math import prod

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .making import filled
from .moving import reshaped
from .types import Table, aten, cast


def _nothing(apply: Apply, dtype: str) -> Value:
    """The statistics that inference does not give."""
    return apply.constant([], dtype)


@aten("native_layer_norm")
def layer_norm(apply, x, shape, weight, bias, eps):
    """The normalised rows, their means, and 1 / their deviations."""
    scale = filled(apply, shape, 1, x.dtype) if weight is None else weight
    if not len(shape):
        raise ValueError("a norm without dimensions is not supported")
    return apply("LayerNormalization", x, scale, bias, axis=-len(shape), epsilon=float(eps))


@aten("rms_norm")
def rms_norm(apply, x, shape, weight=None, eps=None):
    scale = filled(apply, shape, 1, x.dtype) if weight is None else weight
    epsilon = dtypes.TABLE[x.dtype].eps if eps is None else eps
    return apply("RMSNormalization", x, cast(apply, scale, x.dtype), axis=-len(shape), epsilon=float(epsilon))


def _by_channel(apply: Apply, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """Images with each channel scaled and shifted."""
    for operator, numbers in (("Mul", weight), ("Add", bias)):
        x = x if numbers is None else apply(operator, x, reshaped(apply, numbers, (x.shape[1], *(1,) * (len(x.shape) - 2))))
    return x


@aten("native_group_norm")
def group_norm(apply, x, weight, bias, n, c, size, groups, eps):
    """Each group of channels of an image normalised, then scaled by channel; the means and 1 / the deviations of groups."""
    rows = reshaped(apply, x, (n, groups, c // groups * size))
    ones = filled(apply, (c // groups * size,), 1, x.dtype)
    normal, mean, factor = apply("LayerNormalization", rows, ones, axis=-1, epsilon=float(eps))
    result = _by_channel(apply, reshaped(apply, normal, x.shape), weight, bias)
    statistics = (cast(apply, reshaped(apply, v, (n, groups)), x.dtype) for v in (mean, factor))
    return result, *statistics


@aten("_native_batch_norm_legit_no_training", "native_batch_norm")
def batch_norm(apply, x, weight, bias, mean, variance, *training_momentum_eps):
    """Channels normalised by given statistics."""
    *training, _, eps = training_momentum_eps
    if any(training):
        raise ValueError("batch norms in training are not supported: call model.eval()")
    channels = (x.shape[1],)
    scale = filled(apply, channels, 1, x.dtype) if weight is None else weight
    shift = filled(apply, channels, 0, x.dtype) if bias is None else bias
    result = apply("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(eps))
    return result, _nothing(apply, x.dtype), _nothing(apply, x.dtype)


@aten("_native_batch_norm_legit.no_stats")
def instance_norm(apply, x, weight, bias, training, momentum, eps):
    """Channels normalised by their own statistics, over the batch; instance norms reach here with a batch of 1."""
    axes = (0, *range(2, len(x.shape)))
    wide = cast(apply, x, dtypes.computed(x.dtype))
    mean = apply("ReduceMean", wide, axes=axes)
    off = apply("Sub", wide, mean)
    spread = apply("ReduceMean", apply("Mul", off, off), axes=axes)
    factor = apply("Reciprocal", apply("Sqrt", apply("Add", spread, apply.constant(float(eps), wide.dtype))))
    result, mean, factor = (cast(apply, v, x.dtype) for v in (apply("Mul", off, factor), mean, factor))
    return _by_channel(apply, result, weight, bias), reshaped(apply, mean, (x.shape[1],)), reshaped(apply, factor, (x.shape[1],))


OPERATORS: Table = {
    "group_norm": lambda apply, x, groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True: group_norm(
        apply, x, weight, bias, *x.shape[:2], prod(x.shape[2:]), groups, eps
    )[0],
    "layer_norm": lambda apply, x, shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True: layer_norm(
        apply, x, shape, weight, bias, eps
    )[0],
    "_fused_rms_norm": lambda apply, x, shape, weight, eps: (rms_norm(apply, x, shape, weight, eps), _nothing(apply, x.dtype)),
}
