"""`quantise`: a network of floats as one of integers of 8 bits, or with weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import numpy as np

from codegen import Target
from schedule.templates.low_precision import adds_pairs
from tir import dtypes
from tir.display import count_text
from tir.nearest import nearest_name

from ..ir import Call, Graph, GraphError, Value, verify
from ..passes.affine import fold_affine
from ..passes.common_subexpressions import merge_common
from ..passes.conv_transpose import expand_transposed
from ..passes.identities import remove_identities
from ..passes.integers import in_fewer_cycles, multiply_integers
from ..passes.quantised import keep_quantised
from ..reference import random_inputs
from .errors import LayerError, Observed, QuantisationReport, alone, in_network, observer
from .layers import Layer, Places, Point, layers_of, places_of, quantised, sources
from .ranges import RANGES, Histogram, point_of
from .samples import Data, Samples, samples_of
from .weights import BITS, BLOCKS, DEFAULT_BLOCK, QuantisedWeights, by_blocks, by_channel

MIN_RATIO = 10.0  # decibels of a layer alone below which it stays float: its noise is a third of its signal, in amplitude


@dataclass(frozen=True, eq=False)
class QuantisedGraph(Graph):
    """A quantised network, with a report of what was quantised, and how large the errors are."""

    report: QuantisationReport = field(default_factory=lambda: QuantisationReport((), {}, ""))


def quantise(
    graph: Graph,
    data: Data | None = None,
    *,
    weights: Literal["int8", "int4"] = "int8",
    block: int | None = None,
    symmetric: bool = True,
    calibration: Literal["mse", "minmax", "percentile"] = "mse",
    keep_float: Collection[str] = (),
    min_ratio: float = MIN_RATIO,
    target: str | Target | None = None,
) -> QuantisedGraph:
    """A network of float32 with integers, by QuantizeLinear and DequantizeLinear as in ONNX; its `report` prints the errors.

    With `data`, activations are of uint8, with a scale and a zero point for each tensor, weights of int8, with a scale for each
    output channel. A `target` that adds products of bytes up in pairs, within 16 bits (VPMADDUBSW), takes smaller weights, whose
    pairs fit. `data` maps the names of inputs to arrays of samples, or is an iterable of mappings of single samples; some
    dozens will do. The ranges of activations are those of the least mean squared error ("mse"), or from the least to the largest
    element ("minmax"), or without one in ten thousand on each side ("percentile").

    Without data, the weights of products alone are of int8, or of int4, with a scale for each `block` of 32, 64 or 128 inputs (by
    default 32), and a zero point unless `symmetric`. Errors are then those for random inputs.

    A layer stays float where `keep_float` has the name of its output, where integers are not estimated to be faster on the
    `target` (by default this processor), and where its signal-to-noise ratio alone would be below `min_ratio` decibels.

    Raises GraphError for data that does not fit the graph, a graph without layers of float32, and activations that are not
    finite; ValueError for other options.
    """
    _check(graph, data, weights, block, calibration)
    target = Target("llvm" if target is None else target)
    graph = expand_transposed(fold_affine(merge_common(remove_identities(verify(graph)))))
    layers = layers_of(graph)
    if not layers:
        raise GraphError(f"{graph.name} has no Conv, MatMul or Gemm of float32 by constant weights, so nothing can be quantised")
    _check_names(graph, layers, keep_float)
    why = {layer: "asked for" for layer in layers if layer.name in keep_float}
    sound = {v for v in graph.outputs if dtypes.is_float(v.dtype)}
    ends = [v for layer in layers for v in (layer.x, layer.call.outputs[0])]
    if data is None:
        why |= {x: "its weights are no matrix" for x in layers if x.call.operator == "Conv" and x not in why}
        samples, points, places = [random_inputs(graph)], dict[Value, Point](), Places((), frozenset())
        about = f"weights of {weights}, {f'in blocks of {block or DEFAULT_BLOCK}' if weights == 'int4' else 'by output channel'}"
        about += "; ratios are for random inputs"
        exact = observer(graph, [*ends, *sound], target)
    else:
        samples = samples_of(graph, data)
        places = places_of(graph, layers)
        exact = observer(graph, [*ends, *sound, *(v for group in places.groups for v in group)], target)
        points = _points(graph, places, samples, calibration, exact)
        points |= {x.x: points[sources(graph, x.x)[0]] for x in layers if x.x not in points}
        about = f"uint8 activations ({calibration} of {count_text(len(samples), 'sample')}), int8 weights by output channel"
    pairs = data is not None and adds_pairs(target.machine)
    kept = {x: _weights(graph, x, weights, block or DEFAULT_BLOCK, symmetric, pairs) for x in layers if x not in why}
    if data is not None:
        slow = _slower(quantised(graph, kept, points, places.for_all), kept, target)
        why |= dict.fromkeys(slow, "integers would not be faster")
    own = alone(graph, {x: w for x, w in kept.items() if x not in why}, points, exact, samples)
    why |= {x: f"alone below {min_ratio:g} dB" for x, noise in own.items() if not noise.ratio >= min_ratio}
    made, ratios = graph, dict.fromkeys(graph.outputs, inf)
    if kept := {x: w for x, w in kept.items() if x not in why}:
        places = places_of(graph, list(kept)) if data is not None else places
        made = quantised(graph, kept, points, places.for_all, {x: own[x].shift for x in kept})
        compared = {*(x.call.outputs[0] for x in kept), *sound}
        ratios = in_network(compared, exact, observer(made, compared, target), samples)
    errors = [
        LayerError(
            x.name,
            x.call.operator,
            x.weight.shape,
            why.get(x, ""),
            own[x].ratio if x in own else None,
            ratios.get(x.call.outputs[0]) if x in kept else None,
        )
        for x in layers
    ]
    report = QuantisationReport(tuple(errors), {v.name: ratios[v] for v in graph.outputs if v in ratios}, about)
    return QuantisedGraph(made.name, made.inputs, made.calls, made.outputs, made.constants, report=report)


def _check(graph: Graph, data: Data | None, weights: str, block: int | None, calibration: str) -> None:
    if not isinstance(graph, Graph):
        raise TypeError(f"quantise takes a Graph, such as tir.load_onnx gives, got {type(graph).__name__}")
    if weights not in BITS:
        raise ValueError(f"weights are of {' or '.join(BITS)}, got {weights!r}")
    if calibration not in RANGES:
        raise ValueError(f"calibration is one of {', '.join(RANGES)}, got {calibration!r}")
    if data is not None and weights != "int8":
        raise ValueError(
            f"weights of {weights} are multiplied by floats, which need no data; leave out the data, or the {weights}"
        )
    if block is not None and weights != "int4":
        raise ValueError("blocks are of weights of int4; weights of int8 have one scale for each output channel")
    if block is not None and block not in BLOCKS:
        raise ValueError(f"a block has {', '.join(map(str, BLOCKS[:-1]))} or {BLOCKS[-1]} inputs, got {block}")


def _check_names(graph: Graph, layers: Sequence[Layer], keep_float: Collection[str]) -> None:
    names = [x.name for x in layers]
    for name in keep_float:
        if name not in names:
            near = nearest_name(name, names)
            hint = f"did you mean {near!r}?" if near else f"layers are named by their outputs: {', '.join(names[:8])}"
            raise ValueError(f"keep_float: {graph.name} has no layer {name!r}; {hint}")


def _weights(graph: Graph, layer: Layer, kind: str, block: int, symmetric: bool, pairs: bool) -> QuantisedWeights:
    array = graph.constants[layer.weight.name]
    if not np.isfinite(array).all():
        raise GraphError(f"{graph.name}: the weights `{layer.weight.name}` of `{layer.name}` are not finite")
    if kind == "int4":
        return by_blocks(array, layer.inputs, block, symmetric)
    return by_channel(array, layer.axis, layer.inputs if pairs else None)


def _points(graph: Graph, places: Places, samples: Samples, calibration: str, exact: Observed) -> dict[Value, Point]:
    """The scale and the zero point of each value that is quantised, from what samples make of it."""
    histograms = {v: Histogram() for group in places.groups for v in group}
    for n, sample in enumerate(samples):
        arrays = exact(sample)
        for v, histogram in histograms.items():
            if not np.isfinite(arrays[v]).all():
                raise GraphError(f"{graph.name}: sample {n} makes elements of `{v.name}` that are not finite")
            histogram.add(arrays[v])
    points: dict[Value, Point] = {}
    for group in places.groups:
        joined = histograms[group[0]]
        for v in group[1:]:
            joined = joined.joined(histograms[v])
        points |= dict.fromkeys(group, point_of(*RANGES[calibration](joined)))
    return points


def _slower(graph: Graph, weights: Mapping[Layer, QuantisedWeights], target: Target) -> set[Layer]:
    """The layers of a quantised graph that are not computed in integers, as that is not estimated to be faster. Convolutions of
    each channel by itself go with the others: they read bytes, and are computed in floats."""
    fast, choose = set[str](), in_fewer_cycles(target)

    def chosen(integer: Call, today: Call) -> bool:
        if found := choose(integer, today):
            fast.add(today.outputs[0].name)
        return found

    multiply_integers(remove_identities(keep_quantised(graph)), chosen, adds_pairs(target.machine))
    convolutions = any(x.name in fast for x in weights if x.call.operator == "Conv")
    return {x for x in weights if x.name not in fast and not (x.by_channel and convolutions)}
