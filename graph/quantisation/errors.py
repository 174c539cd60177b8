"""The errors of a quantised network, measured layer by layer on samples, and the report of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, log10

import numpy as np

from codegen import Target
from tir.display import aligned_columns, count_text

from ..compilation import compile
from ..ir import Graph, Value
from .layers import Layer, Point
from .ranges import LEVELS
from .samples import Sample, Samples
from .weights import QuantisedWeights


@dataclass(frozen=True)
class LayerError:
    """The signal-to-noise ratio of a layer's output in decibels: `own`, with the layer alone quantised, and in the quantised
    network. A layer that stays float has a reason, and no ratios where it was not measured."""

    name: str
    operator: str
    weight: tuple[int, ...]
    why_float: str = ""
    own: float | None = None
    network: float | None = None


@dataclass(frozen=True)
class LayerNoise:
    """The noise that quantisation adds to a layer's output: the signal-to-noise `ratio` in decibels, and the `shift` of each
    output channel, its mean as far as samples make sure of it."""

    ratio: float
    shift: np.ndarray


@dataclass(frozen=True)
class QuantisationReport:
    """The errors of the layers of a network, in order, and of its outputs by name, in decibels against float32."""

    layers: tuple[LayerError, ...]
    outputs: Mapping[str, float]
    about: str

    def __str__(self) -> str:
        rows = [("layer", "operator", "weights", "alone", "in the network", "")]
        for e in self.layers:
            weight, why = " x ".join(map(str, e.weight)), e.why_float and f"float: {e.why_float}"
            rows.append((e.name, e.operator, weight, _decibels(e.own), _decibels(e.network), why))
        kept = sum(not e.why_float for e in self.layers)
        lines = [
            f"{kept} of {count_text(len(self.layers), 'layer')} quantised: {self.about}",
            "signal-to-noise ratio of each layer's output, against float32:" if self.layers else "",
            aligned_columns(rows) if self.layers else "",
            *(f"output {name}: {_decibels(snr)}" for name, snr in self.outputs.items()),
        ]
        return "\n".join(line for line in lines if line)


def _decibels(ratio: float | None) -> str:
    return "-" if ratio is None else "exact" if ratio == inf else f"{ratio:.1f} dB"


Observed = Callable[[Sample], dict[Value, np.ndarray]]


def observer(graph: Graph, values: Iterable[Value], target: Target) -> Observed:
    """The arrays of some values of a network, as a function of a sample. One model computes them."""
    wanted = list(dict.fromkeys(values))
    made = tuple(v for v in wanted if v not in graph.inputs)
    model = compile(graph.with_(outputs=made), target) if made else None

    def observed(sample: Sample) -> dict[Value, np.ndarray]:
        arrays = dict(zip(made, model(sample), strict=True)) if model is not None else {}
        return {v: arrays[v] if v in arrays else sample[v.name] for v in wanted}

    return observed


def alone(
    graph: Graph, weights: Mapping[Layer, QuantisedWeights], points: Mapping[Value, Point], exact: Observed, samples: Samples
) -> dict[Layer, LayerNoise]:
    """The noise of each layer by itself. `exact` has inputs and outputs of the layers in floats."""
    total = {layer: np.zeros(2) for layer in weights}
    moments = {layer: np.zeros((3, layer.weight.shape[layer.axis])) for layer in weights}
    for arrays in map(exact, samples):
        for layer, w in weights.items():
            x, point = arrays[layer.x], points.get(layer.x)
            quantised = x if point is None else rounded(x, point)
            noise = layer.product(quantised - x, w.real) + layer.product(x, w.real - graph.constants[layer.weight.name])
            total[layer] += _squares(arrays[layer.call.outputs[0]], noise)
            rows = layer.channels_last(noise).astype(np.float64)
            moments[layer] += np.stack([np.full(rows.shape[1], len(rows)), rows.sum(axis=0), np.square(rows).sum(axis=0)])
    return {layer: LayerNoise(_ratio(*found), _shift(*moments[layer])) for layer, found in total.items()}


def _shift(count: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The mean of numbers, given their count, their sum and that of their squares, less what it may be by chance: of few numbers
    that scatter, nothing remains (the positive part of the James-Stein estimator)."""
    mean, each = first / count, np.maximum(count - 1, 1)
    variance = np.maximum(second - first * mean, 0) / each  # of one number, it is not known
    doubt = np.where(count > 1, variance / count, np.inf)
    return (mean * np.maximum(0, 1 - doubt / np.maximum(np.square(mean), np.finfo(np.float64).tiny))).astype(np.float32)


def in_network(values: Iterable[Value], exact: Observed, made: Observed, samples: Samples) -> dict[Value, float]:
    """The signal-to-noise ratio of values in a quantised network, in decibels: `made` has what `exact` has in floats."""
    total = {v: np.zeros(2) for v in values}
    for sample in samples:
        arrays, found = exact(sample), made(sample)
        for v, sums in total.items():
            sums += _squares(arrays[v], found[v].astype(np.float32) - arrays[v])
    return {v: _ratio(*sums) for v, sums in total.items()}


def rounded(x: np.ndarray, point: Point) -> np.ndarray:
    """Floats as the closest that uint8 of a scale and a zero point stand for."""
    scale, zero = point
    return (np.clip(np.rint(x / scale) + zero, 0, LEVELS) - zero) * scale


def _squares(signal: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.array([np.square(a, dtype=np.float64).sum() for a in (signal, noise)])


def _ratio(signal: float, noise: float) -> float:
    return inf if noise == 0 else 10 * log10(max(signal, 1e-300) / noise)
