"""The arguments of a call of a network: inputs in order or by name, and arrays for its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from codegen.runtime.memory import address
from tir.arrays import host_array, read, refuse_other, refuse_written

from .ir import GraphError, Value
from .sizes import OpenGraph


class Signature(Protocol):
    """A graph, or a network, as far as calls need it."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> tuple[Value, ...]: ...

    @property
    def outputs(self) -> tuple[Value, ...]: ...


def arranged(graph: Signature, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray]:
    """The arrays for the inputs of a graph in their order, given in that order or by name (see `tir.arrays.read`).

    Raises GraphError where one is missing or too many, or has another shape or element type.
    """
    found = []
    for value, array in zip(graph.inputs, ordered(graph, inputs), strict=True):
        try:
            found.append(read(array, value.dtype, value.shape))
        except TypeError as error:
            raise GraphError(f"input `{value.name}` {error}") from None
    return found


def ordered(graph: Signature | OpenGraph, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """The arrays given for the inputs of a graph, in their order. Raises GraphError where one is missing or too many."""
    names = [v.name for v in graph.inputs]
    if isinstance(inputs, Mapping):
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            wrong = [f"`{n}` is missing" for n in missing] + [f"got `{n}`" for n in unknown]
            raise GraphError(f"{graph.name}: the inputs are {', '.join(names) or 'none'}; {', '.join(wrong)}")
        inputs = [inputs[n] for n in names]
    if len(inputs) != len(names):
        raise GraphError(f"{graph.name}: the inputs are {', '.join(names) or 'none'}; got {len(inputs)} array(s)")
    return list(inputs)


def given_in_order(graph: Signature | OpenGraph, inputs: Sequence[Any]) -> list[Any]:
    """The arrays of a call's arguments in order: one for each input, or a dict of all."""
    return ordered(graph, inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs)


def named_outputs(name: str, values: Sequence[Value], out: Any) -> list[Any]:
    """The arrays given for these outputs of a network, in their order: one, several or a dict of them. Raises GraphError."""
    names = [v.name for v in values]
    if isinstance(out, Mapping):
        if sorted(out) != sorted(names):
            raise GraphError(f"{name}: the outputs are {', '.join(names)}; out has {', '.join(map(str, out)) or 'none'}")
        return [out[n] for n in names]
    found = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(found) != len(names):
        raise GraphError(f"{name}: the outputs are {', '.join(names)}; out has {len(found)} array(s)")
    return found


def writable(value: Value, given: Any, what: str) -> np.ndarray:
    """The memory of an array that a call writes. Raises GraphError for another shape, element type or layout, or a constant."""
    try:
        array = host_array(given)
        if array is None:
            raise TypeError(f"must be an array, got {type(given).__name__}")
        refuse_other(array, value.dtype, value.shape)
        if not array.array.flags.c_contiguous or not array.array.flags.aligned:
            raise TypeError("must be C-contiguous and aligned to its elements; np.ascontiguousarray makes one")
        refuse_written(array, given)
    except TypeError as error:
        raise GraphError(f"{what} `{value.name}` {error}") from None
    return array.array


def refuse_overlap(name: str, written: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> None:
    """Raise GraphError where an array that is written overlaps another one; the keys say what they are."""
    spans = {what: (address(a), address(a) + a.nbytes) for what, a in {**others, **written}.items()}
    for what in written:
        for other, (begin, end) in spans.items():
            if other != what and begin < spans[what][1] and spans[what][0] < end:
                raise GraphError(f"{name}: {what} overlaps {other} in memory; pass another array")


def overlap(spans: Sequence[tuple[int, int, bool]]) -> bool:
    """True where a span of memory that is written overlaps another one; spans are sorted by their begins."""
    end = written_end = 0
    for begin, after, written in spans:
        if begin < (end if written else written_end) and begin < after:
            return True
        end, written_end = max(end, after), max(written_end, after if written else 0)
    return False
