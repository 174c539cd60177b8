"""The errors of a quantised network, measured layer by layer on samples, and the report of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log10

import numpy as np

from codegen import Target
from tir import dtypes
from tir.display import aligned_columns, count_text

from ..compilation import compile
from ..ir import Call, Graph, Value, constant
from ..passes.rewriting import Rewriting
from .layers import Layer, Point, quantised
from .samples import Samples
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
class QuantisationReport:
    """The errors of the layers of a network, in order, and of its outputs by name, in decibels against float32."""

    layers: tuple[LayerError, ...]
    outputs: Mapping[str, float]
    about: str

    def __str__(self) -> str:
        rows = [("layer", "operator", "weights", "alone", "in the network", "")]
        for e in self.layers:
            rows.append(
                (
                    e.name,
                    e.operator,
                    " x ".join(map(str, e.weight)),
                    _decibels(e.own),
                    _decibels(e.network),
                    e.why_float and f"float: {e.why_float}",
                )
            )
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


def measured(
    graph: Graph,
    weights: Mapping[Layer, QuantisedWeights],
    points: Mapping[Value, Point],
    made: Graph,
    samples: Samples,
    target: Target,
) -> tuple[dict[Layer, float], dict[Layer, float], dict[str, float]]:
    """Ratios of signal to noise in decibels on samples: of each layer by itself, of each in `made`, the quantised graph, and of
    outputs of the network. One model computes both networks and, from inputs in floats, each layer in integers."""
    layers = list(weights)
    single, own = quantised(graph, weights, points), set(graph.calls)
    known = {v for c in graph.calls for v in c.outputs}
    alone = _copied(single, [c for c in single.calls if c not in own], ".alone", graph, known)
    whole = _copied(made, made.calls, ".whole", graph, set())
    outputs = [v for v in graph.outputs if dtypes.is_float(v.dtype)]
    values = [layer.call.outputs[0] for layer in layers]
    compared = [*((v, ".alone") for v in values), *((v, ".whole") for v in (*values, *outputs))]
    constants = {**graph.constants, **alone.constants, **whole.constants}
    every = graph.with_(calls=(*graph.calls, *alone.calls, *whole.calls), constants=constants)
    model = compile(_with_sums(every, compared), target)
    total = np.zeros((len(compared), 2))
    for sample in samples:
        total += np.array([float(a) for a in model(sample)]).reshape(-1, 2)
    ratios = [inf if noise == 0 else 10 * log10(max(signal, 1e-300) / noise) for noise, signal in total]
    n = len(layers)
    names = (v.name for v in outputs)
    return (
        dict(zip(layers, ratios[:n], strict=True)),
        dict(zip(layers, ratios[n : 2 * n], strict=True)),
        dict(zip(names, ratios[2 * n :], strict=True)),
    )


def _copied(part: Graph, calls: Sequence[Call], suffix: str, original: Graph, shared: Collection[Value]) -> Graph:
    """Calls of a graph with a suffix to the names of their results and of constants that are not the original's. They read the
    values that are `shared` with it as they are."""
    renamed = {v: replace(v, name=v.name + suffix) for c in calls for v in c.outputs}
    new = {name: array for name, array in part.constants.items() if name not in original.constants}
    read = {v: other for v, other in renamed.items() if v not in shared}
    read |= {constant(name, array): constant(name + suffix, array) for name, array in new.items()}
    copies = tuple(replace(c.with_inputs(read), outputs=tuple(renamed[v] for v in c.outputs)) for c in calls)
    return part.with_(calls=copies, constants={name + suffix: array for name, array in new.items()})


def _with_sums(graph: Graph, compared: Sequence[tuple[Value, str]]) -> Graph:
    """The graph with two outputs for each value and a suffix: the squared sums of its difference to the value of that name, and
    of the value itself."""
    builder, outputs = Rewriting(graph), list[Value]()
    builder.inputs, builder.calls = list(graph.inputs), list(graph.calls)
    for value, suffix in compared:
        exact, found = (builder("Cast", v, to="float32") for v in (value, replace(value, name=value.name + suffix)))
        outputs += (builder("ReduceSumSquare", v, keepdims=0) for v in (builder("Sub", exact, found), exact))
    return builder.graph(*outputs)
