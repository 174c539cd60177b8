"""Constants in one block of memory, as kernels read them; values that depend on constants alone are computed once, here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from weakref import WeakValueDictionary

import numpy as np

from codegen.runtime.memory import address, aligned_memory
from codegen.steps import Address
from tir.arrays import content
from tir.constants import constants
from tir.dtypes import storage
from tir.ir import PrimFunc, const_shape
from tir.traverse import fresh

from .fusion import Group
from .ir import Graph, Value
from .kernels import GroupKernel
from .memory import WEIGHTS, MemoryPlan, consecutive

START_BYTES = 4096  # of a constant by whose hash it is found: a page tells nearly all apart


@dataclass(frozen=True)
class Preparation:
    """A run of a kernel's preparation. `values` are its parameters by name: constants of the graph, and the new ones it makes."""

    kernel: GroupKernel
    values: Mapping[str, Value]

    @property
    def read_and_made(self) -> list[Value]:
        """The values that the function reads or makes, in the order of its parameters."""
        assert self.kernel.preparation is not None
        return [self.values[b.name] for b in self.kernel.preparation.params]


def prepared(graph: Graph, groups: Sequence[Group], kernels: Sequence[GroupKernel]) -> tuple[list[Group], list[Preparation]]:
    """The groups with the inputs and the scratch that their kernels take once constants are prepared, and their preparations."""
    taken = graph.names()
    made: dict[tuple[PrimFunc, tuple[Value, ...]], Preparation] = {}  # groups may share weights
    result = []
    for group, kernel in zip(groups, kernels, strict=True):
        given = dict(zip((p.name for p in group.func.params), (*group.inputs, *group.outputs), strict=True))
        values = {b.name: given[b.name] for b in constants(group.func)}
        if kernel.preparation is not None:
            weights = tuple(values.values())
            if (group.func, weights) not in made:
                new = [b for b in kernel.preparation.params if b.name not in given]
                values |= {b.name: Value(fresh(taken, f"{weights[0].name}.{b.name}"), const_shape(b), b.dtype) for b in new}
                made[group.func, weights] = Preparation(kernel, values)
            given |= made[group.func, weights].values
        inputs = tuple(given[b.name] for b in kernel.main.params if given[b.name] not in group.outputs)
        scratch = tuple(
            Value(fresh(taken, f"{group.outputs[0].name}.{b.name}"), const_shape(b), b.dtype) for b in kernel.main.scratch
        )
        result.append(replace(group, inputs=inputs, scratch=scratch))
    return result, list(made.values())


def filled(graph: Graph, plan: MemoryPlan, preparations: Sequence[Preparation]) -> tuple[Graph, np.ndarray]:
    """The graph with the constants that its kernels read, and the block of memory they lie in. Raises MemoryError."""
    weights = aligned_memory(plan.weights_nbytes)
    arrays = {}
    for value, where in plan.addresses.items():
        if where.base == WEIGHTS:
            arrays[value.name] = elements(value, weights[where.offset :])
            if value.name in graph.constants:
                arrays[value.name][...] = graph.constants[value.name].view(arrays[value.name].dtype)
    functions = {}
    for preparation in preparations:
        kernel, values = preparation.kernel, preparation.read_and_made
        if kernel not in functions:
            functions[kernel] = kernel.preparing()
        given = [_constant(graph, plan, v) if plan.places[v].root.name in graph.constants else arrays[v.name] for v in values]
        if functions[kernel](*map(address, given)):
            raise MemoryError(f"{kernel.func.name}: no memory to prepare its constants")
    for array in arrays.values():
        array.flags.writeable = False
    return graph.with_(constants=arrays), weights


def with_constants(graph: Graph, plan: MemoryPlan, weights: np.ndarray) -> tuple[Graph, np.ndarray]:
    """The graph and memory that `filled` gave, for a copy of the memory."""
    block = aligned_memory(plan.weights_nbytes)
    block[:] = weights
    found = {v.name: elements(v, block[at.offset :]) for v, at in plan.addresses.items() if at.base == WEIGHTS}
    for array in found.values():
        array.flags.writeable = False
    return graph.with_(constants=found), block


class Constants:
    """Constants of several models, each held once, in blocks of memory. A block lives as long as a model that uses it.

    One may lie at the beginning of another: kernels fill the last panels of packed weights up to different numbers."""

    def __init__(self) -> None:
        self._blocks: WeakValueDictionary[str, np.ndarray] = WeakValueDictionary()  # by the names of their bases
        self._known: dict[bytes, list[tuple[int, Address]]] = {}  # by the hash of the first bytes: the number of bytes, the place
        self._count = 0  # of blocks so far

    def shared(self, graph: Graph, plan: MemoryPlan) -> tuple[Graph, MemoryPlan, dict[str, np.ndarray]]:
        """A graph and its plan with constants in blocks, and the blocks they lie in; those that are new are one more block."""
        blocks = dict(self._blocks)
        self._known = {key: kept for key, known in self._known.items() if (kept := [k for k in known if k[1].base in blocks])}
        bytes_of = {v: content(graph.constants[v.name]) for v in plan.addresses if v.name in graph.constants}
        starts = {v: blake2b(array[:START_BYTES].data, digest_size=16).digest() for v, array in bytes_of.items()}
        found: dict[Value, Address] = {}
        new: dict[Value, Value] = {}  # the constant at whose beginning each lies, perhaps itself
        own: dict[bytes, list[Value]] = {}  # new ones, by the hash of their first bytes
        for value in sorted(bytes_of, key=lambda v: -v.nbytes):
            start, given = starts[value], bytes_of[value]
            known = ((blocks[at.base][at.offset :], at) for nbytes, at in self._known.get(start, ()) if nbytes >= value.nbytes)
            place = next((at for memory, at in known if np.array_equal(memory[: value.nbytes], given)), None)
            if place is not None:
                found[value] = place
                continue
            others = own.setdefault(start, [])
            whole = next((v for v in others if np.array_equal(bytes_of[v][: value.nbytes], given)), value)
            new[value] = whole
            if whole == value:
                others.append(value)
        if new or not blocks:
            base = f"{WEIGHTS}.{self._count}" if self._count else WEIGHTS
            self._count += 1
            offsets, nbytes = consecutive([v for v in bytes_of if new.get(v) == v])
            blocks[base] = self._blocks[base] = block = aligned_memory(nbytes)
            for value, offset in offsets.items():
                self._known.setdefault(starts[value], []).append((value.nbytes, Address(base, offset)))
                block[offset : offset + value.nbytes] = bytes_of[value]
            found |= {value: Address(base, offsets[whole]) for value, whole in new.items()}
        arrays = {v.name: elements(v, blocks[at.base][at.offset :]) for v, at in found.items()}
        for array in arrays.values():
            array.flags.writeable = False
        used = {at.base for at in found.values()} or {next(iter(blocks))}
        read = {base: block for base, block in blocks.items() if base in used}
        plan = replace(plan, addresses={**plan.addresses, **found}, weights_nbytes=sum(block.nbytes for block in read.values()))
        return graph.with_(constants=arrays), plan, read


def elements(value: Value, memory: np.ndarray) -> np.ndarray:
    """The elements of a value at the start of `memory`, an array of bytes."""
    return memory[: value.nbytes].view(storage(value.dtype)).reshape(value.shape)


def _constant(graph: Graph, plan: MemoryPlan, value: Value) -> np.ndarray:
    """The elements of a value that lies in a constant of the graph."""
    place = plan.places[value]
    return elements(value, content(graph.constants[place.root.name])[place.offset :])
