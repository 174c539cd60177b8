"""A compiled network: a graph, its kernels, and one native function that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from codegen import Target, backend
from codegen.export import calls_openmp, keeping
from codegen.llvm.compile import Library, object_code
from codegen.llvm.native_call import native_call
from codegen.llvm.program import LIMITED, PARALLEL, THREADS, TIMED, entry, limited_threads
from codegen.runtime.faults import failure
from codegen.steps import Invoke, Step, copies
from search.task import flop
from tir.ir import Buffer, Const, PrimFunc

from .fusion import Group
from .ir import Graph
from .kernels import GroupKernel
from .memory import ARENA, WEIGHTS, MemoryPlan, buffer, input_base, output_base
from .network import Entry, Network
from .prepare import Constants, with_constants

ENTRY = "tir.net"  # symbol of the function that runs a network; no kernel has this name


class Model(Network):
    """A compiled network. `graph` is the compiled graph, with the constants that kernels read; `kernels` has one kernel for each
    of its `groups`.

    `weights` are the blocks of constants by the names of their bases. `steps` are the steps of a call, at offsets
    from the pointers that `bases` names. `keeping` are the symbols of kernels that keep memory from one call to the next.
    """

    def __init__(
        self, graph: Graph, groups: Sequence[Group], kernels: Sequence[GroupKernel], plan: MemoryPlan,
        weights: Mapping[str, np.ndarray], target: Target, donated: Mapping[str, str] = {},
    ):  # fmt: skip
        self.graph, self.groups, self.kernels, self.plan, self.target = graph, tuple(groups), tuple(kernels), plan, target
        calls = [
            Invoke(kernel.main.symbol, tuple(plan[v] for v in (*group.inputs, *group.outputs, *group.scratch)), kernel.sizes)
            for group, kernel in zip(self.groups, self.kernels, strict=True)
        ]
        self.steps: tuple[Step, ...] = plan.steps(calls)
        self.codes = {k.main.symbol: k.main.code for k in self.kernels}
        self.keeping = keeping(self.codes)
        self.bases = [*weights, ARENA, *map(input_base, range(len(graph.inputs)))]
        self.bases += [output_base(n) for n, v in enumerate(graph.outputs) if v.name not in donated]
        labels = [kernel_label(k.func) for k in self.kernels]
        super().__init__(
            graph.name, graph.inputs, graph.outputs, weights, plan.nbytes, labels,
            len(labels) + sum(1 for _ in copies(self.steps)), target.num_cores, donated,
        )  # fmt: skip
        if not backend(target).missing(target):
            self._run  # noqa: B018 (loaded here, and not in the first call, or in several at once)

    def __reduce__(self) -> tuple[Any, ...]:
        own = self.joined()
        graph = own.graph.with_(constants={})  # they lie in the weights
        return _restored, (graph, own.groups, own.kernels, own.plan, np.asarray(own.weights[WEIGHTS]), own.target, own.donated)

    def joined(self) -> Model:
        """The model with its constants in one block; itself unless it shares several."""
        if self.weights.keys() == {WEIGHTS}:
            return self
        store = Constants()
        graph, plan, weights = store.shared(self.graph, self.plan)
        return Model(graph, self.groups, self.kernels, plan, weights, self.target, self.donated)

    @cached_property
    def _functions(self) -> tuple[Entry, Entry | None, Entry | None]:
        return loaded(self.bases, self.steps, self.codes, self.target)

    def _native(self, written: bool) -> Entry:
        return checked_entry(self, written)

    def _fault(self, step: int, status: int) -> Exception:
        nodes = " and ".join(f"`{name}`" for name in _nodes_of(self.groups[step]))
        return failure(self.kernels[step].kernel.main.lowered, status, name=f"{self.name}: {self.labels[step]}, of {nodes}")

    def _about(self) -> Sequence[tuple[PrimFunc | None, tuple[Any, ...]]]:
        operations = {func: flop(func) for func in {k.func for k in self.kernels}}
        return [
            (k.func, (_nodes_of(g), operations[k.func], sum(v.nbytes for v in (*g.inputs, *g.outputs))))
            for g, k in zip(self.groups, self.kernels, strict=True)
        ]

    def save(self, path: str | Path, *, compiler: str | None = None) -> Path:
        """Write the network to one file, which `tir.load` maps into memory in milliseconds, without a compiler or onnx; returns
        its path. `compiler` links it (default: cc, gcc or clang); without one of these, loading needs llvmlite.

        The file holds machine code for the model's target, and weights as its kernels read them. Raises ExportError.
        """
        from .export import save

        return save(self.joined(), path, compiler=compiler)

    def export(self, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
        """Write the network as a shared library (.so) or object file (.o); returns the path of the C header `<name>.h` beside it.
        The file `<name>.weights`, beside it too, is to be mapped into memory.

        `name` is the C function's, by default as the file without "lib" and suffix; `compiler` links the library (default: cc,
        gcc or clang). Neither Python nor LLVM is needed to use them. The kernels are compiled anew. Raises ExportError.
        """
        from .export import export

        return export(self.joined(), path, name, compiler=compiler)


def loaded(
    bases: Sequence[str], steps: Sequence[Step], codes: Mapping[str, bytes], target: Target
) -> tuple[Entry, Entry | None, Entry | None]:
    """The functions of a network (see `Network._functions`) of these steps, and of kernels as object files by their symbols."""
    text = entry(ENTRY, bases, steps, keeping(codes), timed=True)
    objects, runtime, limit = [object_code(text, target), *codes.values()], {}, None
    if any(map(calls_openmp, codes.values())):
        names = [f"{ENTRY}{THREADS}", LIMITED]
        threads = Library([object_code(limited_threads(ENTRY, target.num_cores), target)], names, target)
        limit, runtime = threads.function(names[0], 1), {PARALLEL: threads.address(LIMITED)}
    library = Library(objects, [ENTRY, f"{ENTRY}{TIMED}"], target, runtime)
    return library.function(ENTRY, len(bases)), library.function(f"{ENTRY}{TIMED}", len(bases) + 1), limit


def checked_entry(network: Network, written: bool) -> Entry:
    """The entry of a network as a function of arrays (see `Network._native`)."""
    named = [*(_bytes(f"block.{n}", b.nbytes) for n, b in enumerate(network._blocks)), _bytes(ARENA, network.arena_nbytes)]
    params = [*named, *map(buffer, (*network.inputs, *network.made))]
    names = {*network.donated.values(), *(v.name for v in network.made if written)}  # new arrays overlap no other
    return native_call(network._functions[0], params, names, short=False)


def _bytes(name: str, count: int) -> Buffer:
    return Buffer(name, (Const(count),), "uint8")


def _nodes_of(group: Group) -> tuple[str, ...]:
    """The nodes that the calls of a group are from; the value that a call makes where its node is not known."""
    return tuple(dict.fromkeys(c.node or v.name for c in group.calls for v in c.outputs))


def kernel_label(func: PrimFunc) -> str:
    """The label of a group's function: its operators, the shapes of its first two inputs and of its last output."""
    *inputs, output = ("x".join(map(str, b.shape)) or "scalar" for b in func.buffers)
    return f"{func.name}({', '.join(inputs[:2])}) -> {output}"


def _restored(
    graph: Graph, groups: Sequence[Group], kernels: Sequence[GroupKernel], plan: MemoryPlan, weights: np.ndarray, target: Target,
    donated: Mapping[str, str],
) -> Model:  # fmt: skip
    """A model that was pickled."""
    graph, block = with_constants(graph, plan, weights)
    return Model(graph, groups, kernels, plan, {WEIGHTS: block}, target, donated)
