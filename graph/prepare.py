"""Constants as kernels read them: what kernels compute from weights alone is computed when the network is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codegen.arguments import address
from codegen.llvm.compile import Library
from tir.constants import constants
from tir.dtypes import storage
from tir.ir import Buffer, PrimFunc, const_shape
from tir.traverse import fresh

from .fusion import Group
from .ir import Graph, Value
from .kernels import GroupKernel
from .places import Place, places


def prepared(graph: Graph, groups: Sequence[Group], kernels: Sequence[GroupKernel]) -> tuple[Graph, list[Group]]:
    """The graph with the constants that kernels read, those included that they prepare from others, and the groups with the
    inputs that their kernels then take. Raises MemoryError where there is no memory for temporaries."""
    where, known = places(graph), dict(graph.constants)
    taken = {v.name for c in graph.calls for v in (*c.values, *c.outputs)}
    made: dict[tuple[PrimFunc, tuple[Value, ...]], dict[str, Value]] = {}  # groups may share weights
    result = []
    for group, kernel in zip(groups, kernels, strict=True):
        given = dict(zip((p.name for p in group.func.params), (*group.inputs, *group.outputs), strict=True))
        weights = tuple(given[b.name] for b in constants(group.func))
        if kernel.preparation is not None and (group.func, weights) not in made:
            arrays = _run(kernel, {b.name: _elements(graph, where[given[b.name]], given[b.name]) for b in constants(group.func)})
            values = {n: Value(fresh(taken, f"{weights[0].name}.{n}"), a.shape, b.dtype) for n, (b, a) in arrays.items()}
            known |= {values[n].name: a for n, (_, a) in arrays.items()}
            made[group.func, weights] = values
        given |= made.get((group.func, weights), {})
        inputs = tuple(given[b.name] for b in kernel.main.params if given[b.name] not in group.outputs)
        result.append(replace(group, inputs=inputs))
    read = {where[v].root.name for v in (*(v for g in result for v in g.inputs), *graph.outputs)}
    return graph.with_(constants={name: array for name, array in known.items() if name in read}), result


def _run(kernel: GroupKernel, given: dict[str, np.ndarray]) -> dict[str, tuple[Buffer, np.ndarray]]:
    """What a kernel prepares, by name, from its constants."""
    part = kernel.preparation
    assert part is not None
    made = {b.name: (b, np.empty(const_shape(b), storage(b.dtype))) for b in part.params if b.name not in given}
    arrays = [given[b.name] if b.name in given else made[b.name][1] for b in part.params]
    function = Library([part.code], [part.symbol], kernel.target).function(part.symbol, len(arrays))
    if function(*map(address, arrays)):
        raise MemoryError(f"{kernel.func.name}: no memory to prepare its constants")
    return made


def _elements(graph: Graph, place: Place, value: Value) -> np.ndarray:
    """The elements of a value that lies in a constant."""
    memory = np.require(graph.constants[place.root.name], requirements=("C", "A")).reshape(-1).view(np.uint8)
    return memory[place.offset : place.offset + value.nbytes].view(storage(value.dtype)).reshape(value.shape)
