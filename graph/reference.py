"""What a graph means: its calls one after the other, each run by the interpreter of the IR below.

Slow, exact, and independent of fusion, schedules and code generation, which are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from search.measure.reference import random_array
from tir import dtypes, interpreter
from tir.ir import PrimFunc

from .ir import Call, Graph, GraphError, Value, type_text
from .kinds import work
from .ops import function
from .places import part_offsets

SEED = 0  # of random inputs
Run = Callable[[Call, Sequence[np.ndarray | None]], list[np.ndarray]]

FEW = 100_000  # points of loops up to which starting at once pays more than compiling with numba


def evaluate(graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], run: Run | None = None) -> list[np.ndarray]:
    """The outputs of a graph for these inputs, in order or by name; GraphError where they do not fit. `run` makes the outputs of
    a call, `run_call` where it is not given."""
    known = dict(graph.constants) | {v.name: a for v, a in zip(graph.inputs, arranged(graph, inputs), strict=True)}
    for call in graph.calls:
        results = (run or run_call)(call, [None if v is None else known[v.name] for v in call.inputs])
        known |= {v.name: a for v, a in zip(call.outputs, results, strict=True)}
    return [known[v.name] for v in graph.outputs]


def remembering(run: Run) -> Run:
    """The function that runs equal calls of the same arrays once."""
    done: dict[Call, tuple[Sequence[np.ndarray | None], list[np.ndarray]]] = {}

    def found(call: Call, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        before = done.get(call)
        if before is None or any(a is not b for a, b in zip(before[0], inputs, strict=True)):
            done[call] = inputs, run(call, inputs)
        return done[call][1]

    return found


def run_call(call: Call, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The outputs of one call for these inputs."""
    if (offsets := part_offsets(call)) and inputs[0] is not None:
        flat = np.ascontiguousarray(inputs[0]).reshape(-1).view(np.uint8)
        parts = ((v, flat[first : first + v.nbytes]) for v, first in zip(call.outputs, offsets, strict=True))
        return [part.view(dtypes.storage(v.dtype)).reshape(v.shape) for v, part in parts]
    given = {
        v: np.ascontiguousarray(a).reshape(v.shape)
        for v, a in zip(call.inputs, inputs, strict=True)
        if v is not None and a is not None
    }
    outputs = [np.empty(v.shape, dtypes.storage(v.dtype)) for v in call.outputs]
    _interpreted(function(call), work(call) > FEW)(*given.values(), *outputs)
    return outputs


@lru_cache(256)
def _interpreted(func: PrimFunc, fast: bool) -> Callable[..., None]:
    """A function as the interpreter runs it, for equal calls."""
    return interpreter.compile(func, fast=fast)


def arranged(graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays for the inputs of a graph in their order, given in that order or by name.

    Raises GraphError where one is missing or too many, or has another shape or element type.
    """
    names = [v.name for v in graph.inputs]
    if isinstance(inputs, Mapping):
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            wrong = [f"`{n}` is missing" for n in missing] + [f"`{n}` is none" for n in unknown]
            raise GraphError(f"{graph.name}: the inputs are {', '.join(names) or 'none'}; {', '.join(wrong)}")
        inputs = [inputs[n] for n in names]
    if len(inputs) != len(names):
        raise GraphError(f"{graph.name}: the inputs are {', '.join(names) or 'none'}; got {len(inputs)} array(s)")
    return [_fitting(v, a) for v, a in zip(graph.inputs, inputs, strict=True)]


def _fitting(value: Value, array: np.ndarray) -> np.ndarray:
    found = np.asarray(array)
    if found.dtype.name == value.dtype:  # bfloat16 as the package ml_dtypes has it
        found = found.view(dtypes.storage(value.dtype))
    if found.shape != value.shape or found.dtype != dtypes.storage(value.dtype):
        raise GraphError(f"input `{value.name}` must be {type_text(value)}, got {found.dtype.name}{list(found.shape)}")
    return found


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Floats between -1 and 1, the same at each call; integers, which are mostly indices, are 0."""
    rng = np.random.default_rng(SEED)
    return {
        v.name: random_array(v.shape, v.dtype, rng) if dtypes.is_float(v.dtype) else np.zeros(v.shape, dtypes.storage(v.dtype))
        for v in graph.inputs
    }
