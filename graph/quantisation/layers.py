"""The layers of a network that can be quantised, and the network with QuantizeLinear and DequantizeLinear around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

import numpy as np

from ..ir import Call, Graph, Value
from ..loops import loops_of
from ..ops import definition
from ..passes.integers import MAX_BIAS
from ..passes.quantised import keeps_elements
from ..passes.rewriting import Rewriting, rewrite, windows_of
from .weights import QuantisedWeights

Point = tuple[np.float32, np.uint8]  # the scale and the zero point of a tensor


@dataclass(frozen=True)
class Layer:
    """A convolution or product by constant weights, whose output channels lie along `axis` of them, and inputs along `inputs`."""

    call: Call
    axis: int
    inputs: int

    @property
    def name(self) -> str:
        return self.call.outputs[0].name

    @property
    def x(self) -> Value:
        return self.call.values[0]

    @property
    def weight(self) -> Value:
        return self.call.values[1]

    @property
    def by_channel(self) -> bool:
        """True for a convolution of each channel by itself."""
        return self.call.operator == "Conv" and self.weight.shape[1] == 1 and self.call.attribute("group", 1) > 1

    def channels_last(self, output: np.ndarray) -> np.ndarray:
        """An output as a matrix, of which each column is an output channel."""
        moved = np.moveaxis(output, 1, -1) if self.call.operator == "Conv" else output
        return moved.reshape(-1, moved.shape[-1])

    def product(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The layer's output for an input and weights, without its bias."""
        if self.call.operator == "Conv":
            return self._convolution(x, weight)
        return (x @ (weight.T if self.axis == 0 else weight)) * np.float32(self.call.attribute("alpha", 1.0))

    def _convolution(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The sum over the taps of a convolution, each a product by a matrix for each group."""
        moved, groups = windows_of(self.call), self.call.attribute("group", 1)
        padded = np.pad(x, [(0, 0), (0, 0), *((w.before, w.needed) for w in moved)])
        total = np.zeros((x.shape[0], groups, weight.shape[0] // groups, prod(w.outputs for w in moved)), np.float32)
        for tap in np.ndindex(*weight.shape[2:]):
            begins = [t * w.dilation for t, w in zip(tap, moved, strict=True)]
            ends = [b + (w.outputs - 1) * w.stride + 1 for b, w in zip(begins, moved, strict=True)]
            at = [slice(b, e, w.stride) for b, e, w in zip(begins, ends, moved, strict=True)]
            part = padded[(slice(None), slice(None), *at)].reshape(x.shape[0], groups, weight.shape[1], -1)
            matrix = weight[(slice(None), slice(None), *tap)].reshape(groups, -1, weight.shape[1])
            total += matrix * part if weight.shape[1] == 1 else matrix @ part
        return total.reshape(self.call.outputs[0].shape)


def layers_of(graph: Graph) -> list[Layer]:
    """The layers of float32 in a graph, in order. Those in loops stay as they are."""
    found = []
    repeated = {v for loop in loops_of(graph) for v in loop.values}
    for call in graph.calls:
        if not definition(call).integers or call.outputs[0] in repeated:
            continue
        if any(v.dtype != "float32" for v in call.values):
            continue
        x, weight = call.values[:2]
        if x.name in graph.constants or weight.name not in graph.constants or 0 in (*x.shape, *weight.shape):
            continue
        if call.operator == "Conv":
            found.append(Layer(call, 0, 1))
        elif len(weight.shape) == 2 and not call.attribute("transA", 0):
            transposed = bool(call.attribute("transB", 0))
            found.append(Layer(call, int(not transposed), int(transposed)))
    return found


def sources(graph: Graph, value: Value) -> list[Value]:
    """The values that a value is moved together from: they have its elements, or more, and are computed."""
    producers, found, left = graph.producers(), list[Value](), [value]
    while left:
        one = left.pop()
        call = producers.get(one)
        if call is not None and call.operator == "Concat":
            left += call.values[::-1]
        elif call is not None and keeps_elements(call):
            left.append(call.values[0])
        elif one not in found:
            found.append(one)
    return found


@dataclass(frozen=True)
class Places:
    """The quantised values: those that `all` readers see so, and those of layers alone. A group shares scale and zero point."""

    groups: tuple[tuple[Value, ...], ...]
    for_all: frozenset[Value]


def places_of(graph: Graph, layers: Sequence[Layer]) -> Places:
    """The values to quantise for layers. Images are quantised where they are computed, for all that read them, so that pools,
    concatenations and shortcuts read bytes; what products read is so for them alone, as sums of transformers need more bits."""
    groups: list[set[Value]] = []
    images = set()
    for layer in layers:
        own = {layer.x}
        if layer.call.operator == "Conv":
            found = sources(graph, layer.x)
            if all(v.dtype == "float32" and v.name not in graph.constants for v in found):
                own = set(found)
                images |= own
        touched = [g for g in groups if g & own]
        groups = [g for g in groups if g not in touched] + [own.union(*touched)]
    order = {v: n for n, v in enumerate([*graph.inputs, *(v for c in graph.calls for v in c.outputs)])}
    return Places(tuple(tuple(sorted(g, key=order.__getitem__)) for g in groups), frozenset(images))


def quantised(
    graph: Graph,
    weights: Mapping[Layer, QuantisedWeights],
    points: Mapping[Value, Point],
    for_all: Collection[Value] = (),
    shifts: Mapping[Layer, np.ndarray] = MappingProxyType({}),
) -> Graph:
    """The graph with the weights of these layers as integers. Inputs of layers that have a point are quantised by it, values
    `for_all` for all calls that read them. Outputs of the graph are as they were. Constant biases of convolutions and Gemm, a
    number for each output channel or none, are less the `shifts` of their layers' noise (Nagel et al., "Data-Free Quantization
    Through Weight Equalization and Bias Correction", 4.2)."""
    layers = {layer.call.outputs[0]: layer for layer in weights}
    read: dict[Value, Value] = {}

    def rule(r: Rewriting, call: Call) -> list[Call] | None:
        layer = layers.get(call.outputs[0])
        made, found = list[Call](), dict[Value, Value]()
        for v in dict.fromkeys(call.values):
            if v in points and (v in for_all or (layer is not None and v == layer.x)):
                if v not in read:
                    scale, zero = (
                        r.constant(n, name=f"{v.name}_{what}") for what, n in zip(("scale", "zero"), points[v], strict=True)
                    )
                    numbers = r.call("QuantizeLinear", [v, scale, zero], f"{v.name}_quantised")
                    real = r.call("DequantizeLinear", [*numbers.outputs, scale, zero], f"{v.name}_dequantised")
                    made += [numbers, real]
                    read[v] = real.outputs[0]
                found[v] = read[v]
        if layer is None:
            return [*made, call.with_inputs(found)] if found else None
        w = weights[layer]
        given = [r.constant(a, name=f"{layer.weight.name}_{what}") for what, a in _arrays(w)]
        blocks = {"block_size": w.block} if w.block else {}
        real = r.call("DequantizeLinear", given, f"{layer.weight.name}_dequantised", axis=w.axis, **blocks)
        point = points.get(layer.x) if layer.x in found else None
        bias = _bias(r, layer, w, point, shifts.get(layer))
        inputs = (found.get(layer.x, layer.x), real.outputs[0], *bias)
        return [*made, real, replace(call, inputs=inputs)]

    return rewrite(graph, rule)


def _arrays(w: QuantisedWeights) -> list[tuple[str, np.ndarray]]:
    zeros = [] if w.zeros is None else [("zeros", w.zeros)]
    return [("numbers", w.numbers), ("scales", w.scales), *zeros]


def _bias(r: Rewriting, layer: Layer, w: QuantisedWeights, point: Point | None, shift: np.ndarray | None) -> tuple[Value, ...]:
    """The bias of a layer, if any, less its noise's shift: a multiple of both scales, where sums of integers hold it."""
    given = layer.call.values[2:]
    array = r.known(given[0]) if given else None if shift is None else np.zeros_like(shift)
    if layer.call.operator == "MatMul" or point is None or array is None or array.shape != w.scales.shape or w.block:
        return given
    beta = np.float32(layer.call.attribute("beta", 1.0))
    array = array if shift is None or not beta else array - shift / beta
    unit = w.scales.astype(np.float64) * float(point[0])
    numbers = np.rint(array / unit)
    if np.abs(numbers).max() < MAX_BIAS:
        array = (numbers * unit).astype(np.float32)
    elif shift is None:
        return given
    return (r.constant(array, name=f"{given[0].name if given else layer.name}_quantised"),)
