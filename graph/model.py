"""A compiled network: one native function that runs its kernels on the weights, an arena, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from codegen import Target, backend
from codegen.llvm.compile import Library, object_code
from codegen.llvm.native_call import native_call
from codegen.llvm.program import STEP, TIMED, TIMESPEC_WORDS, Invoke, Step, entry
from codegen.llvm.scratch import RELEASE
from codegen.processor import host_cores
from codegen.runtime.arguments import DECLINED, address, aligned_memory
from codegen.runtime.faults import NO_MEMORY, failure
from codegen.runtime.kernel import maker
from codegen.runtime.timing import duration
from tir.arrays import result_conversion
from tir.ir import Buffer, Const, PrimFunc

from .fusion import Group
from .ir import Graph
from .kernels import GroupKernel
from .memory import ARENA, WEIGHTS, MemoryPlan, buffer, input_base, output_base
from .reference import arranged, ordered

ENTRY = "tir.net"  # symbol of the function that runs a network; no kernel has this name


@dataclass(frozen=True)
class KernelTime:
    """The time of one kernel in one run of the network: `seconds` of all its `calls`. `func` is the function of its groups, None
    for the copies."""

    name: str
    seconds: float
    calls: int
    func: PrimFunc | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Profile:
    """The times of one run, in seconds: of kernels, the slowest first, and of copying outputs that lie in other values."""

    kernels: tuple[KernelTime, ...]
    copying: float

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels) + self.copying

    def __str__(self) -> str:
        rows = [*self.kernels, KernelTime("copies", self.copying, 1)]
        width = max(len(r.name) for r in rows)
        lines = [f"{r.name:{width}}  {r.calls:4}  {duration(r.seconds, 3):>9}  {r.seconds / self.seconds:6.1%}" for r in rows]
        return "\n".join(
            [f"{'kernel':{width}}  calls       time   share", *lines, f"{'':{width}}        {duration(self.seconds, 3):>9}"]
        )


class Model:
    """A network that can be called. `graph` is the compiled graph, with the constants that kernels read; `kernels` has one kernel
    for each of its `groups`.

    `weights` is the block of memory of the constants. `steps` are the steps of a call, at offsets from the pointers that `bases`
    names. `keeping` are the symbols of kernels that keep memory from one call to the next. Each call has an arena of its own,
    which later calls reuse, so any number of threads may call a model at the same time.
    """

    def __init__(
        self, graph: Graph, groups: Sequence[Group], kernels: Sequence[GroupKernel], plan: MemoryPlan, weights: np.ndarray,
        target: Target,
    ):  # fmt: skip
        self.graph, self.groups, self.kernels = graph, tuple(groups), tuple(kernels)
        self.plan, self.weights, self.target = plan, weights, target
        self.steps: list[Step] = [
            Invoke(kernel.main.symbol, tuple(plan[v] for v in (*group.inputs, *group.outputs, *group.scratch)))
            for group, kernel in zip(self.groups, self.kernels, strict=True)
        ]
        self.steps += plan.copies
        codes = {k.main.symbol: k.main.code for k in self.kernels}
        self.keeping = [name for name, code in codes.items() if f"{name}{RELEASE}\0".encode() in code]
        self.bases = [WEIGHTS, ARENA, *map(input_base, range(len(graph.inputs))), *map(output_base, range(len(graph.outputs)))]
        self._new_outputs = [maker(v.shape, v.dtype) for v in graph.outputs]
        self._arenas: list[np.ndarray] = []  # of calls that have ended, at most one for each core
        if not backend(target).missing(target):
            self._run  # noqa: B018 (loaded here, and not in the first call, or in several at once)

    @cached_property
    def _functions(self) -> tuple[Callable[..., int], Callable[..., int]]:
        """The entry and its variant that takes times, as functions of the addresses of weights, arena, inputs and outputs."""
        text = entry(ENTRY, self.bases, self.steps, self.keeping, timed=True)
        codes = {k.main.symbol: k.main.code for k in self.kernels}
        library = Library([object_code(text, self.target), *codes.values()], [ENTRY, f"{ENTRY}{TIMED}"], self.target)
        return library.function(ENTRY, len(self.bases)), library.function(f"{ENTRY}{TIMED}", len(self.bases) + 1)

    @cached_property
    def _run(self) -> Callable[..., int]:
        """The entry as a function of arrays, which returns DECLINED where they may not fit."""
        named = [_bytes(WEIGHTS, self.weights.nbytes), _bytes(ARENA, self.plan.nbytes)]
        params = [*named, *map(buffer, (*self.graph.inputs, *self.graph.outputs))]
        return native_call(self._functions[0], params, frozenset(), short=False)  # no call writes memory that another may read

    def __call__(self, *inputs) -> list[Any]:
        """The outputs, new arrays in the order of `graph.outputs`, for inputs in the order of `graph.inputs`, or a dict of them.

        Inputs are arrays of numpy or other libraries; outputs are of the first library that is not numpy. Elements of inputs are
        not checked: an index out of bounds, as into an embedding, becomes the nearest one inside. Raises GraphError for a missing
        input, another shape or element type; MemoryError without memory for a kernel's temporaries; ZeroDivisionError for a
        division of an integer by zero; UnsupportedProcessor for a target that this processor cannot run, which is for `export`.
        """
        status, outputs = self._called(self._run, inputs)
        if status == DECLINED:
            given = self._ordered(inputs)
            arrays = [_readable(a) for a in arranged(self.graph, given)]
            _, outputs = self._called(lambda *given: self._functions[0](*map(address, given)), arrays)
            return self._like(given, outputs)
        return outputs

    def bind(self, *inputs) -> Callable[[], list[Any]]:
        """A function without arguments: the call with these arrays, kept alive and read anew each time. Raises as a call does."""
        given = self._ordered(inputs)
        call = partial(self, *arranged(self.graph, given))
        return call if result_conversion(given) is None else lambda: self._like(given, call())

    def _ordered(self, inputs: tuple) -> list[Any]:
        by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        return ordered(self.graph, inputs[0] if by_name else inputs)

    def _like(self, inputs: Sequence[Any], outputs: list[np.ndarray]) -> list[Any]:
        """Outputs as arrays of the library of the inputs."""
        back = result_conversion(inputs)
        return outputs if back is None else [back.of(a, v.dtype) for a, v in zip(outputs, self.graph.outputs, strict=True)]

    def _called(self, run: Callable[..., int], inputs: Sequence[np.ndarray]) -> tuple[int, list[np.ndarray]]:
        """The status of `run` on weights, arena, inputs and outputs, 0 or DECLINED, and the outputs. Raises other statuses."""
        outputs = [new() for new in self._new_outputs]
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = aligned_memory(self.plan.nbytes)
        status = run(self.weights, arena, *inputs, *outputs)
        if len(self._arenas) < host_cores():  # as many calls as can run at once
            self._arenas.append(arena)
        if status not in (0, DECLINED):
            raise self._failure(status)
        return status, outputs

    def _failure(self, status: int) -> Exception:
        """The exception for a status."""
        if status == NO_MEMORY:
            return MemoryError(f"{self.graph.name}: no memory for the temporaries of its kernels")
        step, status = divmod(status, STEP)
        kernel = self.kernels[step - 1]
        return failure(kernel.kernel.main.lowered, status, name=f"{self.graph.name}: {kernel_label(kernel.func)}")

    def profile(self, *inputs, runs: int = 10) -> Profile:
        """The profile of a call: each kernel's median time in `runs` runs of the whole network, after one to warm up.

        Inputs are as in a call. Raises GraphError as that does.
        """
        arrays = [_readable(a) for a in arranged(self.graph, self._ordered(inputs))]
        times = np.empty((len(self.steps) + 1, TIMESPEC_WORDS), np.int64)
        samples = np.empty((runs + 1, len(self.steps)))
        for row in samples:
            self._called(lambda *given: self._functions[1](*map(address, given), address(times)), arrays)
            row[:] = 1e-9 * np.diff(times @ (1_000_000_000, 1))
        medians = np.median(samples[1:], axis=0).tolist()
        found: dict[PrimFunc, tuple[float, int]] = {}
        for group, seconds in zip(self.groups, medians, strict=False):  # copies come after them
            total, calls = found.get(group.func, (0.0, 0))
            found[group.func] = total + seconds, calls + 1
        rows = [KernelTime(kernel_label(func), seconds, calls, func) for func, (seconds, calls) in found.items()]
        return Profile(tuple(sorted(rows, key=lambda r: -r.seconds)), sum(medians[len(self.groups) :]))

    def export(self, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
        """Write the network as a shared library (.so) or object file (.o); returns the path of the C header `<name>.h` beside it.
        The file `<name>.weights`, beside it too, is to be mapped into memory.

        `name` is the C function's, by default as the file without "lib" and suffix; `compiler` links the library (default: cc,
        gcc or clang). Neither Python nor LLVM is needed to use them. The kernels are compiled anew. Raises ExportError.
        """
        from .export import export

        return export(self, path, name, compiler=compiler)


def _bytes(name: str, count: int) -> Buffer:
    return Buffer(name, (Const(count),), "uint8")


def _readable(array: np.ndarray) -> np.ndarray:
    """An array as kernels read it: itself where it has no gaps and is aligned to its elements, else a copy."""
    return np.require(array, requirements=("C", "A"))


def kernel_label(func: PrimFunc) -> str:
    """The label of a group's function: its operators, the shapes of its first two inputs and of its last output."""
    *inputs, output = ("x".join(map(str, b.shape)) or "scalar" for b in func.buffers)
    return f"{func.name}({', '.join(inputs[:2])}) -> {output}"
