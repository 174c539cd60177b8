"""The entry of a program: one native function that calls kernels one after the other, at addresses fixed in advance."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence

from ..runtime.faults import NO_MEMORY, PLACES
from ..steps import Copy, Invoke, Step, Word
from .scratch import RELEASE

STEP = 2 * PLACES
TIMED = ".timed"  # suffix to the name of an entry, for the one that also records when each step ended
CLOCK = 6 if sys.platform == "darwin" else 1  # CLOCK_MONOTONIC of the C library
TIMESPEC_WORDS = 2  # of 64 bits in its answer: seconds and nanoseconds
THREADS = ".threads"  # suffix to the name of an entry, for the function that limits its threads
PARALLEL, LIMITED = "GOMP_parallel", "tir.parallel"  # OpenMP's function that runs a parallel loop, and the one in its place


def entry(name: str, bases: Sequence[str], steps: Sequence[Step], keeping: Collection[str], timed: bool = False) -> str:
    """The LLVM module of `i32 <name>(ptr <base>, ...)`, which runs the steps in order. It returns 0, or NO_MEMORY as soon as a
    kernel does. To any other status of a kernel it adds STEP times the number of the step, from 1 on, and returns it.

    `keeping` are the symbols of kernels that keep memory; `void <name>.release()` frees it. With `timed` there is also `i32
    <name>.timed(ptr <base>, ..., ptr %times)`, which writes the time at its begin and after each step, TIMESPEC_WORDS words each.
    """
    declared = {
        f"declare i32 @{s.symbol}({', '.join(['ptr'] * len(s.arguments) + ['i64'] * len(s.sizes))})"
        for s in steps
        if isinstance(s, Invoke)
    }
    declared |= {"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)", "declare i32 @clock_gettime(i32, ptr)"}
    functions = [_function(name, bases, steps, timed=False)]
    if timed:
        functions.append(_function(f"{name}{TIMED}", [*bases, "times"], steps, timed=True))
    if keeping:
        declared |= {f"declare void @{symbol}{RELEASE}()" for symbol in keeping}
        calls = [f"call void @{symbol}{RELEASE}()" for symbol in sorted(keeping)]
        functions.append("\n  ".join([f"define void @{name}{RELEASE}() nounwind {{", *calls, "ret void"]) + "\n}")
    return "\n\n".join(["\n".join(sorted(declared)), *functions, "!0 = !{}"]) + "\n"


def _function(name: str, bases: Sequence[str], steps: Sequence[Step], timed: bool) -> str:
    lines = list(_clock(0)) if timed else []
    for n, step in enumerate(steps):
        lines += _step(n, step, bases[0])
        lines += _clock(n + 1) if timed else ()
    head = f"define i32 @{name}({', '.join(f'ptr %{base}' for base in bases)}) nounwind {{"
    body = ["entry:", *lines, "ret i32 0"]
    calls = [n for n, step in enumerate(steps) if isinstance(step, Invoke)]
    if calls:
        before = ["entry", *(f"done{n}" for n in calls)]
        places = [(n, f"%{label}") for n, label in zip(calls, before, strict=False)]
        body += [
            "fail:",
            f"%status = phi i32 {', '.join(f'[ %status{n}, {at} ]' for n, at in places)}",
            f"%step = phi i32 {', '.join(f'[ {(n + 1) * STEP}, {at} ]' for n, at in places)}",
            f"%memory = icmp eq i32 %status, {NO_MEMORY}",
            "%coded = add i32 %step, %status",
            f"%result = select i1 %memory, i32 {NO_MEMORY}, i32 %coded",
            "ret i32 %result",
        ]
    return "\n".join([head, *(x if x.endswith(":") else f"  {x}" for x in body), "}"])


def _step(n: int, step: Step, first: str) -> Iterator[str]:
    addresses = step.arguments if isinstance(step, Invoke) else (step.target, step.source)
    numbers = [*(a.offset for a in addresses), *(step.sizes if isinstance(step, Invoke) else [step.nbytes])]
    for m, number in enumerate(numbers):
        if isinstance(number, Word):
            yield f"%a{n}.{m} = getelementptr inbounds i64, ptr %{first}, i64 {int(number)}"
            yield f"%n{n}.{m} = load i64, ptr %a{n}.{m}, !invariant.load !0"
    texts = [f"%n{n}.{m}" if isinstance(number, Word) else str(number) for m, number in enumerate(numbers)]
    for m, address in enumerate(addresses):
        yield f"%p{n}.{m} = getelementptr inbounds i8, ptr %{address.base}, i64 {texts[m]}"
    if isinstance(step, Copy):
        yield f"call void @llvm.memcpy.p0.p0.i64(ptr %p{n}.0, ptr %p{n}.1, i64 {texts[-1]}, i1 false)"
        return
    given = [*(f"ptr %p{n}.{m}" for m in range(len(addresses))), *(f"i64 {text}" for text in texts[len(addresses) :])]
    yield f"%status{n} = call i32 @{step.symbol}({', '.join(given)})"
    yield f"%failed{n} = icmp ne i32 %status{n}, 0"
    yield f"br i1 %failed{n}, label %fail, label %done{n}"
    yield f"done{n}:"


def _clock(n: int) -> Iterator[str]:
    yield f"%t{n} = getelementptr inbounds i64, ptr %times, i64 {TIMESPEC_WORDS * n}"
    yield f"%ignored{n} = call i32 @clock_gettime(i32 {CLOCK}, ptr %t{n})"


def limited_threads(name: str, threads: int, parallel: str = PARALLEL, limited: str = LIMITED) -> str:
    """The LLVM module of `i32 <name>.threads(i32)`, which sets a number of threads, unless it is given 0, and returns it; this
    is `threads` at first. The function `limited` runs a parallel loop, as `parallel` does, by so many threads at most."""
    return f"""
@number = internal global i32 {threads}
declare void @{parallel}(ptr, ptr, i32, i32)
declare i32 @llvm.umin.i32(i32, i32)

define i32 @{name}{THREADS}(i32 %wanted) nounwind {{
entry:
  %sets = icmp ne i32 %wanted, 0
  br i1 %sets, label %set, label %answer
set:
  store atomic i32 %wanted, ptr @number monotonic, align 4
  br label %answer
answer:
  %number = load atomic i32, ptr @number monotonic, align 4
  ret i32 %number
}}

define void @{limited}(ptr %work, ptr %context, i32 %threads, i32 %flags) nounwind {{
  %most = load atomic i32, ptr @number monotonic, align 4
  %number = call i32 @llvm.umin.i32(i32 %threads, i32 %most)
  call void @{parallel}(ptr %work, ptr %context, i32 %number, i32 %flags)
  ret void
}}
""".lstrip()
