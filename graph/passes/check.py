"""Checks that passes keep the outputs of a graph: after each they are compared with those before all passes, on given inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from tir import dtypes
from tir.arrays import to_float

from ..arguments import arranged
from ..ir import ELEMENT_TYPES, Attribute, Call, Graph, GraphError, Value
from ..reference import Run, evaluate, remembering, run_call
from . import PASSES, Pass, optimize

# Largest change of an output by passes, relative to its largest element, in float64. Factors of recognised operators are float32
# in files; their rounding is 2^-24, and whole networks enlarge it. Factors that are folded into halves are rounded, too.
TOLERANCE = 2.0**-14
# A number in the middle of two integers may become either, so that elements are off by a quantum: 2^-7 of a range of 8 bits with
# a sign, 2^-6 of a largest element that fills it by half. Layers between keep the sizes of elements, more or less. Which way a
# number falls is independent from one quantisation to the next, so variances add up: n of them in a row are sqrt(n) quanta.
QUANTUM = 2.0**-6
TOLERANCE_UNITS = 8  # eps of the least precise float of a graph: 0.8 % of an output in float16, 6 % in bfloat16


@dataclass(frozen=True)
class PassCheck:
    """A pass that ran: the number of calls it left, and the largest change of an output, relative to its largest element."""

    name: str
    calls: int
    change: float


def check_passes(
    graph: Graph,
    inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    passes: Sequence[Pass] = PASSES,
    observe: Callable[[PassCheck], None] = lambda check: None,
    run: Run | None = None,
) -> list[PassCheck]:
    """Run the passes; after each that changes the graph, compare its outputs on `inputs`, in float64, with those before all
    passes. `observe` gets each check. `run` computes a call, by default the interpreter, which runs equal calls once.

    Raises GraphError that names the first pass after which an output is off by more than its part in `tolerances`.
    """
    run = run or remembering(run_call)
    wanted, checks, text = evaluate(*widened(graph, inputs), run), list[PassCheck](), graph.text()
    limits = tolerances(graph)

    def compare(name: str, after: Graph) -> None:
        nonlocal text
        change = 0.0
        if after.text() != text:
            text = after.text()
            for value, a, b in zip(graph.outputs, wanted, evaluate(*widened(after, inputs), run), strict=True):
                a, b = (x.astype(np.float64) if limits[value] >= QUANTUM and x.dtype.kind in "iu" else x for x in (a, b))
                found = difference(b, a, np.max) if a.dtype == b.dtype else float("inf")
                if not found <= limits[value]:
                    what = f"the pass {name} changes the output `{value.name}` by {found:.3g} of its largest element"
                    raise GraphError(f"graph {graph.name}: {what}, over {limits[value]:.3g}")
                change = max(change, found)
        checks.append(PassCheck(name, len(after.calls), change))
        observe(checks[-1])

    optimize(graph, passes, compare)
    return checks


def tolerances(graph: Graph) -> dict[Value, float]:
    """The largest change of outputs by passes, relative to their largest element: by types, and by quantisations on a path."""
    found = {v.dtype for c in graph.calls for v in (*c.values, *c.outputs)}
    least = max(TOLERANCE, TOLERANCE_UNITS * max((dtypes.TABLE[d].eps for d in found if dtypes.is_half(d)), default=0.0))
    before: dict[Value, int] = {}
    for call in graph.calls:
        count = max((before.get(v, 0) for v in call.values), default=0) + (call.operator == "QuantizeLinear")
        before |= dict.fromkeys(call.outputs, count)
    return {v: max(least, QUANTUM * sqrt(before.get(v, 0))) for v in graph.outputs}


def difference(
    found: np.ndarray, wanted: np.ndarray, size: Callable[[np.ndarray], Any], of: Callable[[np.ndarray], Any] = np.max
) -> float:
    """The size `of` differences relative to the `size` of wanted values; infinite where integers, NaN or infinities differ."""
    if wanted.dtype.kind != "f" or wanted.shape != found.shape:
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    finite = np.isfinite(wanted)
    if not np.array_equal(np.isfinite(found), finite) or not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return float("inf")
    off = of(np.abs(found[finite] - wanted[finite])) if finite.any() else 0.0
    return float(off / max(size(np.abs(wanted[finite])) if finite.any() else 0.0, np.finfo(wanted.dtype).tiny))


def widened(graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> tuple[Graph, list[np.ndarray]]:
    """The graph with float64 in place of all other floats, and its inputs as those, in order."""

    def dtype(found: str) -> str:
        return "float64" if dtypes.is_float(found) else found

    def value(v: Value) -> Value:
        return replace(v, dtype=dtype(v.dtype))

    def attribute(name: str, a: Attribute) -> Attribute:
        return dtype(str(a)) if name in ELEMENT_TYPES and a in dtypes.TABLE else a

    def array(a: np.ndarray, found: str) -> np.ndarray:
        return to_float(a, found) if dtypes.is_float(found) else a

    def call(c: Call) -> Call:
        inputs = tuple(None if v is None else value(v) for v in c.inputs)
        attributes = tuple((n, attribute(n, a)) for n, a in c.attributes)
        return replace(c, inputs=inputs, outputs=tuple(map(value, c.outputs)), attributes=attributes)

    wide = graph.with_(
        inputs=tuple(map(value, graph.inputs)),
        calls=tuple(map(call, graph.calls)),
        outputs=tuple(map(value, graph.outputs)),
        constants={n: array(a, a.dtype.name) for n, a in graph.constants.items()},
    )
    return wide, [array(a, v.dtype) for v, a in zip(graph.inputs, arranged(graph, inputs), strict=True)]
