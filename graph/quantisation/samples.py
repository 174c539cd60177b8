"""Samples that a network is calibrated on: what users give, as a list of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arguments import ordered
from ..ir import Graph, GraphError, Value

Sample = dict[str, np.ndarray]
Samples = list[Sample]
Data = Mapping[str, Any] | Iterable[Mapping[str, Any]]


def samples_of(graph: Graph, data: Data) -> Samples:
    """The inputs of each sample. `data` are arrays by the names of inputs, whose samples lie along a dimension in front or along
    the first one; or mappings of the inputs of single samples. Raises GraphError for data that does not fit the graph."""
    if isinstance(data, Mapping):
        each = {v.name: _divided(graph, v, a) for v, a in zip(graph.inputs, ordered(graph, data), strict=True)}
        counts = {name: len(arrays) for name, arrays in each.items()}
        if len(set(counts.values())) > 1:
            numbers = ", ".join(f"`{name}` {count}" for name, count in counts.items())
            raise GraphError(f"{graph.name}: inputs must have as many samples each, got {numbers}")
        found = [dict(zip(each, arrays, strict=True)) for arrays in zip(*each.values(), strict=True)]
    elif isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        names = ", ".join(f"`{v.name}`" for v in graph.inputs)
        kinds = f"a mapping of input names ({names}) to arrays, or an iterable of them"
        raise GraphError(f"{graph.name}: data must be {kinds}, got {type(data).__name__}")
    else:
        found = []
        for n, sample in enumerate(data):
            if not isinstance(sample, Mapping):
                raise GraphError(f"{graph.name}: sample {n} must be arrays by the names of inputs, got {type(sample).__name__}")
            given = zip(graph.inputs, ordered(graph, sample), strict=True)
            found.append({v.name: _fitting(graph, v, a, v.shape) for v, a in given})
    if not found:
        raise GraphError(f"{graph.name}: calibration needs at least one sample, got none")
    return found


def _divided(graph: Graph, value: Value, given: Any) -> list[np.ndarray]:
    """An array with samples in front, or along its first dimension, as arrays of an input's shape."""
    array = np.asarray(given)
    if array.ndim == len(value.shape) + 1:
        return list(_fitting(graph, value, array, (len(array), *value.shape)))
    batch = value.shape[0] if value.shape else 0
    if array.ndim == len(value.shape) and array.shape[1:] == value.shape[1:] and batch and len(array) % batch == 0:
        return list(_fitting(graph, value, array, array.shape).reshape(-1, *value.shape))
    _fitting(graph, value, array, ("samples", *value.shape))
    raise AssertionError("it does not fit")


def _fitting(graph: Graph, value: Value, given: Any, shape: tuple[int | str, ...]) -> np.ndarray:
    """An array of a shape, in the element type of an input."""
    array = np.asarray(given)
    if array.shape != shape:
        wanted = ", ".join(map(str, shape))
        raise GraphError(f"{graph.name}: samples of `{value.name}` must have the shape [{wanted}], got {list(array.shape)}")
    kind = np.dtype(value.dtype)
    if not np.can_cast(array.dtype, kind, "same_kind"):
        raise GraphError(f"{graph.name}: samples of `{value.name}` must be of {value.dtype}, got {array.dtype}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise GraphError(f"{graph.name}: samples of `{value.name}` have elements that are not finite")
    return array.astype(kind)
