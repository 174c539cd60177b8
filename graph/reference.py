"""The meaning of a graph: its calls one after the other, each run by the interpreter of the IR below.

Slow, exact, and independent of fusion, schedules and code generation, which are compared with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np

from search.measure.ranges import meaningful
from search.measure.reference import random_array
from search.measure.rounding import summed_row_by_row
from tir import dtypes, interpreter
from tir.ir import PrimFunc
from tir.verify import verify

from .arguments import arranged
from .ir import Call, Graph
from .kinds import work
from .loops import Loop, ordered
from .ops import anonymous, function
from .ops.loops import BEGIN, END
from .places import part_offsets

SEED = 0  # of random inputs
Run = Callable[[Call, Sequence[np.ndarray | None]], list[np.ndarray]]

MAX_INTERPRETED_ITERATIONS = 100_000  # of a call; above, compiling it with numba first is faster


def evaluate(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any], run: Run | None = None) -> list[np.ndarray]:
    """The outputs of a graph for inputs in order or by name. Raises GraphError; `run` computes a call (default `run_call`)."""
    known = dict(graph.constants) | {v.name: a for v, a in zip(graph.inputs, arranged(graph, inputs), strict=True)}
    _evaluate(ordered(graph).calls, known, run or run_call)
    return [known[v.name] for v in graph.outputs]


def _evaluate(calls: Sequence[Call], known: dict[str, np.ndarray], run: Run) -> None:
    """Run calls in order; `known` has values by name, and gets those that are made."""
    left = iter(enumerate(calls))
    for n, call in left:
        if call.operator == BEGIN:
            end = next(m for m, c in enumerate(calls) if c.operator == END and c.values[0] == call.outputs[0])
            _repeat(Loop(call, calls[end], frozenset()), calls[n + 1 : end], known, run)
            deque(islice(left, end - n), maxlen=0)
            continue
        results = run(call, [None if v is None else known[v.name] for v in call.inputs])
        known |= {v.name: a for v, a in zip(call.outputs, results, strict=True)}


def _repeat(loop: Loop, calls: Sequence[Call], known: dict[str, np.ndarray], run: Run) -> None:
    states, rows = [known[first.name] for first, *_ in loop.states], list[list[np.ndarray]]()
    conditional, count = loop.begin.attribute("conditional"), int(known[loop.begin.values[0].name])
    while len(rows) < count and (not conditional or states[0].all()):
        known |= {state.name: a for (_, state, *_), a in zip(loop.states, states, strict=True)}
        for array, piece, backward in loop.arrays(loop.begin):
            known[piece.name] = known[array.name][-1 - len(rows) if backward else len(rows)]
        _evaluate(calls, known, run)
        states = [known[new.name] for *_, new, _ in loop.states]
        rows.append([known[row.name] for row, *_ in loop.arrays(loop.end)])
    known |= {final.name: a for (*_, final), a in zip(loop.states, states, strict=True)}
    for n, (_, array, backward) in enumerate(loop.arrays(loop.end)):
        own = [row[n] for row in (reversed(rows) if backward else rows)]
        known[array.name] = np.stack(own) if own else np.empty(array.shape, dtypes.storage(array.dtype))


def remembering(run: Run) -> Run:
    """`run` with a memory: calls that are equal but for names run once on equal arrays."""
    digests: dict[int, tuple[np.ndarray, bytes]] = {}  # with the array, so that no other gets its id
    done: dict[tuple[Call, tuple[bytes, ...]], list[np.ndarray]] = {}

    def digest(array: np.ndarray) -> bytes:
        if id(array) not in digests:
            digests[id(array)] = array, blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()
        return digests[id(array)][1]

    def found(call: Call, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        key = anonymous(call), tuple(b"" if a is None else digest(a) for a in inputs)
        if key not in done:
            done[key] = run(call, inputs)
        return done[key]

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
    _interpreted(function(call), work(call) > MAX_INTERPRETED_ITERATIONS)(*given.values(), *outputs)
    return outputs


@lru_cache(256)
def _interpreted(func: PrimFunc, fast: bool) -> Callable[..., None]:
    """A function as the interpreter runs it; `fast` compiles it, without traps if `verify` finds nothing."""
    if not fast:
        return interpreter.compile(func)
    return interpreter.compile(summed_row_by_row(func), fast=True, traps=bool(verify(func).findings))


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Meaningful inputs of a network, the same at each call: floats between -1 and 1, indices in bounds, divisors other than 0.
    Other integers and conditions are 0 or 1; the first of each row is 1, so that a mask lets something through."""
    rng, spans = np.random.default_rng(SEED), _spans(graph)
    found = {}
    for v in graph.inputs:
        span = spans.get(v.name)
        if span is None and not dtypes.is_float(v.dtype):
            found[v.name] = rng.integers(0, 2, v.shape).astype(v.dtype)
            if v.shape:
                found[v.name][..., :1] = 1
        else:
            found[v.name] = random_array(v.shape, v.dtype, rng, within=span)
    return found


def _spans(graph: Graph) -> dict[str, tuple[int, int]]:
    """The ranges of meaningful elements of values, by name, as their readers need them (see `search.measure.ranges`)."""
    found: dict[str, tuple[int, int]] = {}
    for call in reversed(graph.calls):
        if all(dtypes.is_float(v.dtype) for v in call.values) and not any(v.name in found for v in call.outputs):
            continue
        func = function(call)
        names = dict(zip((*dict.fromkeys(call.values), *call.outputs), func.buffers, strict=False))
        wanted = {b.name: found[v.name] for v, b in names.items() if v.name in found}
        spans = meaningful(func, wanted)
        found |= {v.name: spans[b.name] for v, b in names.items() if b.name in spans}
    return found
