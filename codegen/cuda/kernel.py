"""Kernels for a GPU: machine code that checks its arguments, launches, times itself and reports its resources."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from tir import dtypes
from tir.arith.enumeration import evaluate
from tir.empty import written_names
from tir.ir import Buffer, PrimFunc
from tir.script.outline import signature_text

from ..runtime.arguments import argument_words
from ..runtime.signature import LibraryOfOne
from ..runtime.timing import Timing, sampled
from .banks import excess_sectors, ways
from .compile import Cubin, Resources
from .driver import (
    DeviceArray,
    Module,
    array_description,
    attribute,
    call,
    current_context,
    launch,
    synchronize,
    temporary_memory,
)
from .emit import CudaSource
from .launch import launches
from .program import Program

_LOADING = Lock()  # of modules and functions
ARRAY_ALIGNMENT = 16  # bytes, of every buffer, for vector loads


@dataclass(frozen=True)
class CudaReport:
    """The resources of each kernel of a function, by NVRTC's assembler, its threads and dynamic shared memory in bytes, and its
    worst bank conflict (`banks.ways`: 1 without any) and request of global memory (`banks.excess_sectors`: 0 at best)."""

    kernels: tuple[Resources, ...]
    threads: tuple[int, ...]
    dynamic: tuple[int, ...]
    ways: tuple[int, ...]
    sectors: tuple[int, ...]

    @property
    def spills(self) -> int:
        """The bytes that registers spill, over all kernels."""
        return sum(k.spill_stores + k.spill_loads for k in self.kernels)

    def __str__(self) -> str:
        head = (
            f"{'kernel':24} {'threads':>7} {'registers':>9} {'spills':>7} {'stack':>6} {'shared':>7} {'ways':>4} {'sectors':>7}"
        )
        rows = [
            f"{k.name:24} {threads:7} {k.registers:9} {k.spill_stores + k.spill_loads:7} {k.stack:6} {k.shared + dynamic:7} "
            f"{ways:4} {sectors:7}"
            for k, threads, dynamic, ways, sectors in zip(
                self.kernels, self.threads, self.dynamic, self.ways, self.sectors, strict=True
            )
        ]
        return "\n".join([head, *rows])


class CudaKernel(LibraryOfOne):
    """A function compiled for a GPU. Call it with arrays on the device (and ints for sizes) in the order of `func.params`, or by
    name; omitted outputs are made (`driver.DeviceArray`) and returned, omitted sizes follow from shapes (see `Kernel`).

    `source` is its CUDA C and `code` the CUBIN; neither needs a GPU.
    """

    def __init__(self, program: Program, source: CudaSource, binary: Cubin, target: Any):
        self.program, self.target, self.binary = program, target, binary
        self.func: PrimFunc = program.func
        self.source, self._source = source.text, source
        self.code = binary.code
        self._module: Module | None = None
        self._written = written_names(self.func).union(*(k.written for k in program.kernels))

    def __repr__(self) -> str:
        return f"<CudaKernel {signature_text(self.func)} for {self.target}>"

    def __getstate__(self) -> dict[str, Any]:
        """The pickled state, without objects on the device."""
        return {name: value for name, value in vars(self).items() if name != "_signature"} | {"_module": None}

    def report(self) -> CudaReport:
        """Registers, spills, shared memory and its conflicts of each kernel; no GPU is needed."""
        known, kernels = {r.name: r for r in self.binary.resources}, self.program.kernels
        found = list(zip(kernels, self._source.accesses, strict=True))
        conflicts = tuple(max([1, *(ways(x, k, ranges) for x in all_ if x.shared)]) for k, (all_, ranges) in found)
        sectors = tuple(max([0, *(excess_sectors(x, k, ranges) for x in all_ if not x.shared)]) for k, (all_, ranges) in found)
        rows = tuple(known[k.name] for k in kernels)
        return CudaReport(rows, tuple(prod(k.block) for k in kernels), self._source.shared_bytes, conflicts, sectors)

    def _function(self, name: str, shared: int) -> Any:
        """A kernel on the device, of the module that the first call of all threads loads."""
        with _LOADING:
            if self._module is None:
                self._module = Module(self.code)
            return self._module.function(name, shared)

    def __call__(self, *arrays: Any, stream: int = 0, **named: Any) -> Any:
        """Launch on a stream (a CUstream as an int; 0 is the default one) without waiting. Returns None where all arguments
        are given; else the outputs, one or a tuple of them.

        Any thread may call, on any stream, also on one that is captured into a graph; then the kernel and its arguments, all
        given, must live as long as the graph. Raises ArgumentError for arrays that do not fit, DeviceError for errors of the
        driver.
        """
        with current_context():
            arguments, results = self._bound(arrays, named, stream)
            with self._prepared(arguments, stream) as steps:
                for step in steps:
                    step(stream)
        return results()

    def _bound(self, arrays: tuple, named: dict[str, Any], stream: int = 0) -> tuple[list[Any], Callable[[], Any]]:
        return self._signature.bound(arrays, named, lambda a, p: a, partial(_new_array, stream), make_like=False)

    @contextmanager
    def _prepared(self, arrays: Sequence[Any], stream: int = 0) -> Iterator[list[Callable[[int], None]]]:
        """The launches of one call, each a function of the stream, with memory for temporaries in the order of the stream."""
        alive: list[Any] = []
        words = argument_words(self.func, self._written, arrays, partial(self._address, alive, stream))
        sizes = {p.name: words[p.name] for p in self.func.params if not isinstance(p, Buffer)}
        with temporary_memory([_nbytes(b, sizes) for b in self.program.temporaries], stream) as addresses:
            words |= {b.name: address for b, address in zip(self.program.temporaries, addresses, strict=True)}
            yield self.steps(words, sizes)

    def steps(self, words: Mapping[str, int], sizes: Mapping[str, int]) -> list[Callable[[int], None]]:
        """The launches of one call, each a function of the stream, with buffers and temporaries at the addresses `words`."""
        steps: list[Callable[[int], None]] = []
        for number, grid, scalars in launches(self.program, sizes):
            k, shared = self.program.kernels[number], self._source.shared_bytes[number]
            values = tuple(words[p.name] if isinstance(p, Buffer) else scalars[p.name] for p in k.params)
            types = tuple(ctypes.c_void_p if isinstance(p, Buffer) else getattr(ctypes, f"c_{p.dtype}") for p in k.params)
            steps.append(partial(launch, self._function(k.name, shared), grid, k.block, shared, values=values, types=types))
        return steps

    def _address(self, alive: list[Any], stream: int, p: Buffer, a: Any, wanted: tuple[int, ...]) -> int:
        address = checked_address(p, a, wanted, alive, stream)
        if p.name in self._written and isinstance(a, DeviceArray):
            a.stream = stream
        return address

    def time(
        self, *arrays: Any, seconds: float = 0.2, runs: int = 10, max_runs: int = 200, flush: bool = True, **named: Any
    ) -> Timing:
        """Time launches with CUDA events: after one warm-up, at least `runs` samples and `seconds` in all.

        Between samples the second-level cache is overwritten (twice its size), unless `flush` is False; kernels that take less
        than 50 microseconds are then launched several times a sample.
        """
        arguments, _ = self._bound(arrays, named)
        scratch = DeviceArray((2 * attribute("L2_CACHE_SIZE"),), np.uint8) if flush else None
        with current_context(), self._prepared(arguments) as steps:
            return _timed(steps, scratch, seconds, runs, max_runs)


def _timed(
    steps: Sequence[Callable[[int], None]], scratch: DeviceArray | None, seconds: float, runs: int, max_runs: int
) -> Timing:
    """Time launches on the default stream, each sample after `scratch` is overwritten."""
    flush = scratch is not None

    def once() -> None:
        for step in steps:
            step(0)

    def sample(calls: int) -> float:
        if scratch is not None:
            call("cuMemsetD8Async", scratch.pointer, 0, scratch.nbytes, 0)
        call("cuEventRecord", start, 0)
        for _ in range(calls):
            once()
        call("cuEventRecord", end, 0)
        call("cuEventSynchronize", end)
        return float(call("cuEventElapsedTime", start, end)) * 1e-3 / calls

    start, end = call("cuEventCreate", 0), call("cuEventCreate", 0)
    try:
        once()
        synchronize()
        first = sample(1)
        calls = 1 if flush or first >= 50e-6 else min(100, int(50e-6 / max(first, 1e-6)) + 1)
        return sampled(lambda: sample(calls), calls, seconds, runs, max_runs)
    finally:
        call("cuEventDestroy", start)
        call("cuEventDestroy", end)


def checked_address(p: Buffer, a: Any, wanted: tuple[int, ...], alive: list[Any], stream: int) -> int:
    """The address of an array on the device for a buffer. The object that keeps it alive is added to `alive`.

    Raises TypeError for an array that does not fit.
    """
    address, shape, dtype, contiguous, owner = array_description(a, stream)
    if shape != wanted:
        raise TypeError(f"must have shape {wanted}, got {shape}")
    if dtype not in (p.dtype, dtypes.storage(p.dtype).name):
        raise TypeError(f"must have dtype {p.dtype}, got {dtype}")
    if not contiguous:
        raise TypeError("must be C-contiguous")
    if address % ARRAY_ALIGNMENT:
        raise TypeError(f"must be aligned to {ARRAY_ALIGNMENT} bytes, address {address:#x}; pass a copy")
    alive.append(owner)
    return address


def _new_array(stream: int, shape: tuple[int, ...], dtype: str, zeros: bool) -> DeviceArray:
    """An array on the device, not initialised, or of zeros in the order of a stream."""
    made = DeviceArray(shape, dtypes.storage(dtype), dtype)
    made.stream = stream
    if zeros and made.nbytes:
        call("cuMemsetD8Async", made.pointer, 0, made.nbytes, stream)
    return made


def _nbytes(b: Buffer, sizes: Mapping[str, int]) -> int:
    return prod(int(evaluate(d, sizes)) for d in b.shape) * dtypes.nbytes(b.dtype)
