"""The kernels of groups: found in a cache of compiled ones, else scheduled and compiled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cached_property

from codegen import Kernel, ObjectCache, Target, backend
from codegen.cache import compiler_sources, data_key
from codegen.constants import split_constants
from codegen.llvm.build import build, llvm_ir
from codegen.llvm.compile import Library
from codegen.llvm.emit import symbol
from codegen.processor import host_cores, host_processor
from search.compilation import looked_up, scheduled
from search.records import Lookup, Records
from tir.ir import Buffer, Const, PrimFunc, const_shape
from tir.notices import degraded
from tir.verify.bounds import refuse_out_of_bounds

NAME_DIGITS = 8  # digits of the hash that tells apart the kernels of one name in a network
MIN_COMPILED_ALONE = 4  # least number of compiled functions whose mean time is taken for that of the others
MIN_SHARED_SECONDS = 6.0  # least seconds of one core left to do for which worker processes pay: each starts in 1 to 2


@dataclass(frozen=True)
class CompiledFunction:
    """A compiled function: its symbol in the object file `code`, and its parameters: `params`, then the lent `scratch` memory."""

    symbol: str
    params: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    code: bytes

    @classmethod
    def of(cls, kernel: Kernel) -> CompiledFunction:
        params = kernel.func.buffers
        return cls(symbol(kernel.func), params, kernel.lowered.buffers[len(params) :], kernel.code)


@dataclass(frozen=True, eq=False)
class GroupKernel:
    """The function of some groups, compiled as `name`. `main` runs at each call; `preparation` runs once, if there are values to
    compute from constants. `lookup` is the result of the search in the records."""

    func: PrimFunc
    name: str
    target: Target
    lookup: Lookup | None
    main: CompiledFunction
    preparation: CompiledFunction | None = None
    sizes: tuple[int, ...] = ()  # that `main` takes after its arrays, where it is for open ones

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel by itself, which shows its schedule, its assembly and so on. It is scheduled and compiled anew."""
        return _build_kernel(scheduled(self.func, self.target, self.lookup).func, self.target)

    def preparing(self) -> Callable[..., int]:
        """`preparation` as a function of addresses, compiled for this processor where it cannot run the target's."""
        part, target = self.preparation, self.target
        assert part is not None
        if backend(target).missing(target):
            target = Target("llvm", num_cores=target.num_cores, mcpu=host_processor()[0])
            func, _ = split_constants(scheduled(self.func, self.target, self.lookup).func.with_(name=self.name))
            assert func is not None
            part = CompiledFunction.of(build(func, target, None))
        return Library([part.code], [part.symbol], target).function(part.symbol, len(part.params))

    def llvm_ir(self) -> str:
        """The LLVM IR of `main`, under the name that it has in a network."""
        func = scheduled(self.func, self.target, self.lookup).func.with_(name=self.name)
        return llvm_ir(split_constants(func)[1], self.target, lent=True)


def _build_kernel(func: PrimFunc, target: Target, lent: bool = False) -> Kernel:
    """The kernel that `tir.build` makes for a processor, or one whose scratch memory is `lent` by its caller."""
    refuse_out_of_bounds(func)
    return build(func, target, None, lent)


def compiled(
    funcs: Iterable[PrimFunc], target: Target, records: Records | None, cache: ObjectCache | None
) -> dict[PrimFunc, GroupKernel]:
    """The kernel of each function, with the fastest schedule that is recorded, else the default one.

    Warns of records that are for another target or processor (NearHit).
    """
    jobs, found = compiled_jobs(KernelJob, funcs, target, records, cache)
    parts = {func: main_and_preparation(data) for func, data in found.items()}
    return {func: GroupKernel(func, job.name, target, job.lookup, *parts[func]) for func, job in jobs.items()}


def compiled_jobs(
    kind: type[KernelJob], funcs: Iterable[PrimFunc], target: Target, records: Records | None, cache: ObjectCache | None
) -> tuple[dict[PrimFunc, KernelJob], dict[PrimFunc, bytes]]:
    """The job of each function, and its result, cached or made now. Warns of records for another target (NearHit)."""
    jobs = {func: kind.of(func, target, looked_up(func, target, records)) for func in dict.fromkeys(funcs)}
    if missed := [job.lookup for job in jobs.values() if job.lookup is not None and job.lookup.record is None]:
        degraded(f"{len(missed)} of {len(jobs)} kernels are not tuned, default schedules are used: {missed[0].why}")
    found = {} if cache is None else {func: data for func, job in jobs.items() if (data := cache.get(job.key)) is not None}
    missing = {func: job for func, job in jobs.items() if func not in found}
    for (func, job), data in zip(missing.items(), _compile_all(list(missing.values())), strict=True):
        found[func] = data
        if cache is not None:
            cache.put(job.key, data)
    return jobs, found


@dataclass(frozen=True)
class KernelJob:
    """A function to be scheduled and compiled as `name`; `key` is a hash of everything that the result depends on."""

    func: PrimFunc
    target: Target
    lookup: Lookup | None
    key: str

    @classmethod
    def of(cls, func: PrimFunc, target: Target, lookup: Lookup | None) -> KernelJob:
        record = None if lookup is None else lookup.record
        recorded = [] if record is None else [record.measurement.candidate.trace]
        described = [compiler_sources(__file__), asdict(target), recorded, func.script()]
        return cls(func, target, lookup, data_key(described))

    @property
    def name(self) -> str:
        return f"{self.func.name}_{self.key[:NAME_DIGITS]}"

    def done(self) -> bytes:
        """The parts of the kernel, encoded."""
        kernel = _build_kernel(scheduled(self.func, self.target, self.lookup).func.with_(name=self.name), self.target, lent=True)
        return encoded([CompiledFunction.of(part) for part in kernel.parts])


def _compile_all(jobs: Sequence[KernelJob]) -> Iterator[bytes]:
    """The results of jobs, in order. Worker processes share the rest once it is estimated to take MIN_SHARED_SECONDS."""
    begin = time.process_time()
    for n, job in enumerate(jobs):
        if n == 1:  # the first has loaded the modules that all of them need
            begin = time.process_time()
        if n >= MIN_COMPILED_ALONE and host_cores() > 1:
            expected = (time.process_time() - begin) / max(1, n - 1) * (len(jobs) - n)
            if expected > MIN_SHARED_SECONDS:
                yield from _compile_in_processes(jobs[n:])
                return
        yield job.done()


def _compile_in_processes(jobs: Sequence[KernelJob]) -> Iterator[bytes]:
    """The results of jobs, in order, by a worker process for each core; by this process after one of them dies."""
    from joblib import Parallel, delayed

    done, kind = 0, type(jobs[0])
    try:
        for data in Parallel(n_jobs=host_cores(), return_as="generator", batch_size=1)(delayed(kind.done)(j) for j in jobs):
            yield data
            done += 1
    except BrokenProcessPool:
        yield from (job.done() for job in jobs[done:])


def encoded(parts: Sequence[CompiledFunction]) -> bytes:
    """Parts as bytes: a line of JSON, then the codes."""
    types = [[[(b.name, const_shape(b), b.dtype) for b in buffers] for buffers in (p.params, p.scratch)] for p in parts]
    heads = [(p.symbol, *both, len(p.code)) for p, both in zip(parts, types, strict=True)]
    return json.dumps(heads).encode() + b"\n" + b"".join(p.code for p in parts)


def decoded(data: bytes) -> list[CompiledFunction]:
    """The parts that `encoded` wrote."""
    line, _, codes = data.partition(b"\n")
    parts = []
    for name, *types, length in json.loads(line):
        params, scratch = (tuple(Buffer(n, tuple(map(Const, shape)), dtype) for n, shape, dtype in found) for found in types)
        parts.append(CompiledFunction(name, params, scratch, codes[:length]))
        codes = codes[length:]
    return parts


def main_and_preparation(data: bytes) -> tuple[CompiledFunction, CompiledFunction | None]:
    """The parts of a kernel that `encoded` wrote."""
    main, *others = decoded(data)
    return main, others[0] if others else None
