"""The arithmetic peak of this machine, measured: independent chains of vector fused multiply-adds that never touch memory."""

from __future__ import annotations

import ctypes
import threading
import time
from functools import cache

from .target import Target

ROUNDS = 5


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
    chains = 16 if target.vector_bits >= 512 else 12  # they must fit the registers, 32 or 16, and outnumber latency x units
    lanes = target.lanes(32 if dtype == "float32" else 64)
    run, _ = _kernel(target, chains, lanes, "float" if dtype == "float32" else "double")

    iterations = 1000
    while (elapsed := _together(run, iterations, 1)) < 2e-3 and iterations < 1 << 40:
        iterations *= 4
    iterations = max(1, int(iterations * 5e-3 / elapsed))
    seconds = min(_together(run, iterations, threads) for _ in range(ROUNDS))
    return threads * iterations * chains * lanes * 2 / seconds


def _together(run, iterations: int, threads: int) -> float:
    """Seconds until the last of `threads` threads, started at once, has ended."""
    if threads == 1:
        start = time.perf_counter()
        run(iterations)
        return time.perf_counter() - start
    barrier = threading.Barrier(threads)
    spans: list[tuple[float, float]] = []

    def work() -> None:
        barrier.wait()
        start = time.perf_counter()
        run(iterations)
        spans.append((start, time.perf_counter()))

    workers = [threading.Thread(target=work) for _ in range(threads)]
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
def _kernel(target: Target, chains: int, lanes: int, scalar: str):
    """A function of the number of iterations, and what must stay alive for it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_source(chains, lanes, scalar))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=target.mcpu, features=target.mattr, opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("peak"))

    def run(iterations: int) -> None:
        data = ctypes.c_float(0.5) if scalar == "float" else ctypes.c_double(0.5)
        function(iterations, ctypes.byref(data))

    return run, engine
