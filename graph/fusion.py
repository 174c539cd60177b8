"""Fusion: which calls become one kernel.

A call takes along the elementwise calls that follow it, as long as each is the only reader of what the one before makes; what is
elementwise is read from the loop nest of its definition. A group becomes one function whose names depend on nothing but its
operators, types and wiring, so that equal groups are equal functions: one kernel, one task of the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tir import te
from tir.ir import Axis, Const, Expr, Iter, PrimFunc, Store
from tir.traverse import blocks, loads

from .ir import Call, Graph, Value
from .ops import function, placeholder, tensors
from .places import places


@dataclass(frozen=True, eq=False)
class Group:
    """Calls that become one kernel: the function of these inputs and outputs, in order."""

    calls: tuple[Call, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    func: PrimFunc


def fuse(graph: Graph) -> list[Group]:
    """The groups of all calls that need a kernel, in an order in which they can run."""
    free = places(graph).free
    consumers = graph.consumers()
    chains: dict[int, list[Call]] = {}  # by the position of the last call
    maker: dict[Value, int] = {}  # of the only output of a chain, the chain
    for position, call in enumerate(graph.calls):
        if call.outputs[0] in free:
            continue
        before = [
            maker[v]
            for v in elementwise_inputs(call)
            if v in maker and consumers[v] == [call] and v not in graph.outputs and v.shape == call.outputs[0].shape
        ]
        chain = chains.pop(max(before), []) if before else []
        chains[position] = [*chain, call]
        if len(call.outputs) == 1:
            maker[call.outputs[0]] = position
    return [group_of(chain) for _, chain in sorted(chains.items())]


def group_of(calls: Sequence[Call]) -> Group:
    """Calls, each of which but the first reads the one before, as a group."""
    made = {v for c in calls for v in c.outputs}
    inputs = tuple(dict.fromkeys(v for c in calls for v in c.values if v not in made))
    known = {v: placeholder(v, f"p{n}") for n, v in enumerate(inputs)}
    for call in calls:
        results = tensors(call, [None if v is None else known[v] for v in call.inputs])
        known |= dict(zip(call.outputs, results, strict=False))
    outputs = calls[-1].outputs
    name = "_".join(c.operator.lower() for c in calls)
    func = te.create_prim_func([known[v] for v in (*inputs, *outputs)], name=name)
    return Group(tuple(calls), inputs, outputs, func)


def elementwise_inputs(call: Call) -> list[Value]:
    """The inputs of which each element of the output needs the one at its own place alone; none where the call does more."""
    different = list(dict.fromkeys(call.values))
    return [different[n] for n in _elementwise_parameters(function(call))]


@cache
def _elementwise_parameters(func: PrimFunc) -> tuple[int, ...]:
    (block, *others) = blocks(func)
    if others or any(it.axis is not Axis.SPATIAL for it in block.iters) or not isinstance(block.body, Store):
        return ()
    found = []
    for n, buffer in enumerate(func.buffers):
        read = [load for load in loads(block.body.value) if load.buffer == buffer]
        if read and all(_is_place(load.indices, block.iters) for load in read):
            found.append(n)
    return tuple(found)


def _is_place(indices: Sequence[Expr], iters: Sequence[Iter]) -> bool:
    """Whether indices are the variables of a block in order; where an extent is 1, also 0."""
    return len(indices) == len(iters) and all(
        i == it.var or (i == Const(0) and it.extent == Const(1)) for i, it in zip(indices, iters, strict=True)
    )
