"""Operators of the domain com.microsoft, which onnxruntime's optimiser and quantiser leave in files, as composites.

Their definitions are those of onnxruntime's documentation of its contributed operators.
"""

from __future__ import annotations

from collections.abc import Callable

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


@composite("SimplifiedLayerNormalization")
def rms_normalization(apply, x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Of ONNX's own domain in files, though onnxruntime's."""
    return _root_mean_square(apply, x, scale, axis, epsilon)


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
    return _normal(apply, total, gamma, beta, epsilon), lengths, total


# --- quantised numbers ---------------------------------------------------------------------------------------------------


def _real(apply: Apply, x: Value, scale: Value, zero: Value | None) -> Value:
    return apply("DequantizeLinear", x, scale, zero)


def _integers(apply: Apply, x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    return apply("QuantizeLinear", x, scale, apply.constant(0, dtype) if zero is None else zero)


def _quantised(operator: str) -> Callable:
    """An operator of a quantised tensor by that of its real numbers."""

    def define(apply, x, x_scale, x_zero, scale, zero=None, **attributes):
        return _integers(apply, apply(operator, _real(apply, x, x_scale, x_zero), **attributes), scale, zero, x.dtype)

    return define


def _quantised_binary(operator: str) -> Callable:
    def define(apply, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None):
        found = apply(operator, _real(apply, a, a_scale, a_zero), _real(apply, b, b_scale, b_zero))
        return _integers(apply, found, scale, zero, a.dtype)

    return define


def _quantised_pool(operator: str) -> Callable:
    def define(apply, x, x_scale, x_zero, scale, zero=None, *, channels_last=0, **window):
        rank = len(x.shape)
        x = apply("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1))) if channels_last else x
        found = _quantised(operator)(apply, x, x_scale, x_zero, scale, zero, **window)
        return apply("Transpose", found, perm=(0, *range(2, rank), 1)) if channels_last else found

    return define


def quantised_softmax(apply, x, x_scale, x_zero, scale, zero=None, *, axis=-1, opset):
    if opset < 13 and axis % len(x.shape) != len(x.shape) - 1:
        raise ValueError("a softmax along several axes is not supported")
    return _quantised("Softmax")(apply, x, x_scale, x_zero, scale, zero, axis=axis)


def quantised_concat(apply, scale, zero, *parts, axis):
    real = [_real(apply, *parts[n : n + 3]) for n in range(0, len(parts), 3)]
    return _integers(apply, apply("Concat", *real, axis=axis), scale, zero, parts[0].dtype)


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
    """An LSTM by the real numbers of its weights, which are given transposed. Its input and state stay real: onnxruntime rounds
    these to 8 bits, too."""

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
    "QLinearAdd": _quantised_binary("Add"),
    "QLinearMul": _quantised_binary("Mul"),
    "QLinearSigmoid": _quantised("Sigmoid"),
    "QLinearLeakyRelu": _quantised("LeakyRelu"),
    "QLinearSoftmax": quantised_softmax,
    "QLinearGlobalAveragePool": _quantised_pool("GlobalAveragePool"),
    "QLinearAveragePool": _quantised_pool("AveragePool"),
    "QLinearConcat": quantised_concat,
    "QuantizeLinear": lambda apply, x, scale, zero=None, *, axis=1: apply("QuantizeLinear", x, scale, zero, axis=axis),
    "DequantizeLinear": lambda apply, x, scale, zero=None, *, axis=1: apply("DequantizeLinear", x, scale, zero, axis=axis),
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "DynamicQuantizeLSTM": quantised_lstm,
    "QGemm": quantised_gemm,
    "MatMulIntegerToFloat": matmul_integer_to_float,
}
composites(TABLE, domain="com.microsoft")
