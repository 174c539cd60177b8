"""Canonical forms: calls that mean the same become equal, so that equal kernels have equal names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tir import dtypes

from ..ir import Call, Graph, Value
from ..kinds import elementwise, moves
from ..ops import definition
from .rewriting import Rewriting, attributes_of, fits_elementwise, other, reads_padding, rewrite, windows_of


def canonicalise(graph: Graph) -> Graph:
    """Bring calls to their canonical form:

    pooling over the whole image          a reduction
    a reduction that drops its axes       one that keeps them, and a view
    an axis of Softmax from the end       one from the front
    Sum of two, Max or Clip from 0 on     Add, Relu
    a quotient by a constant              a product, with one rounding more
    a convolution to one pixel            a product of matrices
    zeros around a convolution's image    its padding
    taps that meet padding alone          none
    a bias of zeros                       none
    Expand before an elementwise call     the broadcasting of that call
    many matrices times one               one product of all their rows, between two views
    Gemm as ONNX exporters write layers   MatMul and Add; a constant is transposed here
    """
    return rewrite(graph, _rule)


def _rule(r: Rewriting, call: Call) -> Value | Sequence[Call] | None:
    (x, *others), result = call.inputs or (None,), call.outputs[0]
    if x is None or len(call.outputs) > 1:
        return None
    rank = len(x.shape)
    match call.operator:
        case "AveragePool" if call.attribute("kernel_shape") == x.shape[2:] and not reads_padding(call):
            whole = result.shape[2:] == (1,) * (rank - 2)
            return r("ReduceMean", x, axes=tuple(range(2, rank))) if whole else None
        case operator if not call.attribute("keepdims", 1):
            attributes = {n: a for n, a in call.attributes if n != "keepdims"}
            return r("Reshape", r(operator, *call.inputs, **attributes), shape=result.shape)
        case "Softmax" if call.attribute("axis", -1) < 0:
            return r("Softmax", x, axis=call.attribute("axis", -1) + rank)
        case "Sum" if len(call.values) == 2:
            return r("Add", *call.values)
        case "Clip" if call.attribute("min") == 0 and call.attribute("max") is None:
            return r("Relu", x)
        case "Max":
            zero = next((v for v in call.values if r.number(v) == 0), None)
            source = None if zero is None else other(call.values, zero)
            return r("Relu", source) if source is not None and source.shape == result.shape else None
        case "Div" if dtypes.is_float(result.dtype) and (array := r.known(others[0])) is not None:
            with np.errstate(all="ignore"):
                inverse = 1 / array
            exact = np.isfinite(inverse).all() and (np.abs(inverse) >= dtypes.TABLE[result.dtype].tiny).all()  # to one rounding
            return r("Mul", x, r.constant(inverse, name=f"{result.name}_factor")) if exact else None
        case _ if (bias := definition(call).bias) and _all_zero(r, *call.inputs[bias:]) and call.attribute("alpha", 1.0) > 0:
            without = replace(call, inputs=call.inputs[:bias])
            return _rule(r, without) or [without]
        case "Conv":
            return _one_pixel(r, call) or _padded(r, call) or _without_padding_taps(r, call)
        case "MatMul" if rank > 2 and len(others[0].shape) == 2:  # type: ignore[union-attr]
            rows = r("Reshape", x, shape=(prod(x.shape[:-1]), x.shape[-1]))
            return r("Reshape", r("MatMul", rows, others[0]), shape=result.shape)
        case "Gemm" if r.known(others[0]) is not None:
            plain = not call.attribute("transA", 0) and all(call.attribute(n, 1.0) == 1.0 for n in ("alpha", "beta"))
            return _layer(r, x, call.values[1], call.values[2:], bool(call.attribute("transB", 0))) if plain else None
        case _:
            return _unexpanded(r, call)


def _all_zero(r: Rewriting, value: Value | None = None) -> bool:
    array = r.known(value)
    return array is not None and not array.any()


def _one_pixel(r: Rewriting, call: Call) -> Value | None:
    """A convolution of images as large as its kernel, with one result each, as a product of matrices."""
    (x, weight, *bias), result = call.values, call.outputs[0]
    if x.shape[1:] != weight.shape[1:] or prod(result.shape[2:]) != 1 or reads_padding(call):
        return None
    rows, shape = r("Reshape", x, shape=(x.shape[0], prod(x.shape[1:]))), (weight.shape[0], prod(weight.shape[1:]))
    array = r.known(weight)
    if array is None:
        product = r("Gemm", rows, r("Reshape", weight, shape=shape), *bias, transB=1)
    else:
        product = _layer(r, rows, r.constant(array.reshape(shape), name=f"{weight.name}_rows"), bias, True)
    return r("Reshape", product, shape=result.shape)


def _padded(r: Rewriting, call: Call) -> list[Call] | None:
    """A convolution whose padding takes in the zeros that a Pad before it puts around the image."""
    pad, spatial = r.producer(call.inputs[0], "Pad"), len(call.outputs[0].shape) - 2
    if pad is None or len(pad.inputs) > 1 or pad.attribute("mode", "constant") != "constant":
        return None
    if call.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    pads, axes = pad.attribute("pads"), pad.attribute("axes") or range(spatial + 2)
    around = [0] * (2 * spatial + 4)  # before all axes, and after
    for n, axis in enumerate((*axes, *axes)):
        around[axis % (spatial + 2) + (spatial + 2) * (n >= len(axes))] = pads[n]
    before, after = around[: spatial + 2], around[spatial + 2 :]
    if np.any(pad.attribute("value", 0.0)) or min(pads) < 0 or any((*before[:2], *after[:2])):
        return None
    own = call.attribute("pads") or (0,) * (2 * spatial)
    added = (*before[2:], *after[2:])
    attributes = dict(call.attributes) | {"pads": tuple(a + b for a, b in zip(own, added, strict=True))}
    return [replace(call, inputs=(pad.values[0], *call.inputs[1:]), attributes=tuple(sorted(attributes.items())))]


def _without_padding_taps(r: Rewriting, call: Call) -> Value | None:
    """A convolution without outer taps that meet padding in every window, as of a kernel dilated beyond the image."""
    weight = r.known(call.inputs[1])
    if weight is None:
        return None
    moved = windows_of(call)
    kept = [w.taps_in_image() for w in moved]
    if all(taps == range(w.kernel) for taps, w in zip(kept, moved, strict=True)):
        return None
    fewer = [w.of_taps(taps) for taps, w in zip(kept, moved, strict=True)]
    cut = weight[(slice(None), slice(None), *(slice(taps.start, taps.stop) for taps in kept))]
    inputs = [call.inputs[0], r.constant(np.ascontiguousarray(cut), name=f"{call.values[1].name}_taps"), *call.inputs[2:]]
    return r("Conv", *inputs, group=call.attribute("group", 1), **attributes_of(fewer))


def _layer(r: Rewriting, x: Value, weight: Value, bias: Sequence[Value], transposed: bool) -> Value:
    """A product by a constant matrix, and a bias, as MatMul and Add."""
    product = r("MatMul", x, r.transposed(weight) if transposed else weight)
    return r("Add", product, *bias) if bias else product


def _unexpanded(r: Rewriting, call: Call) -> list[Call] | None:
    expanded = {v: e.values[0] for v in call.values if (e := r.producer(v, "Expand")) is not None}
    if not expanded or not elementwise(call) or moves(call):
        return None
    new = call.with_inputs(expanded)
    return [new] if fits_elementwise(new) else None
