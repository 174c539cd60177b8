"""Writing one LLVM function: its blocks, the values known in them, where it allocates and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

from tir import dtypes
from tir.arith.intervals import Interval
from tir.arith.polynomial import Polynomial
from tir.ir import Buffer, Expr, Kind, Stmt
from tir.traverse import stores, variable_names

from ..passes.free_variables import free_names
from ..runtime.alignment import ALIGNMENT, size_and_alignment
from ..runtime.faults import NO_MEMORY
from . import halves, scratch
from .values import TYPES, AccessAddress, Frame, Instructions, Module, Value, ascii_name, constant, typed, zero

T = TypeVar("T")

MAX_HINT_LETTERS = 100  # letters of a program's name in an LLVM name, which is cut off at 1024


class Writer(Instructions):
    """The function that is being written, and the facts known at this point of it."""

    def __init__(self, module: Module, parallel: bool = False, share: bool = False):
        self.module = module
        self.in_parallel = parallel
        self.is_share = share  # of a parallel loop: it reports a failure by `%failure`, other functions by their result
        self.frames = [Frame("start")]
        self.entry: list[str] = []  # stack slots
        self.heap: list[tuple[str, int]] = []  # temporaries of constant size on the heap: pointers and offsets
        self.heap_size = 0  # bytes of them
        self.slots_to_free: list[str] = []  # of temporaries whose size is known at the call
        self.fails = False  # it may end early, as an allocation failed, or a divisor was 0
        self.env: dict[str, Value] = {}
        self.buffers: dict[str, str] = {}
        self.slots: dict[tuple[str, int], str] = {}  # temporaries of constant size, by name and size
        self.stack = 0  # bytes of them on the stack
        self.ranges: dict[str, Interval] = {}
        self.facts: list[Expr] = []
        self.versions: dict[str, int] = {}
        self.largest: dict[str, int] = {}  # of temporaries of uint8: a bound of their elements
        self.constants: dict[str, int] = {}  # unrolled loops: the copy being written
        self._addresses: dict[int, AccessAddress] = {}
        self._patterns: dict[object, tuple[int, ...] | None] = {}
        self._loops: dict[str, tuple[Kind, Interval]] = {}  # kind and range of the last loop of each name
        self.lane: tuple[str, int] | None = None
        self.mask: Value | None = None
        self.prefixes: dict[str, int] = {}  # of masks that hold in the first lanes alone: the number of these
        self.masks: dict[str, Value | None] = {}  # of register buffers: the lanes in use
        self.may_be_empty = False  # the mask may be false in all lanes
        self.hoisted_in: dict[str, Frame] = {}  # of values that were hoisted: their frame
        self.packs: dict[str, Value] = {}  # of 16-bit floats: the bits they were rounded to
        self.load_condition: Value | None = None  # a condition on the load being written
        self.sources: dict[str, frozenset[str]] = {}  # of conditions that were hoisted: the variables that decide them
        self.conditions: dict[str, Sequence[Expr]] = {}  # of masks of loads: the conditions that hold in their lanes
        # Unrolled loops being written: the number of copies, the frame they stand in, what was defined there before, and the
        # buffers that are stored in them.
        self.unrolled: dict[str, tuple[int, Frame, frozenset[str], frozenset[str]]] = {}
        self.masked_off_value: Value | None = None  # the value loaded where that is false, or lanes are off; None: zeros
        self.zeros = 0  # bytes of zeros to load from where a load is forbidden
        self.fills: dict[Value, tuple[str, int]] = {}  # other numbers for that: their address and count
        self.streamed: dict[str, int] = {}  # buffers whose stores bypass the caches: the bytes they are aligned to
        self.all_streamed = False  # all vectors of these do
        self.shifted: dict[str, int] = {}  # of these, in `streams`, the alignment in bytes to which vectors are shifted
        self.given: frozenset[str] = frozenset()  # buffers that are parameters
        self.pinned = 0  # vectors of the register buffers around
        self.fenced = False  # a store bypassed the caches
        self.ahead: tuple[tuple[str, str, int], ...] = ()  # prefetches: loop, buffer, iterations ahead
        self.count = 0

    @property
    def lanes(self) -> int:
        """The lanes of the vectorised loop around; 1 outside of one."""
        return self.lane[1] if self.lane else 1

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def fresh(self, hint: str = "t") -> str:
        """A name for a value, made unique by its number."""
        self.count += 1
        return f"%{ascii_name(hint)[:MAX_HINT_LETTERS]}.{self.count}"

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
            self.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
            self.entry.append(f"%zeros = alloca [{self.zeros} x i8], align {ALIGNMENT}")
            self.entry.append(f"call void @llvm.memset.p0.i64(ptr align {ALIGNMENT} %zeros, i8 0, i64 {self.zeros}, i1 false)")
        for number, (name, count) in self.fills.items():
            self.entry.append(f"{name} = alloca {typed(number.type, count)}, align {ALIGNMENT}")
            self.entry.append(f"store {typed(number.type, count)} splat ({number}), ptr {name}, align {ALIGNMENT}")
        start = ["br label %start", "start:"]
        leave: list[str] = []
        free = "call void @free(ptr %heap)"
        if self.heap:
            take = self._allocated("%heap", str(self.heap_size))
            if self.heap_size >= scratch.MIN_KEPT_BYTES:
                take[0], free = self._kept()
            start = [*take, "br i1 %heap.failed, label %fail, label %start", "fail:", *self._failing(), "start:"]
            start += [f"{name} = getelementptr i8, ptr %heap, i64 {at}" for name, at in self.heap]
        if self.fails or self.heap:
            leave += ["br label %leave", "leave:"]
        if self.heap:
            leave.append(free)
        for n, slot in enumerate(self.slots_to_free):
            leave += [f"%freed.{n} = load ptr, ptr {slot}", f"call void @free(ptr %freed.{n})"]
        if self.fenced:  # orders non-temporal stores before accesses of others that see the end
            leave.append("fence seq_cst")
        if self.is_share:
            leave.append("ret void")
        elif self.fails or self.heap:
            self.entry += ["%status = alloca i32", "store i32 0, ptr %status"]
            leave += ["%failed = load i32, ptr %status", "ret i32 %failed"]
        else:
            leave.append("ret i32 0")
        body = ["entry:", *self.entry, *start, *frame.lines, *leave]
        return header + " {\n" + "\n".join(x if x.endswith(":") else "  " + x for x in body) + "\n}"

    def _kept(self) -> tuple[str, str]:
        """The code that takes the block of large temporaries, and the code that gives it back for the next call."""
        module = self.module
        count = module.target.num_cores if self.in_parallel else 1
        slots = f"@tir.slots.{len(module.slots)}"
        module.slots.append((slots, count))
        module.library["tir.take"] = scratch.definitions(linux=sys.platform == "linux")
        module.declarations.add("declare i32 @madvise(ptr, i64, i32)")
        size, alignment = size_and_alignment(self.heap_size, ALIGNMENT)
        take = f"%heap = call noalias align {ALIGNMENT} ptr @tir.take(ptr {slots}, i64 {count}, i64 {size}, i64 {alignment})"
        return take, f"call void @tir.give(ptr {slots}, i64 {count}, ptr %heap)"

    def aligned(self, pointers: list[str], nbytes: int) -> Value:
        """True where all of the pointers are multiples of `nbytes`, a power of two."""
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
        inner, mask, may_be_empty = self.frames[level + 1 :], self.mask, self.may_be_empty
        del self.frames[level + 1 :]
        self.mask, self.may_be_empty = None, False
        result = write()
        self.frames += inner
        self.mask, self.may_be_empty = mask, may_be_empty
        return result

    def narrowed(self, mask: Value) -> Value:
        """The lanes of `mask` in which the current mask holds, too."""
        if self.mask is None:
            return mask
        both = self.op(f"and {mask}, {self.mask.name}", "i1", mask.lanes, key=("and", mask.name, self.mask.name))
        parts = [self.sources.get(m.name) for m in (mask, self.mask)]
        if parts[0] is not None and parts[1] is not None:
            self.sources[both.name] = parts[0] | parts[1]
        return both

    def declare(self, name: str, result: str, arguments: list[str]) -> None:
        self.module.declarations.add(f"declare {result} @{name}({', '.join(arguments)})")

    def perform(self, name: str, *arguments: Value) -> None:
        """Call an intrinsic of LLVM that has no result."""
        self.declare(name, "void", [a.full for a in arguments])
        self.line(f"call void @{name}({', '.join(map(str, arguments))})")

    def _allocated(self, name: str, size: str) -> list[str]:
        """The code that makes `name` a block of `size` bytes, and `name.failed` true where the allocation failed."""
        self.declare("aligned_alloc", "noalias ptr", ["i64", "i64"])
        self.declare("free", "void", ["ptr"])
        return [
            f"{name} = call noalias align {ALIGNMENT} ptr @aligned_alloc(i64 {ALIGNMENT}, i64 {size})",
            f"{name}.failed = icmp eq ptr {name}, null",
        ]

    def _failing(self, status: Value | int = NO_MEMORY) -> list[str]:
        """The code that leaves the function with a status."""
        if not self.is_share:
            return [f"store i32 {status if isinstance(status, int) else status.name}, ptr %status", "br label %leave"]
        widened = [] if isinstance(status, int) else [f"{(wide := self.fresh())} = zext {status} to i64"]
        number = status if isinstance(status, int) else wide
        return [*widened, f"store atomic i64 {number}, ptr %failure monotonic, align 8", "br label %leave"]

    def leave_if(self, failed: Value, status: Value | int = NO_MEMORY) -> None:
        """Leave the function with this status, by default that of a failed allocation, where `failed` is true."""
        self.fails = True
        fail, go_on = self.label("fail"), self.label("go_on")
        for line in (f"br i1 {failed.name}, label %{fail}, label %{go_on}", f"{fail}:", *self._failing(status), f"{go_on}:"):
            self.line(line)
        self.top.label = go_on

    # Methods that the classes of expressions and statements define, and those of memory and threads call.
    pointer_at: Callable[[Buffer, Polynomial], str]
    expr: Callable[[Expr], Value]
    operation: Callable[[str, Value, Value, str], Value]
    stmt: Callable[[Stmt], None]
    allocate: Callable[[Buffer], None]
    serial_loop: Callable[..., None]

    def index(self, e: Expr) -> Value:
        """An integer expression in 64 bits."""
        return self.as_type(self.expr(e), "int64", dtypes.TABLE[e.dtype].kind != "uint")

    def splat(self, v: Value, lanes: int | None = None) -> Value:
        """The value in every lane, by default of the current vector loop."""
        lanes = lanes or self.lanes
        if v.lanes != 1 or lanes == 1:
            return v
        if not v.name.startswith("%"):
            return Value(f"splat ({v})", v.type, lanes)
        frame = self.hoisted_in.get(v.name, self.top)  # a scalar that was computed further out is spread there
        frame = frame if frame in self.frames else self.top
        one = self.op(f"insertelement <{lanes} x {v.type}> poison, {v}, i64 0", v.type, lanes, ("one", v.name, lanes), frame)
        text = f"shufflevector {one}, {one.full} poison, <{lanes} x i32> zeroinitializer"
        return self.op(text, v.type, lanes, ("splat", v.name, lanes), frame)

    def as_type(self, v: Value, dtype: str, signed: bool = True) -> Value:
        """An integer value brought to the width of `dtype`; others unchanged."""
        type = TYPES[dtype]
        if v.type == type or not v.type.startswith("i") or not type.startswith("i") or "i1" in (v.type, type):
            return v
        if v.name.lstrip("-").isdigit():
            return Value(v.name, type, v.lanes)
        wider = int(type[1:]) > int(v.type[1:])
        verb = ("sext" if signed else "zext") if wider else "trunc"
        return self.convert(verb, v, type, key=(verb, v.name, type))

    def together(self, *values: Value) -> tuple[Value, ...]:
        """The values with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def wrapped(self, e: Expr) -> Value:
        """An integer operand in the width of its dtype."""
        return self.as_type(self.expr(e), e.dtype)

    def truth(self, v: Value) -> Value:
        """The value as i1: true unless it is 0."""
        return v if v.type == "i1" else self.op(f"icmp ne {v}, {zero(v)}", "i1", v.lanes)

    def packed(self, v: Value, dtype: str) -> Value:
        """A value as it is stored in memory."""
        if dtype == "bool":
            return self.convert("zext", v, "i8")
        if not dtypes.is_half(dtype):
            return self.as_type(v, dtype)
        return self.packs[v.name] if v.name in self.packs else self._convert(v, "float32", dtype, "i16")

    def unpacked(self, v: Value, dtype: str) -> Value:
        """The value of a loaded element: 16-bit floats as float, bytes as bool."""
        if dtype == "bool":
            return self.op(f"icmp ne {v}, {zero(v)}", "i1", v.lanes, key=("bool", v.name))
        if not dtypes.is_half(dtype):
            return v
        known = ("unpacked", v.name)
        if known not in self.top.known:
            self.top.known[known] = self._convert(v, dtype, "float32", "float")
            self.packs[self.top.known[known].name] = v
        return self.top.known[known]

    def rounded(self, v: Value, dtype: str) -> Value:
        """A float or double rounded to a 16-bit type, if `dtype` is one."""
        if not dtypes.is_half(dtype):
            return v
        if v.type == "double":
            v = self._convert(v, "float64", "float32", "float")
        return self.unpacked(self._convert(v, "float32", dtype, "i16"), dtype)

    def _convert(self, v: Value, source: str, result: str, type: str) -> Value:
        name = halves.function_name(source, result, v.lanes)
        if name not in self.module.library:
            target = self.module.target
            short = source if dtypes.is_half(source) else result
            native = bool(halves.NATIVE.get(short, frozenset()) & target.features)
            self.module.library[name], declarations = halves.definition(source, result, v.lanes, native)
            self.module.declarations |= declarations
        return self.op(f"call {typed(type, v.lanes)} @{name}({v})", type, v.lanes)

    def identity(self, op: str, dtype: str) -> Value:
        """The identity of an operator, in the type in which `dtype` is computed."""
        low, high = dtypes.limits(dtype)
        value = {"+": 0, "*": 1, "min": high, "max": low, "and": True, "or": False}[op]
        return self.as_type(constant(float(value) if dtypes.is_float(dtype) else value, dtypes.computed(dtype)), dtype)

    def any_lane(self) -> Value:
        """True where the mask holds in some lane."""
        assert self.mask is not None
        return self.invoke(f"llvm.vector.reduce.or.v{self.mask.lanes}i1", "i1", 1, self.mask, key=("any", self.mask.name))

    def inner(self, s: Stmt, share: bool = False) -> tuple[Self, list[Value], list[Value]]:
        """The writer of a part of this function, the buffers and variables passed to it, and its parameters for them."""
        variables, buffers = free_names(s)
        writer = type(self)(self.module, self.in_parallel or share, share)
        writer.ranges = dict(self.ranges)
        writer.facts = list(self.facts)
        writer.constants = dict(self.constants)
        writer.streamed, writer.all_streamed, writer.given = self.streamed, self.all_streamed, self.given
        writer.ahead = self.ahead
        writer.top.nonzero = {d for frame in self.frames for d in frame.nonzero}
        passed: list[Value] = []
        parameters: list[Value] = []
        for name in sorted(buffers):
            passed.append(Value(self.buffers[name], "ptr"))
            writer.buffers[name] = writer.fresh(name)
            parameters.append(Value(writer.buffers[name], "ptr noalias"))
        for name in sorted(variables.keys() - set(self.constants)):
            passed.append(self.env[name])
            writer.define(name, Value(writer.fresh(name), self.env[name].type))
            parameters.append(writer.env[name])
        for x in stores(s):
            self.versions[x.buffer.name] = self.versions.get(x.buffer.name, 0) + 1
        return writer, passed, parameters

    def _uniform(self, e: Expr) -> bool:
        """True where the value is the same in every lane."""
        if self.lane is None:
            return True
        return not any(n == self.lane[0] or (n in self.env and self.env[n].lanes > 1) for n in variable_names(e))

    def fork(self, condition: Value, then: Callable[[], None], orelse: Callable[[], None] | None) -> None:
        """`if condition: then() else: orelse()`."""
        done = self.label("endif")
        arms = [(self.label("then"), then)] + ([(self.label("else"), orelse)] if orelse else [])
        written: list[Frame] = []
        starts: list[str] = []
        for name, body in arms:
            starts.append(name)
            self.frames.append(Frame(name))
            body()
            written.append(self.frames.pop())
        frame = self.top
        frame.lines.append(f"br i1 {condition.name}, label %{starts[0]}, label %{starts[1] if orelse else done}")
        for start, arm in zip(starts, written, strict=True):
            frame.lines += [f"{start}:", *arm.lines, f"br label %{done}"]
        frame.lines.append(f"{done}:")
        frame.label = done
