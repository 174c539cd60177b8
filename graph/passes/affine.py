"""Folding of scales and shifts by constants after a convolution or a product into its weights."""

from __future__ import annotations

import numpy as np

from tir import dtypes

from ..ir import Call, Value, rounded
from ..ops import definition
from .rewriting import Rewriting, each_call, parted

ONE, ZERO = np.ones(()), np.zeros(())


@each_call
def fold_affine(r: Rewriting, call: Call) -> Value | None:
    """Fold constant factors and addends of output channels into the weights and the bias of the convolution or product before
    them. They come from a batch normalisation, or from products and sums with constants:

        (conv(x, W) + b) * f + g  =  conv(x, W f) + (b f + g)

    f scales each output channel of W; of a batch normalisation it is scale / sqrt(variance + epsilon), and g is bias - mean f. It
    is computed in float64 and rounded once. A batch normalisation after anything else becomes a product and a sum.
    """
    if (affine := _affine(r, call)) is None:
        return None
    source, factor, shift = affine
    merged = _into_weights(r, source, factor, shift, call.outputs[0]) if r.read_once(source) else None
    if merged is not None or call.operator != "BatchNormalization":
        return merged
    name, dtype = call.outputs[0].name, source.dtype
    scaled = r("Mul", source, r.constant(rounded(factor, dtype), name=f"{name}_factor"))
    return r("Add", scaled, r.constant(rounded(shift, dtype), name=f"{name}_shift"))


def _affine(r: Rewriting, call: Call) -> tuple[Value, np.ndarray, np.ndarray] | None:
    """A call as source * factor + shift, both in float64 and broadcast with the source; None for other calls."""
    result = call.outputs[0]
    if not dtypes.is_float(result.dtype):
        return None
    if call.operator == "BatchNormalization":
        arrays = [a.astype(np.float64) for v in call.inputs[1:] if (a := r.known(v)) is not None]
        if len(arrays) < 4:
            return None
        scale, bias, mean, variance = (a.reshape(-1, *(1,) * (len(result.shape) - 2)) for a in arrays)
        factor = scale / np.sqrt(variance + call.attribute("epsilon", 1e-5))
        return call.values[0], factor, bias - mean * factor
    constant, source = parted(call, lambda v: v.name in r.constants)
    if constant is None or source is None or source.shape != result.shape:
        return None
    c = r.constants[constant.name].astype(np.float64)
    match call.operator, source == call.inputs[0]:
        case "Add", _:
            return source, ONE, c
        case "Sub", True:
            return source, ONE, -c
        case "Sub", False:
            return source, -ONE, c
        case "Mul", _:
            return source, c, ZERO
        case "Div", True if c.all():
            return source, 1 / c, ZERO
        case _:
            return None


def _into_weights(r: Rewriting, source: Value, factor: np.ndarray, shift: np.ndarray, result: Value) -> Value | None:
    """The value `result` = source * factor + shift with both folded into the source's producer; None where it has no room."""
    linear, bias = _linear(r, source)
    weight = None if linear is None else r.known(linear.inputs[1])
    if linear is None or weight is None:
        return None
    product = linear.operator == "MatMul"
    f, g, b = (_by_channel(a, result.shape, definition(linear).channels) for a in (factor, shift, ZERO if bias is None else bias))
    if f is None or g is None or b is None or (product and (weight.ndim != 2 or (bias is None and (f == 1).all()))):
        return None
    name, (x, w) = result.name, linear.values[:2]
    if not (f == 1).all():
        w = r.constant((weight * _of_weight(f, weight, linear)).astype(w.dtype), name=f"{name}_weight")
    moved = b * f + g
    added = [r.constant(moved.astype(w.dtype), name=f"{name}_bias")] if moved.any() else []
    if product and added:
        return r("Add", r("MatMul", x, w), *added)
    return r(linear.operator, x, w, *added, **{n: a for n, a in linear.attributes if n != "beta"})


def _linear(r: Rewriting, source: Value) -> tuple[Call | None, np.ndarray | None]:
    """The convolution or product that makes a value, and its bias in float64; no call where the bias is not constant."""
    made, constant = r.producers.get(source), None
    linear = made if made is not None and definition(made).channels is not None else None
    if (added := r.producer(source, "Add")) is not None:  # the bias of a product
        constant, product = parted(added, lambda v: v.name in r.constants)
        fits = product is not None and product.shape == source.shape and r.read_once(product)
        linear = r.producer(product, "MatMul") if fits else None
    elif linear is not None and len(linear.values) > 2:
        constant = linear.values[2]
    if linear is None or constant is None:
        return linear, None
    if (array := r.known(constant)) is None:
        return None, None
    bias = array.astype(np.float64) * linear.attribute("beta", 1.0)
    return linear, bias.reshape(-1, *(1,) * (len(source.shape) - 2)) if definition(linear).channels == 1 else bias


def _by_channel(array: np.ndarray, shape: tuple[int, ...], axis: int | None) -> np.ndarray | None:
    """The numbers along an axis of an array broadcast to a shape; None unless they are the same along the other axes."""
    own = (1,) * (len(shape) - array.ndim) + array.shape
    if not shape or axis is None or any(extent > 1 and n != axis % len(shape) for n, extent in enumerate(own)):
        return None
    return np.broadcast_to(array.reshape(-1), (shape[axis],))


def _of_weight(factor: np.ndarray, weight: np.ndarray, linear: Call) -> np.ndarray:
    """Factors of output channels, broadcast with the weights."""
    kernel = (1,) * (weight.ndim - 2)
    match linear.operator:
        case "Conv":
            return factor.reshape(-1, 1, *kernel)
        case "ConvTranspose":  # (channels in, channels out of a group, kernel); inputs of a group follow each other
            groups = linear.attribute("group", 1)
            each = np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, axis=0)
            return each.reshape(*each.shape, *kernel)
        case "Gemm" if linear.attribute("transB", 0):
            return factor.reshape(-1, 1)
        case _:
            return factor
