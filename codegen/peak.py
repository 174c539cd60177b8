"""What this machine can do, measured: the arithmetic peak, with independent chains of vector fused multiply-adds that never touch
memory, and the bandwidth of copying from memory to memory, with stores that bypass the caches."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from .openmp import library
from .target import Target

ROUNDS = 5

LARGEST = 1 << 29  # bytes of an array that is copied, at most
LEAST = 1 << 26

COPIED = 4  # vectors that an iteration of the copy moves


def peak_flops(target: Target | str = "llvm", *, threads: int | None = None, dtype: str = "float32") -> float:
    """Floating-point operations a second that `threads` threads (default: the target's) reach together; a fused multiply-add is
    two.

    `dtype` is float32 or float64, and the vectors are as wide as the target's registers. Takes some 20 ms a round; the best of a
    few counts. ValueError for another dtype, or a target that is not this processor's kind.
    """
    target = Target(target)
    if target.kind != "llvm":
        raise ValueError(f"the peak is measured on this processor, not for {target}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"the peak is measured in float32 or float64, not {dtype!r}")
    threads = threads or target.num_cores
    chains = 16 if target.registers >= 32 else 12  # they must fit the registers, 32 or 16, and outnumber latency x units
    lanes = target.lanes(32 if dtype == "float32" else 64)
    run, _ = _kernel(target, chains, lanes, "float" if dtype == "float32" else "double")

    iterations = 1000
    while (elapsed := _together([partial(run, iterations)])) < 2e-3 and iterations < 1 << 40:
        iterations *= 4
    iterations = max(1, int(iterations * 5e-3 / elapsed))
    seconds = min(_together([partial(run, iterations)] * threads) for _ in range(ROUNDS))
    return threads * iterations * chains * lanes * 2 / seconds


def copy_bandwidth(target: Target | str = "llvm", *, threads: int | None = None) -> float:
    """Bytes a second, read and written added up, that `threads` threads (default: the target's) reach together in copying an
    array to another.

    The arrays are four times the last cache, between 64 and 512 MiB, and are kept for the next call. The stores are
    non-temporal: ordinary ones would first read what they overwrite, as the C library's memcpy does below some size, so that it
    reaches about two thirds of this. What only reads moves less a second on one core, some nine tenths: loads alone keep fewer
    lines on their way. The best of a few copies counts. ValueError for a target that is not this processor's kind.
    """
    target = Target(target)
    if target.kind != "llvm":
        raise ValueError(f"the bandwidth is measured on this processor, not for {target}")
    threads = threads or target.num_cores
    lanes = target.lanes(32)
    step = COPIED * 4 * lanes  # bytes an iteration
    share = max(1, min(LARGEST, max(LEAST, 4 * target.l3)) // (step * threads)) * step  # bytes a thread
    source, destination = _arrays(threads * share)
    run, _ = _copy_kernel(target, lanes)
    starts = range(0, threads * share, share)
    works = [partial(run, destination.ctypes.data + start, source.ctypes.data + start, share) for start in starts]
    return 2 * threads * share / min(_together(works) for _ in range(ROUNDS))


def copier(nbytes: int, target: Target | str = "llvm", *, threads: int | None = None) -> Callable[[], None]:
    """A function that copies `nbytes` bytes or slightly fewer, once a call, as `copy_bandwidth` does, with threads of the OpenMP
    runtime: to be timed in turns with what else moves as much. ValueError for a target that is not this processor's kind, or
    less than a line a thread."""
    target = Target(target)
    if target.kind != "llvm":
        raise ValueError(f"the bandwidth is measured on this processor, not for {target}")
    threads = threads or target.num_cores
    lanes = target.lanes(32)
    step = COPIED * 4 * lanes
    share = nbytes // (step * threads) * step
    if not share:
        raise ValueError(f"{nbytes} bytes are too few for {threads} threads: each copies {step} or more")
    source, destination = _arrays(threads * share)
    run, _ = _copy_kernel(target, lanes)

    def part(context: int | None) -> None:
        start = number() * share
        run(destination.ctypes.data + start, source.ctypes.data + start, share)

    if threads == 1:
        return partial(run, destination.ctypes.data, source.ctypes.data, share)
    runtime = library()
    number, each = runtime.omp_get_thread_num, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(part)
    return lambda: runtime.GOMP_parallel(each, None, threads, 0)


def _together(works: Sequence[Callable[[], object]]) -> float:
    """Seconds until the last of these has ended, each on a thread of its own and all started at once."""
    if len(works) == 1:
        start = time.perf_counter()
        works[0]()
        return time.perf_counter() - start
    barrier = threading.Barrier(len(works))
    spans: list[tuple[float, float]] = []

    def timed(work: Callable[[], object]) -> None:
        barrier.wait()
        start = time.perf_counter()
        work()
        spans.append((start, time.perf_counter()))

    workers = [threading.Thread(target=timed, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _source(chains: int, lanes: int, scalar: str) -> str:
    vector = f"<{lanes} x {scalar}>"
    suffix = f"v{lanes}f{32 if scalar == 'float' else 64}"
    each = range(chains)
    phis = "\n".join(f"  %a{c} = phi {vector} [ %start{c}, %entry ], [ %b{c}, %loop ]" for c in each)
    steps = "\n".join(f"  %b{c} = call {vector} @llvm.fma.{suffix}({vector} %a{c}, {vector} %x, {vector} %y)" for c in each)
    starts = "\n".join(f"  %start{c} = insertelement {vector} %x, {scalar} {c + 1}.0, i32 0" for c in each)
    sums = [f"  %s0 = fadd {vector} %b0, %b1"]
    sums += [f"  %s{c - 1} = fadd {vector} %s{c - 2}, %b{c}" for c in range(2, chains)]
    return f"""
declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})

define void @peak(i64 %n, {scalar}* %data) {{
entry:
  %x1 = load {scalar}, {scalar}* %data
  %x0 = insertelement {vector} zeroinitializer, {scalar} %x1, i32 0
  %x = shufflevector {vector} %x0, {vector} zeroinitializer, <{lanes} x i32> zeroinitializer
  %y = fadd {vector} %x, %x
{starts}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
{chr(10).join(sums)}
  %sum = extractelement {vector} %s{chains - 2}, i32 0
  store {scalar} %sum, {scalar}* %data
  ret void
}}
""".replace(f"{scalar}*", "ptr")


@cache
def _arrays(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of bytes that start at multiples of 64, in memory that has been touched."""
    raw = [np.zeros(nbytes + 64, np.uint8) for _ in range(2)]
    for array in raw:
        array[:: 1 << 12] = 1
    return tuple(array[(start := -array.ctypes.data % 64) : start + nbytes] for array in raw)  # type: ignore[return-value]


def _copy_source(lanes: int) -> str:
    vector, size = f"<{lanes} x float>", 4 * lanes
    each = [(k, k * size) for k in range(COPIED)]
    loads = [f"  %p{k} = getelementptr i8, ptr %p, i64 {at}\n  %v{k} = load {vector}, ptr %p{k}, align {size}" for k, at in each]
    stores = [
        f"  %q{k} = getelementptr i8, ptr %q, i64 {at}\n  store {vector} %v{k}, ptr %q{k}, align {size}, !nontemporal !0"
        for k, at in each
    ]
    return f"""
define void @copy(ptr noalias %to, ptr noalias %from, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
{chr(10).join(loads + stores)}
  %next = add i64 %i, {COPIED * size}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""


@cache
def _kernel(target: Target, chains: int, lanes: int, scalar: str):
    """A function of the number of iterations, and what must stay alive for it."""
    address, engine = _compiled(_source(chains, lanes, scalar), "peak", target)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address)

    def run(iterations: int) -> None:
        data = ctypes.c_float(0.5) if scalar == "float" else ctypes.c_double(0.5)
        function(iterations, ctypes.byref(data))

    return run, engine


@cache
def _copy_kernel(target: Target, lanes: int):
    """A function of two addresses and the number of bytes, and what must stay alive for it."""
    address, engine = _compiled(_copy_source(lanes), "copy", target)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address), engine


def _compiled(source: str, name: str, target: Target):
    """The address of a function of a module, and what must stay alive for it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(source)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=target.mcpu, features=target.mattr, opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine.get_function_address(name), engine
