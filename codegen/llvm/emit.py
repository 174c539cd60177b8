"""LLVM IR, as text, from a lowered function.

The emitter writes straight into the loop where a value belongs: a pure integer expression or an address is computed in the
outermost loop in which all of its variables are known, once. Vectorised loops become vector values, conditions on lanes
become masks, register buffers become one stack slot each (which LLVM's SROA turns into SSA values), parallel loops become
functions run by OpenMP.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import gcd, prod
from typing import NamedTuple, TypeVar, assert_never

import numpy as np

from tir import dtypes
from tir.affine import Interval, Polynomial, add, multiply, polynomial, to_expr
from tir.analysis.regions import extent_range
from tir.ir import (
    COMPARISONS,
    Allocate,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    Node,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    annotation,
    conjunction,
    conjuncts,
)
from tir.simplify import bounds, prove, simplify, wraps
from tir.traverse import children, substitute, variables, walk, walk_stmts

from ..passes.chunks import Chunks, chunks
from ..passes.guards import loop_facts
from ..passes.lanes import updated
from ..passes.memory import NON_TEMPORAL, prefetches
from . import dot, halves, scratch
from . import math as vector_math

# The types of values; 16-bit floats are computed in float, and rounded after each operation.
TYPES = {
    "float64": "double", "float32": "float", "float16": "float", "bfloat16": "float", "bool": "i1",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "i64", "uint32": "i32", "uint16": "i16", "uint8": "i8",
}  # fmt: skip
STACK_LIMIT = 32 * 1024  # bytes; larger temporaries come from the heap
STACK_TOTAL = 256 * 1024  # bytes of temporaries on the stack of one function; threads may have little
ALIGNMENT = 64
LINE = 64  # bytes that a prefetch fetches
BUSY = 8  # vector registers that a statement needs beside accumulators and loads from in front of its loop
STREAMED = 16  # bytes: the alignment that non-temporal stores need, and the shortest that is worth one
STRIDES = (-1, 2, 3, 4)  # between lanes: loaded as rows and picked, not gathered
SMALL = 12  # nodes of a statement that is cheaper to run with an empty mask than to branch around


def symbol(func: PrimFunc) -> str:
    """The name of the compiled function in the object file, which is none of the C library's or LLVM's."""
    return f"tir_{ascii_name(func.name)}"


def ascii_name(name: str) -> str:
    """A name as LLVM IR and object files take it, up to the number that tells apart those that become the same."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


T = TypeVar("T")


class CodegenError(Exception):
    """A program that the backend cannot compile, with the reason and the statement."""


class Value(NamedTuple):
    """An SSA value: its text, the LLVM type of one element, and the number of lanes (1 is a scalar)."""

    name: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        return self.type if self.lanes == 1 else f"<{self.lanes} x {self.type}>"

    def __str__(self) -> str:
        return f"{self.full} {self.name}"


@dataclass(eq=False)
class Frame:
    """The code of one loop body or branch while it is being written, with what was computed in it already.

    `stored`: the buffers that the loop writes, if it runs at least once; None for a branch, or a loop that may not run.
    `borrowed`: the loads from in front of it that stay in registers while it runs.
    """

    label: str
    lines: list[str] = field(default_factory=list)
    known: dict[object, Value] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    stored: frozenset[str] | None = None
    borrowed: set[object] = field(default_factory=set)


@dataclass(eq=False)
class _Place:
    """Where an access stands: `offset` in elements, without the lane and without the unrolled loops, which are in `copies` as
    (variable, stride); `stride` between lanes, None where they are not evenly spaced. `nested`: unrolled loops enter `offset`
    otherwise than linearly. `home` is the frame that holds its pointer."""

    access: Load | Store
    lane: tuple[str, int] | None
    offset: Polynomial
    stride: int | None
    copies: tuple[tuple[str, int], ...]
    nested: bool
    home: Frame | None = None


@dataclass
class Module:
    """The functions and declarations of one LLVM module."""

    target: object
    functions: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    library: dict[str, str] = field(default_factory=dict)  # functions of ours that are called, by name
    slots: list[tuple[str, int]] = field(default_factory=list)  # where blocks of memory are kept between calls: name, number

    def text(self) -> str:
        """The module, as LLVM reads it. The vectors of the program are as long as they are to be: LLVM is not to halve them."""
        bits = self.target.vector_bits  # type: ignore[attr-defined]
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        attributes = f'attributes #0 = {{ nounwind {widths} "no-trapping-math"="true" }}\n!0 = !{{i32 1}}'
        library = [f"{name} = internal global [{count} x ptr] zeroinitializer" for name, count in self.slots]
        library += [self.library[name] for name in sorted(self.library)]
        return "\n\n".join([*library, "\n".join(sorted(self.declarations)), *self.functions, attributes]) + "\n"


def emit(func: PrimFunc, target) -> str:
    """The LLVM module of a lowered function: `i32 <symbol>(ptr ..., i64 ...)`, one parameter each in the order of `func.params`.

    It returns 0, or 1 where there is no memory for temporaries. Buffers are `noalias`: the kernel's argument check refuses arrays
    that overlap where one of them is written. Where stores are to be non-temporal, the body is there twice: with them, for arrays
    that are aligned as they need, and without.
    """
    module = Module(target)
    params = []
    writer = Function(module)
    for p in func.params:
        if isinstance(p, Buffer):
            writer.buffers[p.name] = writer.fresh(p.name)
            params.append(f"ptr noalias nonnull noundef align {dtypes.nbytes(p.dtype)} {writer.buffers[p.name]}")
        else:
            writer.define(p.name, Value(writer.fresh(p.name), "i64"))
            params.append(f"i64 noundef {writer.env[p.name].name}")
    writer.given = frozenset(p.name for p in func.params if isinstance(p, Buffer))
    bypassing = frozenset(annotation(func.attrs, NON_TEMPORAL, ()))
    arrays = [writer.buffers[p.name] for p in func.params if isinstance(p, Buffer) and p.name in bypassing]

    def streaming() -> None:
        writer.streamed = bypassing
        writer.stmt(func.body)
        writer.streamed = frozenset()

    if arrays:
        writer.fork(writer.aligned(arrays, STREAMED), streaming, lambda: writer.stmt(func.body))
    else:
        streaming()
    module.functions.append(writer.finish(f"define i32 @{symbol(func)}({', '.join(params)}) #0"))
    if module.slots:
        module.functions.append(scratch.release(module.slots))
    return module.text()


class Function:
    """Writes one LLVM function."""

    def __init__(self, module: Module, parallel: bool = False):
        self.module = module
        self.in_parallel = parallel
        self.frames = [Frame("start")]
        self.entry: list[str] = []  # stack slots
        self.heap: list[tuple[str, int]] = []  # temporaries of constant size on the heap: pointers and where they start
        self.heap_size = 0  # bytes of them
        self.slots_to_free: list[str] = []  # of temporaries whose size is known at the call
        self.fails = False  # whether it may end early for want of memory
        self.env: dict[str, Value] = {}
        self.buffers: dict[str, str] = {}
        self.slots: dict[tuple[str, int], str] = {}  # temporaries of constant size, by name and size
        self.stack = 0  # bytes of them on the stack
        self.ranges: dict[str, Interval] = {}
        self.facts: list[Expr] = []
        self.versions: dict[str, int] = {}
        self.constants: dict[str, int] = {}  # unrolled loops: the copy being written
        self._places: dict[int, _Place] = {}
        self._variables: dict[int, tuple[Expr, frozenset[str]]] = {}
        self.lane: tuple[str, int] | None = None
        self.mask: Value | None = None
        self.masks: dict[str, Value | None] = {}  # of register buffers: the lanes that exist
        self.idle = False  # whether the mask may be false in all lanes
        self.born: dict[str, Frame] = {}  # of values that were hoisted: the frame they are in
        self.packs: dict[str, Value] = {}  # of 16-bit floats: the bits they were rounded to
        self.wanted: Value | None = None  # a condition on the load being written
        self.zeros = 0  # bytes of zeros to load from where there is nothing to load
        self.streamed: frozenset[str] = frozenset()  # buffers whose stores bypass the caches
        self.given: frozenset[str] = (
            frozenset()
        )  # buffers that are parameters: aligned to STREAMED where their stores bypass caches
        self.pinned = 0  # vectors of the register buffers around
        self.written: dict[int, tuple[Stmt, frozenset[str]]] = {}  # by loop: the buffers that are stored to in it
        self.fenced = False  # whether there was such a store
        self.ahead: tuple[tuple[str, str, int], ...] = ()  # what is fetched ahead: loop, buffer, iterations
        self.count = 0

    # --- writing ---

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def fresh(self, hint: str = "t") -> str:
        """A name for a value. Its number makes it one that nothing else has, whatever the program calls its variables."""
        self.count += 1
        return f"%{ascii_name(hint)}.{self.count}"

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}.{self.count}"

    def define(self, name: str, value: Value) -> None:
        """Bind a variable in the innermost frame."""
        self.env[name] = value
        self.top.defined.add(name)

    def line(self, text: str, frame: Frame | None = None) -> None:
        (frame or self.top).lines.append(text)

    def op(self, text: str, type: str, lanes: int = 1, key: object = None, frame: Frame | None = None) -> Value:
        """Write `%new = text`, or return the value known under `key` in that frame."""
        frame = frame or self.top
        if key is not None and key in frame.known:
            return frame.known[key]
        value = Value(self.fresh(), type, lanes)
        frame.lines.append(f"{value.name} = {text}")
        if key is not None:
            frame.known[key] = value
        return value

    def finish(self, header: str) -> str:
        (frame,) = self.frames
        if self.zeros:
            self.intrinsic("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
            self.entry.append(f"%zeros = alloca [{self.zeros} x i8], align {ALIGNMENT}")
            self.entry.append(f"call void @llvm.memset.p0.i64(ptr align {ALIGNMENT} %zeros, i8 0, i64 {self.zeros}, i1 false)")
        start = ["br label %start", "start:"]
        leave: list[str] = []
        free = "call void @free(ptr %heap)"
        if self.heap:
            take = self._allocated("%heap", str(self.heap_size))
            if self.heap_size >= scratch.KEPT:
                take[0], free = self._kept()
            start = [*take, "br i1 %heap.failed, label %fail, label %start", "fail:", *self._failing(), "start:"]
            start += [f"{name} = getelementptr i8, ptr %heap, i64 {at}" for name, at in self.heap]
        if self.fails or self.heap:
            leave += ["br label %leave", "leave:"]
        if self.heap:
            leave.append(free)
        for n, slot in enumerate(self.slots_to_free):
            leave += [f"%freed.{n} = load ptr, ptr {slot}", f"call void @free(ptr %freed.{n})"]
        if self.fenced:  # non-temporal stores come before what others do once they see the end
            leave.append("fence seq_cst")
        if self.in_parallel:
            leave.append("ret void")
        elif self.fails or self.heap:
            self.entry += ["%status = alloca i32", "store i32 0, ptr %status"]
            leave += ["%failed = load i32, ptr %status", "ret i32 %failed"]
        else:
            leave.append("ret i32 0")
        body = ["entry:", *self.entry, *start, *frame.lines, *leave]
        return header + " {\n" + "\n".join(x if x.endswith(":") else "  " + x for x in body) + "\n}"

    def _kept(self) -> tuple[str, str]:
        """How the block of large temporaries is taken, and given back for the next call."""
        module = self.module
        count = module.target.num_cores if self.in_parallel else 1  # type: ignore[attr-defined]
        slots = f"@tir.slots.{len(module.slots)}"
        module.slots.append((slots, count))
        module.library["tir.take"] = scratch.definitions(linux=sys.platform == "linux")
        module.declarations.add("declare i32 @madvise(ptr, i64, i32)")
        size, alignment = scratch.rounded(self.heap_size, ALIGNMENT)
        take = f"%heap = call noalias align {ALIGNMENT} ptr @tir.take(ptr {slots}, i64 {count}, i64 {size}, i64 {alignment})"
        return take, f"call void @tir.give(ptr {slots}, i64 {count}, ptr %heap)"

    def aligned(self, pointers: list[str], nbytes: int) -> Value:
        """Whether all of the pointers are multiples of `nbytes`, a power of two."""
        bits = ""
        for p in pointers:
            address = self.op(f"ptrtoint ptr {p} to i64", "i64").name
            bits = self.op(f"or i64 {bits}, {address}", "i64").name if bits else address
        low = self.op(f"and i64 {bits}, {nbytes - 1}", "i64")
        return self.op(f"icmp eq {low}, 0", "i1")

    def home(self, names: Iterable[str]) -> Frame:
        """The outermost frame in which all of `names` are defined."""
        wanted = {n for n in names if self.lane is None or n != self.lane[0]}
        for frame in reversed(self.frames):
            if frame.defined & wanted:
                return frame
        return self.frames[0]

    def within(self, frame: Frame, write: Callable[[], T]) -> T:
        """Run `write` as if `frame` were the innermost one, in all lanes."""
        level = next(i for i, f in enumerate(self.frames) if f is frame)
        inner, mask, idle = self.frames[level + 1 :], self.mask, self.idle
        del self.frames[level + 1 :]
        self.mask, self.idle = None, False
        result = write()
        self.frames += inner
        self.mask, self.idle = mask, idle
        return result

    def intrinsic(self, name: str, result: str, arguments: list[str]) -> None:
        self.module.declarations.add(f"declare {result} @{name}({', '.join(arguments)})")

    # --- statements ---

    def stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.stmt(x)
            case For():
                self.loop(s)
            case Store():
                self.store(s)
            case If():
                self.branch(s)
            case Let(var, value, body):
                if var.name in self.env:  # a copy made by unrolling: what is known about the other does not hold for it
                    self.count += 1
                    new = var.with_(name=f"{var.name}.{self.count}")
                    var, body = new, substitute(body, {var.name: new})  # type: ignore[assignment]
                self.define(var.name, self.as_type(self.expr(value), value.dtype) if wraps(value) else self.expr(value))
                self.stmt(body)
            case Allocate(buffer, body):
                pinned = self.pinned
                self.allocate(buffer)
                self.stmt(body)
                self.pinned = pinned
            case Evaluate(value):
                self.expr(value)
            case Block():
                raise CodegenError(f"block `{s.name}` reached code generation; lower_blocks must run first")
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "register":
            self.registers(buffer)
            return
        size = dtypes.nbytes(buffer.dtype)
        dims = []
        for d in buffer.shape:
            if isinstance(d, Const):
                size *= int(d.value)
            else:
                dims.append(d)
        name = self.slots.get((buffer.name, size)) if not dims else None  # copies of one allocation, by unrolling, take turns
        if name is None:
            name = self.fresh(buffer.name)
            if not dims:
                self.slots[buffer.name, size] = name
            if not dims and size <= STACK_LIMIT and self.stack + size <= STACK_TOTAL:
                self.stack += size
                self.entry.append(f"{name} = alloca [{size} x i8], align {ALIGNMENT}")
            else:
                self.within(self.frames[0], lambda: self._heap(name, size, dims))
        self.buffers[buffer.name] = name

    def _heap(self, name: str, size: int, dims: list[Expr]) -> None:
        """Allocate `size` bytes times `dims`, once a call of this function; its end frees them."""
        size = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if not dims:  # in one piece with the others
            self.heap.append((name, self.heap_size))
            self.heap_size += size
            return
        total = str(size)
        for d in dims:
            total = self.op(f"mul i64 {total}, {self.index(d).name}", "i64").name
        slot = self.fresh("slot")
        self.slots_to_free.append(slot)
        self.entry += [f"{slot} = alloca ptr", f"store ptr null, ptr {slot}"]
        for line in self._allocated(name, total):
            self.line(line)
        self.line(f"store ptr {name}, ptr {slot}")
        self.leave_if(Value(f"{name}.failed", "i1"))

    def _allocated(self, name: str, size: str) -> list[str]:
        """`name` as so many bytes of the heap, `name.failed` as whether there were none."""
        self.intrinsic("aligned_alloc", "noalias ptr", ["i64", "i64"])
        self.intrinsic("free", "void", ["ptr"])
        return [
            f"{name} = call noalias align {ALIGNMENT} ptr @aligned_alloc(i64 {ALIGNMENT}, i64 {size})",
            f"{name}.failed = icmp eq ptr {name}, null",
        ]

    def _failing(self) -> list[str]:
        """The end, where memory was wanting."""
        status = "store atomic i64 1, ptr %failure monotonic, align 8" if self.in_parallel else "store i32 1, ptr %status"
        return [status, "br label %leave"]

    def leave_if(self, failed: Value) -> None:
        """Go to the end, with the status 1, where memory was wanting."""
        self.fails = True
        fail, go_on = self.label("fail"), self.label("go_on")
        for line in (f"br i1 {failed.name}, label %{fail}, label %{go_on}", f"{fail}:", *self._failing(), f"{go_on}:"):
            self.line(line)
        self.top.label = go_on

    def registers(self, buffer: Buffer) -> None:
        """One stack slot a vector of a register buffer; SROA makes SSA values of them."""
        *axes, lanes = (int(d.value) for d in buffer.shape)  # type: ignore[attr-defined]
        prefix = self.fresh(buffer.name)
        self.buffers[buffer.name] = prefix
        self.masks[buffer.name] = self.mask
        full = _typed(_register_type(buffer.dtype), lanes)
        self.pinned += prod(axes)
        for place in itertools.product(*(range(n) for n in axes)):
            self.entry.append(f"{'.'.join([prefix, *map(str, place)])} = alloca {full}, align {ALIGNMENT}")

    def branch(self, s: If) -> None:
        lanes = self.lane is not None and self.lane[0] in self.variables(s.condition)
        if not lanes and self._uniform(s.condition):
            condition = self.truth(self.expr(s.condition))
            self.fork(condition, lambda: self.stmt(s.then), None if s.orelse is None else lambda: self.stmt(s.orelse))  # type: ignore[arg-type]
            return
        # A condition on lanes: its uniform parts branch, the others mask.
        uniform = [c for c in conjuncts(s.condition) if self._uniform(c)] if s.orelse is None else []
        masked = [c for c in conjuncts(s.condition) if c not in uniform]
        if uniform:
            inner: Stmt = s.then
            for c in reversed(masked):
                inner = If(c, inner)
            self.fork(self.truth(self.expr(conjunction(*uniform))), lambda: self.stmt(inner), None)
            return
        mask = self.truth(self.splat(self.expr(s.condition)))
        self.masked(mask, s.then, s.condition)
        if s.orelse is not None:
            self.masked(self.negate(mask), s.orelse, None)

    def variables(self, e: Expr) -> frozenset[str]:
        """The names of the variables in an expression of the program; remembered by identity."""
        entry = self._variables.get(id(e))
        if entry is None:
            entry = self._variables[id(e)] = (e, frozenset(variables(e)))
        return entry[1]

    def _uniform(self, e: Expr) -> bool:
        """Whether the value is the same in every lane."""
        if self.lane is None:
            return True
        return not any(n == self.lane[0] or (n in self.env and self.env[n].lanes > 1) for n in self.variables(e))

    def _first_lane_holds(self, condition: Expr) -> bool:
        assert self.lane is not None
        first = substitute(condition, {self.lane[0]: Const(0)})
        return self.mask is None and prove(first, self.ranges, self.facts)  # type: ignore[arg-type]

    def masked(self, mask: Value, body: Stmt, condition: Expr | None) -> None:
        """Run `body` in the lanes of `mask`, which is `condition` if that is given.

        Where no lane is active, it is branched around; unless the first lane is known to be, or the body is a small store.
        """
        if self.mask is not None:
            mask = self.op(f"and {mask.full} {mask.name}, {self.mask.name}", "i1", mask.lanes)
        small = _small(body)
        some_lane = not small and condition is not None and self._first_lane_holds(condition)

        def run() -> None:
            saved = self.mask, self.idle
            self.mask, self.idle = mask, small
            self.stmt(body)
            self.mask, self.idle = saved

        if small or some_lane:
            run()
            return
        saved, self.mask = self.mask, mask
        some = self._any_lane()
        self.mask = saved
        self.fork(some, run, None)

    def fork(self, condition: Value, then: Callable[[], None], orelse: Callable[[], None] | None) -> None:
        """`if condition: then() else: orelse()`."""
        done = self.label("endif")
        arms = [(self.label("then"), then)] + ([(self.label("else"), orelse)] if orelse else [])
        written: list[Frame] = []
        starts: list[str] = []
        for name, body in arms:
            starts.append(name)
            self.frames.append(Frame(name))
            body()  # type: ignore[misc]
            written.append(self.frames.pop())
        frame = self.top
        frame.lines.append(f"br i1 {condition.name}, label %{starts[0]}, label %{starts[1] if orelse else done}")
        for start, arm in zip(starts, written, strict=True):
            frame.lines += [f"{start}:", *arm.lines, f"br label %{done}"]
        frame.lines.append(f"{done}:")
        frame.label = done

    def loop(self, s: For) -> None:
        outer = self.ahead
        self.ahead += tuple((s.name, buffer, distance) for buffer, distance in prefetches(s))
        self._loop(s)
        self.ahead = outer

    def _loop(self, s: For) -> None:
        match s.kind:
            case Kind.THREAD:
                raise CodegenError(f"loop `{s.name}` is bound to {s.thread}; the llvm target has no GPU threads")
            case Kind.VECTORIZED if self.lane is None and isinstance(s.extent, Const):
                self.vector_loop(s)
            case Kind.UNROLLED if isinstance(s.extent, Const):
                self.unrolled_loop(s)
            case Kind.PARALLEL if chunks(s) and self._runs_parallel(s):
                self.parallel_loop(s)
            case _ if not self._uniform(s.extent):
                self.ragged_loop(s)
            case _:
                self.serial_loop(s)

    def _runs_parallel(self, s: For) -> bool:
        return not self.in_parallel and self.module.target.num_cores > 1 and s.extent != Const(1) and self.lane is None  # type: ignore[attr-defined]

    def vector_loop(self, s: For) -> None:
        lanes = int(s.extent.value)  # type: ignore[attr-defined]
        self.ranges[s.name] = (0, lanes - 1)
        if lanes == 1:
            self.env[s.name] = Value("0", "i64")
            self.stmt(s.body)
            return
        self.lane = (s.name, lanes)
        iota = ", ".join(f"i64 {i}" for i in range(lanes))
        self.env[s.name] = Value(f"<{iota}>", "i64", lanes)
        self.stmt(s.body)
        self.lane = None

    def unrolled_loop(self, s: For) -> None:
        n = int(s.extent.value)  # type: ignore[attr-defined]
        self.ranges[s.name] = (0, n - 1)
        for i in range(n):
            self.constants[s.name] = i
            self.stmt(s.body)
        del self.constants[s.name]

    def ragged_loop(self, s: For) -> None:
        """A serial loop that runs differently often in each lane: as often as the longest lane, the others masked off."""
        extent = self.splat(self.index(s.extent))
        if self.mask is not None:
            extent = self.op(f"select {self.mask}, {extent}, {extent.full} zeroinitializer", "i64", extent.lanes)
        name = f"llvm.vector.reduce.smax.v{extent.lanes}i64"
        self.intrinsic(name, "i64", [extent.full])
        longest = Var(f"{s.name}.{self.count}")
        self.define(longest.name, self.op(f"call i64 @{name}({extent})", "i64"))
        self.serial_loop(s.with_(extent=longest, body=If(Binary("<", s.var, s.extent), s.body)))

    def serial_loop(self, s: For, first: Value | None = None, last: Value | None = None) -> None:
        extent = last or self.index(s.extent)
        start = first.name if first else "0"
        parent = self.top
        self.ranges[s.name] = extent_range(s.extent, self.ranges)
        facts = len(self.facts)
        self.facts += loop_facts(s)
        head, done = self.label("loop"), self.label("done")
        index = self.fresh(s.name)
        self.env[s.name] = Value(index, "i64")
        known = isinstance(s.extent, Const) and s.extent.value >= 1 and last is None
        self.frames.append(Frame(head, defined={s.name}, stored=self._stores(s) if known else None))
        self.stmt(s.body)
        frame = self.frames.pop()
        del self.facts[facts:]
        step = self.fresh(f"{s.name}.next")
        before = parent.label
        # Rotated form: the test stands at the end; in front only where the loop may not run at all.
        if not known:
            enter = self.op(f"icmp slt i64 {start}, {extent.name}", "i1")
            parent.lines.append(f"br i1 {enter.name}, label %{head}, label %{done}")
        else:
            parent.lines.append(f"br label %{head}")
        parent.lines += [f"{head}:", f"{index} = phi i64 [ {start}, %{before} ], [ {step}, %{frame.label} ]"]
        parent.lines += frame.lines
        again = self.fresh("again")
        parent.lines += [
            f"{step} = add nuw nsw i64 {index}, 1",
            f"{again} = icmp slt i64 {step}, {extent.name}",
            f"br i1 {again}, label %{head}, label %{done}",
            f"{done}:",
        ]
        parent.label = done

    def parallel_loop(self, s: For) -> None:
        """The loop as a function of its own, which each thread runs on its share of the iterations.

        The threads see a context of words: the number of iterations, whether one of them failed, the first iteration that none
        has taken yet, then the pointers and scalars that the body uses.
        """
        how = chunks(s)
        n = self.index(s.extent)
        if not isinstance(s.extent, Const):  # a guard that became the extent may make it negative
            self.intrinsic("llvm.smax.i64", "i64", ["i64", "i64"])
            n = self.op(f"call i64 @llvm.smax.i64({n}, i64 0)", "i64")
        variables, buffers = free_names(s)
        number = len(self.module.functions)
        worker = Function(self.module, parallel=True)
        worker.ranges = dict(self.ranges)
        worker.facts = list(self.facts)
        worker.constants = dict(self.constants)
        worker.streamed, worker.given = self.streamed, self.given
        worker.ahead = self.ahead
        passed: list[Value] = []
        parameters: list[Value] = []
        for name in sorted(buffers):
            passed.append(Value(self.buffers[name], "ptr"))
            worker.buffers[name] = worker.fresh(name)
            parameters.append(Value(worker.buffers[name], "ptr noalias"))
        for name in sorted(variables - set(self.constants)):
            passed.append(self.env[name])
            worker.define(name, Value(worker.fresh(name), self.env[name].type))
            parameters.append(worker.env[name])
        for x in walk(s.body):
            if isinstance(x, Store):
                self.versions[x.buffer.name] = self.versions.get(x.buffer.name, 0) + 1
        self.module.functions.append("")  # keeps the numbers of inner functions apart
        worker.share(s, how)
        body = f"@tir.parallel.{number}"
        signature = ", ".join(["i64 %n", "ptr %failure", "ptr %counter", *map(str, parameters)])
        self.module.functions[number] = worker.finish(f"define internal void {body}({signature}) noinline #0")
        context = self.fresh("context")
        self.entry.append(f"{context} = alloca [{3 + len(passed)} x i64], align 8")
        unpack = ["%n = load i64, ptr %context"]
        unpack += [f"%{name} = getelementptr i64, ptr %context, i64 {i}" for i, name in enumerate(("failure", "counter"), 1)]
        arguments = ["i64 %n", "ptr %failure", "ptr %counter"]
        for i, value in enumerate((n, Value("0", "i64"), Value("0", "i64"), *passed)):
            place = self.op(f"getelementptr i64, ptr {context}, i64 {i}", "ptr")
            self.line(f"store {value}, ptr {place.name}")
            if i > 2:
                unpack += [f"%p{i} = getelementptr i64, ptr %context, i64 {i}", f"%v{i} = load {value.type}, ptr %p{i}"]
                arguments.append(f"{value.type} %v{i}")
        text = "\n  ".join([*unpack, f"call void {body}({', '.join(arguments)})", "ret void"])
        self.module.functions.append(f"define internal void {body}.share(ptr %context) #0 {{\nentry:\n  {text}\n}}")
        self.module.declarations.add("declare void @GOMP_parallel(ptr, ptr, i32, i32)")
        self.line(f"call void @GOMP_parallel(ptr {body}.share, ptr {context}, i32 {self.module.target.num_cores}, i32 0)")  # type: ignore[attr-defined]
        if worker.fails or worker.heap:
            place = self.op(f"getelementptr i64, ptr {context}, i64 1", "ptr")
            failure = self.op(f"load i64, ptr {place.name}", "i64")
            self.leave_if(self.op(f"icmp ne i64 {failure.name}, 0", "i1"))

    def _stores(self, s: For) -> frozenset[str]:
        """The buffers that a loop writes; remembered by identity."""
        entry = self.written.get(id(s))
        if entry is None:
            entry = self.written[id(s)] = (s, frozenset(x.buffer.name for x in walk_stmts(s.body) if isinstance(x, Store)))
        return entry[1]

    def share(self, s: For, how: Chunks) -> None:
        """The iterations of a parallel loop that are the share of the thread that calls this, of `%n` in all."""
        thread, threads = ("0", "1") if how.dynamic else self._team()
        if how.size is None:
            later = self.op(f"add i64 {thread}, 1", "i64").name
            first, last = (
                self.op(f"udiv i64 {self.op(f'mul i64 %n, {t}', 'i64').name}, {threads}", "i64") for t in (thread, later)
            )
            self.serial_loop(s, first, last)
            return
        self.intrinsic("llvm.smin.i64", "i64", ["i64", "i64"])
        head, work, done = self.label("take"), self.label("chunk"), self.label("taken")
        parent = self.top
        first = Value(self.fresh("first"), "i64")
        self.frames.append(Frame(work))
        end = self.op(f"add i64 {first.name}, {how.size}", "i64")
        self.serial_loop(s, first, self.op(f"call i64 @llvm.smin.i64({end}, i64 %n)", "i64"))
        frame = self.frames.pop()
        if how.dynamic:
            self.line(f"br label %{head}")
            take = [f"{first.name} = atomicrmw add ptr %counter, i64 {how.size} monotonic"]
            step = []
        else:
            start = self.op(f"mul i64 {thread}, {how.size}", "i64")
            stride = self.op(f"mul i64 {threads}, {how.size}", "i64")
            self.line(f"br label %{head}")
            later = self.fresh("first")
            take = [f"{first.name} = phi i64 [ {start.name}, %{parent.label} ], [ {later}, %{frame.label} ]"]
            step = [f"{later} = add i64 {first.name}, {stride.name}"]
        more = self.fresh("more")
        parent.lines += [
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

    def _team(self) -> tuple[str, str]:
        """The number of this thread, and how many there are."""
        result = []
        for question in ("thread_num", "num_threads"):
            self.module.declarations.add(f"declare i32 @omp_get_{question}()")
            answer = self.op(f"call i32 @omp_get_{question}()", "i32")
            result.append(self.op(f"zext {answer} to i64", "i64").name)
        return result[0], result[1]

    # --- memory ---

    def address(self, buffer: Buffer, offset: Polynomial) -> str:
        """A pointer to the element at a flat offset (free of the lane): each term is added in the loop where it is known."""
        size = dtypes.nbytes(buffer.dtype)
        pointer = self.buffers.get(buffer.name)
        if pointer is None:
            raise CodegenError(f"buffer `{buffer.name}` is used where it does not exist")
        groups: dict[int, Polynomial] = {}
        levels = {id(f): i for i, f in enumerate(self.frames)}
        for m, c in offset.items():
            if m:
                loads = any(isinstance(n, Load) for atom in m if type(atom) is not Var for n in walk(atom))
                frame = self.top if loads else self.home(v for atom in m for v in self.variables(atom))
                groups.setdefault(levels[id(frame)], {})[m] = c
        for level in sorted(groups):
            frame = self.frames[level]
            terms = groups[level]
            key = (
                "ptr",
                pointer,
                frozenset(terms.items()),
                self._copy(n for m in terms for a in m for n in self.variables(a)),
                self._read(terms),
            )
            if key not in frame.known:
                total = ""
                for m, c in terms.items():
                    product = ""
                    for atom in m:
                        factor = self.index(atom).name
                        product = self.op(f"mul nsw i64 {product}, {factor}", "i64", frame=frame).name if product else factor
                    scaled = product if c * size == 1 else self.op(f"mul nsw i64 {product}, {c * size}", "i64", frame=frame).name
                    total = self.op(f"add nsw i64 {total}, {scaled}", "i64", frame=frame).name if total else scaled
                frame.known[key] = self.op(f"getelementptr i8, ptr {pointer}, i64 {total}", "ptr", frame=frame)
            pointer = frame.known[key].name
        return self._further(pointer, offset.get((), 0) * size)

    def _further(self, pointer: str, nbytes: int) -> str:
        return (
            self.op(f"getelementptr i8, ptr {pointer}, i64 {nbytes}", "ptr", key=("gep", pointer, nbytes)).name
            if nbytes
            else pointer
        )

    def _copy(self, names: Iterable[str]) -> frozenset[tuple[str, int]]:
        """Which copy of the unrolled loops around, as far as `names` depend on them."""
        return frozenset((n, self.constants[n]) for n in names if n in self.constants)

    def _read(self, terms: Polynomial) -> frozenset[tuple[str, int]]:
        """The state of the buffers that are read in `terms`."""
        loads = [n for m in terms for atom in m if type(atom) is not Var for n in walk(atom) if isinstance(n, Load)]
        return frozenset((n.buffer.name, self.versions.get(n.buffer.name, 0)) for n in loads)

    def place(self, access: Load | Store) -> _Place:
        """The flat offset of an access as the loops around it know it; worked out once for all copies of unrolled loops."""
        found = self._places.get(id(access))
        if found is None or found.lane != self.lane:
            offset: Polynomial = {}
            for index, dim in zip(access.indices, access.buffer.shape, strict=True):
                offset = add(multiply(offset, polynomial(dim)), polynomial(simplify(index, self.ranges)))
            stride: int | None = 0
            if self.lane is not None:
                lane = next((m for m in offset if len(m) == 1 and type(m[0]) is Var and m[0].name == self.lane[0]), None)
                stride = offset.pop(lane) if lane is not None else 0
                if not all(self._uniform(atom) for m in offset for atom in m):
                    offset = add(offset, {lane: stride}) if lane is not None else offset
                    stride = None
            copies: list[tuple[str, int]] = []
            for m, c in list(offset.items()):
                if len(m) == 1 and type(m[0]) is Var and m[0].name in self.constants:
                    copies.append((m[0].name, c))
                    del offset[m]
            nested = any(v in self.constants for m in offset for atom in m for v in self.variables(atom))
            found = self._places[id(access)] = _Place(access, self.lane, offset, stride, tuple(copies), nested)
        return found

    def point(self, place: _Place) -> str:
        """A pointer to the element, in the first lane."""
        return self._further(*self._base(place))

    def _base(self, place: _Place) -> tuple[str, int]:
        """A pointer and the bytes from there to the element, in the first lane."""
        buffer = place.access.buffer
        further = sum(c * self.constants[v] for v, c in place.copies) * dtypes.nbytes(buffer.dtype)
        if place.nested:
            return self.address(buffer, place.offset), further
        key = ("place", place, self._read(place.offset))
        frame = (
            self.home(v for m in place.offset for atom in m for v in self.variables(atom)) if place.home is None else place.home
        )
        if frame not in self.frames or key not in frame.known:
            frame = self.home(v for m in place.offset for atom in m for v in self.variables(atom))
            if key[2]:  # loads stay where they are
                frame = self.top
            place.home = frame
            offset = {m: c for m, c in place.offset.items() if m}
            frame.known[key] = Value(self.address(buffer, offset), "ptr")
        return frame.known[key].name, further + place.offset.get((), 0) * dtypes.nbytes(buffer.dtype)

    def load(self, e: Load) -> Value:
        b = e.buffer
        if b.scope == "register":
            value = self.op(f"load {self._register(b, e.indices)}", _register_type(b.dtype), self._width(b))
            return self.truth(value) if b.dtype == "bool" else value
        type = _memory_type(b.dtype)
        version = self.versions.get(b.name, 0)
        place = self.place(e)

        def write() -> Value:
            self._fetch_ahead(place, write=False)
            if place.stride == 0:
                pointer = self._there(self.point(place), dtypes.nbytes(b.dtype), self.idle)
                key = ("load", pointer, version)
                value = self.op(f"load {type}, ptr {pointer}, align {dtypes.nbytes(b.dtype)}", type, key=key)
            else:
                value = self.vector_load(place, type, version)
            return self.unpacked(value, b.dtype)

        frame = self._invariant(place)
        if frame is None:
            return write()
        value = self.within(frame, write)
        self.born[value.name] = frame
        return value

    def _invariant(self, place: _Place) -> Frame | None:
        """The frame in front of the loops in which the load gives always the same; None if that is none, or registers are short.

        Those loops surely run, and do not write the buffer. What is at one place counts once.
        """
        buffer, top = place.access.buffer.name, self.top
        if top.stored is None or buffer in top.stored or place.home is top or self.mask or self.wanted or place.stride is None:
            return None
        if any(isinstance(n, Load) for m in place.offset for atom in m for n in walk(atom)):
            return None
        home = self.home(v for m in place.offset for atom in m for v in self.variables(atom))
        result = None
        for frame, outer in zip(reversed(self.frames), list(reversed(self.frames))[1:], strict=False):
            if frame is home or frame.stored is None or buffer in frame.stored:
                break
            result = outer
        if result is None:
            return None
        key = (buffer, frozenset(place.offset.items()), sum(c * self.constants[v] for v, c in place.copies), place.stride)
        if key not in top.borrowed:
            if len(top.borrowed) >= self._free_registers():
                return None
            top.borrowed.add(key)
        return result

    def _free_registers(self) -> int:
        """The vector registers that are left beside the accumulators and what a statement needs."""
        return (32 if self.module.target.vector_bits >= 512 else 16) - self.pinned - BUSY  # type: ignore[attr-defined]

    def _fetch_ahead(self, place: _Place, write: bool) -> None:
        """Prefetch what an access touches some iterations later, as `prefetch` asks for; each line once a loop body."""
        buffer = place.access.buffer
        nbytes = dtypes.nbytes(buffer.dtype)
        for loop, name, distance in self.ahead:
            if name != buffer.name or place.nested or place.stride not in (0, 1):
                continue
            moving = [(m, c) for m, c in place.offset.items() if any(loop in self.variables(atom) for atom in m)]
            copies = [((), c) for v, c in place.copies if v == loop]
            match moving + copies:
                case [(m, c)] if len(m) <= 1 and all(type(atom) is Var for atom in m):
                    pointer, start = self._base(place)
                    start += c * distance * nbytes
                    width = self.lane[1] * nbytes if self.lane is not None and place.stride else nbytes
                    for line in range(start // LINE, (start + width - 1) // LINE + 1):
                        self._prefetch(pointer, line * LINE, write)

    def _prefetch(self, pointer: str, nbytes: int, write: bool) -> None:
        """Ask for the line at `pointer + nbytes`, unless this loop body has done so."""
        key = ("prefetch", pointer, nbytes)
        if key not in self.top.known:
            self.intrinsic("llvm.prefetch.p0", "void", ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"])
            place = self._further(pointer, nbytes)
            self.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(write)}, i32 3, i32 1)")
            self.top.known[key] = Value(place, "ptr")

    def _there(self, pointer: str, nbytes: int, idle: bool) -> str:
        """The pointer, or one to zeros where nothing may be there to load: `wanted` is false, or if `idle`, all lanes."""
        conditions = [*([self.wanted] if self.wanted else []), *([self._any_lane()] if idle else [])]
        for c in conditions:
            self.zeros = max(self.zeros, nbytes)
            pointer = self.op(f"select {c}, ptr {pointer}, ptr %zeros", "ptr", key=("there", c.name, pointer)).name
        return pointer

    def _width(self, b: Buffer) -> int:
        return int(b.shape[-1].value)  # type: ignore[attr-defined]

    def _register(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """`type, ptr slot` of a vector of a register buffer."""
        place = [str(self.constants[i.name] if isinstance(i, Var) else i.value) for i in indices[:-1]]  # type: ignore[attr-defined]
        return f"{_typed(_register_type(b.dtype), self._width(b))}, ptr {'.'.join([self.buffers[b.name], *place])}"

    def vector_load(self, place: _Place, type: str, version: int) -> Value:
        assert self.lane is not None
        lanes = self.lane[1]
        full = f"<{lanes} x {type}>"
        align = dtypes.nbytes(place.access.buffer.dtype)
        suffix = f"v{lanes}{_suffix(type)}"
        if place.stride == 1:
            return self._row(self.point(place), type, align, version, self.mask)
        if place.stride in STRIDES:
            return self._strided(self.point(place), place.stride, type, align, version)
        pointers = self.pointers(place)
        mask = self._mask(lanes)
        if self.wanted is not None:
            mask = str(
                self.op(
                    f"select {self.wanted}, {mask}, <{lanes} x i1> zeroinitializer",
                    "i1",
                    lanes,
                    key=("wanted", self.wanted.name, mask),
                )
            )
        name = f"llvm.masked.gather.{suffix}.v{lanes}p0"
        self.intrinsic(name, full, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", full])
        text = f"call {full} @{name}({pointers}, i32 {align}, {mask}, {full} zeroinitializer)"
        return self.op(text, type, lanes, key=("gather", pointers.name, version, mask))

    def _row(self, pointer: str, type: str, align: int, version: int, mask: Value | None) -> Value:
        """The elements that follow one another from `pointer`, one a lane; 0 in lanes that are masked off."""
        assert self.lane is not None
        lanes = self.lane[1]
        full = f"<{lanes} x {type}>"
        pointer = self._there(pointer, lanes * align, False)
        if mask is None:
            return self.op(f"load {full}, ptr {pointer}, align {align}", type, lanes, key=("load", pointer, version, lanes))
        name = f"llvm.masked.load.v{lanes}{_suffix(type)}.p0"
        self.intrinsic(name, full, ["ptr", "i32", f"<{lanes} x i1>", full])
        text = f"call {full} @{name}(ptr {pointer}, i32 {align}, {mask}, {full} zeroinitializer)"
        return self.op(text, type, lanes, key=("load", pointer, version, lanes, mask.name))

    def _strided(self, pointer: str, stride: int, type: str, align: int, version: int) -> Value:
        """Elements at a small distance: the lanes are picked from the rows that hold them; nothing beyond the last is read."""
        assert self.lane is not None
        lanes = self.lane[1]
        wanted = [i * stride for i in range(lanes)]
        low, high = min(wanted), max(wanted)
        count = -(-(high - low + 1) // lanes)
        starts = [min(low + n * lanes, high - lanes + 1) for n in range(count)]
        owner = [next(n for n, first in enumerate(starts) if first <= e < first + lanes) for e in wanted]
        result: Value | None = None
        for n, first in enumerate(starts):
            mine = {e - first: i for i, e in enumerate(wanted) if owner[i] == n}  # place in the row: lane
            mask = self.mask
            if mask is not None:
                picks = ", ".join(f"i32 {mine.get(x, lanes)}" for x in range(lanes))
                text = f"shufflevector {mask}, {mask.full} zeroinitializer, <{lanes} x i32> <{picks}>"
                frame = self.born.get(mask.name, self.top)
                mask = self.op(text, "i1", lanes, ("picked", mask.name, picks), frame if frame in self.frames else self.top)
            row = self._row(self._further(pointer, first * align), type, align, version, mask)
            places = {lane: x for x, lane in mine.items()}
            if result is None:
                picks = ", ".join(f"i32 {places[i]}" if i in places else "i32 poison" for i in range(lanes))
                result = self.op(f"shufflevector {row}, {row.full} poison, <{lanes} x i32> <{picks}>", type, lanes)
            else:
                picks = ", ".join(f"i32 {lanes + places[i]}" if i in places else f"i32 {i}" for i in range(lanes))
                result = self.op(f"shufflevector {result}, {row}, <{lanes} x i32> <{picks}>", type, lanes)
        assert result is not None
        return result

    def _mask(self, lanes: int) -> str:
        return str(self.mask) if self.mask is not None else f"<{lanes} x i1> splat (i1 true)"

    def pointers(self, place: _Place) -> Value:
        """One pointer a lane."""
        assert self.lane is not None
        lanes, size = self.lane[1], dtypes.nbytes(place.access.buffer.dtype)
        if place.stride is not None:
            base = self.point(place)
            steps = ", ".join(f"i64 {i * place.stride * size}" for i in range(lanes))
            return self.op(
                f"getelementptr i8, ptr {base}, <{lanes} x i64> <{steps}>", "ptr", lanes, key=("ptrs", base, place.stride, lanes)
            )
        uniform = {m: c for m, c in place.offset.items() if all(self._uniform(a) for a in m)}
        further = sum(c * self.constants[v] for v, c in place.copies) * size
        base = self._further(self.address(place.access.buffer, uniform), further)
        total: Value | None = None
        for m, c in place.offset.items():
            if m in uniform:
                continue
            term: Value | None = None
            for atom in m:
                factor = self.splat(self.index(atom))
                term = factor if term is None else self.op(f"mul {term}, {factor.name}", "i64", lanes)
            scaled = self.op(f"mul {term}, splat (i64 {c * size})", "i64", lanes)
            total = scaled if total is None else self.op(f"add {total}, {scaled.name}", "i64", lanes)
        return self.op(f"getelementptr i8, ptr {base}, {total}", "ptr", lanes)

    def store(self, s: Store) -> None:
        b = s.buffer
        align = dtypes.nbytes(b.dtype)
        if self.lane is not None and b.scope != "register" and self.place(s).stride == 0:
            update = updated(s)
            if update is not None and not self._uniform(update[1]):
                self._combine_lanes(s, *update)
                return
        value = self.as_type(self.expr(s.value), b.dtype)
        self.versions[b.name] = self.versions.get(b.name, 0) + 1
        if b.scope == "register":
            value = self.packed(value, b.dtype) if b.dtype == "bool" else value
            slot = self._register(b, s.indices)
            width = self._width(b)
            if width > 1:
                value = self.splat(value, width)
                if self.mask != self.masks.get(b.name):
                    old = self.op(f"load {slot}", value.type, width)
                    value = self.op(f"select {self.mask}, {value}, {old}", value.type, width)
            elif value.lanes > 1:
                value = self.op(f"extractelement {value}, i64 {value.lanes - 1}", value.type)
            pointer = slot.split(", ", 1)[1]
            self.line(f"store {value}, {pointer}")
            return
        value = self.packed(value, b.dtype)
        place = self.place(s)
        self._fetch_ahead(place, write=True)
        if self.lane is None:
            self.line(f"store {value}, ptr {self.point(place)}, align {align}")
            return
        lanes = self.lane[1]
        if place.stride == 0:
            # Every lane writes one place: the last one active stays, as in a loop.
            self._store_last_lane(value, self.point(place), align)
            return
        value = self.splat(value)
        suffix = f"v{lanes}{_suffix(value.type)}"
        if place.stride == 1:
            pointer = self.point(place)
            if self.mask is None:
                nearest = self._streaming(place, lanes * align)
                self.line(
                    f"store {value}, ptr {pointer}, align {nearest}, !nontemporal !0"
                    if nearest
                    else f"store {value}, ptr {pointer}, align {align}"
                )
                self.fenced |= nearest > 0
            else:
                name = f"llvm.masked.store.{suffix}.p0"
                self.intrinsic(name, "void", [value.full, "ptr", "i32", f"<{lanes} x i1>"])
                self.line(f"call void @{name}({value}, ptr {pointer}, i32 {align}, {self.mask})")
            return
        pointers = self.pointers(place)
        name = f"llvm.masked.scatter.{suffix}.v{lanes}p0"
        self.intrinsic(name, "void", [value.full, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"])
        self.line(f"call void @{name}({value}, {pointers}, i32 {align}, {self._mask(lanes)})")

    def _streaming(self, place: _Place, nbytes: int) -> int:
        """The alignment of a store of `nbytes` that bypasses the caches; 0 if it is to be an ordinary one."""
        buffer = place.access.buffer
        if buffer.name not in self.streamed or nbytes % STREAMED or place.nested:
            return 0
        known = STREAMED if buffer.name in self.given else ALIGNMENT
        steps = [*place.offset.values(), *(c for _, c in place.copies)]
        nearest = gcd(known, *(c * dtypes.nbytes(buffer.dtype) for c in steps))
        return nearest if nearest >= STREAMED else 0

    def _combine_lanes(self, s: Store, op: str, operand: Expr) -> None:
        """`C[c] = C[c] op operand` in every lane, c the same in all: the lanes are combined in pairs, and the result with C."""
        dtype = s.buffer.dtype
        v = self.splat(self.as_type(self.expr(operand), dtype))
        if self.mask is not None:
            v = self.op(f"select {self.mask}, {v}, {self.splat(self._neutral(op, dtype), v.lanes)}", v.type, v.lanes)
        while v.lanes > 1:
            half, odd = divmod(v.lanes, 2)
            parts = []
            for start in (0, half):
                lanes = ", ".join(f"i32 {start + i}" for i in range(half))
                text = f"shufflevector {v}, {v.full} poison, <{half} x i32> <{lanes}>"
                parts.append(self.op(text if half > 1 else f"extractelement {v}, i64 {start}", v.type, half))
            rest = self.op(f"extractelement {v}, i64 {v.lanes - 1}", v.type) if odd else None
            v = self.operation(op, parts[0], parts[1], dtype)
            if rest is not None:
                first = self.op(f"extractelement {v}, i64 0", v.type) if v.lanes > 1 else v
                joined = self.operation(op, first, rest, dtype)
                v = self.op(f"insertelement {v}, {joined}, i64 0", v.type, v.lanes) if v.lanes > 1 else joined
        old = self.load(Load(s.buffer, s.indices))
        new = self.packed(self.operation(op, old, v, dtype), dtype)
        self.versions[s.buffer.name] = self.versions.get(s.buffer.name, 0) + 1
        self.line(f"store {new}, ptr {self.point(self.place(s))}, align {dtypes.nbytes(dtype)}")

    def operation(self, op: str, x: Value, y: Value, dtype: str) -> Value:
        """An arithmetic operation on two values of one dtype."""
        if dtypes.is_float(dtype):
            return self.float_operation(op, x, y, dtype)
        return self.int_binary(op, x, y, dtypes.TABLE[dtype].kind != "int", exact=False)

    def _neutral(self, op: str, dtype: str) -> Value:
        """The value that changes nothing when combined by `op`, in the type in which `dtype` is computed."""
        low, high = dtypes.limits(dtype)
        value = {"+": 0, "*": 1, "min": high, "max": low}[op]
        computed = "float32" if dtype in halves.TYPES else dtype
        return self.as_type(_constant(float(value) if dtypes.is_float(dtype) else value, computed), dtype)

    def _store_last_lane(self, value: Value, pointer: str, align: int) -> None:
        assert self.lane is not None
        lanes = self.lane[1]
        if self.mask is None:
            scalar = value if value.lanes == 1 else self.op(f"extractelement {value}, i64 {lanes - 1}", value.type)
            self.line(f"store {scalar}, ptr {pointer}, align {align}")
            return
        vector, mask = self.splat(value), self.mask

        def write(i: int) -> None:
            scalar = self.op(f"extractelement {vector}, i64 {i}", vector.type)
            self.line(f"store {scalar}, ptr {pointer}, align {align}")

        for i in range(lanes):
            active = self.op(f"extractelement {mask}, i64 {i}", "i1")
            self.fork(active, lambda i=i: write(i), None)  # type: ignore[misc]

    # --- expressions ---

    def splat(self, v: Value, lanes: int | None = None) -> Value:
        """The value in every lane of the current vector loop."""
        lanes = lanes or (self.lane[1] if self.lane else 1)
        if v.lanes != 1 or lanes == 1:
            return v
        if not v.name.startswith("%"):
            return Value(f"splat ({v})", v.type, lanes)
        frame = self.born.get(v.name, self.top)  # a scalar that was computed further out is spread there
        frame = frame if frame in self.frames else self.top
        one = self.op(f"insertelement <{lanes} x {v.type}> poison, {v}, i64 0", v.type, lanes, ("one", v.name, lanes), frame)
        text = f"shufflevector {one}, {one.full} poison, <{lanes} x i32> zeroinitializer"
        return self.op(text, v.type, lanes, ("splat", v.name, lanes), frame)

    def together(self, *values: Value) -> tuple[Value, ...]:
        """The values with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def as_type(self, v: Value, dtype: str, signed: bool = True) -> Value:
        """An integer value brought to the width of `dtype`; others unchanged."""
        type = TYPES[dtype]
        if v.type == type or not v.type.startswith("i") or not type.startswith("i") or "i1" in (v.type, type):
            return v
        if v.name.lstrip("-").isdigit():
            return Value(v.name, type, v.lanes)
        wider = int(type[1:]) > int(v.type[1:])
        verb = ("sext" if signed else "zext") if wider else "trunc"
        return self.op(f"{verb} {v} to {_typed(type, v.lanes)}", type, v.lanes, key=(verb, v.name, type))

    def index(self, e: Expr) -> Value:
        """An integer expression in 64 bits."""
        return self.as_type(self.expr(e), "int64", dtypes.TABLE[e.dtype].kind != "uint")

    def truth(self, v: Value) -> Value:
        return v if v.type == "i1" else self.op(f"icmp ne {v}, {_zero(v)}", "i1", v.lanes)

    def negate(self, v: Value) -> Value:
        ones = "true" if v.lanes == 1 else "splat (i1 true)"
        return self.op(f"xor {v}, {ones}", "i1", v.lanes)

    def expr(self, e: Expr) -> Value:
        match e:
            case Const(value, dtype):
                return _constant(value, dtype)
            case Var(name):
                if name in self.constants:
                    return Value(str(self.constants[name]), "i64")
                if name not in self.env:
                    raise CodegenError(f"variable `{name}` is used where it does not exist")
                return self.env[name]
            case Load():
                return self.load(e)
            case Binary("+") if self.lane is not None and (value := dot.product(self, e)) is not None:
                return value
            case Binary(op, a, b) if op in COMPARISONS or op in ("and", "or"):
                return self._hoisted(e, lambda: self.condition(op, a, b))
            case Binary(op, a, b):
                if dtypes.is_float(e.dtype):
                    return self.float_binary(op, a, b)
                if wraps(e):
                    x, y = self.wrapped(a), self.wrapped(b)
                    return self.int_binary(op, x, y, dtypes.TABLE[e.dtype].kind != "int", exact=False)
                return self._hoisted(e, lambda: self.int_binary(op, self.index(a), self.index(b), False, exact=True))
            case Unary("not", a):
                return self.negate(self.truth(self.expr(a)))
            case Unary("neg", a):
                v = self.wrapped(a) if wraps(a) else self.expr(a)
                if v.type in ("float", "double"):
                    return self.op(f"fneg {v}", v.type, v.lanes)
                return self.op(f"sub {v.full} {_zero(v)}, {v.name}", v.type, v.lanes)
            case Cast(dtype, value):
                return self.cast(dtype, value)
            case Select(c, t, f, lazy):
                return self.select(c, t, f, lazy)
            case Call(op, args):
                return self.call(op, args, e.dtype)
            case _:
                raise CodegenError(f"the llvm backend cannot compile the expression `{e}`")

    def _hoisted(self, e: Expr, write: Callable[[], Value]) -> Value:
        """A pure integer expression, computed once in the outermost frame that knows its variables."""
        if any(isinstance(n, (Load, Call)) for n in walk(e)) or any(
            isinstance(n, Binary) and n.op in ("//", "%") and not isinstance(n.b, Const) for n in walk(e)
        ):
            return write()
        home = self.home(self.variables(e))
        key = ("expr", e, self._copy(self.variables(e)), self.lane if not self._uniform(e) else None)
        if key in home.known:
            return home.known[key]
        home.known[key] = value = self.within(home, write)
        self.born[value.name] = home
        return value

    def wrapped(self, e: Expr) -> Value:
        """An integer operand in the width of its dtype."""
        return self.as_type(self.expr(e), e.dtype)

    def condition(self, op: str, a: Expr, b: Expr) -> Value:
        if op in ("and", "or"):
            x, y = self.together(self.truth(self.expr(a)), self.truth(self.expr(b)))
            return self.op(f"{op} {x}, {y.name}", "i1", x.lanes)
        if dtypes.is_float(a.dtype):
            x, y = self.together(self.expr(a), self.expr(b))
            code = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}[op]
            return self.op(f"fcmp {code} {x}, {y.name}", "i1", x.lanes)
        unsigned = dtypes.TABLE[a.dtype].kind == "uint"
        sides = self._lane_against_rest(a, b)
        x, y = sides or (self.expr(a), self.expr(b))
        if x.type != y.type:  # an exact index beside a loaded value
            x, y = self.as_type(x, "int64", not unsigned), self.as_type(y, "int64", not unsigned)
        x, y = self.together(x, y)
        code = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[op]
        sign = "" if op in ("==", "!=") else "u" if unsigned or a.dtype == "bool" else "s"
        return self.op(f"icmp {sign}{code} {x}, {y.name}", "i1", x.lanes)

    def _lane_against_rest(self, a: Expr, b: Expr) -> tuple[Value, Value] | None:
        """Two vectors of 32 bits that compare as the indices `a` and `b` do, if their difference is linear in the lane: multiples
        of the lane, which are constants, and the rest, which is one scalar; None otherwise."""
        if self.lane is None or wraps(a) or wraps(b) or any(isinstance(n, (Load, Call)) for e in (a, b) for n in walk(e)):
            return None
        name, lanes = self.lane
        p = polynomial(simplify(a - b, self.ranges))
        lane = next((m for m in p if len(m) == 1 and type(m[0]) is Var and m[0].name == name), None)
        stride = p.pop(lane, 0) if lane is not None else 0
        if not 0 < abs(stride) * lanes < 2**30 or not all(self._uniform(atom) for m in p for atom in m):
            return None
        rest = simplify(to_expr({m: -c for m, c in p.items()}, a.dtype), self.ranges)
        low, high = bounds(rest, self.ranges)

        def scalar() -> Value:
            v = self.index(rest)
            for op, bound, known in (("smin", 2**30, high), ("smax", -(2**30), low)):  # beyond these, no lane makes a difference
                if known is None or abs(known) > 2**30:
                    self.intrinsic(f"llvm.{op}.i64", "i64", ["i64", "i64"])
                    v = self.op(f"call i64 @llvm.{op}.i64({v}, i64 {bound})", "i64")
            return self.as_type(v, "int32")

        steps = ", ".join(f"i32 {i * stride}" for i in range(lanes))
        home = self.home(self.variables(rest))
        key = ("rest", rest, self._copy(self.variables(rest)), lanes)
        if key not in home.known:
            home.known[key] = self.within(home, lambda: self.splat(scalar()))
        return Value(f"<{steps}>", "i32", lanes), home.known[key]

    def int_binary(self, op: str, x: Value, y: Value, unsigned: bool, exact: bool) -> Value:
        x, y = self.together(x, y)
        flags = "nsw " if exact else ""
        match op:
            case "+" | "-" | "*":
                return self.op(f"{ {'+': 'add', '-': 'sub', '*': 'mul'}[op] } {flags}{x}, {y.name}", x.type, x.lanes)
            case "min" if unsigned and {x.name, y.name} & {"0", f"splat ({x.type} 0)"}:  # LLVM 22 fails on umin(fptoui x, 0)
                return Value("0", x.type)
            case "min" | "max":
                name = f"llvm.{'u' if unsigned else 's'}{op}.{_vector_suffix(x)}"
                self.intrinsic(name, x.full, [x.full, x.full])
                return self.op(f"call {x.full} @{name}({x}, {y})", x.type, x.lanes)
            case "//" | "%" if unsigned:
                y = self._safe_divisor(y)
                return self.op(f"{'udiv' if op == '//' else 'urem'} {x}, {y.name}", x.type, x.lanes)
            case "//" | "%":
                y = self._safe_divisor(y)
                quotient = self.op(f"sdiv {x}, {y.name}", x.type, x.lanes)
                rest = self.op(f"srem {x}, {y.name}", x.type, x.lanes)
                signs = self.op(f"xor {rest}, {y.name}", x.type, x.lanes)
                opposite = self.op(f"icmp slt {signs}, {_zero(x)}", "i1", x.lanes)
                inexact = self.op(f"icmp ne {rest}, {_zero(x)}", "i1", x.lanes)
                adjust = self.op(f"and {opposite}, {inexact.name}", "i1", x.lanes)
                if op == "//":
                    one = self.op(f"sext {adjust} to {x.full}", x.type, x.lanes)
                    return self.op(f"add {quotient}, {one.name}", x.type, x.lanes)
                fix = self.op(f"select {adjust}, {y}, {x.full} {_zero(x)}", x.type, x.lanes)
                return self.op(f"add {rest}, {fix.name}", x.type, x.lanes)
            case _:
                raise CodegenError(f"operator `{op}` is not for integers")

    def _safe_divisor(self, y: Value) -> Value:
        """The divisor with 1 in lanes that are masked off, where it might be 0."""
        if self.mask is None or not y.name.startswith("%"):
            return y
        if y.lanes == 1:
            return self.op(f"select {self._any_lane()}, {y}, {y.type} 1", y.type) if self.idle else y
        return self.op(f"select {self.mask}, {y}, {y.full} splat ({y.type} 1)", y.type, y.lanes)

    def unpacked(self, v: Value, dtype: str) -> Value:
        """What was loaded from memory as a value: 16-bit floats as float, bytes as bool."""
        if dtype == "bool":
            return self.op(f"icmp ne {v}, {_zero(v)}", "i1", v.lanes, key=("bool", v.name))
        if dtype not in halves.TYPES:
            return v
        known = ("unpacked", v.name)
        if known not in self.top.known:
            self.top.known[known] = self._convert(v, dtype, "float32", "float")
            self.packs[self.top.known[known].name] = v
        return self.top.known[known]

    def packed(self, v: Value, dtype: str) -> Value:
        """A value as it is stored."""
        if dtype == "bool":
            return self.op(f"zext {v} to {_typed('i8', v.lanes)}", "i8", v.lanes)
        if dtype not in halves.TYPES:
            return self.as_type(v, dtype)
        return self.packs[v.name] if v.name in self.packs else self._convert(v, "float32", dtype, "i16")

    def rounded(self, v: Value, dtype: str) -> Value:
        """A float or double rounded to a 16-bit type, if `dtype` is one."""
        if dtype not in halves.TYPES:
            return v
        if v.type == "double":
            v = self._convert(v, "float64", "float32", "float")
        return self.unpacked(self._convert(v, "float32", dtype, "i16"), dtype)

    def _convert(self, v: Value, source: str, result: str, type: str) -> Value:
        name = halves.function_name(source, result, v.lanes)
        if name not in self.module.library:
            target = self.module.target
            short = source if source in halves.TYPES else result
            feature = {"float16": "+f16c", "bfloat16": "+avx512bf16"}.get(short, "")
            native = feature in target.mattr.split(",") or (short == "float16" and target.vector_bits >= 256)  # type: ignore[attr-defined]
            self.module.library[name] = halves.definition(source, result, v.lanes, native)
        return self.op(f"call {_typed(type, v.lanes)} @{name}({v})", type, v.lanes)

    def float_binary(self, op: str, a: Expr, b: Expr) -> Value:
        dtype = a.dtype
        if op in ("+", "-") and dtype in ("float32", "float64"):
            # Multiply-add: one rounding instead of two.
            for product, other, swapped in ((b, a, False), (a, b, True)):
                if isinstance(product, Binary) and product.op == "*":
                    x, y, z = self.expr(product.a), self.expr(product.b), self.expr(other)
                    if op == "-" and swapped:  # p - z
                        z = self.op(f"fneg {z}", z.type, z.lanes)
                    elif op == "-":  # z - p
                        x = self.op(f"fneg {x}", x.type, x.lanes)
                    return self.fma(x, y, z)
        return self.float_operation(op, self.expr(a), self.expr(b), dtype)

    def float_operation(self, op: str, x: Value, y: Value, dtype: str) -> Value:
        x, y = self.together(x, y)
        match op:
            case "+" | "-" | "*" | "/":
                code = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
                result = self.op(f"{code} {x}, {y.name}", x.type, x.lanes)
            case "min" | "max":  # the first where they are equal, as with zeros of both signs
                test = self.op(f"fcmp {'olt' if op == 'min' else 'ogt'} {y}, {x.name}", "i1", x.lanes)
                result = self.op(f"select {test}, {y}, {x}", x.type, x.lanes)
            case "//" | "%":
                quotient = self.op(f"fdiv {x}, {y.name}", x.type, x.lanes)
                result = self.math("floor", self.rounded(quotient, dtype))
                if op == "%":
                    result = self.rounded(result, dtype)
                    product = self.op(f"fmul {result}, {y.name}", x.type, x.lanes)
                    result = self.op(f"fsub {x}, {self.rounded(product, dtype).name}", x.type, x.lanes)
            case _:
                raise CodegenError(f"operator `{op}` is not for floats")
        return self.rounded(result, dtype)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        x, y, z = self.together(x, y, z)
        name = f"llvm.fma.{_vector_suffix(x)}"
        self.intrinsic(name, x.full, [x.full] * 3)
        return self.op(f"call {x.full} @{name}({x}, {y}, {z})", x.type, x.lanes)

    def cast(self, dtype: str, value: Expr) -> Value:
        source = value.dtype
        v = self.expr(value)
        to = TYPES[dtype]
        kind = dtypes.TABLE[source].kind
        if dtype == "bool":
            if kind == "float":
                return self.op(f"fcmp une {v}, {_zero(v)}", "i1", v.lanes)
            return self.truth(v)
        full = _typed(to, v.lanes)
        if dtypes.is_float(dtype):
            if kind == "float":
                if dtype in halves.TYPES:
                    return v if source == dtype else self.rounded(v, dtype)
                if v.type == to:
                    return v
                return self.op(f"{'fpext' if to == 'double' else 'fptrunc'} {v} to {full}", to, v.lanes)
            verb = "uitofp" if kind in ("uint", "bool") else "sitofp"
            if dtype in halves.TYPES:  # by way of a type that holds the integer, so that it is rounded once
                wide = "double" if v.type in ("i32", "i64") else "float"
                return self.rounded(self.op(f"{verb} {v} to {_typed(wide, v.lanes)}", wide, v.lanes), dtype)
            return self.op(f"{verb} {v} to {full}", to, v.lanes)
        if kind == "float":
            # Narrow integers through 32 bits, as C does.
            wide = to if dtypes.bits(dtype) >= 32 else "i32"
            verb = "fptoui" if dtypes.TABLE[dtype].kind == "uint" and wide == to else "fptosi"
            return self.as_type(self.op(f"{verb} {v} to {_typed(wide, v.lanes)}", wide, v.lanes), dtype)
        if kind == "bool":
            return self.op(f"zext {v} to {full}", to, v.lanes)
        return self.as_type(v, dtype, signed=kind == "int")

    def select(self, c: Expr, t: Expr, f: Expr, lazy: bool) -> Value:
        effects = any(
            isinstance(n, Load) or (isinstance(n, Binary) and n.op in ("//", "%")) for side in (t, f) for n in walk(side)
        )
        if lazy and effects:
            if self._uniform(c):
                if (
                    isinstance(t, Load)
                    and isinstance(f, Const)
                    and not any(isinstance(n, Load) for i in t.indices for n in walk(i))
                ):
                    return self._load_if(self.truth(self.expr(c)), t, f)
                return self._lazy_branch(c, t, f)
            mask = self.truth(self.splat(self.expr(c)))
            x = self._in_lanes(mask, t)
            if isinstance(t, Load) and isinstance(f, Const) and f.value == 0 and self.place(t).stride != 0:
                return x  # a masked load gives 0 elsewhere
            y = self._in_lanes(self.negate(mask), f)
            return self.op(f"select {mask}, {x}, {y}", x.type, x.lanes)
        condition = self.truth(self.expr(c))
        x, y = self.together(self._typed_value(t), self._typed_value(f))
        if condition.lanes > x.lanes:
            x, y = self.splat(x, condition.lanes), self.splat(y, condition.lanes)
        return self.op(f"select {condition}, {x}, {y}", x.type, x.lanes)

    def _load_if(self, condition: Value, t: Load, f: Const) -> Value:
        """A load where the condition holds, a constant elsewhere; without a branch, by loading zeros from elsewhere."""
        outer, self.wanted = self.wanted, condition
        x = self.load(t)
        self.wanted = outer
        if f.value == 0:
            return x
        y = self.splat(self._typed_value(f), x.lanes)
        return self.op(f"select i1 {condition.name}, {x}, {y}", x.type, x.lanes)

    def _in_lanes(self, mask: Value, e: Expr) -> Value:
        """The value of `e` in the lanes of `mask`, which may be none; anything in the others."""
        outer = self.mask, self.idle
        if self.mask is not None:
            mask = self.op(f"and {mask}, {self.mask.name}", "i1", mask.lanes)
        self.mask, self.idle = mask, True
        value = self.splat(self._typed_value(e))
        self.mask, self.idle = outer
        return value

    def _any_lane(self) -> Value:
        """Whether the mask holds in some lane."""
        assert self.mask is not None
        name = f"llvm.vector.reduce.or.v{self.mask.lanes}i1"
        self.intrinsic(name, "i1", [self.mask.full])
        return self.op(f"call i1 @{name}({self.mask})", "i1", key=("any", self.mask.name))

    def _typed_value(self, e: Expr) -> Value:
        """The value in the LLVM type of its dtype, so that both sides of a choice agree."""
        return self.as_type(self.expr(e), e.dtype) if dtypes.is_int(e.dtype) else self.expr(e)

    def _lazy_branch(self, c: Expr, t: Expr, f: Expr) -> Value:
        condition = self.truth(self.expr(c))
        lanes = self.lane[1] if self.lane and not (self._uniform(t) and self._uniform(f)) else 1
        results: list[tuple[Value, str]] = []

        def side(e: Expr) -> Callable[[], None]:
            def write() -> None:
                v = self.splat(self._typed_value(e), lanes) if lanes > 1 else self._typed_value(e)
                results.append((v, self.top.label))

            return write

        self.fork(condition, side(t), side(f))
        (x, from_x), (y, from_y) = results
        return self.op(f"phi {x.full} [ {x.name}, %{from_x} ], [ {y.name}, %{from_y} ]", x.type, x.lanes)

    def call(self, op: str, args: tuple[Expr, ...], dtype: str) -> Value:
        if op == "abs" and dtypes.is_int(dtype):
            v = self.wrapped(args[0])
            if dtypes.TABLE[dtype].kind == "uint":
                return v
            name = f"llvm.abs.{_vector_suffix(v)}"
            self.intrinsic(name, v.full, [v.full, "i1"])
            return self.op(f"call {v.full} @{name}({v}, i1 false)", v.type, v.lanes)
        values = self.together(*(self.expr(a) for a in args))
        return self.rounded(self.math(op, *values), dtype)

    def math(self, op: str, *values: Value) -> Value:
        x = values[0]
        dtype = {"float": "float32", "double": "float64"}[x.type]
        name = vector_math.function_name(op, dtype, x.lanes)
        if name not in self.module.library:
            features = self.module.target.mattr.split(",")  # type: ignore[attr-defined]
            avx512 = "+avx512f" in features and "+avx512vl" in features
            self.module.library[name] = vector_math.definition(op, dtype, x.lanes, avx512)
            self.module.declarations |= vector_math.declarations(op, dtype, x.lanes, avx512)
        return self.op(f"call {x.full} @{name}({', '.join(map(str, values))})", x.type, x.lanes)


def _small(s: Stmt) -> bool:
    """Whether a statement is a store of few operations that nothing in lanes without work can harm."""
    if not isinstance(s, Store):
        return False
    nodes = list(itertools.islice(walk(s), SMALL + 1))
    return len(nodes) <= SMALL and not any(isinstance(n, Call) or (isinstance(n, Binary) and n.op in ("//", "%")) for n in nodes)


def free_names(s: Stmt) -> tuple[set[str], set[str]]:
    """The variables and the buffers that `s` uses and does not make."""
    used: tuple[set[str], set[str]] = set(), set()

    def visit(n: Node, bound: frozenset[str]) -> None:
        match n:
            case Var(name):
                if name not in bound:
                    used[0].add(name)
            case For(var, extent, body):
                visit(extent, bound)
                visit(body, bound | {var.name})
            case Let(var, value, body):
                visit(value, bound)
                visit(body, bound | {var.name})
            case Allocate(buffer, body):
                visit(buffer, bound | {buffer.name})
                visit(body, bound | {buffer.name})
            case Buffer(name, shape):
                if name not in bound:
                    used[1].add(name)
                for d in shape:
                    visit(d, bound)
            case _:
                for c in children(n):
                    visit(c, bound)

    visit(s, frozenset())
    return used


def _memory_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else "i16" if dtype in halves.TYPES else TYPES[dtype]


def _register_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else TYPES[dtype]


def _typed(type: str, lanes: int) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


def _zero(v: Value) -> str:
    if v.lanes > 1:
        return "zeroinitializer"
    return "0.0" if v.type in ("float", "double") else "false" if v.type == "i1" else "0"


def _suffix(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)


def _vector_suffix(v: Value) -> str:
    return _suffix(v.type) if v.lanes == 1 else f"v{v.lanes}{_suffix(v.type)}"


def _constant(value, dtype: str) -> Value:
    if dtype == "bool":
        return Value("true" if value else "false", "i1")
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            match dtype:
                case "float16":
                    value = float(np.float16(value))
                case "bfloat16":
                    value = _bfloat16(value)
                case "float32":
                    value = float(np.float32(value))
        return Value(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", TYPES[dtype])
    # Index arithmetic is exact in 64 bits; narrower types are cut where they meet loaded values.
    return Value(str(int(value)), "i64")


def _bfloat16(value: float) -> float:
    """The nearest bfloat16, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    if value == value:
        bits += 0x7FFF + ((bits >> 16) & 1)
    return float(np.uint32(bits & 0xFFFF0000).view(np.float32))
