"""Operators of the domain com.microsoft, which onnxruntime's optimiser and quantiser leave in files, as composites.

Their definitions are those of onnxruntime's documentation of its contributed operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import Value
from .registry import Apply, composite, composites

# --- activations and products with what follows them ---------------------------------------------------------------------


def fast_gelu(apply, x, bias=None):
    return apply("Gelu", x if bias is None else apply("Add", x, bias), approximate="tanh")


def bias_split_gelu(apply, x, bias):
    """The left half of the last dimension times the Gelu of the right one."""
    left, right = apply("Split", apply("Add", x, bias), axis=len(x.shape) - 1, num_outputs=2)
    return apply("Mul", left, apply("Gelu", right))


def _activated(apply: Apply, x: Value, name: str, parameters: tuple[float, ...] = (), **named: float) -> Value:
    """An activation by its name in attributes, with its parameters in the order of the operator's."""
    if not name:
        return x
    order = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"), "HardSwish": ()}
    given = dict(zip(order.get(name, ()), parameters, strict=False)) | named
    return apply(name, x, **given)


def fused_conv(apply, x, weight, bias=None, added=None, *, activation="", activation_params=(), **window):
    """A convolution, plus another tensor, and an activation."""
    found = apply("Conv", x, weight, bias, **window)
    found = found if added is None else apply("Add", found, added)
    return _activated(apply, found, activation, tuple(activation_params))


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


def fused_matmul(apply, a, b, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    found = apply("MatMul", _matrix(apply, a, transA, transBatchA), _matrix(apply, b, transB, transBatchB))
    return found if alpha == 1 else apply("Mul", found, apply.constant(alpha, found.dtype))


def fused_matmul_activation(apply, a, b, *, activation, **attributes):
    parameters = {k.removeprefix("activation_"): attributes.pop(k) for k in [*attributes] if k.startswith("activation_")}
    parameters.pop("axis", None)
    return _activated(apply, fused_matmul(apply, a, b, **attributes), activation, **parameters)


# --- norms ---------------------------------------------------------------------------------------------------------------


def _normal(apply: Apply, x: Value, scale: Value, bias: Value | None, epsilon: float) -> Value:
    return apply("LayerNormalization", x, scale, bias, axis=-1, epsilon=float(epsilon))[0]


def _root_mean_square(apply: Apply, x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    return apply("RMSNormalization", x, scale, axis=axis, epsilon=float(epsilon))


def _total(apply: Apply, x: Value, skip: Value, bias: Value | None) -> Value:
    total = apply("Add", x, skip)
    return total if bias is None else apply("Add", total, bias)


def skip_layer_normalization(apply, x, skip, scale, beta=None, bias=None, *, epsilon=1e-12):
    """The norm of a sum, and as the fourth output the sum."""
    total = _total(apply, x, skip, bias)
    return _normal(apply, total, scale, beta, epsilon), None, None, total


def skip_rms_normalization(apply, x, skip, scale, bias=None, *, epsilon=1e-12):
    total = _total(apply, x, skip, bias)
    return _root_mean_square(apply, total, scale, -1, epsilon), None, None, total


composite("SimplifiedLayerNormalization")(  # of ONNX's own domain in files, though onnxruntime's
    lambda apply, x, scale, *, axis=-1, epsilon=1e-5, stash_type=1: _root_mean_square(apply, x, scale, axis, epsilon)
)


def embed_layer_normalization(
    apply, ids, segments=None, words=None, positions=None, segment=None, gamma=None, beta=None, mask=None, position_ids=None, *,
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
    return _normal(apply, total, gamma, beta, epsilon), lengths, total


def group_normalization(apply, x, scale, bias, *, groups, activation, channels_last=1, epsilon=1e-5):
    """The norm of groups of channels; with an activation of 1 also Swish."""
    if channels_last:
        return _channels_first(apply, x, group_normalization, scale, bias, groups=groups, activation=activation, channels_last=0,
                               epsilon=epsilon)  # fmt: skip
    if groups < 1 or x.shape[1] % groups or activation not in (0, 1):
        raise ValueError(f"{groups} groups of {x.shape[1]} channels with activation={activation} are not supported")
    ones, zeros = (apply.constant(np.full(groups, n), x.dtype) for n in (1, 0))
    split = apply("Reshape", x, shape=(x.shape[0], groups, -1))
    normal = apply("Reshape", apply("InstanceNormalization", split, ones, zeros, epsilon=float(epsilon)), shape=x.shape)
    scale, bias = (apply("Reshape", apply("Cast", v, to=x.dtype), shape=(-1, *(1,) * (len(x.shape) - 2))) for v in (scale, bias))
    found = apply("Add", apply("Mul", normal, scale), bias)
    return apply("Swish", found) if activation else found


def skip_group_normalization(apply, x, scale, bias, skip, added=None, *, channels_last=1, **attributes):
    """The norm of a sum, and the sum; what is added may be of a whole image."""
    if len(skip.shape) == 2:
        ones = (1,) * (len(x.shape) - 2)
        skip = apply("Reshape", skip, shape=(skip.shape[0], *ones, -1) if channels_last else (*skip.shape, *ones))
    total = _total(apply, x, skip, added)
    return group_normalization(apply, total, scale, bias, channels_last=channels_last, **attributes), total


def bias_softmax(apply, x, bias, *, axis=1, is_inner_broadcast):
    """The softmax of a sum along all axes from `axis` on."""
    axis %= len(x.shape)
    flat = apply("Reshape", apply("Add", x, bias), shape=(*x.shape[:axis], -1))
    return apply("Reshape", apply("Softmax", flat, axis=axis), shape=x.shape)


# --- quantised numbers ---------------------------------------------------------------------------------------------------


def _real(apply: Apply, x: Value, scale: Value, zero: Value | None) -> Value:
    return apply("DequantizeLinear", x, scale, zero)


def _integers(apply: Apply, x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    return apply("QuantizeLinear", x, scale, apply.constant(0, dtype) if zero is None else zero)


def _by_reals(
    apply: Apply, operator: str, given: Sequence[Value], scale: Value, zero: Value | None, *before: Value, **attributes: Any
) -> Value:
    """The quantised result of an operator of real numbers, each given as numbers, scale and zero point."""
    if not given or len(given) % 3 or any(v is None for n, v in enumerate(given) if n % 3 < 2):
        raise ValueError("each operand needs numbers, a scale and a zero point")
    real = (_real(apply, *given[n : n + 3]) for n in range(0, len(given), 3))
    return _integers(apply, apply(operator, *before, *real, **attributes), scale, zero, given[0].dtype)


def _quantised(operator: str) -> Callable:
    """An operator of a quantised tensor by that of its real numbers."""

    def define(apply, x, x_scale, x_zero, scale, zero=None, **attributes):
        return _by_reals(apply, operator, (x, x_scale, x_zero), scale, zero, **attributes)

    return define


def _quantised_binary(operator: str) -> Callable:
    def define(apply, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None):
        return _by_reals(apply, operator, (a, a_scale, a_zero, b, b_scale, b_zero), scale, zero)

    return define


def _channels_first(apply: Apply, x: Value, define: Callable[..., Value], *operands: Value | None, **attributes: Any) -> Value:
    """The result with channels last of a definition that takes `x`, whose channels are last, with channels first."""
    rank = len(x.shape)
    found = define(apply, apply("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1))), *operands, **attributes)
    return apply("Transpose", found, perm=(0, *range(2, rank), 1))


def _of_images(define: Callable[..., Value]) -> Callable:
    """An operator of quantised images whose channels may be last, by one that takes them first."""

    def either(apply, x, x_scale, x_zero, *others, channels_last=0, **window):
        if channels_last:
            return _channels_first(apply, x, define, x_scale, x_zero, *others, **window)
        return define(apply, x, x_scale, x_zero, *others, **window)

    return either


def quantised_embed_layer_normalization(apply, ids, segments, *operands, epsilon=1e-12):
    """Of five quantised tables, a mask, and the scales and zero points of the tables."""
    (*tables, mask), scales, zeros = operands[:6], operands[6:11], operands[11:]
    real = (None if given[0] is None else _real(apply, *given) for given in zip(tables, scales, zeros, strict=True))
    return apply("com.microsoft.EmbedLayerNormalization", ids, segments, *real, mask, epsilon=epsilon)[:2]


def quantised_softmax(apply, x, x_scale, x_zero, scale, zero=None, *, axis=-1, opset):
    if opset < 13 and axis % len(x.shape) != len(x.shape) - 1:
        raise ValueError("a softmax along several axes is not supported")
    return _quantised("Softmax")(apply, x, x_scale, x_zero, scale, zero, axis=axis)


def dynamic_quantize_matmul(apply, a, b, b_scale, b_zero=None, bias=None):
    """A product of floats, quantised to uint8 as a whole, and a quantised matrix."""
    top, bottom = (apply(f"Reduce{m}", a, keepdims=0) for m in ("Max", "Min"))
    none = apply.constant(0, a.dtype)
    bottom = apply("Min", bottom, none)
    scale = apply("Div", apply("Sub", apply("Max", top, none), bottom), apply.constant(255, a.dtype))
    zero = apply("Cast", apply("Round", apply("Clip", apply("Div", apply("Neg", bottom), scale), min=0.0, max=255.0)), to="uint8")
    numbers = apply("QuantizeLinear", a, scale, zero)
    return matmul_integer_to_float(apply, numbers, b, scale, b_scale, zero, b_zero, bias)


def matmul_integer_to_float(apply, a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    product = apply("Cast", apply("MatMulInteger", a, b, a_zero, b_zero), to="float32")
    found = apply("Mul", product, apply("Mul", a_scale, b_scale))
    return found if bias is None else apply("Add", found, bias)


def quantised_gemm(
    apply, a, a_scale, a_zero, b, b_scale, b_zero, c=None, scale=None, zero=None, *, alpha=1.0, transA=0, transB=0
):  # fmt: skip
    """alpha (A - its zero point) (B - its zero points) plus a bias in the units of the product; quantised if a scale is given."""
    a, b = (apply("Transpose", x, perm=(1, 0)) if turned else x for x, turned in ((a, transA), (b, transB)))
    total = apply("MatMulInteger", a, b, a_zero, b_zero)
    total = apply("Cast", total if c is None else apply("Add", total, c), to="float32")
    unit = apply("Mul", apply("Mul", a_scale, b_scale), apply.constant(alpha, "float32"))
    found = apply("Mul", total, unit)
    return found if scale is None else _integers(apply, found, scale, zero, a.dtype)


def quantised_lstm(
    apply, x, weight, recurrent, bias=None, lengths=None, hidden=None, cell=None, peepholes=None,
    w_scale=None, w_zero=None, r_scale=None, r_zero=None, **attributes,
):  # fmt: skip
    """An LSTM by the real numbers of its weights, given transposed. Input and state, which onnxruntime rounds, stay real."""

    def real(w: Value, scale: Value, zero: Value) -> Value:
        scale, zero = (apply("Reshape", v, shape=(v.shape[0], 1, -1)) for v in (scale, zero))
        shifted = apply("Sub", apply("Cast", w, to="float32"), apply("Cast", zero, to="float32"))
        return apply("Transpose", apply("Mul", shifted, scale), perm=(0, 2, 1))

    weights = real(weight, w_scale, w_zero), real(recurrent, r_scale, r_zero)
    return apply("LSTM", x, *weights, bias, lengths, hidden, cell, peepholes, **attributes)


TABLE: dict[str, Callable] = {
    "Gelu": lambda apply, x: apply("Gelu", x),
    "BiasGelu": lambda apply, x, bias: apply("Gelu", apply("Add", x, bias)),
    "FastGelu": fast_gelu,
    "QuickGelu": lambda apply, x, *, alpha=1.702: apply("Swish", x, alpha=float(alpha)),
    "BiasSplitGelu": bias_split_gelu,
    "BiasAdd": lambda apply, x, bias, skip: apply("Add", apply("Add", x, bias), skip),
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul TransposeMatMul": fused_matmul,
    "FusedMatMulActivation": fused_matmul_activation,
    "GemmFastGelu": lambda apply, x, weight, bias=None: fast_gelu(apply, apply("MatMul", x, weight), bias),
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_rms_normalization,
    "EmbedLayerNormalization": embed_layer_normalization,
    "QEmbedLayerNormalization": quantised_embed_layer_normalization,
    "GroupNorm": group_normalization,
    "SkipGroupNorm": skip_group_normalization,
    "BiasSoftmax": bias_softmax,
    "QLinearAdd": _quantised_binary("Add"),
    "QLinearMul": _quantised_binary("Mul"),
    "QLinearSigmoid": _quantised("Sigmoid"),
    "QLinearLeakyRelu": _quantised("LeakyRelu"),
    "QLinearSoftmax": quantised_softmax,
    "QLinearReduceMean": _quantised("ReduceMean"),
    "QLinearGlobalAveragePool": _of_images(_quantised("GlobalAveragePool")),
    "QLinearAveragePool": _of_images(_quantised("AveragePool")),
    "QLinearConv": _of_images(lambda apply, *operands, **window: apply("QLinearConv", *operands, **window)),
    "QLinearWhere": lambda apply, condition, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None: _by_reals(
        apply, "Where", (a, a_scale, a_zero, b, b_scale, b_zero), scale, zero, condition
    ),
    "NhwcMaxPool": lambda apply, x, **window: _channels_first(apply, x, lambda apply, x: apply("MaxPool", x, **window)[0]),
    "QLinearConcat": lambda apply, scale, zero, *parts, axis: _by_reals(apply, "Concat", parts, scale, zero, axis=axis),
    "QuantizeLinear": lambda apply, x, scale, zero=None, *, axis=1: apply("QuantizeLinear", x, scale, zero, axis=axis),
    "DequantizeLinear": lambda apply, x, scale, zero=None, *, axis=1: apply("DequantizeLinear", x, scale, zero, axis=axis),
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "DynamicQuantizeLSTM": quantised_lstm,
    "QGemm": quantised_gemm,
    "MatMulIntegerToFloat": matmul_integer_to_float,
}
composites(TABLE, domain="com.microsoft")
