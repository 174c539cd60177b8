"""Networks on a GPU: kernels, weights and an arena on the device, and one CUDA graph a call.

A call copies its inputs into memory of the graph, launches it, and copies the outputs out, all in the order of the caller's
stream. Calls that overlap have memory and a graph each. Values that would not begin at a multiple of ARRAY_ALIGNMENT bytes inside
of a larger one, as parts of a Concat may, are copied to and from aligned memory.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from codegen import ObjectCache, Target, build
from codegen.cuda import CudaKernel
from codegen.cuda.driver import (
    Captured,
    DeviceArray,
    Event,
    call,
    current_context,
    is_capturing,
    on_device,
    synchronize,
    temporary_memory,
)
from codegen.cuda.kernel import ARRAY_ALIGNMENT, checked_address
from codegen.steps import Copy, Invoke, Place, Step, resolved
from schedule.machine import MAX_ACCESS_BYTES
from schedule.templates.gpu.tensor_cores import MIN_EXTENT
from search.compilation import scheduled
from search.planning import Plan, measure
from search.records import Records
from tir import dtypes
from tir.arrays import result_conversion
from tir.display import aligned_columns
from tir.ir import Buffer, PrimFunc, const_shape
from tir.traverse import fresh

from .arguments import arranged, given_in_order, named_outputs
from .fusion import Group, fuse
from .ir import Call, Graph, GraphError, Value
from .kernels import KernelJob, compiled_jobs
from .memory import ARENA, WEIGHTS, MemoryPlan, buffer, input_base, output_base
from .memory import plan as planned_memory
from .model import kernel_label
from .network import KernelTime, Profile
from .passes import PASSES, optimize
from .passes.channels import convolve_channels_last
from .passes.loops import write_out_loops
from .passes.precision import Precision, in_precision
from .passes.quantised import stay_quantised
from .places import places
from .prepare import filled

MAX_IDLE_RUNS = 8  # runs that are kept for later calls, each an arena and a graph


@dataclass(frozen=True)
class DeviceReport:
    """The kernels of a network on a GPU: label, calls, launches a call, threads, registers, spilled bytes of a thread, and bytes
    of shared memory of a block. `arena` and `weights` are bytes of device memory."""

    rows: tuple[tuple[str, int, int, int, int, int, int], ...]
    arena: int
    weights: int

    @property
    def launches(self) -> int:
        return sum(calls * launches for _, calls, launches, *_ in self.rows)

    @property
    def spills(self) -> int:
        return sum(row[5] for row in self.rows)

    def __str__(self) -> str:
        head = ("kernel", "calls", "launches", "threads", "registers", "spills", "shared")
        table = aligned_columns([head, *([*map(str, row)] for row in self.rows)])
        return f"{table}\n{self.launches} launches a call; {self.weights:,} bytes of weights, {self.arena:,} of an arena"


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """The function of some groups, compiled as `name`."""

    func: PrimFunc
    name: str
    kernel: CudaKernel

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """The buffers between the kernels of the function."""
        return self.kernel.program.temporaries


class DeviceJob(KernelJob):
    """A function to be scheduled and compiled for a GPU."""

    def done(self) -> bytes:
        func = scheduled(self.func, self.target, self.lookup).func.with_(name=self.name)
        return pickle.dumps(build(func, self.target))


def final(
    graph: Graph,
    target: Target,
    winograd: bool = True,
    precision: Precision | None = None,
    forms: Mapping[str, str] | None = None,
) -> Graph:
    """A graph after all passes but those that choose by the cycles of a processor, in a precision if that is given. Products of
    quantised numbers are of integers, and convolutions of halves have their channels last."""
    graph = write_out_loops(graph)
    passes = _stay_integers, *PASSES
    graph = optimize(graph if precision is None else in_precision(graph, precision, passes, device=True), passes)
    moved = convolve_channels_last(graph, _copies_whole)
    return graph if moved is graph else optimize(moved, PASSES)


def _stay_integers(graph: Graph) -> Graph:
    """Products of quantised numbers as those of integers, where weights are large enough for tensor cores, and integers between
    them."""

    def choose(integer: Call, today: Call) -> bool:
        *steps, results = integer.values[1].shape
        return min(prod(steps), results) >= MIN_EXTENT

    return stay_quantised(graph, choose)


def _copies_whole(last: Call, first: Call) -> bool:
    """True where the results of a convolution at a pixel, which the next one reads, fill whole copies to shared memory."""
    taps = last.values[1]
    return taps.shape[-1] * dtypes.nbytes(taps.dtype) % MAX_ACCESS_BYTES == 0


def assembled(
    graph: Graph,
    target: Target,
    records: Records | None,
    cache: ObjectCache | None,
    plan: Plan = "estimate",
    *,
    donate: Any = None,
) -> DeviceModel:
    """A graph after all passes as a network on a GPU. ValueError for inputs to `donate`."""
    if donate:
        raise ValueError(f"donate is for processors, target llvm, got {target.kind}")
    groups = fuse(graph, halves=True)
    if plan == "measure" and records is not None:
        measure((g.func for g in groups), target, records)
    jobs, found = compiled_jobs(DeviceJob, (g.func for g in groups), target, records, cache)
    made = {f: DeviceKernel(f, job.name, pickle.loads(found[f])) for f, job in jobs.items()}
    kernels = [made[g.func] for g in groups]
    inside, taken = places(graph), graph.names()
    for n, (group, kernel) in enumerate(zip(groups, kernels, strict=True)):
        name = group.outputs[0].name
        between = [(f"{name}.{b.name}", const_shape(b), b.dtype) for b in kernel.scratch]
        apart = [(f"{v.name}.aligned", v.shape, v.dtype) for v in _unaligned(group, inside)]
        scratch = tuple(Value(fresh(taken, wanted), shape, dtype) for wanted, shape, dtype in (*between, *apart))
        groups[n] = replace(group, scratch=scratch)
    layout = planned_memory(graph, groups)
    graph, weights = filled(graph, layout, [])
    return DeviceModel(graph, groups, kernels, layout, weights, target)


def _unaligned(group: Group, inside: Any) -> list[Value]:
    """The inputs and outputs of a group that begin at no multiple of ARRAY_ALIGNMENT bytes."""
    return [v for v in dict.fromkeys((*group.inputs, *group.outputs)) if inside[v].offset % ARRAY_ALIGNMENT]


class DeviceModel:
    """A network on a GPU. `graph` is the compiled graph, with the constants that kernels read; `kernels` has one kernel for each
    of its `groups`. `steps` are the kernels and copies of a call. No GPU is needed until it is called.

    Any number of threads may call it, on any streams.
    """

    def __init__(
        self, graph: Graph, groups: Sequence[Group], kernels: Sequence[DeviceKernel], plan: MemoryPlan, weights: np.ndarray,
        target: Target,
    ):  # fmt: skip
        self.graph, self.groups, self.kernels, self.plan, self.target = graph, tuple(groups), tuple(kernels), plan, target
        self.name, self.inputs, self.outputs, self.weights = graph.name, graph.inputs, graph.outputs, weights
        self._by_name = {k.name: k.kernel for k in self.kernels}
        self.steps: list[Step] = [s for g, k in zip(self.groups, self.kernels, strict=True) for s in _steps(g, k, plan)] + list(
            plan.copies
        )
        self._runs: list[_Run] = []  # of calls that have ended on the host
        self._uploaded: DeviceArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_runs": [], "_uploaded": None}

    def report(self) -> DeviceReport:
        """The resources of each kernel, the most called first; no GPU is needed."""
        calls = Counter(k.name for k in self.kernels)
        rows = []
        for k in {k.name: k for k in self.kernels}.values():
            found = k.kernel.report()
            shared = max(r.shared + more for r, more in zip(found.kernels, found.dynamic, strict=True))
            most = max(found.threads), max(r.registers for r in found.kernels), found.spills, shared
            rows.append((kernel_label(k.func), calls[k.name], len(found.kernels), *most))
        rows.sort(key=lambda row: -row[1])
        return DeviceReport(tuple(rows), self.plan.nbytes, self.plan.weights_nbytes)

    def __call__(self, *inputs: Any, out: Any = None, stream: int = 0) -> list[Any]:
        """The outputs, new arrays in the order of `outputs`, for inputs in the order of `inputs`, or a dict of them.

        With any input on the device (DLPack or `__cuda_array_interface__`), all work is in the order of `stream` and the call
        does not wait; outputs are `DeviceArray`, or those given as `out`. With inputs on the host alone the outputs are, too. On
        a stream that is captured, inputs and `out` are on the device, and live as long as the captured graph. Raises GraphError
        for arrays that do not fit, DeviceError for errors of the driver.
        """
        given = given_in_order(self, inputs)
        host = not any(map(on_device, given))
        with current_context():
            if is_capturing(stream):
                return self._captured(given, out, stream)
            run = self._idle()
            run.begin(stream)
            alive = [self._copied_in(v, a, at, stream) for v, a, at in zip(self.inputs, given, run.inputs, strict=True)]
            run.graph.launch(stream)
            if host and out is None:
                arrays = [at.numpy(stream) for at in run.outputs]
                results = self._like(given, arrays)
            else:
                results = (
                    named_outputs(self.name, self.outputs, out) if out is not None else [_new(v, stream) for v in self.outputs]
                )
                for value, at, array in zip(self.outputs, run.outputs, results, strict=True):
                    to = self._address(value, array, "output", stream, alive)
                    _copy(to, at.pointer, at.nbytes, stream)
                    if isinstance(array, DeviceArray):
                        array.stream = stream
            run.end(stream)
            if len(self._runs) < MAX_IDLE_RUNS:
                self._runs.append(run)
        return results

    def bind(self, *inputs: Any, outputs: Any = None, stream: int = 0) -> Callable[[], list[Any]]:
        """A function without arguments: the call with these arrays, kept alive and read anew each time."""
        given = given_in_order(self, inputs)
        return partial(self, *given, out=outputs, stream=stream)

    def profile(self, *inputs: Any, runs: int = 10) -> Profile:
        """The profile of a call: each kernel's median time by CUDA events in `runs` runs of the whole network, after one to warm
        up, launched one by one."""
        given = given_in_order(self, inputs)
        with current_context():
            run = self._idle()
            run.begin(0)
            _alive = [self._copied_in(v, a, at, 0) for v, a, at in zip(self.inputs, given, run.inputs, strict=True)]
            events = [Event() for _ in range(len(self.steps) + 1)]
            samples = np.empty((runs + 1, len(self.steps)))
            for row in samples:
                events[0].record(0)
                for event, launches in zip(events[1:], run.launches, strict=True):
                    for launch in launches:
                        launch(0)
                    event.record(0)
                synchronize()
                row[:] = [b.seconds_since(a) for a, b in pairwise(events)]
            run.end(0)
        medians = np.median(samples[1:], axis=0).tolist()
        found: dict[str, tuple[float, int]] = {}
        for step, seconds in zip(self.steps, medians, strict=True):
            name = step.symbol if isinstance(step, Invoke) else ""
            total, calls = found.get(name, (0.0, 0))
            found[name] = total + seconds, calls + 1
        copying, _ = found.pop("", (0.0, 0))
        funcs = {k.name: k.func for k in self.kernels}
        rows = [KernelTime(kernel_label(funcs[name]), s, calls, funcs[name]) for name, (s, calls) in found.items()]
        return Profile(tuple(sorted(rows, key=lambda r: -r.seconds)), copying)

    # --- parts of a call -------------------------------------------------------------------------------------------------

    def _like(self, given: Sequence[Any], outputs: list[np.ndarray]) -> list[Any]:
        back = result_conversion(given)
        return outputs if back is None else [back.of(a, v.dtype) for a, v in zip(outputs, self.outputs, strict=True)]

    def _captured(self, given: Sequence[Any], out: Any, stream: int) -> list[Any]:
        """Launch on a stream that is captured, at the caller's own arrays."""
        if out is None or not all(map(on_device, given)):
            raise GraphError(f"{self.name}: on a stream that is captured, inputs and `out` must be arrays on the device")
        results, alive = named_outputs(self.name, self.outputs, out), list[Any]()
        with ExitStack() as stack:
            (arena,) = stack.enter_context(temporary_memory([self.plan.nbytes], stream))
            bases = {WEIGHTS: self._weights().pointer, ARENA: arena}
            for base, what, values, arrays in (
                (input_base, "input", self.inputs, given), (output_base, "output", self.outputs, results),
            ):  # fmt: skip
                found = zip(values, arrays, strict=True)
                bases |= {base(n): self._address(v, a, what, stream, alive) for n, (v, a) in enumerate(found)}
            for launches in self.launches_at(bases):
                for launch in launches:
                    launch(stream)
        return results

    def _address(self, value: Value, array: Any, what: str, stream: int, alive: list[Any]) -> int:
        try:
            return checked_address(buffer(value), array, value.shape, alive, stream)
        except TypeError as error:
            raise GraphError(f"{what} `{value.name}` {error}") from None

    def _copied_in(self, value: Value, array: Any, to: DeviceArray, stream: int) -> Any:
        """The object that must live until an input is copied to the device."""
        if on_device(array):
            alive: list[Any] = []
            _copy(to.pointer, self._address(value, array, "input", stream, alive), to.nbytes, stream)
            return alive
        only = replace(self.graph, inputs=(value,))
        (read,) = arranged(only, [array])
        read = np.require(read, requirements=("C", "A"))
        if read.nbytes:
            call("cuMemcpyHtoDAsync", to.pointer, read.ctypes.data, read.nbytes, stream)  # pageable: read when it returns
        return read

    def _weights(self) -> DeviceArray:
        """The weights on the device, copied there once."""
        if self._uploaded is None:
            self._uploaded = DeviceArray.of(np.asarray(self.weights))
        return self._uploaded

    def _idle(self) -> _Run:
        try:
            return self._runs.pop()
        except IndexError:
            return _Run(self, self._weights())

    def launches_at(self, bases: Mapping[str, int]) -> list[list[Callable[[int], None]]]:
        """The launches of each step, functions of the stream, with the blocks of memory at these addresses."""
        found: list[list[Callable[[int], None]]] = []

        def at(place: Place) -> int:
            found = resolved(place, {})
            return bases[found.base] + found.offset

        for step in self.steps:
            match step:
                case Copy(target, source, nbytes):
                    found.append([partial(_copy, at(target), at(source), nbytes)])
                case Invoke(symbol, arguments):
                    kernel = self._by_name[symbol]
                    names = [b.name for b in (*kernel.func.buffers, *kernel.program.temporaries)]
                    words = {name: at(x) for name, x in zip(names, arguments, strict=True)}
                    found.append(kernel.steps(words, {}))
        return found


def _steps(group: Group, kernel: DeviceKernel, plan: MemoryPlan) -> Iterable[Step]:
    """The call of a kernel, between copies of what is not aligned."""
    between, apart = group.scratch[: len(kernel.scratch)], group.scratch[len(kernel.scratch) :]
    aligned = dict(zip(_unaligned(group, plan.places), apart, strict=True))
    for value in group.inputs:
        if value in aligned and value not in group.outputs:
            yield Copy(plan[aligned[value]], plan[value], value.nbytes)
    values = (*(aligned.get(v, v) for v in (*group.inputs, *group.outputs)), *between)
    yield Invoke(kernel.name, tuple(plan[v] for v in values))
    for value in group.outputs:
        if value in aligned:
            yield Copy(plan[value], plan[aligned[value]], value.nbytes)


def _copy(to: int, origin: int, nbytes: int, stream: int) -> None:
    if nbytes:
        call("cuMemcpyDtoDAsync", to, origin, nbytes, stream)


def _new(value: Value, stream: int) -> DeviceArray:
    made = DeviceArray(value.shape, dtypes.storage(value.dtype), value.dtype)
    made.stream = stream
    return made


class _Run:
    """Memory for one call at a time, and the CUDA graph of a call in it."""

    def __init__(self, model: DeviceModel, weights: DeviceArray):
        self._arena, self._weights = DeviceArray((model.plan.nbytes,), np.uint8), weights
        self.inputs, self.outputs = ([_new(v, 0) for v in values] for values in (model.inputs, model.outputs))
        bases = {WEIGHTS: weights.pointer, ARENA: self._arena.pointer}
        bases |= {input_base(n): a.pointer for n, a in enumerate(self.inputs)}
        bases |= {output_base(n): a.pointer for n, a in enumerate(self.outputs)}
        self.launches = model.launches_at(bases)
        self.graph = Captured([x for step in self.launches for x in step])
        self._ended: Event | None = None

    def begin(self, stream: int) -> None:
        """Have a stream wait for the last call in this memory."""
        if self._ended is not None:
            self._ended.block(stream)

    def end(self, stream: int) -> None:
        self._ended = self._ended or Event()
        self._ended.record(stream)
