"""The features of statements, as array programs over whole populations.

The 164 numbers by which Ansor describes a statement (OSDI 2020, section 5.2 and appendix B), and some about the machine. All but
indicators go through slog(x) = log2(x + 1). Intended differences from the original:

- A multiplication whose result is added counts as a `mad`; the original counts none.
- Vectorised, unrolled and parallel loops have indicators of their place and of their axis, spatial or reduction. The original has
  only their presence.
- `lines` divides by the lengths of all loops inside the one that moves an access, the original by that of the innermost loop as
  often. Contiguous bytes are those of the buffer itself, not of the last one looked at.
- An initial value of a reduction is no access of its own; the original's serial reuse depends on the order of statements.
- The written buffer comes first, the others in the order in which the expression reads them. The original sorts by the number of
  lines, which may differ between rows; here a feature means the same in all rows of a sketch.
- Loops of one iteration don't count, whatever their kind.
- GPU lengths are those of the loops bound to threads, per statement; `is_gpu` marks a statement with such loops.

New features (`MACHINE`): cores, vector lanes and caches, so that a model can tell machines apart; registers, and bytes moved into
each cache. The share of iterations that guards throw away, which no feature of the original sees. A rough estimate of the time in
nanoseconds. The annotations of loops. The device that measured, 0 for the one that is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import mul

import numpy as np

from schedule.machine import CACHE_LINE_BYTES, Machine
from tir.ir import Kind

from .loopnest import BufferAccess, Loop, ProgramDescription, Statement
from .recording import Number, Recorder, Recording, Value, and_not, ceil, logical_or, maximum, minimum, product, where

MAX_BUFFERS = 5
INTENSITY_SAMPLES = 10  # of the curve of arithmetic intensity
LINE_CYCLES = (2.0, 6.0, 14.0)  # of a cache line from L2, L3 and memory: round figures, the same for all machines
CYCLES_PER_NANOSECOND = 3.0  # a round figure, as the trees correct it
MIN_NANOSECONDS = 100.0  # of the shortest loop: starting it; a round figure, too
MAX_PLANS = 8192  # statements of which the recorded formulas are kept
CHUNK_ROWS = 1024  # rows evaluated at a time, so that results stay in the cache

OPERATIONS = (
    "float_mad", "float_addsub", "float_mul", "float_divmod", "float_cmp", "float_mathfunc", "float_otherfunc",
    "int_mad", "int_addsub", "int_mul", "int_divmod", "int_cmp", "int_mathfunc", "int_otherfunc",
    "bool_op", "select_op",
)  # fmt: skip
POSITIONS = ("None", "InnerSpatial", "MiddleSpatial", "OuterSpatial", "InnerReduce", "MiddleReduce", "OuterReduce", "Mixed")
ANNOTATIONS = (("vec", Kind.VECTORIZED), ("unroll", Kind.UNROLLED), ("parallel", Kind.PARALLEL))
THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread")
ACCESS = (
    "acc_type.kRead", "acc_type.kWrite", "acc_type.kReadWrite", "bytes", "unique_bytes", "lines", "unique_lines",
    "reuse_type.kLoopMultipleRead", "reuse_type.kSerialMultipleReadWrite", "reuse_type.kNoReuse",
    "reuse_dis_iter", "reuse_dis_bytes", "reuse_ct",
    "bytes_d_reuse_ct", "unique_bytes_d_reuse_ct", "lines_d_reuse_ct", "unique_lines_d_reuse_ct", "stride",
)  # fmt: skip
ANSOR = (
    *OPERATIONS,
    *(f"{a}_{x}" for a, _ in ANNOTATIONS for x in ("num", "prod", "len", *(f"type.{p}" for p in POSITIONS))),
    "is_gpu",
    *(f"{t.replace('.', '_')}_len" for t in THREADS),
    *(f"B{n}.{x}" for n in range(MAX_BUFFERS) for x in ACCESS),
    *(f"arith_intensity_curve_{n}" for n in range(INTENSITY_SAMPLES)),
    "alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod",
    "outer_prod", "num_loops", "auto_unroll_max_step",
)  # fmt: skip
MACHINE = (
    "threads", "lanes", "l1", "l2", "l3", "waste", "lane_waste", "tasks_waste", "accumulators", "register_loads",
    "accumulators_d_loads", "l1_bytes", "l2_bytes", "l3_bytes", "work_a_thread", "estimate",
    "chunk", "dynamic", "prefetch", "streamed", "stages", "resident", "device",
)  # fmt: skip
NAMES = (*ANSOR, *MACHINE)
_RAW = {n for n, name in enumerate(NAMES) if "type." in name or name == "is_gpu"}


def features(program: ProgramDescription, rows: np.ndarray, machine: Machine) -> np.ndarray:
    """The features of all statements for all rows: a (statements, n, len(NAMES)) float32 array.

    `rows` is the (n, columns) matrix of the numbers in the program's formulas; it is (1, 0) for a program without columns.
    """
    result = np.empty((len(program.statements), len(rows), len(NAMES)), dtype=np.float32)
    for n, statement in enumerate(program.statements):
        for start, chunk in chunks(statement, rows, machine):
            result[n, start : start + chunk.shape[1]] = chunk.T
    return result


def chunks(statement: Statement, rows: np.ndarray, machine: Machine, extra: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of a statement's features: first row, and a float32 matrix (len(NAMES) + extra, rows), overwritten by the next."""
    plan = _plan(statement, machine)
    size = min(CHUNK_ROWS, max(1, len(rows)))
    matrix = np.empty((len(NAMES) + extra, size), dtype=np.float32)
    matrix[plan.same] = plan.constants
    results = np.empty((len(plan.varying), size), dtype=np.float32)
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        if len(part) < size:
            matrix, results = np.ascontiguousarray(matrix[:, : len(part)]), results[:, : len(part)]
        plan.recording.run(part, results)
        logs = results[plan.logarithmic]
        logs += 1.0
        results[plan.logarithmic] = np.log2(logs, out=logs)
        matrix[plan.varying] = results
        yield start, matrix


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The features of a statement: the values of the constant ones, and a recording that computes the varying ones."""

    same: np.ndarray
    constants: np.ndarray  # (len(same), 1)
    varying: np.ndarray  # the number of the feature that each result of the recording is
    logarithmic: np.ndarray  # the results that go through slog
    recording: Recording


@lru_cache(maxsize=MAX_PLANS)
def _plan(statement: Statement, machine: Machine) -> _Plan:
    recorder = Recorder()
    values = _statement(statement, recorder, machine)
    varying = [n for n, v in enumerate(values) if isinstance(v, Number)]
    same = [n for n, v in enumerate(values) if not isinstance(v, Number)]
    plain = [float(values[n]) if n in _RAW else np.log2(float(values[n]) + 1.0) for n in same]  # type: ignore[arg-type]
    return _Plan(
        np.array(same, dtype=np.int64),
        np.array(plain, dtype=np.float32)[:, None],
        np.array(varying, dtype=np.int64),
        np.array([k for k, n in enumerate(varying) if n not in _RAW], dtype=np.int64),
        recorder.compiled({k: values[n] for k, n in enumerate(varying)}),
    )


@lru_cache(maxsize=MAX_PLANS)
def recorded(statement: Statement, machine: Machine, names: tuple[str, ...]) -> Recording:
    """The program that computes some features of a statement, by their names, before slog."""
    recorder = Recorder()
    values = dict(zip(NAMES, _statement(statement, recorder, machine), strict=True))
    return recorder.compiled({k: values[name] for k, name in enumerate(names)})


# --- one statement -----------------------------------------------------------------------------------------------------


def _statement(s: Statement, recorder: Recorder, machine: Machine) -> list[Value]:
    """The features of a statement in the order of NAMES, before slog."""
    number = recorder.number
    extents = [number(loop.extent) for loop in s.loops]
    depth = len(extents)
    outer: list[Value] = [1.0, *accumulate(extents, mul)]  # iterations of the loops down to a depth
    inner: list[Value] = [1.0, *accumulate(reversed(extents), mul)][::-1]  # and from a depth on
    total = inner[0]
    accesses = [_AccessFeatures(t, s, recorder, extents, inner) for t in s.accesses]
    # Bytes of all buffers that the loops from a depth on touch.
    bytes_at = [sum((n.elements[d] * n.access.nbytes for n in accesses), start=0.0) for d in range(depth + 1)]

    result: list[Value] = [s.operations[op] * total for op in OPERATIONS]
    for _, kind in ANNOTATIONS:
        result += _annotated(s.loops, extents, kind)
    threads: dict[str, Value] = {}
    for loop, e in zip(s.loops, extents, strict=True):
        if loop.kind is Kind.THREAD:
            axis = "vthread" if loop.thread.startswith("vthread") else loop.thread
            threads[axis] = threads.get(axis, 1.0) * e
    result.append(float(bool(threads)))
    result += [threads.get(t, 1.0) for t in THREADS]
    for n in range(MAX_BUFFERS):
        result += accesses[n].features(bytes_at) if n < len(accesses) else [0.0] * len(ACCESS)
    result += _intensity(sum(c for op, c in s.operations.items() if op.startswith("float")), inner, bytes_at)
    result += _allocation(s, accesses[0], outer, inner)
    loops = sum((where(e > 1, 1.0, 0.0) for e in extents), start=0.0)
    unroll = next((number(loop.unroll) for loop in reversed(s.loops) if loop.unroll), 0.0)
    result += [total, loops, unroll]
    result += _machine(s, recorder, extents, outer, total, accesses, bytes_at, machine)
    return result


def _annotated(loops: tuple[Loop, ...], extents: list[Value], kind: Kind) -> list[Value]:
    """The number of loops of a kind, the product of their lengths, the innermost length, and indicators of their place."""
    mine = [n for n, loop in enumerate(loops) if loop.kind is kind]
    position = "None"
    if mine:
        driven = {loops[n].reduce for n in mine}
        side = "Inner" if mine[-1] == len(loops) - 1 else "Outer" if mine[0] == 0 else "Middle"
        position = "Mixed" if len(driven) > 1 else f"{side}{'Reduce' if driven.pop() else 'Spatial'}"
    length, total = (extents[mine[-1]], product(extents[n] for n in mine)) if mine else (0.0, 0.0)
    return [float(len(mine)), total, length, *(float(p == position) for p in POSITIONS)]


def _intensity(operations: int, inner: list[Value], bytes_at: list[Value]) -> list[Value]:
    """Arithmetic intensity, operations a byte, sampled where loops have run a tenth, two tenths, ..., all of the iterations."""
    if not operations:
        return [0.0] * INTENSITY_SAMPLES
    curve = [i / b for i, b in zip(inner, bytes_at, strict=True)]
    last = len(inner) - 1
    slopes: list[Value] = []  # intensity is linear in the iterations between one depth and the next
    starts: list[Value] = []
    for d in range(len(inner)):
        within = min(d + 1, last)
        slopes.append((curve[d] - curve[within]) / maximum(inner[d] - inner[within], 1.0))
        starts.append(curve[within] - slopes[d] * inner[within])
    result: list[Value] = []
    for k in range(INTENSITY_SAMPLES):
        at = inner[0] * ((k + 1) / INTENSITY_SAMPLES)
        slope, start = slopes[0], starts[0]
        for d in range(1, len(inner)):  # down to the innermost depth that has run as many
            reached = inner[d] >= at
            slope, start = where(reached, slopes[d], slope), where(reached, starts[d], start)
        result.append((start + slope * at) * operations)
    return result


def _allocation(s: Statement, written: _AccessFeatures, outer: list[Value], inner: list[Value]) -> list[Value]:
    """Four numbers of a written buffer that the function allocates: bytes; elements times outer iterations; outer; inner
    iterations. Outer are the iterations of the loops around the allocation, inner of those within; all are 0 for a parameter."""
    if s.allocated is None:
        return [0.0] * 4
    elements, around = product(written.shape), outer[s.allocated]
    return [elements * written.access.nbytes, elements * around, around, inner[s.allocated]]


def _machine(
    s: Statement, recorder: Recorder, extents: list[Value], outer: list[Value], total: Value, accesses: list[_AccessFeatures],
    bytes_at: list[Value], machine: Machine,
) -> list[Value]:  # fmt: skip
    lanes = max(1, machine.vector_bits // (8 * accesses[0].access.nbytes))
    number = recorder.number
    shared = [loop for loop in s.loops if loop.kind is Kind.PARALLEL]
    tasks = product(e for x, e in zip(s.loops, extents, strict=True) if x.kind in (Kind.PARALLEL, Kind.THREAD))
    chunk = _maximum_of(number(loop.chunk) for loop in shared)
    once = maximum(chunk, 1.0)
    start = len(extents)  # depth of the outermost of the vectorised and unrolled loops at the inner end
    while start and s.loops[start - 1].kind in (Kind.VECTORIZED, Kind.UNROLLED):
        start -= 1
    vector = next((n for n in range(start, len(extents)) if s.loops[n].kind is Kind.VECTORIZED), None)
    length = extents[vector] if vector is not None else 1.0
    vectors = ceil(length / lanes)
    registers = [n.elements[start] for n in accesses]
    if vector is not None:
        registers = [where(n.steps[vector][1], r / length * vectors, r) for n, r in zip(accesses, registers, strict=True)]
    loads = sum((r for n, r in zip(accesses, registers, strict=True) if n.access.read and not n.access.written), start=0.0)
    moved: list[Value] = []
    for size in machine.caches:
        # A tile that fits stays in the cache while the loop around it runs, which loads its own bytes once.
        level = bytes_at[-1] * outer[-1]
        for d in reversed(range(len(extents))):
            around = max(0, d - 1)
            level = where(bytes_at[d] <= size, bytes_at[around] * outer[around], level)
        moved.append(level)
    threads = minimum(tasks, float(machine.cores))
    cycles = total / length * vectors
    for amount, line in zip(moved, LINE_CYCLES, strict=True):
        cycles = cycles + amount * (line / CACHE_LINE_BYTES)
    return [
        float(machine.cores), float(lanes), *map(float, machine.caches),
        total / number(s.useful),
        vectors * lanes / length,
        ceil(ceil(tasks / once) / machine.cores) * machine.cores * once / tasks,
        registers[0], loads, registers[0] / maximum(loads, 1.0),
        *moved,
        total / threads,
        cycles / threads / CYCLES_PER_NANOSECOND + MIN_NANOSECONDS,
        chunk, _maximum_of(number(loop.dynamic) for loop in shared),
        *(_maximum_of(number(getattr(x, name)) for x in s.loops) for name in ("prefetch", "streamed", "stages", "resident")),
        0.0,
    ]  # fmt: skip


class _AccessFeatures:
    """The features of one buffer access in the loops of a statement."""

    def __init__(self, access: BufferAccess, statement: Statement, recorder: Recorder, extents: list[Value], inner: list[Value]):
        self.access = access
        self.statement = statement
        self.extents = extents
        self.inner = inner
        number = recorder.number
        self.shape = [number(size) for size in access.shape]
        self.steps = _steps(access, self.shape, recorder, statement.loops)
        spans: list[Value] = [float(1 + spread) for spread in access.spread]
        terms: list[list[tuple[int, Value]]] = [[] for _ in extents]
        for position, dim in enumerate(access.dims):
            for t in dim:
                terms[t.loop].append((position, number(t.coefficient) * (number(t.reach) - 1)))
        clipped = [minimum(span, size) for span, size in zip(spans, self.shape, strict=True)]
        count = product(clipped)
        self.elements: list[Value] = [count] * (len(extents) + 1)  # touched by the loops from a depth on
        for d in reversed(range(len(extents))):
            for position, added in terms[d]:
                spans[position] = spans[position] + added
                clipped[position] = minimum(spans[position], self.shape[position])
            if terms[d]:
                count = product(clipped)
            self.elements[d] = count
        self.region = clipped

    def features(self, bytes_at: list[Value]) -> list[Value]:
        t, extents = self.access, self.extents
        nbytes = t.nbytes
        stride: Value = 0.0  # of the innermost loop that moves the access
        innermost: Value = 0.0  # of the innermost loop, whether it does or not
        repeats: Value = self.inner[0]  # iterations inside the loop that moves it, all at the same element
        for d, e in enumerate(extents):
            step, moves = self.steps[d]
            stride = where(moves, step, stride)
            repeats = where(moves, self.inner[d + 1], repeats)
            innermost = where(e > 1, where(moves, step, 0.0), innermost)
        total = self.inner[0]
        unique = self.elements[0] * nbytes
        lines = maximum(1.0, total / repeats * minimum(1.0, stride * (nbytes / CACHE_LINE_BYTES)))
        run = self.region[-1] if self.region else 1.0
        whole: Value = True
        for position in reversed(range(1, len(self.region))):
            whole = and_not(whole, self.region[position] < self.shape[position])
            run = run * where(whole, self.region[position - 1], 1.0)
        unique_lines = maximum(1.0, unique / minimum(run * nbytes, float(CACHE_LINE_BYTES)))
        loop, serial, distance, away, count = self._reuse(bytes_at)
        divisor = where(count <= 0.5, 0.5, count)
        amounts: list[Value] = [total * nbytes, unique, lines, unique_lines]
        none = 1.0 - loop - serial
        return [
            float(t.read and not t.written), float(t.written and not t.read), float(t.read and t.written), *amounts,
            loop, serial, none, distance, away, count, *(a / divisor for a in amounts), innermost,
        ]  # fmt: skip

    def _reuse(self, bytes_at: list[Value]) -> tuple[Value, ...]:
        """Reuse by the innermost loop that touches elements again: two indicators, iterations and bytes between two touches, and
        their number. The first indicator is for a loop that does not move the access, the second for other statements that access
        the buffer."""
        found: tuple[Value, ...] = (0.0,) * 5
        others = self.statement.others[self.access.buffer]
        for d, e in enumerate(self.extents):
            moves = self.steps[d][1]
            new: tuple[Value, ...] = (1.0, 0.0, self.inner[d + 1], bytes_at[d + 1], e)
            if others[d] and moves is not False:
                other = (0.0, 1.0, self.elements[d] / e, bytes_at[d] / e, float(others[d]))
                new = tuple(where(moves, a, b) for a, b in zip(other, new, strict=True))
                moves = False
            several = and_not(e > 1, moves)
            if several is not False:
                found = tuple(where(several, a, b) for a, b in zip(new, found, strict=True))
        return found


def _maximum_of(values: Iterable[Value]) -> Value:
    """The largest of some numbers that are at least 0."""
    result: Value = 0.0
    for value in values:
        result = maximum(result, value)
    return result


def _steps(access: BufferAccess, shape: list[Value], recorder: Recorder, loops: tuple[Loop, ...]) -> list[tuple[Value, Value]]:
    """The stride of an access in elements for each loop, and a condition that the loop moves it in a row."""
    result: list[tuple[Value, Value]] = [(0.0, False)] * len(loops)
    row: Value = 1.0
    for position in reversed(range(len(shape))):
        for t in access.dims[position]:
            new, moves = row * recorder.number(t.coefficient), recorder.number(t.reach) > 1
            step, before = result[t.loop]
            shorter = minimum(where(before, step, new), where(moves, new, step)) if before is not False else new
            result[t.loop] = shorter, logical_or(before, moves)
        row = row * shape[position]
    return result
