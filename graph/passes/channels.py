"""Images whose channels are last stay so: the transpose that puts them first moves toward the end of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tir import dtypes
from tir.arrays import to_float

from ..ir import Call, Graph, Value
from ..kinds import elementwise, moves
from .integers import Choice, along, quantised
from .rewriting import Rewriting, attributes_of, each_call, fits_elementwise, rewrite, windows_of

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # the orders of dimensions that move the channels of images
PHASES = (0, 3, 4, 1, 5, 2)  # the order that moves phases (down, right, channels, height, width) beside their pixels


def convolve_channels_last(graph: Graph, choose: Choice) -> Graph:
    """The graph with convolutions of halves by constant weights that have their channels last, where `choose` prefers it, as
    has what is computed between them; the graph itself where there is none."""
    moved = rewrite(graph, lambda write, call: _moved(write, call, choose))
    return graph if moved is graph else keep_channels_last(moved)


def _moved(write: Rewriting, call: Call, choose: Choice) -> Value | None:
    """A convolution of halves between transposes."""
    if call.operator != "Conv" or not dtypes.is_half(call.values[0].dtype) or len(call.values[0].shape) != 4:
        return None
    x, weight, *bias = call.values
    array = write.known(weight)
    if array is None or call.attribute("group", 1) != 1 or 0 in (*x.shape, *weight.shape, *call.outputs[0].shape):
        return None
    taps = write.constant(np.ascontiguousarray(array.transpose(2, 3, 1, 0)), name=f"{weight.name}_last")
    image = write("Transpose", x, perm=TO_LAST)
    made = write("ChannelsLastConv", image, taps, zero=0, **attributes_of(windows_of(call)))
    if not choose(write.calls[-1], call):
        return None
    return write("Transpose", _ended(write, made, bias, call), perm=TO_FIRST)


def _ended(write: Rewriting, sums: Value, bias: Sequence[Value], call: Call) -> Value:
    """Sums of a convolution plus its bias, in the type of its result."""
    for added in bias:
        array = write.known(added)
        wide = write("Cast", added, to=sums.dtype) if array is None else write.constant(to_float(array, added.dtype), sums.dtype)
        sums = write("Add", sums, wide)
    return write("Cast", sums, to=call.outputs[0].dtype)


@each_call
def keep_channels_last(write: Rewriting, call: Call) -> Value | None:
    """f(x with its channels moved first) becomes f'(x), moved, whatever else reads x: for elementwise calls, concatenations,
    parts, phases of a transposed convolution, pooling, means of images, and convolutions of each channel by itself."""
    if call.operator == "Transpose" and call.attribute("perm") == TO_LAST:
        source = _last(write, call.values[0])
        return None if source is None else write("Reshape", source, shape=source.shape)
    if len(call.outputs) > 1 or len(call.outputs[0].shape) != 4:
        return None
    image = _last(write, next(iter(call.inputs), None))
    match call.operator:
        case "Concat":
            parts = [_last(write, v) for v in call.values]
            made = None if None in parts else write("Concat", *parts, axis=TO_LAST.index(call.attribute("axis") % 4))
        case "Reshape":
            made = _interleaved(write, call)
        case "Slice" if image is not None and (axes := call.attribute("axes")) is not None:
            how = {n: a for n, a in call.attributes if n != "axes"}
            made = write("Slice", image, axes=tuple(TO_LAST.index(axis % 4) for axis in axes), **how)
        case "MaxPool" | "AveragePool" if image is not None:
            made = _pool(write, call, image)
        case "ReduceMean" if image is not None and sorted(axis % 4 for axis in call.attribute("axes") or ()) == [2, 3]:
            made = write("ReduceMean", image, axes=(1, 2))
        case "Conv":
            made = _depthwise(write, call, image)
        case _:
            made = _elementwise(write, call)
    return None if made is None else write("Transpose", made, perm=TO_FIRST)


def _last(r: Rewriting, value: Value | None) -> Value | None:
    """The image with its channels last that a value is the transpose of."""
    moved = r.producer(value, "Transpose")
    return moved.values[0] if moved is not None and moved.attribute("perm") == TO_FIRST else None


def _elementwise(write: Rewriting, call: Call) -> Value | None:
    if moves(call) or not elementwise(call):
        return None
    found = {v: image for v in call.values if (image := _last(write, v)) is not None}
    if not found:
        return None
    for value in set(call.values) - set(found):
        array = write.known(value)
        if prod(value.shape) == 1 and len(value.shape) <= 1:
            continue
        if array is None:
            return None
        own = array.reshape((1,) * (4 - array.ndim) + array.shape)
        found[value] = write.constant(np.ascontiguousarray(own.transpose(TO_LAST)), name=f"{value.name}_last")
    result, (n, c, h, w) = call.outputs[0], call.outputs[0].shape
    new = replace(call.with_inputs(found), outputs=(write.value(f"{result.name}_last", (n, h, w, c), result.dtype),))
    if not fits_elementwise(new):
        return None
    write.calls.append(new)
    return new.outputs[0]


def _interleaved(write: Rewriting, call: Call) -> Value | None:
    """The phases of a transposed convolution, side by side in the channels, as one image; see `conv_transpose`."""
    moved = write.producer(call.values[0], "Transpose")
    split = None if moved is None or moved.attribute("perm") != PHASES else write.producer(moved.values[0], "Reshape")
    image = None if split is None else _last(write, split.values[0])
    if split is None or image is None or call.outputs[0].shape[1] != split.outputs[0].shape[3]:
        return None
    n, down, right, channels, height, width = split.outputs[0].shape
    if image.shape != (n, height, width, down * right * channels):
        return None
    phases = write("Reshape", image, shape=(n, height, width, down, right, channels))
    rows = write("Transpose", phases, perm=(0, 1, 3, 2, 4, 5))
    return write("Reshape", rows, shape=(n, height * down, width * right, channels))


def _pool(write: Rewriting, call: Call, image: Value) -> Value:
    """A pool of images as one of volumes, whose third dimension, the channels, it leaves alone."""
    (n, h, w, c), (_, _, oh, ow) = image.shape, call.outputs[0].shape
    longer = {"kernel_shape": (1,), "strides": (1,), "dilations": (1,)}
    attributes = {name: (*value, *longer.get(name, ())) if isinstance(value, tuple) else value for name, value in call.attributes}
    if "pads" in attributes:
        top, left, bottom, right = call.attribute("pads")
        attributes["pads"] = (top, left, 0, bottom, right, 0)
    volume = write("Reshape", image, shape=(n, 1, h, w, c))
    return write("Reshape", write(call.operator, volume, **attributes), shape=(n, oh, ow, c))


def _depthwise(write: Rewriting, call: Call, image: Value | None) -> Value | None:
    """A convolution of each channel of a quantised image, or one of halves, by constant weights of its own."""
    outputs, each, *_ = call.values[1].shape
    own, how = each == 1 and call.attribute("group", 1) == outputs, attributes_of(windows_of(call))
    half = write.known(call.values[1])
    if own and half is not None and image is not None and dtypes.is_half(image.dtype) and image.shape[3] == outputs:
        real = to_float(half, image.dtype)[:, 0].transpose(1, 2, 0)
        taps = write.constant(np.ascontiguousarray(real), "float32")
        return _ended(write, write("DepthwiseConv", image, taps, zero=0, **how), call.values[2:], call)
    weight, x = quantised(write, call.values[1]), None if image is None else quantised(write, image)
    if x is None or weight is None or (array := write.known(weight.numbers)) is None:
        return None
    if not own or x.numbers.shape[3] != outputs:
        return None
    if not x.by(None) or x.known_zero is None or isinstance(weight.zero, Value):
        return None
    if not isinstance(x.scale, np.ndarray) or not isinstance(weight.scale, np.ndarray):
        return None
    scales = along(x.scale, 0, 0).astype(np.float64) * along(weight.scale, weight.axis, array.ndim)
    real = (array.astype(np.int32) - along(weight.zero, weight.axis, array.ndim)) * scales
    taps = write.constant(np.ascontiguousarray(real[:, 0].transpose(1, 2, 0)).astype(np.float32))
    made = write("DepthwiseConv", x.numbers, taps, zero=x.known_zero, **how)
    return write("Add", made, call.values[2]) if len(call.values) > 2 else made
