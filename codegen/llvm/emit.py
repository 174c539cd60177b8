"""LLVM IR, as text, from a lowered function.

The emitter hoists invariants itself. A pure integer expression or an address is computed once, in the outermost loop in which
all of its variables are known. Vectorised loops become vector values, conditions on lanes become masks, parallel loops become
functions run by OpenMP. Register buffers become one stack slot a vector, which LLVM's SROA turns into SSA values.
"""

from __future__ import annotations

import itertools
from math import prod
from typing import assert_never

from schedule.annotation_values import value_of
from tir import dtypes
from tir.arith.bounds import bounds, extent_range
from tir.arith.prove import prove
from tir.arith.simplify import simplify, wraps
from tir.ir.blocks import Block
from tir.ir.buffers import Buffer, const_shape
from tir.ir.expressions import Binary, Call, Const, Expr, Var, conjunction, conjuncts
from tir.ir.foreign import Opaque
from tir.ir.functions import PrimFunc
from tir.ir.nodes import annotation
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from tir.traverse import children, loads, stored_names, stores, substitute, variable_names, walk

from ..passes.free_variables import scalar_ranges
from ..passes.guards import loop_facts
from ..passes.loop_schedule import chunks
from ..passes.memory_hints import IN_ORDER, NON_TEMPORAL, prefetches
from ..runtime.alignment import ALIGNMENT
from ..runtime.faults import division_statuses
from . import scratch, tiles
from .arithmetic import Arithmetic
from .division import factors_of_extent
from .parts import Parts
from .streams import Streams, beside_streams
from .threads import Threads
from .values import CodegenError, Frame, Module, Value, ascii_name, register_type, typed

MAX_MASKED_NODES = 12  # nodes of a statement that is cheaper to run with an empty mask than to branch around


def symbol(func: PrimFunc) -> str:
    """The name of the compiled function in the object file, distinct from names of the C library and of LLVM."""
    return f"tir_{ascii_name(func.name)}"


def emit(func: PrimFunc, target, numbers: bool = True) -> str:
    """The LLVM module of a lowered function: `i32 <symbol>(ptr ..., i64 ...)`, one parameter each in the order of `func.params`.

    It returns 0, NO_MEMORY where temporaries do not fit in memory, or DIVIDED where an integer is divided by zero. With `numbers`
    a status of `faults.division_statuses` identifies the division. Buffers are `noalias`: the kernel's check refuses arrays
    that overlap where one of them is written. The body is emitted twice if it has non-temporal stores outside of the loops that
    `streams` writes. One version is for arrays that begin at cache lines; the other, for other arrays, has ordinary stores.
    """
    module = Module(target, faults=division_statuses(func) if numbers else {})
    params = []
    writer = FunctionWriter(module)
    for p in func.params:
        if isinstance(p, Buffer):
            writer.buffers[p.name] = writer.fresh(p.name)
            params.append(f"ptr noalias nonnull noundef align {dtypes.nbytes(p.dtype)} {writer.buffers[p.name]}")
        else:
            writer.define(p.name, Value(writer.fresh(p.name), "i64"))
            params.append(f"i64 noundef {writer.env[p.name].name}")
    writer.given = frozenset(p.name for p in func.params if isinstance(p, Buffer))
    writer.ranges |= scalar_ranges(func.params)
    bypassing = frozenset(annotation(func.attrs, NON_TEMPORAL, ()))
    arrays = [writer.buffers[p.name] for p in func.params if isinstance(p, Buffer) and p.name in bypassing]

    def version(alignment: int) -> None:
        known = {p.name: max(alignment, dtypes.nbytes(p.dtype)) for p in func.buffers if p.name in bypassing}
        writer.streamed = {**dict.fromkeys(bypassing, ALIGNMENT), **known}
        writer.stmt(func.body)
        writer.streamed = {}

    if version_count(func, target) == 2:
        writer.fork(writer.aligned(arrays, ALIGNMENT), lambda: version(ALIGNMENT), lambda: version(1))
    else:
        writer.all_streamed = True
        version(1)
    module.functions.append(writer.finish(f"define i32 @{symbol(func)}({', '.join(params)}) #0"))
    if module.slots:
        module.functions.append(scratch.release(symbol(func), module.slots))
    return module.text()


def version_count(func: PrimFunc, target) -> int:
    """The number of times that the body of a lowered function is emitted: see `emit`."""
    arrays = {b.name for b in func.buffers} & {*annotation(func.attrs, NON_TEMPORAL, ())}
    return 2 if beside_streams(func.body, arrays, target.vector_bits // 8) else 1


class FunctionWriter(Arithmetic, Threads, Parts, Streams):
    """Writes one LLVM function, statement by statement."""

    def __init__(self, module: Module, parallel: bool = False, share: bool = False):
        super().__init__(module, parallel, share)
        self.tiles = tiles.TileRegisters()

    def stmt(self, s: Stmt) -> None:
        self.admit(*(x for x in children(s) if isinstance(x, Expr)))
        match s:
            case _ if not self.tiles.configured and self.is_long(s):
                self.parts(s)
            case Seq(stmts):
                for x, following in zip(stmts, (*stmts[1:], None), strict=True):
                    if following is None or not tiles.clears_results(self, x, following):
                        self.stmt(x)
            case For():
                self.loop(s)
            case Store():
                self.store(s)
            case If():
                self.branch(s)
            case Let(var, value, body):
                if var.name in self.env:  # a copy made by unrolling: facts about another copy's variable do not hold
                    self.count += 1
                    new = var.with_(name=f"{var.name}.{self.count}")
                    var, body = new, substitute(body, {var.name: new})
                self.define(var.name, self.as_type(self.expr(value), value.dtype) if wraps(value) else self.expr(value))
                self.stmt(body)
            case Allocate(buffer, body):
                self.admit(*buffer.shape)
                pinned = self.pinned
                if buffer.dtype == "uint8":
                    made = (bounds(x.value, {})[1] for x in stores(body) if x.buffer == buffer)
                    self.largest[buffer.name] = max((255 if most is None else most for most in made), default=255)
                self.allocate(buffer)
                if buffer.scope == "register" and _accumulates(body, buffer):
                    self.pinned += prod(const_shape(buffer)[:-1])
                self.stmt(body)
                self.pinned = pinned
            case Evaluate(value):
                self.expr(value)
            case Opaque(call):
                raise CodegenError(f"`T.{call.op}` is a foreign call, which cannot be compiled")
            case Block():
                raise CodegenError(f"block `{s.name}` reached code generation; lower_blocks must run first")
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "register":
            self.registers(buffer)
            return
        dims = [d for d in buffer.shape if not isinstance(d, Const)]
        size = dtypes.nbytes(buffer.dtype) * prod(int(d.value) for d in buffer.shape if isinstance(d, Const))
        name = self.slots.get((buffer.name, size)) if not dims else None  # copies made by unrolling share one slot
        if name is None:
            name = self.fresh(buffer.name)
            if not dims:
                self.slots[buffer.name, size] = name
            if not dims and size <= scratch.MAX_STACK_BUFFER_BYTES and self.stack + size <= scratch.MAX_STACK_BYTES:
                self.stack += size
                self.entry.append(f"{name} = alloca [{size} x i8], align {ALIGNMENT}")
            else:
                varying = [d for d in dims if self.home(variable_names(d)) is not self.frames[0] or not self._uniform(d)]
                if varying:
                    raise CodegenError(
                        f"`{buffer.name}` has an extent of {varying[0]}, which differs between iterations of the loops around, "
                        f"and has no constant bound; give `{buffer.name}` a shape that does not depend on them"
                    )
                self.within(self.frames[0], lambda: self._heap(name, size, dims))
        self.buffers[buffer.name] = name

    def _heap(self, name: str, size: int, dims: list[Expr]) -> None:
        """Allocate `size` bytes times `dims`, once a call of this function; its end frees them."""
        size = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if not dims:  # a part of the one allocation for all such buffers
            self.heap.append((name, self.heap_size))
            self.heap_size = min(self.heap_size + size, scratch.MAX_BYTES)
            return
        total = str(min(size, scratch.MAX_BYTES))
        for d in dims:  # an unsigned product that saturates
            self.declare("llvm.umul.fix.sat.i64", "i64", ["i64", "i64", "i32 immarg"])
            total = self.op(f"call i64 @llvm.umul.fix.sat.i64(i64 {total}, i64 {self.index(d).name}, i32 0)", "i64").name
        slot = self.fresh("slot")
        self.slots_to_free.append(slot)
        self.entry += [f"{slot} = alloca ptr", f"store ptr null, ptr {slot}"]
        for line in self._allocated(name, total):
            self.line(line)
        self.line(f"store ptr {name}, ptr {slot}")
        self.leave_if(Value(f"{name}.failed", "i1"))

    def registers(self, buffer: Buffer) -> None:
        """One stack slot a vector of a register buffer; SROA makes SSA values of them."""
        *axes, lanes = (int(d.value) for d in buffer.shape)  # type: ignore[attr-defined]
        prefix = self.fresh(buffer.name)
        self.buffers[buffer.name] = prefix
        self.masks[buffer.name] = self.mask
        full = typed(register_type(buffer.dtype), lanes)
        for place in itertools.product(*(range(n) for n in axes)):
            slot = ".".join([prefix, *map(str, place)])
            self.entry.append(f"{slot} = alloca {full}, align {ALIGNMENT}")
            self.line(f"store {full} poison, ptr {slot}")

    def branch(self, s: If) -> None:
        if self.constants.keys() >= variable_names(s.condition) and (known := self._decided(s.condition)) is not None:
            if known or s.orelse is not None:
                self.stmt(s.then if known else s.orelse)  # type: ignore[arg-type]
            return
        lanes = self.lane is not None and self.lane[0] in variable_names(s.condition)
        if not lanes and self._uniform(s.condition):
            condition = self.truth(self.expr(s.condition))
            self.fork(condition, lambda: self.stmt(s.then), None if s.orelse is None else lambda: self.stmt(s.orelse))  # type: ignore[arg-type]
            return
        # A condition on lanes: its uniform conjuncts become a branch, the others a mask.
        uniform = [c for c in conjuncts(s.condition) if self._uniform(c)] if s.orelse is None else []
        masked = [c for c in conjuncts(s.condition) if c not in uniform]
        if uniform:
            inner: Stmt = s.then
            for c in reversed(masked):
                inner = If(c, inner)
            self.fork(self.truth(self.expr(conjunction(*uniform))), lambda: self.stmt(inner), None)
            return
        mask = self.truth(self.splat(self.expr(s.condition)))
        match s.condition:
            case Binary("<", Var(name), Const(int(count))) if self.lane is not None and name == self.lane[0]:
                self.prefixes[mask.name] = max(0, min(count, self.lanes))
        self.masked(mask, s.then, s.condition)
        if s.orelse is not None:
            self.masked(self.negate(mask), s.orelse, None)

    def _decided(self, condition: Expr) -> bool | None:
        """The truth of a condition in this copy of unrolled loops; None if unknown."""
        known = simplify(substitute(condition, {name: Const(n) for name, n in self.constants.items()}))
        return bool(known.value) if isinstance(known, Const) else None

    def _first_lane_holds(self, condition: Expr) -> bool:
        assert self.lane is not None
        return self.mask is None and prove(substitute(condition, {self.lane[0]: Const(0)}), self.ranges, self.facts)

    def masked(self, mask: Value, body: Stmt, condition: Expr | None) -> None:
        """Run `body` in the lanes of `mask`, the value of `condition` if given.

        A branch skips it if no lane is active. None is needed if the first lane is surely active, or the body is a small store.
        """
        mask = self.narrowed(mask)
        small = _small(body)
        some_lane = not small and condition is not None and self._first_lane_holds(condition)

        def run() -> None:
            saved = self.mask, self.may_be_empty
            self.mask, self.may_be_empty = mask, small
            self.stmt(body)
            self.mask, self.may_be_empty = saved

        if small or some_lane:
            run()
            return
        saved, self.mask = self.mask, mask
        some = self.any_lane()
        self.mask = saved
        self.fork(some, run, None)

    def loop(self, s: For) -> None:
        if tiles.write_tiles(self, s):
            return
        outer = self.ahead
        self.ahead += tuple((s.name, buffer, distance) for buffer, distance in prefetches(s))
        match s.kind:
            case Kind.THREAD:
                raise CodegenError(
                    f"loop `{s.name}` is bound to {s.thread}, and the llvm target has no GPU threads; "
                    "build for cuda, or schedule it without bind"
                )
            case Kind.VECTORIZED if self.lane is None and isinstance(s.extent, Const):
                self.vector_loop(s)
            case Kind.UNROLLED if isinstance(s.extent, Const):
                self.unrolled_loop(s)
            case Kind.PARALLEL if chunks(s) and self.runs_parallel(s):
                self.parallel_loop(s)
            case _ if not self._uniform(s.extent):
                self.ragged_loop(s)
            case _ if not self.streams(s):
                self.serial_loop(s)
        self.ahead = outer

    def runs_parallel(self, s: For) -> bool:
        return not self.in_parallel and self.module.target.num_cores > 1 and not s.extent.is_one and self.lane is None

    def vector_loop(self, s: For) -> None:
        lanes = int(s.extent.value)  # type: ignore[attr-defined]
        self.runs_over(s, (0, lanes - 1))
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
        self.runs_over(s, (0, n - 1))
        self.unrolled[s.name] = n, self.top, frozenset(self.top.defined), stored_names(s.body)
        apart = value_of(s, IN_ORDER, False)
        read = {x.buffer.name for x in loads(s.body) if x.buffer.scope != "register"} if apart else set()
        for i in range(n):
            if i and apart:
                for name in read:  # each copy loads its own elements
                    self.versions[name] = self.versions.get(name, 0) + 1
                self.line('call void asm sideeffect "", "~{memory}"()')  # no instruction: LLVM moves no load across
            self.constants[s.name] = i
            self.stmt(s.body)
        del self.constants[s.name], self.unrolled[s.name]

    def ragged_loop(self, s: For) -> None:
        """Write a serial loop whose extent differs between lanes: it runs to the largest, with finished lanes masked off."""
        extent = self.splat(self.index(s.extent))
        if self.mask is not None:
            extent = self.op(f"select {self.mask}, {extent}, {extent.full} zeroinitializer", "i64", extent.lanes)
        longest = Var(f"{s.name}.{self.count}")
        self.define(longest.name, self.invoke(f"llvm.vector.reduce.smax.v{extent.lanes}i64", "i64", 1, extent))
        self.serial_loop(s.with_(extent=longest, body=If(Binary("<", s.var, s.extent), s.body)))

    def serial_loop(self, s: For, first: Value | None = None, last: Value | None = None, certain: bool = False) -> None:
        extent = last or self.index(s.extent)
        start = first.name if first else "0"
        parent = self.top
        self.runs_over(s, extent_range(s.extent, self.ranges))
        facts = len(self.facts)
        self.facts += loop_facts(s)
        head, done = self.label("loop"), self.label("done")
        index = self.fresh(s.name)
        self.env[s.name] = Value(index, "i64")
        known = isinstance(s.extent, Const) and s.extent.value >= 1 and (last is None or certain)
        enter = self.label("enter")
        way = [] if known else [Frame(enter)]
        self.frames += [*way, Frame(head, defined={s.name}, stored=stored_names(s.body), nonzero=factors_of_extent(s.extent))]
        self.stmt(s.body)
        frame = self.frames.pop()
        del self.facts[facts:]
        step = self.fresh(f"{s.name}.next")
        # Rotated form: the test is at the end of the loop, and also before it if there may be no iterations.
        for entrance in way:
            self.frames.pop()
            runs = self.op(f"icmp slt i64 {start}, {extent.name}", "i1")
            parent.lines += [f"br i1 {runs.name}, label %{enter}, label %{done}", f"{enter}:", *entrance.lines]
            parent.label = entrance.label
        parent.lines += [f"br label %{head}", f"{head}:"]
        parent.lines.append(f"{index} = phi i64 [ {start}, %{parent.label} ], [ {step}, %{frame.label} ]")
        parent.lines += frame.lines
        again = self.fresh("again")
        parent.lines += [
            f"{step} = add nuw nsw i64 {index}, 1",
            f"{again} = icmp slt i64 {step}, {extent.name}",
            f"br i1 {again}, label %{head}, label %{done}",
            f"{done}:",
        ]
        parent.label = done


def _accumulates(body: Stmt, buffer: Buffer) -> bool:
    """True if a statement accumulates into a buffer, whose registers are then occupied throughout."""
    return any(s.buffer == buffer and any(x.buffer == buffer for x in loads(s.value)) for s in stores(body))


def _small(s: Stmt) -> bool:
    """True where a statement is a store of few operations that are harmless in inactive lanes."""
    if not isinstance(s, Store):
        return False
    nodes = list(itertools.islice(walk(s), MAX_MASKED_NODES + 1))
    return len(nodes) <= MAX_MASKED_NODES and not any(
        isinstance(n, Call) or (isinstance(n, Binary) and n.op in ("//", "%")) for n in nodes
    )
