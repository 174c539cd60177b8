"""Temporaries of a kernel shrink: in shared memory to the footprint of a block, in local memory to that of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import lcm, prod

import numpy as np

from tir.analysis.context import accesses
from tir.arith.bounds import ranges_of
from tir.arith.division import remainder
from tir.arith.enumeration import UnknownValue, distinct_rows, evaluate, grid
from tir.arith.intervals import Interval, polynomial_bounds
from tir.arith.polynomial import Monomial, Polynomial, add, polynomial, scale, to_expr
from tir.arith.simplify import simplify
from tir.ir import Allocate, Binary, Buffer, Const, Expr, For, Load, PrimFunc, Region, Seq, Stmt, Store, annotation
from tir.memory import SHARED, WARP_SCOPE
from tir.traverse import loads, loops, rewrite, variables, walk_stmts

from .compact_buffers import Ranges, allocate, allocate_deepest, apply_strides, placed_deeper, touched_region, writes_before_reads
from .free_variables import accessed_buffers
from .gpu_kernels import GPUError, GPUKernel, is_thread, map_kernels
from .lower_blocks import ALIGNED
from .thread_storage_sync import MAX_POINTS, Footprint, collect_accesses


def zero_unit_indices(func: PrimFunc, target) -> PrimFunc:
    """Set indices of dimensions of extent 1 to 0: guarded threads beyond the first would seem to access other elements."""

    def change(n):
        if isinstance(n, Load | Store) and n.buffer.scope != "global":
            first = (Const(0, i.dtype) if d.is_one else i for i, d in zip(n.indices, n.buffer.shape, strict=True))
            return n.with_(indices=tuple(first))
        return None

    return func.with_(body=rewrite(func.body, change))


def compact_shared_buffers(func: PrimFunc, target) -> PrimFunc:
    """Allocate shared buffers where they are live, with the shape of one block's footprint.

    Strides follow `storage_align`, by which threads along a column access different banks.
    """

    def change(kernel: GPUKernel) -> Stmt:
        def placed(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
            if buffer.scope not in SHARED:
                return Allocate(buffer, s)
            return allocate_deepest(s, buffer, ranges, partial(_written_first, kernel), partial(_tile_region, kernel))

        body = placed_deeper(kernel.body, kernel.ranges, placed)
        for buffer in _of_function(body, *SHARED):
            body = placed(body, buffer, kernel.ranges)
        return apply_strides(body, rules)

    rules = annotation(func.attrs, ALIGNED, {})
    return map_kernels(func.with_(allocs=tuple(b for b in func.allocs if b.scope not in SHARED)), change)


def _of_function(body: Stmt, *scopes: str) -> list[Buffer]:
    """The buffers of some scopes that a kernel uses but does not allocate."""
    own = {s.buffer.name for s in walk_stmts(body) if isinstance(s, Allocate)}
    return [b for b in accessed_buffers(body).values() if b.scope in scopes and b.name not in own]


def _written_first(kernel: GPUKernel, loop: For, buffer: Buffer, ranges: dict[str, Interval]) -> bool:
    """True where, in each iteration of a loop, the block writes elements of the buffer before it reads them."""
    if is_thread(loop, "threadIdx"):
        return False
    inside = ranges_of([loop], ranges)
    return _tile_complete(kernel, loop.body, buffer, inside) or writes_before_reads(loop.body, buffer, ranges)


def _tile_region(kernel: GPUKernel, s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> Region:
    """The region of the buffer that `s` accesses, without elements that only guarded-off threads would access:

    f = k * 256 + t; if f < 100: tile[f // 5, f % 5] = ...   =>   the tile has 20 rows, not 52
    """
    region = touched_region(s, buffer, ranges)
    footprints = [a.footprint for a in collect_accesses(kernel, s, (), ranges) if a.buffer.name == buffer.name]
    if any(w.guards for w in footprints):
        cut = []
        for d, r in enumerate(region.ranges):
            last = [n for w in footprints if (n := _max_index(w, w.indices[d] - r.min)) is not None]
            if isinstance(r.extent, Const) and len(last) == len(footprints):
                r = r.with_(extent=Const(min(r.extent.value, 1 + max(0, *last)), r.extent.dtype))
            cut.append(r)
        region = region.with_(ranges=tuple(cut))
    return region


def _max_index(footprint: Footprint, index: Expr) -> int | None:
    """The maximum of an index over a footprint; None if it is not known.

    By c * (x // c) = x - x % c, a multiple n * index is an expression p with fewer divisions. A guard says that some q >= 0.
    Then s * n * index <= s * p + t * q for s, t > 0, which are chosen so that a term of p vanishes.
    """
    moving = {name: (0, None if n is None else n - 1) for name, n in footprint.moving.items() if name not in footprint.threads}
    ranges = {**footprint.ranges, **moving}
    terms = polynomial(simplify(index, ranges))
    _, last = polynomial_bounds(terms, ranges)
    multiple = lcm(*(int(m[0].b.value) for m in terms if _is_quotient(m)))  # type: ignore[attr-defined]
    p: Polynomial = {}
    for m, k in terms.items():
        if _is_quotient(m):
            x, c = polynomial(m[0].a), int(m[0].b.value)  # type: ignore[attr-defined]
            p = add(p, add(x, remainder(x, c, ranges, index.dtype), -1), multiple // c * k)
        else:
            p = add(p, {m: multiple * k})
    for guard in footprint.guards:
        if not (isinstance(guard, Binary) and guard.op == "<") or loads(guard):
            continue
        q = polynomial(simplify(guard.b - guard.a - 1, ranges))
        for m, k in p.items():
            if m and k * q.get(m, 0) < 0:
                _, high = polynomial_bounds(add(scale(p, abs(q[m])), q, abs(k)), ranges)
                if high is not None:
                    high //= multiple * abs(q[m])
                    last = high if last is None else min(last, high)
    return last


def _is_quotient(m: Monomial) -> bool:
    """True where a monomial is x // c for a constant c > 0."""
    return len(m) == 1 and isinstance(m[0], Binary) and m[0].op == "//" and isinstance(m[0].b, Const) and m[0].b.value > 0


def _tile_complete(kernel: GPUKernel, body: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> bool:
    """True where an earlier statement of `body`, a sequence, writes each element of the buffer that the block reads there.

    The elements that the block's threads access are enumerated. A guard that only keeps an index in bounds excludes no
    element that is read.
    """
    while isinstance(body, Allocate):
        body = body.body
    steps = body.stmts if isinstance(body, Seq) else (body,)
    written: dict[tuple, np.ndarray] = {}
    for step in steps:
        accesses = [a for a in collect_accesses(kernel, step, (), ranges) if a.buffer.name == buffer.name]
        within = frozenset(x.name for x in loops(step))
        sets = []
        for a in accesses:
            places = zip(a.footprint.indices, buffer.shape, strict=True)
            inside = {simplify(c) for i, d in places for c in (Binary("<", i, d), Binary(">=", i, Const(0)))}
            footprint = a.footprint.under(tuple(g for g in a.footprint.guards if not a.writes or simplify(g) not in inside))
            fixed, points = footprint.points(within)
            unknown = a.writes and any(not variables(g) <= set(footprint.moving) | within for g in footprint.guards)
            if fixed is None or points is None or unknown:
                if a.writes:
                    continue
                return False
            sets.append((a.writes, fixed, points[:, :-1]))
        for writes, fixed, points in sets:
            if not writes:
                have = written.get(fixed)
                if have is None or len(distinct_rows(np.concatenate([have, points]))[0]) > len(have):
                    return False
        for writes, fixed, points in sets:
            if writes:
                old = written.get(fixed)
                written[fixed] = distinct_rows(points if old is None else np.concatenate([old, points]))[0]
    return True


def hoist_shared(body: Stmt) -> tuple[tuple[Buffer, ...], Stmt]:
    """The buffers in shared memory, and `body` without their allocations. GPUError for a buffer of a block or a thread whose
    shape is not constant."""
    found: list[Buffer] = []

    def visit(n):
        if not isinstance(n, Allocate):
            return None
        b = n.buffer
        if not b.has_const_shape:
            raise GPUError(f"`{b.name}` in {b.scope} memory must have a constant shape, got ({', '.join(map(str, b.shape))})")
        if b.scope in SHARED:
            found.append(b)
            return n.body
        return None

    body = rewrite(body, visit)
    return tuple(found), body


def compact_local_buffers(func: PrimFunc, target) -> PrimFunc:
    """Allocate local buffers where they are live, with the shape of one thread's footprint.

    Raises GPUError where a thread may read an element of a buffer of the function that another thread wrote.
    """

    def placed(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
        return Allocate(buffer, s) if buffer.scope in SHARED else allocate_deepest(s, buffer, ranges)

    def change(kernel: GPUKernel) -> Stmt:
        body = placed_deeper(kernel.body, kernel.ranges, placed)
        for buffer in _of_function(body, "local", WARP_SCOPE):
            _need_own(kernel, body, buffer)
            if writes_before_reads(body, buffer, kernel.ranges):
                body = allocate_deepest(body, buffer, kernel.ranges)
            else:
                body = allocate(body, buffer, kernel.ranges, touched_region(body, buffer, kernel.ranges))
        return body

    return map_kernels(func.with_(allocs=tuple(b for b in func.allocs if b.scope not in ("local", WARP_SCOPE))), change)


def _need_own(kernel: GPUKernel, body: Stmt, buffer: Buffer) -> None:
    """Refuse a local buffer in which one thread may read elements that another wrote.

    Each thread gets a copy, which is right under two conditions. The part of the indices that depends on threads is the same in
    all accesses. And no two threads access one element, or each thread writes an element before it reads it.
    """
    ranges = kernel.ranges
    # The lanes of a warp, threadIdx.x, share a buffer in scope `warp`.
    owners = [axis for axis in kernel.threads if buffer.scope == "local" or axis != "threadIdx.x"]
    threads = {kernel.indices[axis].name for axis in owners}
    parts: set[tuple] = set()
    offsets: list[np.ndarray | None] = []
    for indices, inside in _access_indices(body, buffer.name, ranges):
        inner = {name: interval for name, interval in inside.items() if name not in ranges}
        part, rests = [], []
        for i in indices:
            constant_terms: Polynomial = {}
            rest: Polynomial = {}
            for m, c in polynomial(simplify(i, inside)).items():
                own = not variables(*m) & threads and (not m or bool(variables(*m) & set(inner)))
                (rest if own else constant_terms)[m] = c
            part.append(frozenset(constant_terms.items()))
            rests.append(to_expr(rest))
        parts.add(tuple(part))
        known = all(variables(i) <= threads | set(inside) and not loads(i) for i in indices)
        offsets.append(_values(rests, inner) if known else None)
    hint = "put it in shared memory (set_scope), or give all its statements the same thread loops"
    if len(parts) != 1:
        raise GPUError(f"`{buffer.name}` in local memory is indexed differently by threads in different statements, so that a "
                       f"thread may read what another wrote; {hint}")  # fmt: skip
    finite = [x for x in offsets if x is not None]
    touched = distinct_rows(np.concatenate(finite))[0] if len(finite) == len(offsets) else None
    single = touched is not None and len(touched) == 1  # one element a thread; the thread loops are proved to keep apart
    if single or writes_before_reads(body, buffer, ranges):
        return
    if touched is None or not _owners_disjoint(kernel, owners, next(iter(parts)), touched):
        raise GPUError(f"`{buffer.name}` in local memory: it cannot be shown that a thread reads only what it wrote; {hint}")


def _access_indices(s: Stmt, name: str, ranges: Mapping[str, Interval]) -> list[tuple[tuple[Expr, ...], dict[str, Interval]]]:
    """The indices of each access to a buffer, with the ranges of the variables around it."""
    return [(x.indices, {**ranges, **around.ranges(ranges)}) for x, around in accesses(s) if x.buffer.name == name]


def _values(rests: list[Expr], inner: Mapping[str, Interval]) -> np.ndarray | None:
    """The distinct joint values of expressions over all iterations of loops, one row each; None if unknown or too many."""
    highs = {name: inner.get(name, (0, None))[1] for name in sorted(variables(*rests))}
    counts = {name: h + 1 for name, h in highs.items() if h is not None}
    if len(counts) < len(highs) or (total := prod(counts.values())) > MAX_POINTS:
        return None
    values = grid(counts)
    try:
        columns = [np.broadcast_to(evaluate(e, values), (total,)) for e in rests]
    except UnknownValue:
        return None
    return distinct_rows(np.stack(columns, 1))[0] if columns else np.zeros((1, 0), np.int64)


def _owners_disjoint(kernel: GPUKernel, owners: list[str], part: tuple, offsets: np.ndarray) -> bool:
    """True where no two threads, or warps, access one element: each accesses `offsets` from a start that `part` gives."""
    counts = {kernel.indices[axis].name: kernel.threads[axis] for axis in owners}
    columns, threads = grid(counts), prod(counts.values())
    starts = []
    for moving in part:
        base = np.zeros(threads, np.int64)
        for m, c in moving:
            if variables(*m) & set(columns):
                try:
                    base += c * np.prod([evaluate(atom, columns) for atom in m], axis=0)
                except UnknownValue:
                    return False
        starts.append(base)
    if threads == 1 or not starts or threads * len(offsets) > MAX_POINTS:
        return threads == 1
    elements = (np.stack(starts, 1)[:, None, :] + offsets[None, :, :]).reshape(-1, len(starts))
    return len(distinct_rows(elements)[0]) == len(elements)


def compact_strides(func: PrimFunc, target) -> PrimFunc:
    """Remove the gaps of local buffers of which all accesses use strips at one common stride:

    acc[q * 32 + i] with q < 2, i < 4   =>   acc[q, i] of shape (2, 4)
    """

    def change(kernel: GPUKernel) -> Stmt:
        body = kernel.body
        for s in walk_stmts(body):
            if isinstance(s, Allocate) and s.buffer.scope == "local":
                for d in range(len(s.buffer.shape) - 1, -1, -1):
                    body = _fold(body, s.buffer.name, d, kernel.ranges)
        return body

    return map_kernels(func, change)


def _fold(body: Stmt, name: str, d: int, ranges: Mapping[str, Interval]) -> Stmt:
    found = [(polynomial(simplify(indices[d], inner)), inner) for indices, inner in _access_indices(body, name, ranges)]
    strides = sorted({abs(c) for p, _ in found for m, c in p.items() if m} - {1})
    for stride in reversed(strides):
        split = [(*_halves(p, stride), inner) for p, inner in found]
        lows = [polynomial_bounds(low, inner) for _, low, inner in split]
        highs = [polynomial_bounds(high, inner) for high, _, inner in split]
        if any(None in x for x in (*lows, *highs)) or any(a < 0 or b >= stride for a, b in lows) or any(a < 0 for a, _ in highs):  # type: ignore[operator]
            continue
        width, count = 1 + max(b for _, b in lows), 1 + max(b for _, b in highs) // stride  # type: ignore[operator, type-var]
        if width == stride or count == 1:
            continue

        def divided(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            high, low = _halves(polynomial(simplify(indices[d], ranges)), stride)  # noqa: B023
            quotient = {m: c // stride for m, c in high.items()}  # noqa: B023
            return (*indices[:d], to_expr(quotient), to_expr(low), *indices[d + 1 :])

        def change(n):
            match n:
                case Buffer() if n.name == name:
                    return n.with_(shape=(*n.shape[:d], Const(count), Const(width), *n.shape[d + 1 :]))  # noqa: B023
                case Load() | Store() if n.buffer.name == name:
                    return n.with_(indices=divided(n.indices))
            return None

        return rewrite(body, change)
    return body


def _halves(p: Polynomial, stride: int) -> tuple[Polynomial, Polynomial]:
    """The terms that are multiples of a stride, and the rest with the constant."""
    return {m: c for m, c in p.items() if c % stride == 0 and m}, {m: c for m, c in p.items() if c % stride or not m}
