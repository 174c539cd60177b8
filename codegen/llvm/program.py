"""The entry of a program: one native function that runs its steps, which are calls of kernels, copies and loops."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from itertools import count

from ..runtime.faults import NO_MEMORY, PLACES
from ..steps import Carried, Copy, Invoke, Place, Repeat, Step, Word, invokes
from .scratch import RELEASE

STEP = 2 * PLACES  # more than any status of a kernel
TIMED = ".timed"  # suffix to the name of an entry, for the one that also records how long each step took
CLOCK = 6 if sys.platform == "darwin" else 1  # CLOCK_MONOTONIC of the C library
LAP_WORDS = 2  # 64-bit words for a step: its nanoseconds, and the number of its runs
THREADS = ".threads"  # suffix to the name of an entry, for the function that limits its threads
PARALLEL, LIMITED = "GOMP_parallel", "tir.parallel"  # OpenMP's function that runs a parallel loop, and the one in its place


def entry(name: str, bases: Sequence[str], steps: Sequence[Step], keeping: Collection[str], timed: bool = False) -> str:
    """The LLVM module of `i32 <name>(ptr <base>, ...)`, which runs the steps in order. It returns 0, or NO_MEMORY as soon as a
    kernel does. To any other status but 0 it adds STEP times the number of the kernel in order, from 1 on, and returns it.

    `keeping` are the symbols of kernels that keep memory; `void <name>.release()` frees it. With `timed` there is also `i32
    <name>.timed(ptr <base>, ..., ptr %times)`, which adds to LAP_WORDS words of each step its nanoseconds and its runs: those of
    kernels in order, then those of copies.
    """
    declared = {
        f"declare i32 @{s.symbol}({', '.join(['ptr'] * len(s.arguments) + ['i64'] * len(s.sizes))})" for s in invokes(steps)
    }
    declared |= {"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)", "declare i32 @clock_gettime(i32, ptr)"}
    functions = [_Entry(bases, steps, timed=False).text(name)]
    if timed:
        functions += [_Entry([*bases, "times"], steps, timed=True).text(f"{name}{TIMED}"), LAP]
    if keeping:
        declared |= {f"declare void @{symbol}{RELEASE}()" for symbol in keeping}
        calls = [f"call void @{symbol}{RELEASE}()" for symbol in sorted(keeping)]
        functions.append("\n  ".join([f"define void @{name}{RELEASE}() nounwind {{", *calls, "ret void"]) + "\n}")
    return "\n\n".join(["\n".join(sorted(declared)), *functions, "!0 = !{}"]) + "\n"


LAP = f"""
define internal void @tir.lap(ptr %last, ptr %lap) nounwind {{
  %now = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 {CLOCK}, ptr %now)
  %parts = getelementptr inbounds i64, ptr %now, i64 1
  %seconds = load i64, ptr %now
  %part = load i64, ptr %parts
  %whole = mul i64 %seconds, 1000000000
  %end = add i64 %whole, %part
  %begin = load i64, ptr %last
  store i64 %end, ptr %last
  %took = sub i64 %end, %begin
  %before = load i64, ptr %lap
  %sum = add i64 %before, %took
  store i64 %sum, ptr %lap
  %at = getelementptr inbounds i64, ptr %lap, i64 1
  %runs = load i64, ptr %at
  %more = add i64 %runs, 1
  store i64 %more, ptr %at
  ret void
}}""".strip()


class _Entry:
    """The text of an entry as it grows. `label` is the current block; `failing` has status, number and block of each kernel."""

    def __init__(self, bases: Sequence[str], steps: Sequence[Step], timed: bool):
        self.bases, self.timed, self.lines, self.label = bases, timed, list[str](), "entry"
        self.failing: list[tuple[str, int, str]] = []
        self.registers, self.kernels, self.loops = count(), count(), dict[str, int]()
        self.copies = count(sum(1 for _ in invokes(steps)))
        if timed:
            self.lines += ["%last = alloca i64", "%first = alloca [2 x i64]", "call void @tir.lap(ptr %last, ptr %first)"]
        self.steps(steps)

    def text(self, name: str) -> str:
        head = f"define i32 @{name}({', '.join(f'ptr %{base}' for base in self.bases)}) nounwind {{"
        body = ["entry:", *self.lines, "ret i32 0"]
        if self.failing:
            body += [
                "fail:",
                f"%status = phi i32 {', '.join(f'[ {status}, %{at} ]' for status, _, at in self.failing)}",
                f"%step = phi i32 {', '.join(f'[ {(n + 1) * STEP}, %{at} ]' for _, n, at in self.failing)}",
                f"%memory = icmp eq i32 %status, {NO_MEMORY}",
                "%coded = add i32 %step, %status",
                f"%result = select i1 %memory, i32 {NO_MEMORY}, i32 %coded",
                "ret i32 %result",
            ]
        return "\n".join([head, *(x if x.endswith(":") else f"  {x}" for x in body), "}"])

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Repeat():
                    self._repeat(step)
                case Copy():
                    to, source, nbytes = self._pointer(step.target), self._pointer(step.source), self._number(step.nbytes)
                    self.lines.append(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)")
                    self._lap(next(self.copies))
                case Invoke():
                    self._invoke(step, next(self.kernels))

    def _invoke(self, step: Invoke, number: int) -> None:
        given = [*(f"ptr {self._pointer(a)}" for a in step.arguments), *(f"i64 {self._number(size)}" for size in step.sizes)]
        status = self._set(f"call i32 @{step.symbol}({', '.join(given)})")
        self.failing.append((status, number, self.label))
        failed = self._set(f"icmp ne i32 {status}, 0")
        self._branch(failed, "fail", f"done{number}", f"done{number}")
        self._lap(number)

    def _repeat(self, step: Repeat) -> None:
        times, i, before = self._count(step), self._at(step.loop), self.label
        loop, going, body, end = (f"{part}.{self.loops[step.loop]}" for part in ("loop", "going", "body", "end"))
        entered = body if step.going is None else going
        self.lines += [f"br label %{loop}", f"{loop}:"]
        head = len(self.lines)
        more = self._set(f"icmp slt i64 {i}, {times}")
        self._branch(more, entered, end, entered)
        if step.going is not None:
            goes = self._set(f"icmp ne i8 {self._set(f'load i8, ptr {self._pointer(step.going)}')}, 0")
            self._branch(goes, body, end, body)
        self.steps(step.steps)
        following = self._set(f"add i64 {i}, 1")
        self.lines.insert(head, f"{i} = phi i64 [ 0, %{before} ], [ {following}, %{self.label} ]")
        self.lines += [f"br label %{loop}", f"{end}:"]
        self.label = end
        self.steps(step.after)

    def _at(self, loop: str) -> str:
        """The register of the iteration of a loop, which has a number, as names of files may have any letters."""
        return f"%at.{self.loops.setdefault(loop, len(self.loops))}"

    def _count(self, step: Repeat) -> str:
        return str(step.count) if isinstance(step.count, int) else self._set(f"load i64, ptr {self._pointer(step.count)}")

    def _branch(self, condition: str, yes: str, no: str, label: str) -> None:
        """End the current block by a branch, and begin the block `label`."""
        self.lines += [f"br i1 {condition}, label %{yes}, label %{no}", f"{label}:"]
        self.label = label

    def _lap(self, number: int) -> None:
        if self.timed:
            at = self._set(f"getelementptr inbounds i64, ptr %times, i64 {LAP_WORDS * number}")
            self.lines.append(f"call void @tir.lap(ptr %last, ptr {at})")

    def _set(self, value: str) -> str:
        """A new register with a value."""
        register = f"%r{next(self.registers)}"
        self.lines.append(f"{register} = {value}")
        return register

    def _number(self, number: int) -> str:
        if not isinstance(number, Word):
            return str(number)
        at = self._set(f"getelementptr inbounds i64, ptr %{self.bases[0]}, i64 {int(number)}")
        return self._set(f"load i64, ptr {at}, !invariant.load !0")

    def _pointer(self, place: Place) -> str:
        """A register with an address in this step of all loops around."""
        if isinstance(place, Carried):
            first, later = self._pointer(place.first), self._pointer(place.later)
            begins = self._set(f"icmp eq i64 {self._at(place.loop)}, 0")
            return self._set(f"select i1 {begins}, ptr {first}, ptr {later}")
        pointer = self._set(f"getelementptr i8, ptr %{place.base}, i64 {self._number(place.offset)}")
        for move in place.moves:
            step = self._at(move.loop)
            step = self._set(f"sub i64 {step}, {move.before}") if move.before else step
            step = self._set(f"and i64 {step}, {move.turns - 1}") if move.turns else step
            pointer = self._set(f"getelementptr i8, ptr {pointer}, i64 {self._set(f'mul i64 {step}, {move.stride}')}")
        return pointer


def limited_threads(name: str, threads: int, parallel: str = PARALLEL, limited: str = LIMITED) -> str:
    """The LLVM module of `i32 <name>.threads(i32)`, which sets the most threads, unless it is given 0, and returns them: at first
    `threads`. The function `limited` runs a parallel loop, as `parallel` does, by so many threads at most."""
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
