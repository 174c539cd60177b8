"""CUDA C, as text, from lowered kernels.

One `__global__` function a kernel. Local buffers are arrays of constant shape whose loops are unrolled, so that the compiler
keeps them in registers. Vectorised loops load and store 4, 8 or 16 bytes at once where elements are consecutive and aligned, and
are unrolled otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from schedule.machine import MAX_ACCESS_BYTES, STATIC_SHARED_BYTES
from tir import dtypes
from tir.arith.bounds import bounds, extent_range
from tir.arith.intervals import UNBOUNDED, Interval
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify, wraps
from tir.intrinsics import INTRINSICS
from tir.ir.blocks import Block
from tir.ir.buffers import Buffer, Load, const_shape
from tir.ir.expressions import Call, Const, Expr, Select, Var
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from tir.script.printer import stmt_text
from tir.traverse import children, fresh, loads, substatements, substitute, variables, walk

from ..export import KEYWORDS as C_WORDS
from ..passes.free_variables import scalar_ranges
from ..passes.gpu_kernels import AXES
from ..passes.software_pipeline import ASYNCHRONOUS, copied_element
from ..passes.swizzle import alignment
from ..passes.thread_storage_sync import BARRIER
from .banks import ThreadAccess
from .expressions import STORAGE, VALUE, ExpressionWriter, bytes_at_once, flat_offset
from .lanes import lane_outside_divisions, same_in_lanes
from .prelude import FUNCTIONS, device_function, prelude
from .program import DeviceFunction, Program, lower_cuda

ASYNC_COPY_BYTES = (4, 8, 16)  # bytes that can be copied to shared memory without waiting
MAX_GATHERED_LANES = 16  # elements, a register each, that an unrolled loop loads before it uses them
MAX_UNROLLED_STATEMENTS = 4096  # statements; a loop over a local buffer that would make more is not unrolled
VECTOR = {16: "int4", 8: "int2", 4: "int", 2: "short"}  # types by the bytes that they move

# Names of CUDA, beside the keywords of C++.
_WORDS = """
half fabs fabsf fma fmaf min max truncated
threadIdx blockIdx blockDim gridDim warpSize dynamic_shared y0 y1 yn j0 j1 jn
"""
KEYWORDS = C_WORDS | frozenset((*_WORDS.split(), *INTRINSICS, *FUNCTIONS))


@dataclass(frozen=True)
class CudaSource:
    """CUDA C of a program: the whole `text`, and its functions alone in `kernels`. `lines` maps line numbers, from 1, to
    statements of the IR. `shared_bytes` is the dynamic shared memory of each kernel, `accesses` its accesses to memory
    with the ranges of their variables."""

    text: str
    kernels: str
    lines: dict[int, str]
    shared_bytes: tuple[int, ...]
    accesses: tuple[tuple[tuple[ThreadAccess, ...], dict[str, Interval]], ...]


def cuda_source(func: PrimFunc | Program, target=None) -> str:
    """The CUDA C of a scheduled function, without a GPU or NVRTC. Raises GPUError for a schedule that a GPU does not support."""
    return emit(func if isinstance(func, Program) else lower_cuda(func, target)).text


def emit(program: Program) -> CudaSource:
    """The CUDA C of a program."""
    writers = [_Kernel(k) for k in program.kernels]
    kernels = "\n\n".join("\n".join(w.lines) for w in writers) + "\n"
    head = prelude(kernels)
    head = f"{head}\n\n" if head else ""
    notes: dict[int, str] = {}
    line = head.count("\n")
    for w in writers:
        notes |= {line + n + 1: note for n, note in w.notes.items()}
        line += len(w.lines) + 1
    accesses = tuple((tuple(w.write.accesses), w.write.ranges) for w in writers)
    return CudaSource(head + kernels, kernels, notes, tuple(w.dynamic for w in writers), accesses)


class _Kernel:
    def __init__(self, kernel: DeviceFunction):
        self.kernel = kernel
        self.lines: list[str] = []
        self.notes: dict[int, str] = {}
        self.names: dict[str, str] = {}
        self.taken = set(KEYWORDS)
        self.depth = 1
        self.dynamic = 0
        self.write = ExpressionWriter(self.names, {**scalar_ranges(kernel.params), **kernel.ranges})
        self.head()
        self.stmt(kernel.body)
        self.lines.append("}")

    def name(self, wanted: str) -> str:
        text = re.sub(r"\W", "_", wanted)
        result = self.names[wanted] = fresh(self.taken, f"_{text}" if text[0].isdigit() else text)
        return result

    def line(self, text: str, origin: Stmt | None = None) -> None:
        if origin is not None:
            self.notes[len(self.lines)] = stmt_text(origin).strip().splitlines()[0]
        self.lines.append("  " * self.depth + text)

    def head(self) -> None:
        k = self.kernel
        self.taken.add(k.name)
        params = []
        for p in k.params:
            if isinstance(p, Buffer):
                const = "" if p.name in k.written else "const "
                params.append(f"{const}{STORAGE[p.dtype]}* __restrict__ {self.name(p.name)}")
            else:
                params.append(f"{STORAGE[p.dtype]} {self.name(p.name)}")
        threads = f"{prod(k.block)}, {k.resident}" if k.resident > 1 else str(prod(k.block))
        self.lines.append(f'extern "C" __global__ void __launch_bounds__({threads}) {k.name}({", ".join(params)}) {{')
        used = variables(k.body)
        for kind in ("blockIdx", "threadIdx"):
            for a in AXES:
                var = k.indices[f"{kind}.{a}"]
                if var.name in used:
                    self.line(f"const int {self.name(var.name)} = {kind}.{a};")
        shared = sorted(k.shared, key=alignment, reverse=True)
        total = sum(_padded(b) for b in shared)
        if total > STATIC_SHARED_BYTES:
            self.dynamic = total
            self.line(f"extern __shared__ __align__({alignment(shared[0])}) unsigned char dynamic_shared[];")
        offset = 0
        for b in shared:
            kind, name = STORAGE[b.dtype], self.name(b.name)
            if self.dynamic:
                self.line(f"{kind}* const {name} = ({kind}*)(dynamic_shared + {offset});  // {_size(b)}")
            else:
                self.line(f"__shared__ __align__({alignment(b)}) {kind} {name}[{_size(b)}];")
            offset += _padded(b)

    def stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.stmt(x)
            case For(kind=Kind.VECTORIZED):
                self.vector(s)
            case For(kind=Kind.UNROLLED) if _gathers(s):
                self.vector(s)
            case For():
                self.loop(s)
            case Store(buffer, indices, Call(op, (value,))) if op == ASYNCHRONOUS:
                if not self.copy(s, value):
                    self.stmt(s.with_(value=value))
            case Store(buffer, indices, value):
                self.line(f"{self.write.element(buffer, indices)} = {self.write.stored(value, buffer.dtype)};", s)
            case If(condition, then, orelse):
                arms = [partial(self.stmt, x) for x in (then, orelse) if x is not None]
                self.branch(self.write(condition), s, *arms)
            case Let(var, value, body):
                held = wraps(value) or self.write.fits(value)
                self.write.ranges[var.name] = UNBOUNDED if wraps(value) else bounds(value, self.write.ranges)
                self.line(f"const {VALUE[var.dtype if held else 'int64']} {self.name(var.name)} = {self.write(value)};", s)
                self.write.bound[var.name] = substitute(value, self.write.bound)
                self.stmt(body)
            case Allocate(buffer, body):
                self.line(f"__align__(16) {STORAGE[buffer.dtype]} {self.name(buffer.name)}[{_size(buffer)}];", s)
                self.stmt(body)
            case Evaluate(Call(op)) if op == BARRIER:
                self.line("__syncthreads();")
            case Evaluate(Const()):
                pass
            case Evaluate(Call(op, args)) if device_function(op):
                accesses = [x for x in args if isinstance(x, Load)]
                starts = [self.write.offset(x.buffer, x.indices, MAX_ACCESS_BYTES) for x in accesses]
                places = [f"{self.names[x.buffer.name]} + {start}" for x, start in zip(accesses, starts, strict=True)]
                numbers = ", ".join(str(x) for x in args if isinstance(x, Const))
                self.line(f"{op}{numbers and f'<{numbers}>'}({', '.join(places)});", s if places else None)
            case Evaluate(value):
                self.line(f"{self.write(value)};", s)
            case Block():
                raise TypeError(f"block `{s.name}` reached the emitter")
            case _:
                raise TypeError(f"{type(s).__name__} has no form in CUDA C")

    def branch(self, condition: str, origin: Stmt, *arms: Callable[[], None]) -> None:
        """Write the first arm under the condition, and the second, if any, under its negation."""
        self.line(f"if ({condition}) {{", origin)
        for number, write in enumerate(arms):
            if number:
                self.line("} else {")
            self.depth += 1
            write()
            self.depth -= 1
        self.line("}")

    def loop(self, s: For) -> None:
        if s.kind is Kind.UNROLLED or self.indexes_local(s):
            self.line("#pragma unroll")
            if isinstance(s.extent, Const):
                self.write.unrolled[s.var] = int(s.extent.value)
        kind = VALUE[s.var.dtype if self.write.fits(s.extent) else "int64"]
        extent = self.write(s.extent)
        name = self.name(s.var.name)
        self.line(f"for ({kind} {name} = 0; {name} < {extent}; ++{name}) {{", s)
        self.write.ranges[s.var.name] = extent_range(s.extent, self.write.ranges)
        self.depth += 1
        self.stmt(s.body)
        self.depth -= 1
        self.write.unrolled.pop(s.var, None)
        self.line("}")

    def indexes_local(self, s: For) -> bool:
        """True where a loop of constant extent indexes a local buffer, which has no addresses while in registers."""
        if not isinstance(s.extent, Const) or _count_stores(s) > MAX_UNROLLED_STATEMENTS:
            return False
        return any(
            isinstance(n, (Load, Store)) and n.buffer.scope == "local" and s.name in variables(*n.indices) for n in walk(s.body)
        )

    # vectors

    def vector(self, s: For) -> None:
        """Write a loop over lanes: consecutive elements in memory are moved at once, the lanes are computed one by one."""
        if not isinstance(s.extent, Const) or int(s.extent.value) < 2:
            self.loop(s.with_(kind=Kind.UNROLLED))
            return
        n = int(s.extent.value)
        self.in_lanes(s, lane_outside_divisions(s.body, s.var, {**self.write.ranges, s.var.name: (0, n - 1)}), n)

    def in_lanes(self, s: For, body: Stmt, n: int) -> None:
        """Write a loop over n lanes with this `body`: conditions that all lanes share are branches around it."""
        inside = {**self.write.ranges, s.var.name: (0, n - 1)}

        def first(condition: Expr) -> str:
            return self.write(simplify(substitute(condition, {s.var: Const(0, s.var.dtype)}), inside))

        match body:
            case If(c, then, None) if same_in_lanes(c, s.var, n, inside):
                self.branch(first(c), s, lambda: self.in_lanes(s, then, n))
            case Store(value=Call(op, (value,))) if op == ASYNCHRONOUS:
                plain = body.with_(value=value)
                if self.copy(plain, value, s.var, n):
                    return
                if dtypes.nbytes(body.buffer.dtype) in ASYNC_COPY_BYTES:  # one by one
                    self.loop(s.with_(kind=Kind.UNROLLED, body=body))
                else:
                    self.in_lanes(s, plain, n)
            case Store(_, _, Select(c, t, f, True)) if same_in_lanes(c, s.var, n, inside) and not loads(c):
                arms = [partial(self.lanes, s, body.with_(value=x), n) for x in (t, f)]
                self.branch(first(c), s, *arms)
            case Store():
                self.lanes(s, body, n)
            case _:
                self.loop(s.with_(kind=Kind.UNROLLED, body=body))

    def lanes(self, s: For, store: Store, n: int) -> None:
        inside = {**self.write.ranges, s.var.name: (0, n - 1)}
        always = [x for x in dict.fromkeys(_eager(store.value)) if not any(loads(i) for i in x.indices)]
        vectors = {x: w for x in always if (w := self.width(x.buffer, x.indices, s.var, n, inside))}
        width = self.width(store.buffer, store.indices, s.var, n, inside)
        if not vectors and not width:
            self.loop(s.with_(kind=Kind.UNROLLED, body=store))
            return

        def move(width: int, to: str | Load | Store, source: str | Load, origin: Stmt | None = None) -> None:
            """Move all lanes, `width` bytes at a time, between memory and arrays in registers."""
            for part in range(0, n, width // dtypes.nbytes(store.buffer.dtype if isinstance(source, str) else source.dtype)):
                a, b = (
                    f"{x} + {part}" if isinstance(x, str) else self.place(x.buffer, x.indices, s.var, part, inside, width)
                    for x in (to, source)
                )
                self.line(f"*({VECTOR[width]}*)({a}) = *(const {VECTOR[width]}*)({b});", origin)

        def array(buffer: Buffer) -> str:
            name = self.name(f"{buffer.name}_lanes")
            self.line(f"__align__(16) {STORAGE[buffer.dtype]} {name}[{n}];")
            return name

        if isinstance(store.value, Load) and width and vectors.get(store.value) == width:  # a copy
            move(width, store, store.value, store)
            return
        self.line("{", s)
        self.depth += 1
        names: dict[Load, str] = {}
        for x, w in vectors.items():
            names[x] = array(x.buffer)
            move(w, names[x], x)
        target = array(store.buffer) if width else ""
        lane = self.name(s.var.name)
        self.write.ranges[s.var.name] = (0, n - 1)
        self.write.lanes = {x: f"{name}[{lane}]" for x, name in names.items()}
        element = f"{target}[{lane}]" if width else self.write.element(store.buffer, store.indices)
        value = self.write.stored(store.value, store.buffer.dtype)
        self.line("#pragma unroll")
        self.line(f"for (int {lane} = 0; {lane} < {n}; ++{lane}) {element} = {value};", store)
        self.write.lanes = {}
        if width:
            move(width, store, target, store)
        self.depth -= 1
        self.line("}")

    def place(
        self, buffer: Buffer, indices: tuple[Expr, ...], lane: Var, part: int, ranges: dict[str, Interval], width: int
    ) -> str:
        """The address of lane number `part`, at which `width` bytes are moved."""
        start = simplify(substitute(flat_offset(buffer, indices, ranges), {lane: Const(0, lane.dtype)}) + part, ranges)
        return f"{self.names[buffer.name]} + {self.write.start(start, buffer, width)}"

    def copy(self, store: Store, value: Expr, lane: Var | None = None, n: int = 1) -> bool:
        """Write an asynchronous copy from global to shared memory; False where its width is not supported."""
        found = copied_element(value, store.buffer.dtype)
        if found is None:
            return False
        source, condition = found
        lane = Var("") if lane is None else lane
        inside = {**self.write.ranges, lane.name: (0, n - 1)}
        each = dtypes.nbytes(store.buffer.dtype)
        width = each
        if n > 1:
            width = self.width(store.buffer, store.indices, lane, n, inside)
            if width != self.width(source.buffer, source.indices, lane, n, inside) or (
                condition is not None and not same_in_lanes(condition, lane, n, inside)
            ):
                return False
        if width not in ASYNC_COPY_BYTES:
            return False
        there = ""
        if condition is not None:
            there = f", {self.write(simplify(substitute(condition, {lane: Const(0, lane.dtype)}), inside))}"
        for part in range(0, n, width // each):
            to, origin = (self.place(x.buffer, x.indices, lane, part, inside, width) for x in (store, source))
            self.line(f"copy_async<{width}>({to}, {origin}{there});", store)
        return True

    def width(self, buffer: Buffer, indices: tuple[Expr, ...], lane: Var, n: int, ranges) -> int:
        """The bytes that can be moved at once where lanes 0 to n - 1 access consecutive elements; else 0."""
        if buffer.scope == "local":
            return 0
        return bytes_at_once(polynomial(flat_offset(buffer, indices, ranges)), lane, n, dtypes.nbytes(buffer.dtype))


def _gathers(s: For) -> bool:
    """True where a short loop is one store to local memory that loads global memory: all lanes can load before one stores."""
    body = s.body
    while isinstance(body, If) and body.orelse is None and not loads(body.condition):
        body = body.then
    if not isinstance(s.extent, Const) or s.extent.value > MAX_GATHERED_LANES:
        return False
    if not isinstance(body, Store) or body.buffer.scope != "local":
        return False
    return any(x.buffer.scope == "global" for x in _eager(body.value))


def _eager(e: Expr) -> list[Load]:
    """The loads that every evaluation of `e` executes."""
    match e:
        case Load():
            return [e]
        case Select(c, _, _):
            return _eager(c)
        case _:
            return [x for c in children(e) if isinstance(c, Expr) for x in _eager(c)]


def _count_stores(s: Stmt) -> int:
    """The stores of a statement once its loops are unrolled."""
    times = int(s.extent.value) if isinstance(s, For) and isinstance(s.extent, Const) else 1
    return isinstance(s, Store) + times * sum(map(_count_stores, substatements(s)))


def _size(b: Buffer) -> int:
    return max(1, prod(const_shape(b)))


def _padded(b: Buffer) -> int:
    """The bytes of a buffer, padded to where a vector may start."""
    return -(-_size(b) * dtypes.nbytes(b.dtype) // MAX_ACCESS_BYTES) * MAX_ACCESS_BYTES
