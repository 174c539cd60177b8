"""Barriers between conflicting accesses of the threads of a block.

Two accesses conflict if different threads may touch one element of shared or global memory, and one of them writes. Conflicting
accesses need a barrier between them. It stands as late as possible: directly before the later access, or before the outermost
loop around that access alone. This gives the fewest barriers on a path. None is inserted where every element is proved to be
touched by one thread only. An asynchronous copy is complete where its thread waits for it, and visible to other threads after
the next barrier.

The proof enumerates the pairs (element, thread) of an access over all threads and inner loops, under its conditions. Index terms
in variables common to both accesses (blocks, loops around both) cancel. Where they do not, or there are too many points, a
conflict is assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import lcm, prod

import numpy as np

from tir.analysis.context import accesses
from tir.arith.bounds import extent_range, ranges_of
from tir.arith.enumeration import UnknownValue, distinct_rows, evaluate, grid
from tir.arith.intervals import Interval
from tir.arith.polynomial import add, constant, names_in, polynomial, split_terms, to_expr
from tir.arith.simplify import simplify
from tir.ir import Allocate, Binary, Buffer, Call, Const, Evaluate, Expr, For, If, Let, PrimFunc, Seq, Stmt, Store, seq
from tir.memory import SHARED
from tir.traverse import loads, map_statements, stored_names, variables, walk_stmts

from .gpu_kernels import GPUError, GPUKernel, is_thread, map_kernels, uses_warp_memory
from .software_pipeline import ASYNCHRONOUS, WAIT, is_call_of

BARRIER = "sync_threads"
MAX_POINTS = 1 << 19  # (element, thread) pairs that are enumerated for one access, at most

Path = tuple[int, ...]  # from the root: the number of the child taken at each statement


@dataclass(frozen=True)
class MemoryAccess:
    """An access to shared or global memory at a path; `footprint` enumerates the elements it touches."""

    buffer: Buffer
    writes: bool
    path: Path
    footprint: Footprint
    copying: bool = False  # an asynchronous copy that its thread has not waited for
    carried: Path = ()  # the loop of which this is an access in an earlier iteration
    varying: frozenset[str] = frozenset()  # variables of loops and lets that may differ between that iteration and this


def _periods(fixed: tuple) -> dict[str, int]:
    """The periods, by name, of loops that occur in indices only as remainders such as k % c or (k + 1) % c."""
    found: dict[str, int] = {}
    for part in fixed:
        for monomial, _ in part:
            for atom in monomial:
                match atom:
                    case Binary("%", a, Const(c)) if c > 0:
                        found |= {name: lcm(found.get(name, 1), int(c)) for name in variables(a)}
                    case _:
                        found |= dict.fromkeys(variables(atom), 0)  # also outside of a remainder
    return {name: n for name, n in found.items() if n}


@dataclass(eq=False)
class Footprint:
    """The elements that an access touches over all threads of the block and all iterations of the loops in its unit, under
    `guards`. `moving` is the number of values by variable, None where unknown. Loops around the unit are in `ranges`."""

    indices: tuple[Expr, ...]
    moving: dict[str, int | None]
    guards: tuple[Expr, ...]
    lets: set[str]
    ranges: dict[str, Interval]
    threads: list[str]
    block: tuple[int, int, int]
    known: dict[frozenset[str], tuple] = field(default_factory=dict)

    def under(self, guards: tuple[Expr, ...]) -> Footprint:
        """The footprint under other guards."""
        return replace(self, guards=guards, known={})

    def points(self, varying: frozenset[str] = frozenset()) -> tuple[tuple | None, np.ndarray | None]:
        """The common part of the indices, by dimension, and the distinct rows (offset in each dimension ..., thread). The loops
        `varying` run as well. None where unknown."""
        used = varying & variables(*self.indices)
        if used not in self.known:
            self.known[used] = _points(self, self.counts(used) | self.moving)
        return self.known[used]

    def counts(self, loops: frozenset[str]) -> dict[str, int | None]:
        """The number of values of those loops around the unit on which the indices depend; None where unknown."""
        found: dict[str, int | None] = {}
        for name in loops & variables(*self.indices):
            high = self.ranges.get(name, (0, None))[1]
            found[name] = None if high is None else high + 1
        return found

    def by_value(self, loops: dict[str, int], varying: frozenset[str]) -> tuple[tuple | None, np.ndarray | None]:
        """The points for each value of `loops`, which become columns in front of the offsets."""
        return _points(self, {**self.counts(varying), **loops, **self.moving}, tuple(sorted(loops)))


def thread_storage_sync(func: PrimFunc, target) -> PrimFunc:
    """Insert barriers between conflicting accesses. Raises GPUError where not all threads would reach one."""
    return map_kernels(func, lambda kernel: _BarrierInsertion(kernel).run())


class _BarrierInsertion:
    def __init__(self, kernel: GPUKernel):
        self.kernel = kernel
        self.before: set[Path] = set()
        self.inner: set[Path] = set()  # loops and conditions; a barrier of every iteration stands outside of them
        self.cache: dict[Path, list[MemoryAccess]] = {}
        self.known: dict[tuple, bool] = {}  # conflicts, by ids of footprints that `cache` keeps; a loop is visited three times

    def run(self) -> Stmt:
        self.visit(self.kernel.body, (0,), [], self.kernel.ranges)
        return self.insert(self.kernel.body, (0,))

    def insert(self, s: Stmt, path: Path) -> Stmt:
        if not _is_unit(s):
            numbers = itertools.count()
            s = map_statements(s, lambda c: self.insert(c, (*path, next(numbers))))
            s = seq(*s.stmts) if isinstance(s, Seq) else s
        return seq(Evaluate(Call(BARRIER, (), "int32")), s) if path in self.before else s

    def visit(self, s: Stmt, path: Path, pending: list[MemoryAccess], ranges: dict[str, Interval]) -> list[MemoryAccess]:
        """The accesses since the last barrier after `s`, given those before it."""
        if path in self.before:
            pending = _pending_copies(pending)
        if _is_unit(s):
            return self.unit(s, path, pending, ranges)
        match s:
            case Seq(stmts):
                for n, x in enumerate(stmts):
                    pending = self.visit(x, (*path, n), pending, ranges)
                return pending
            case For(_, extent, body):
                self.inner.add(path)
                inside = ranges_of([s], ranges)
                below = (*path, 0)
                out = self.visit(body, below, [], inside)
                if not extent.is_one:
                    varying = frozenset(x.var.name for x in walk_stmts(s) if isinstance(x, For | Let))
                    again = [replace(a, carried=path, varying=varying) for a in out]
                    out = [replace(a, carried=(), varying=frozenset()) for a in self.visit(body, below, again, inside)]
                first = self.visit(body, below, pending, inside)
                if path in self.before:
                    pending = _pending_copies(pending)
                return _union(out, first if isinstance(extent, Const) else _union(first, pending))
            case If(_, then, orelse):
                self.inner.add(path)
                condition = self.accesses(Evaluate(s.condition), (*path, -1), ranges)
                pending = self.check(condition, path, pending)
                result = self.visit(then, (*path, 0), pending, ranges)
                if path in self.before:  # a barrier that `then` asked for
                    pending = _pending_copies(pending)
                other = pending if orelse is None else self.visit(orelse, (*path, 1), pending, ranges)
                return _union(result, other)
            case Let(_, value, body):
                pending = self.check(self.accesses(Evaluate(value), (*path, -1), ranges), path, pending)
                return self.visit(body, (*path, 0), pending, ranges)
            case Allocate(_, body):
                return self.visit(body, (*path, 0), pending, ranges)
            case _:
                raise GPUError(f"{self.kernel.name}: threads cannot wait for each other inside `{type(s).__name__}`")

    def unit(self, s: Stmt, path: Path, pending: list[MemoryAccess], ranges: dict[str, Interval]) -> list[MemoryAccess]:
        if isinstance(s, Evaluate) and is_call_of(s.value, WAIT):
            return [replace(a, copying=False, path=path, carried=()) if a.copying else a for a in pending]
        return self.check(self.accesses(s, path, ranges), path, pending)

    def check(self, found: list[MemoryAccess], path: Path, pending: list[MemoryAccess]) -> list[MemoryAccess]:
        conflicting = [a for a in pending for b in found if self.conflict(a, b)]
        if conflicting:
            depth = max(self.depth(a, path) for a in conflicting)
            here = path[:depth]
            self.before.add(here)
            pending = [a for a in pending if a.copying or (a.path[:depth] == here and not a.carried)]
        return _union(pending, found)

    def conflict(self, a: MemoryAccess, b: MemoryAccess) -> bool:
        key = id(a.footprint), id(b.footprint), a.varying, b.varying
        if key not in self.known:
            self.known[key] = _conflict(a, b)
        return self.known[key]

    def depth(self, a: MemoryAccess, path: Path) -> int:
        """The depth in `path` of the statement before which a barrier separates `a` from the access at `path`.

        It is the outermost statement that is not around `a`. For an `a` of an earlier iteration it is the innermost statement of
        the carrying loop that is in no other loop or condition."""
        if a.carried:
            n = len(a.carried) + 1
            while n < len(path) and path[:n] not in self.inner:
                n += 1
            return n
        n = 0
        while n < min(len(a.path), len(path)) and a.path[n] == path[n]:
            n += 1
        return min(n + 1, len(path))

    def accesses(self, s: Stmt, path: Path, ranges: dict[str, Interval]) -> list[MemoryAccess]:
        if path not in self.cache:
            self.cache[path] = collect_accesses(self.kernel, s, path, ranges)
        return self.cache[path]


def _pending_copies(pending: list[MemoryAccess]) -> list[MemoryAccess]:
    """The accesses that a barrier leaves pending: asynchronous copies that their threads have not waited for."""
    return [a for a in pending if a.copying]


def _union(a: list[MemoryAccess], b: list[MemoryAccess]) -> list[MemoryAccess]:
    seen = {(id(x.footprint), x.copying) for x in a}
    return a + [x for x in b if (id(x.footprint), x.copying) not in seen]


def _is_unit(s: Stmt) -> bool:
    """True where no barrier can stand inside: a thread loop, or a statement without one inside."""
    return is_thread(s, "threadIdx") or not any(is_thread(x, "threadIdx") for x in walk_stmts(s))


def _conflict(a: MemoryAccess, b: MemoryAccess) -> bool:
    if a.buffer.name != b.buffer.name or not (a.writes or b.writes):
        return False
    around_one = frozenset(a.footprint.ranges.keys() ^ b.footprint.ranges.keys())  # loops around one of them only
    varying = a.varying | b.varying
    if not varying and _in_other_turns(a.footprint, b.footprint, around_one):
        return False
    (fixed_a, points_a), (fixed_b, points_b) = a.footprint.points(varying | around_one), b.footprint.points(varying | around_one)
    if fixed_a is not None and fixed_b is not None and fixed_a != fixed_b and not varying:
        periods = _periods(fixed_a) | _periods(fixed_b)
        (fixed_a, points_a), (fixed_b, points_b) = (
            a.footprint.by_value(periods, around_one),
            b.footprint.by_value(periods, around_one),
        )
    if points_a is None or points_b is None or fixed_a != fixed_b:
        return True
    rows, place = distinct_rows(np.concatenate([points_a[:, :-1], points_b[:, :-1]]))
    thread = np.concatenate([points_a[:, -1], points_b[:, -1]])
    n = len(points_a)

    def extremes(where: slice) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.full(len(rows), np.iinfo(np.int64).max), np.full(len(rows), -1)
        np.minimum.at(low, place[where], thread[where])
        np.maximum.at(high, place[where], thread[where])
        return low, high

    (low_a, high_a), (low_b, high_b) = extremes(slice(0, n)), extremes(slice(n, None))
    both = (high_a >= 0) & (high_b >= 0)
    return bool(np.any(both & ((low_a != high_b) | (high_a != low_b))))


def _in_other_turns(a: Footprint, b: Footprint, around_one: frozenset[str]) -> bool:
    """True where an index of both, such as k % 3 and (k + 2) % 3, always differs, whatever threads and inner loops do."""
    for i, j in zip(a.indices, b.indices, strict=True):
        used = variables(i, j)
        periods = _periods(tuple(tuple(polynomial(x).items()) for x in (i, j)))
        moving = around_one.union(a.moving, b.moving, a.lets, b.lets, a.threads)
        if not used or used != periods.keys() or used & moving or prod(periods.values()) > MAX_POINTS:
            continue
        values = grid(periods)
        if np.all(evaluate(i, values) != evaluate(j, values)):
            return True
    return False


def collect_accesses(kernel: GPUKernel, s: Stmt, path: Path, ranges: dict[str, Interval]) -> list[MemoryAccess]:
    """The accesses of a unit to shared and global buffers that the kernel writes."""
    written = stored_names(kernel.body)
    threads = {axis: kernel.indices[axis].name for axis in kernel.threads}
    found: list[MemoryAccess] = []
    for x, around in accesses(s):
        if x.buffer.name not in written or not (x.buffer.scope in SHARED or x.buffer.scope == "global"):
            continue
        guards = [*around.conditions, *around.selected]
        inside: set[str] = set()  # axes of the thread loops around the access
        inner: dict[str, int | None] = {}
        for loop in around.loops:
            if is_thread(loop, "threadIdx"):
                inside.add(loop.thread)
                if isinstance(loop.extent, Const) and loop.extent.value < kernel.threads[loop.thread]:
                    guards.append(loop.var < loop.extent)
            else:
                _, high = extent_range(loop.extent, ranges)
                inner[loop.name] = None if high is None else high + 1
        # Outside of the loops of an axis, its first thread alone stores to shared and global memory; every thread to its own.
        store = x if isinstance(x, Store) else around.stmt if isinstance(around.stmt, Store) else None
        everywhere = store is not None and store.buffer.scope == "local"
        moving = {name: kernel.threads[axis] if everywhere or axis in inside else 1 for axis, name in threads.items()} | inner
        if store is not None and uses_warp_memory(store):
            # The lanes of a warp jointly touch the elements of a warp instruction: two of them stand for all.
            moving[threads["threadIdx.x"]] = min(kernel.block[0], 2)
        footprint = Footprint(
            x.indices, moving, tuple(guards), set(around.bindings), ranges, list(threads.values()), kernel.block
        )
        copying = isinstance(x, Store) and is_call_of(x.value, ASYNCHRONOUS)
        found.append(MemoryAccess(x.buffer, isinstance(x, Store), path, footprint, copying))
    return found


def _points(w: Footprint, moving: Mapping[str, int | None], kept: tuple[str, ...] = ()) -> tuple[tuple | None, np.ndarray | None]:
    needed = {*w.threads, *kept}
    fixed, offsets = [], []
    for i in w.indices:
        mine, around = split_terms(polynomial(simplify(i, w.ranges)), moving)
        unknown = any(loads(a) or variables(a) & w.lets for m in (*mine, *around) for a in m)
        if unknown or not names_in(mine) <= moving.keys():
            return None, None
        needed |= names_in(mine)
        offsets.append(add(mine, constant(around.pop((), 0))))
        fixed.append(frozenset(around.items()))
    usable = [g for g in w.guards if not loads(g) and variables(g) <= needed]
    counts = {name: n for name in sorted(needed) if (n := moving[name]) is not None}
    if len(counts) < len(needed) or (total := prod(counts.values())) > MAX_POINTS:
        return tuple(fixed), None
    values = grid(counts)
    holds = np.ones(total, bool)
    columns = [values[name] for name in kept]
    try:
        for g in usable:
            holds &= np.broadcast_to(evaluate(g, values), holds.shape).astype(bool)
        columns += [np.broadcast_to(evaluate(to_expr(rest), values), total) for rest in offsets]
    except UnknownValue:
        return None, None
    x, y, z = (values[t] for t in w.threads)
    columns.append(x + w.block[0] * (y + w.block[1] * z))
    return tuple(fixed), distinct_rows(np.stack(columns, 1)[holds])[0]
