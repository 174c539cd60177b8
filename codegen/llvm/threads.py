"""Parallel loops: functions of their own, which the threads of the OpenMP runtime run on shares of the iterations."""

from __future__ import annotations

from tir.ir import Const, For

from ..passes.loop_schedule import CHUNKS_PER_THREAD, Chunks, chunks
from . import cores
from .values import Frame, Value
from .writer import Writer

CONTEXT_HEADER_WORDS = 5  # words of the context that every parallel loop has


class Threads(Writer):
    """Writes parallel loops."""

    def parallel_loop(self, s: For) -> None:
        """Write the loop as a function of its own, which each thread runs on its share of the iterations.

        The threads share a context of words: the number of iterations, the status of a failure, the next iteration to take, core
        and identity of the caller, then pointers and scalars of the body.
        """
        how = chunks(s)
        n = self.index(s.extent)
        if not isinstance(s.extent, Const):  # a guard that became the extent may make it negative
            n = self.intrinsic("smax", n, 0)
        number = len(self.module.functions)
        worker, passed, parameters = self.inner(s, share=True)
        self.module.functions.append("")  # keeps the numbers of inner functions apart
        worker.share(s, how)
        body = f"@tir.parallel.{number}"
        signature = ", ".join(["i64 %n", "ptr %failure", "ptr %counter", *map(str, parameters)])
        self.module.functions[number] = worker.finish(f"define internal void {body}({signature}) noinline #0")
        context = self.fresh("context")
        self.entry.append(f"{context} = alloca [{CONTEXT_HEADER_WORDS + len(passed)} x i64], align 8")
        unpack = ["%n = load i64, ptr %context"]
        unpack += [f"%{name} = getelementptr i64, ptr %context, i64 {i}" for i, name in enumerate(("failure", "counter"), 1)]
        arguments = ["i64 %n", "ptr %failure", "ptr %counter"]
        for i, value in enumerate((n, Value("0", "i64"), Value("0", "i64"), *self._caller(), *passed)):
            place = self.op(f"getelementptr i64, ptr {context}, i64 {i}", "ptr")
            self.line(f"store {value}, ptr {place.name}")
            if i >= CONTEXT_HEADER_WORDS:
                unpack += [f"%p{i} = getelementptr i64, ptr %context, i64 {i}", f"%v{i} = load {value.type}, ptr %p{i}"]
                arguments.append(f"{value.type} %v{i}")
        text = "\n  ".join([*self._part(), *unpack, f"call void {body}({', '.join(arguments)})", "ret void"])
        self.module.functions.append(f"define internal void {body}.share(ptr %context) #0 {{\nentry:\n  {text}\n}}")
        self.module.declarations.add("declare void @GOMP_parallel(ptr, ptr, i32, i32)")
        self.line(f"call void @GOMP_parallel(ptr {body}.share, ptr {context}, i32 {self.module.target.num_cores}, i32 0)")
        if worker.fails or worker.heap:
            place = self.op(f"getelementptr i64, ptr {context}, i64 1", "ptr")
            failure = self.convert("trunc", self.op(f"load i64, ptr {place.name}", "i64"), "i32")
            self.leave_if(self.compare("ne", failure, 0), failure)

    @property
    def _moving(self) -> bool:
        """True where threads leave the core of their caller."""
        return cores.AVAILABLE and self.module.target.move_threads

    def _caller(self) -> tuple[Value, Value]:
        """The core and the identity of this thread, whose core the others of the loop leave; zeros where none do."""
        if not self._moving:
            return Value("0", "i64"), Value("0", "i64")
        self.module.declarations |= set(cores.DECLARATIONS)
        self.module.library[cores.NAME] = cores.definition()
        core = self.op("call i32 @sched_getcpu()", "i32")
        return self.op(f"sext i32 {core.name} to i64", "i64"), self.op("call i64 @pthread_self()", "i64")

    def _part(self) -> list[str]:
        """The code that a thread runs before its share: see `cores`."""
        if not self._moving:
            return []
        return [
            "%core.at = getelementptr i64, ptr %context, i64 3",
            "%core = load i64, ptr %core.at",
            "%mine.here = call i32 @sched_getcpu()",
            "%mine = sext i32 %mine.here to i64",
            "%together = icmp eq i64 %mine, %core",
            "br i1 %together, label %leave, label %work",
            "leave:",
            "%caller.at = getelementptr i64, ptr %context, i64 4",
            "%caller = load i64, ptr %caller.at",
            f"call void @{cores.NAME}(i64 %core, i64 %caller, i64 {self.module.target.num_cores})",
            "br label %work",
            "work:",
        ]

    def share(self, s: For, how: Chunks) -> None:
        """Write the iterations of a parallel loop, of `%n` in all, that the calling thread takes."""
        thread, threads = ("0", "1") if how.dynamic else self._team()
        if how.size is None and not how.dynamic:
            later = self.op(f"add i64 {thread}, 1", "i64").name
            first, last = (
                self.op(f"udiv i64 {self.op(f'mul i64 %n, {t}', 'i64').name}, {threads}", "i64") for t in (thread, later)
            )
            self.serial_loop(s, first, last)
            return
        size = str(how.size) if how.size is not None else self._part_of_share()
        self.declare("llvm.smin.i64", "i64", ["i64", "i64"])
        head, work, done = self.label("take"), self.label("chunk"), self.label("taken")
        parent = self.top
        first = Value(self.fresh("first"), "i64")
        self.frames.append(Frame(work))
        end = self.op(f"add i64 {first.name}, {size}", "i64")
        self.serial_loop(s, first, self.op(f"call i64 @llvm.smin.i64({end}, i64 %n)", "i64"))
        frame = self.frames.pop()
        if how.dynamic:
            take = [f"{first.name} = atomicrmw add ptr %counter, i64 {size} monotonic"]
            step = []
        else:
            start = self.op(f"mul i64 {thread}, {size}", "i64")
            stride = self.op(f"mul i64 {threads}, {size}", "i64")
            later = self.fresh("first")
            take = [f"{first.name} = phi i64 [ {start.name}, %{parent.label} ], [ {later}, %{frame.label} ]"]
            step = [f"{later} = add i64 {first.name}, {stride.name}"]
        more = self.fresh("more")
        parent.lines += [
            f"br label %{head}",
            f"{head}:",
            *take,
            f"{more} = icmp slt i64 {first.name}, %n",
            f"br i1 {more}, label %{work}, label %{done}",
            f"{work}:",
            *frame.lines,
            *step,
            f"br label %{head}",
            f"{done}:",
        ]
        parent.label = done

    def _part_of_share(self) -> str:
        """The iterations of a chunk such that each thread takes CHUNKS_PER_THREAD of them."""
        part = self.op(f"udiv i64 %n, {CHUNKS_PER_THREAD * self.module.target.num_cores}", "i64")
        return self.intrinsic("umax", part, 1).name

    def _team(self) -> tuple[str, str]:
        """The number of this thread, and the number of threads."""
        result = []
        for question in ("thread_num", "num_threads"):
            self.module.declarations.add(f"declare i32 @omp_get_{question}()")
            answer = self.op(f"call i32 @omp_get_{question}()", "i32")
            result.append(self.op(f"zext {answer} to i64", "i64").name)
        return result[0], result[1]
