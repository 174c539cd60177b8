"""A network that can be called: its machine code, its weights, arrays in and out. It needs no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.processor import host_cores
from codegen.runtime.memory import DECLINED, address, aligned_memory, maker
from tir.arrays import result_conversion
from tir.display import aligned_columns

from .arguments import arranged, given_in_order, named_outputs, refuse_overlap, writable
from .ir import GraphError, Value

if TYPE_CHECKING:
    from tir.ir import PrimFunc

Entry = Callable[..., int]  # a native function of addresses, which returns a status

NO_MEMORY = 1  # the status of a call without memory for temporaries, as in `codegen.runtime.faults`
LAP_WORDS = 2  # of 64 bits for a step of a timed entry: its nanoseconds, and the number of its runs


@dataclass(frozen=True)
class KernelTime:
    """The `seconds` of all `calls` of a kernel in one run; `func` is its function, None for copies and in a loaded model."""

    name: str
    seconds: float
    calls: int
    func: PrimFunc | None = field(default=None, repr=False)


@dataclass(frozen=True)
class NodeTime:
    """The time of a call of a kernel in one run of the network: `seconds` of all its `runs`, of which loops have several. `nodes`
    are those that its calls are from, or the values that these make, `flop` and `nbytes` its operations and the bytes of its
    arrays. Of code alone they are not known."""

    kernel: str
    seconds: float
    runs: int
    nodes: tuple[str, ...] = ()
    flop: int | None = None
    nbytes: int | None = None

    @property
    def name(self) -> str:
        """The first and the last of its nodes; the kernel's name without any."""
        return " … ".join(dict.fromkeys((*self.nodes[:1], *self.nodes[-1:]))) or self.kernel

    def share(self, peak: float, bandwidth: float) -> float | None:
        """The part of the time that the machine needs at least, by `peak` operations and `bandwidth` bytes a second."""
        if self.flop is None or self.nbytes is None or not self.seconds:
            return None
        return self.runs * max(self.flop / peak, self.nbytes / bandwidth) / self.seconds


@dataclass(frozen=True)
class Profile:
    """The seconds of one run: of kernels, slowest first, and of copies; `nodes` has the calls of kernels in order."""

    kernels: tuple[KernelTime, ...]
    copying: float
    nodes: tuple[NodeTime, ...] = field(default=(), repr=False)

    def by_node(self, peak: float, bandwidth: float) -> str:
        """A table of the calls in order, with their shares of the bound of a machine (see `NodeTime.share`)."""
        from codegen.runtime.timing import duration

        rows: list[tuple[str, ...]] = [("node", "time", "operations", "bytes", "of the bound")]
        for n in self.nodes:
            share = n.share(peak, bandwidth)
            numbers = ("" if x is None else f"{x:,}" for x in (n.flop, n.nbytes))
            rows.append((n.name, duration(n.seconds, 3), *numbers, "" if share is None else f"{share:.1%}"))
        return aligned_columns(rows)

    def trace(self, peak: float, bandwidth: float) -> dict[str, Any]:
        """The calls one after the other as events, in microseconds, of the Trace Event Format of Chrome and Perfetto."""
        events, begin = [], 0.0
        for n in (*self.nodes, NodeTime("copies", self.copying, 1)):
            known = {"runs": n.runs, "flop": n.flop, "bytes": n.nbytes, "share": n.share(peak, bandwidth), "kernel": n.kernel}
            about = {"nodes": list(n.nodes), **{k: v for k, v in known.items() if v is not None}}
            times = {"ts": round(1e6 * begin, 3), "dur": round(1e6 * n.seconds, 3)}
            events.append({"name": n.name, "cat": n.kernel, "ph": "X", "pid": 0, "tid": 0, **times, "args": about})
            begin += n.seconds
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels) + self.copying

    def __str__(self) -> str:
        from codegen.runtime.timing import duration

        parts = [*self.kernels, KernelTime("copies", self.copying, 1)]
        rows = [(r.name, str(r.calls), duration(r.seconds, 3), f"{r.seconds / self.seconds:.1%}") for r in parts]
        return aligned_columns([("kernel", "calls", "time", "share"), *rows, ("", "", duration(self.seconds, 3), "")])


class Network:
    """A network that can be called. `inputs` and `outputs` are its values. `weights` are the blocks of memory of its constants,
    by name: one, or several where models share them. `donated` names inputs by the outputs that take their memory; `made` are the
    other outputs.

    Each call has an arena of `arena_nbytes` bytes of its own, which later calls reuse, so any number of threads may call a
    network at the same time. `labels` are those of the kernels in the order of their calls, `num_steps` counts copies, too.
    """

    def __init__(
        self, name: str, inputs: tuple[Value, ...], outputs: tuple[Value, ...], weights: Mapping[str, np.ndarray],
        arena_nbytes: int, labels: Sequence[str], num_steps: int, threads: int, donated: Mapping[str, str] = {},
    ):  # fmt: skip
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.weights, self.arena_nbytes = dict(weights), arena_nbytes
        self._blocks = tuple(weights.values())
        self.labels, self.num_steps, self.max_threads = tuple(labels), num_steps, threads
        self.donated = dict(donated)
        self.made = tuple(v for v in outputs if v.name not in self.donated)
        self._new_outputs = [maker(v.shape, v.dtype) for v in self.made]
        self._arenas: list[np.ndarray] = []  # of calls that have ended, at most one for each core

    # --- what a subclass has: native code --------------------------------------------------------------------------------

    @cached_property
    def _functions(self) -> tuple[Entry, Entry | None, Entry | None]:
        """The entry, a function of the addresses of blocks, arena, inputs and outputs; its variant that takes times, if any;
        and the function that sets and returns the number of threads, None where no kernel has several."""
        raise NotImplementedError

    def _native(self, written: bool) -> Entry:
        """The entry as a function of arrays, which returns DECLINED for others; `written` if output arrays are the caller's."""
        return lambda *arrays: DECLINED

    def _fault(self, step: int, status: int) -> Exception:
        """The exception for a status of the kernel of a step."""
        return ZeroDivisionError(f"{self.name}: {self.labels[step]}: an integer is divided by zero; the results are undefined")

    # --- calls -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _run(self) -> Entry:
        return self._native(False)

    @cached_property
    def _run_into(self) -> Entry:
        return self._native(True)

    def __call__(self, *inputs, out: Any = None) -> list[Any]:
        """The outputs, new arrays in the order of `outputs`, for inputs in the order of `inputs`, or a dict of them.

        Inputs are arrays of numpy or other libraries; outputs are of the first library that is not numpy. With `out`, one array
        or several in order or by name, outputs are written there, and no array is made. An output that has the memory of a
        donated input is that input, and not in `out`. Elements of inputs are not checked: an
        index out of bounds, as into an embedding, becomes the nearest one inside. Raises GraphError for a missing input, another
        shape or element type, and an `out` that cannot be written or overlaps another array; MemoryError without memory for a
        kernel's temporaries; ZeroDivisionError for a division of an integer by zero; UnsupportedProcessor for a target that this
        processor cannot run, which is for `export`.
        """
        if out is not None:
            return self._into(inputs, named_outputs(self.name, self.made, out))
        outputs = [new() for new in self._new_outputs]
        if self._called(self._run, inputs, outputs) == DECLINED:
            given = given_in_order(self, inputs)
            self._called_at(self._arranged(given), outputs)
            return self._results(given, self._like(given, outputs))
        return self._results(inputs, outputs) if self.donated else outputs

    def _into(self, inputs: tuple, outputs: list[Any]) -> list[Any]:
        if self._called(self._run_into, inputs, outputs) == DECLINED:
            given = given_in_order(self, inputs)
            arrays = self._arranged(given)
            self._called_at(arrays, self._writable(arrays, outputs))
            inputs = tuple(given)
        return self._results(inputs, outputs) if self.donated else outputs

    def bind(self, *inputs, outputs: Any = None) -> Callable[[], list[Any]]:
        """A function without arguments: the call with these arrays, kept alive and read anew each time. `outputs` are arrays to
        write, as `out` of a call; without, each call makes new ones. Raises as a call does."""
        given = given_in_order(self, inputs)
        arrays = self._arranged(given)
        if outputs is not None:
            own = named_outputs(self.name, self.made, outputs)
            return self._bound(arrays, self._writable(arrays, own), self._results(given, own))
        call = partial(self, *arrays)
        if result_conversion(given) is None:
            return call
        return lambda: self._results(given, self._like(given, call(), self.outputs))

    def _bound(self, arrays: Sequence[np.ndarray], memory: Sequence[np.ndarray], results: list[Any]) -> Callable[[], list[Any]]:
        def call() -> list[Any]:
            if self._called(self._run_into, arrays, memory) == DECLINED:
                self._called_at(arrays, memory)
            return results

        return call

    def _results(self, inputs: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """All outputs: those that a call made, or has them already, and the inputs in whose memory the others lie."""
        if not self.donated or len(made) == len(self.outputs):
            return list(made)
        given = dict(zip((v.name for v in self.inputs), inputs, strict=True))
        own = iter(made)
        return [given[self.donated[v.name]] if v.name in self.donated else next(own) for v in self.outputs]

    def _arranged(self, given: Sequence[Any]) -> list[np.ndarray]:
        """The arrays of inputs; those that are donated must be such that a call can change them."""
        arrays = arranged(self, given)
        changed = {*self.donated.values()}
        kinds = [f"input `{v.name}`" for v in self.inputs]
        found = {what: writable(v, a, "input") for what, v, a in zip(kinds, self.inputs, given, strict=True) if v.name in changed}
        refuse_overlap(self.name, found, dict(zip(kinds, arrays, strict=True)))
        return arrays

    def _writable(self, inputs: Sequence[np.ndarray], outputs: Sequence[Any]) -> list[np.ndarray]:
        """The memory of arrays for outputs, none of which overlaps another array of the call."""
        found = {f"output `{v.name}`": writable(v, a, "output") for v, a in zip(self.made, outputs, strict=True)}
        refuse_overlap(self.name, found, {f"input `{v.name}`": a for v, a in zip(self.inputs, inputs, strict=True)})
        return list(found.values())

    def _like(self, inputs: Sequence[Any], outputs: Sequence[np.ndarray], values: Sequence[Value] | None = None) -> list[Any]:
        """Arrays of `values`, by default the outputs that a call makes, as those of the library of the inputs."""
        back = result_conversion(inputs)
        if back is None:
            return list(outputs)
        return [back.of(a, v.dtype) for a, v in zip(outputs, self.made if values is None else values, strict=True)]

    def _called_at(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], *further: np.ndarray) -> None:
        """Run once, on arrays of the right shapes and element types; `further` are for the entry that takes times."""
        entry = self._functions[1 if further else 0]
        assert entry is not None
        self._called(lambda *given: entry(*map(address, given)), [*map(_readable, inputs)], [*outputs, *further])

    def _called(self, run: Entry, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> int:
        """The status of `run` on blocks, arena, inputs and outputs, 0 or DECLINED. Raises other statuses."""
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = aligned_memory(self.arena_nbytes)
        if arena.nbytes < self.arena_nbytes:  # of a call at other sizes
            arena = aligned_memory(self.arena_nbytes)
        whole = arena.nbytes == self.arena_nbytes
        status = run(*self._blocks, arena if whole else arena[: self.arena_nbytes], *inputs, *outputs)
        if len(self._arenas) < host_cores():  # as many calls as can run at once
            self._arenas.append(arena)
        if status not in (0, DECLINED):
            raise self._failure(status)
        return status

    def _failure(self, status: int) -> Exception:
        """The exception for a status."""
        if status == NO_MEMORY:
            return MemoryError(f"{self.name}: no memory for the temporaries of its kernels")
        from codegen.llvm.program import STEP

        step, status = divmod(status, STEP)
        return self._fault(step - 1, status)

    # --- questions -------------------------------------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """The number of threads of each kernel, at most the one that it was compiled for. It may be set, for calls that begin
        later. Raises ValueError for another number."""
        limit = self._functions[2]
        return self.max_threads if limit is None else limit(0)

    @threads.setter
    def threads(self, number: int) -> None:
        if not isinstance(number, (int, np.integer)) or not 1 <= number <= self.max_threads:
            most = f"{self.max_threads}, the number that {self.name} was compiled for"
            raise ValueError(f"threads must be 1 to {most}, got {number!r}")
        if (limit := self._functions[2]) is not None:
            limit(int(number))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<{type(self).__name__} {self.name}({inputs}) -> {outputs}>"

    def __str__(self) -> str:
        """The inputs and outputs by name, and the memory of weights, of the arena of a call, and of caches."""
        lines = [f"network {self.name}, {len(self.labels)} kernels, at most {self.max_threads} thread(s)"]
        values = [*(("input", v) for v in self.inputs), *(("output", v) for v in self.outputs)]
        lines += [f"  {kind} {v}, {v.nbytes:,} bytes" for kind, v in values]
        lines += [f"  weights: {sum(b.nbytes for b in self._blocks):,} bytes", f"  arena of a call: {self.arena_nbytes:,} bytes"]
        if kept := {*self.donated.values()}:
            caches = sum(v.nbytes for v in self.inputs if v.name in kept)
            lines.append(f"  inputs that are changed in place: {caches:,} bytes")
        return "\n".join(lines) + "\n"

    def profile(self, *inputs, runs: int = 10) -> Profile:
        """The profile of a call: each kernel's time in `runs` runs of the whole network, after one to warm up. It is the lower
        quartile, because disturbances only make calls slower.

        Inputs are as in a call. Raises GraphError as that does.
        """
        if self._functions[1] is None:
            raise GraphError(f"{self.name}: a library that was exported takes no times; Model.save writes one that does")
        arrays = self._arranged(given_in_order(self, inputs))
        laps = np.zeros((runs + 1, self.num_steps, LAP_WORDS), np.int64)
        for row in laps:
            self._called_at(arrays, [new() for new in self._new_outputs], row)
        typical = (1e-9 * np.quantile(laps[1:, :, 0], 0.25, axis=0)).tolist()
        counts, about = laps[-1, :, 1].tolist(), self._about()
        found: dict[tuple[str, PrimFunc | None], tuple[float, int]] = {}
        for label, (func, _), seconds, count in zip(self.labels, about, typical, counts, strict=False):  # copies come after them
            total, calls = found.get((label, func), (0.0, 0))
            found[label, func] = total + seconds, calls + count
        rows = [KernelTime(label, seconds, calls, func) for (label, func), (seconds, calls) in found.items()]
        nodes = [NodeTime(*call, *known) for *call, (_, known) in zip(self.labels, typical, counts, about, strict=False)]
        return Profile(tuple(sorted(rows, key=lambda r: -r.seconds)), sum(typical[len(self.labels) :]), tuple(nodes))

    def _about(self) -> Sequence[tuple[PrimFunc | None, tuple[Any, ...]]]:
        """The function of each call of a kernel and the last fields of its `NodeTime`, as far as they are known."""
        return [(None, ())] * len(self.labels)


def _readable(array: np.ndarray) -> np.ndarray:
    """An array as kernels read it: itself where it has no gaps and is aligned to its elements, else a copy."""
    return np.require(array, requirements=("C", "A"))
