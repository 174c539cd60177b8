"""A compiled network: its kernels bound to their places in memory, and run one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from codegen import Kernel, Target
from codegen.kernel import duration
from tir import dtypes
from tir.ir import PrimFunc

from .fusion import Group
from .ir import Graph, Value
from .memory import ALIGNMENT, MemoryPlan
from .reference import arranged


@dataclass(frozen=True)
class KernelTime:
    """What the calls of one kernel take: `seconds` in all, of `calls` calls in one run of the network. `func` is the function of
    the groups that it runs, None for what is no kernel."""

    name: str
    seconds: float
    calls: int
    func: PrimFunc | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Profile:
    """Where the time of one run goes: by kernels, the slowest first, and of copying inputs and outputs."""

    kernels: tuple[KernelTime, ...]
    copying: float

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels) + self.copying

    def __str__(self) -> str:
        rows = [*self.kernels, KernelTime("inputs and outputs", self.copying, 1)]
        width = max(len(r.name) for r in rows)
        lines = [f"{r.name:{width}}  {r.calls:4}  {duration(r.seconds, 3):>9}  {r.seconds / self.seconds:6.1%}" for r in rows]
        return "\n".join(
            [f"{'kernel':{width}}  calls       time   share", *lines, f"{'':{width}}        {duration(self.seconds, 3):>9}"]
        )


class Model:
    """A network that can be called. `graph` is what was compiled, `groups` its calls by kernels, `kernels` one for each group.

    Its values lie in one arena that every call uses, so that calls must not overlap in time.
    """

    def __init__(self, graph: Graph, groups: Sequence[Group], kernels: Sequence[Kernel], plan: MemoryPlan, target: Target):
        self.graph, self.groups, self.kernels, self.plan, self.target = graph, tuple(groups), tuple(kernels), plan, target
        arena = np.empty(plan.nbytes + ALIGNMENT, np.uint8)
        start = -arena.ctypes.data % ALIGNMENT
        self._arena = arena[start : start + plan.nbytes]
        self._inputs = [self._array(v) for v in graph.inputs]
        self._outputs = [self._array(v) for v in graph.outputs]
        self._run = [
            kernel.bind(*(self._array(v) for v in (*group.inputs, *group.outputs)))
            for group, kernel in zip(self.groups, self.kernels, strict=True)
        ]

    def _array(self, value: Value) -> np.ndarray:
        """The elements of a value: a part of the arena, or a constant."""
        place = self.plan.places[value]
        if place.root.name in self.graph.constants:
            array = np.require(self.graph.constants[place.root.name], requirements=("C", "A"))
            first = place.offset // array.itemsize
            return array.reshape(-1)[first : first + prod(value.shape)].reshape(value.shape)
        offset = self.plan.offsets[place.root] + place.offset
        return self._arena[offset : offset + value.nbytes].view(dtypes.storage(value.dtype)).reshape(value.shape)

    def __call__(self, *inputs) -> list[np.ndarray]:
        """The outputs, new arrays in the order of `graph.outputs`, for inputs in the order of `graph.inputs`, or a dict of them.

        Raises GraphError where an input is missing or has another shape or element type."""
        return self._called(self._arranged(inputs))

    def bind(self, *inputs) -> Callable[[], list[np.ndarray]]:
        """The call with these arrays as a function without arguments, which reads them anew each time: what `__call__` checks at
        each call is checked here, once."""
        arrays = self._arranged(inputs)
        return lambda: self._called(arrays)

    def _arranged(self, inputs: tuple) -> list[np.ndarray]:
        by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        return arranged(self.graph, inputs[0] if by_name else inputs)

    def _called(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for place, array in zip(self._inputs, arrays, strict=True):
            np.copyto(place, array)
        for run in self._run:
            run()
        return [a.copy() for a in self._outputs]

    def profile(self, *inputs, runs: int = 10) -> Profile:
        """Where the time of a call goes: of each kernel the median of `runs` runs of the whole network, after one to warm up.

        Inputs are as in a call. Raises GraphError as that does.
        """
        arrays = self._arranged(inputs)
        self._called(arrays)
        samples = np.empty((runs, len(self._run) + 1))
        for row in samples:
            begin = time.perf_counter()
            for place, array in zip(self._inputs, arrays, strict=True):
                np.copyto(place, array)
            copied = time.perf_counter()
            for n, run in enumerate(self._run):
                start = time.perf_counter()
                run()
                row[n] = time.perf_counter() - start
            end = time.perf_counter()
            [a.copy() for a in self._outputs]
            row[-1] = copied - begin + time.perf_counter() - end
        medians = np.median(samples, axis=0)
        found: dict[PrimFunc, tuple[float, int]] = {}
        for group, seconds in zip(self.groups, medians[:-1].tolist(), strict=True):
            total, calls = found.get(group.func, (0.0, 0))
            found[group.func] = total + seconds, calls + 1
        rows = [KernelTime(label(func), seconds, calls, func) for func, (seconds, calls) in found.items()]
        return Profile(tuple(sorted(rows, key=lambda r: -r.seconds)), float(medians[-1]))


def label(func: PrimFunc) -> str:
    """A group's function by its operators and the shapes of its first parameters and of its last."""
    *inputs, output = ("x".join(map(str, b.shape)) for b in func.buffers)
    return f"{func.name}({', '.join(inputs[:2])}) -> {output}"
