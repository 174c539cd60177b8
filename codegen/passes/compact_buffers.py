"""Temporaries shrink to the window that is live, and move into the loops that use them."""

from __future__ import annotations

from tir.affine import Interval, add, as_constant, polynomial
from tir.analysis.regions import Regions, accessed, clip, extent_range, union
from tir.ir import Allocate, Buffer, Const, Expr, For, If, Kind, Let, Load, PrimFunc, Region, Seq, Stmt, Store
from tir.simplify import simplify
from tir.traverse import rewrite, walk


def compact_buffers(func: PrimFunc, target) -> PrimFunc:
    """Each allocated buffer is placed in the innermost statement that holds all its accesses and needs nothing from an
    earlier iteration, with the shape of the region touched there; its indices become relative to that region.

    A tile computed inside a loop thus takes the memory of one tile, and is private to the iterations of a parallel loop.
    """
    body = func.body
    for buffer in func.allocs:
        if any(isinstance(n, (Load, Store)) and n.buffer.name == buffer.name for n in walk(body)):
            body = _place(body, buffer, {})
    return func.with_(body=body, allocs=())


def _touches(s: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, (Load, Store)) and n.buffer.name == buffer.name for n in walk(s))


def _place(s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> Stmt:
    """`s` with the buffer allocated as deep inside it as possible."""
    match s:
        case For(var, extent, body, kind) if kind in (Kind.SERIAL, Kind.PARALLEL) and _self_contained(body, buffer, ranges):
            inside = {**ranges, var.name: extent_range(extent, ranges)}
            return s.with_(body=_place(body, buffer, inside))
        case Seq(stmts):
            users = [i for i, x in enumerate(stmts) if _touches(x, buffer)]
            if len(users) == 1:
                (i,) = users
                return s.with_(stmts=(*stmts[:i], _place(stmts[i], buffer, ranges), *stmts[i + 1 :]))
            first, last = users[0], users[-1] + 1
            if last - first < len(stmts):  # only the statements that need it see it
                part = _allocate(Seq(stmts[first:last]), buffer, ranges)
                return Seq((*stmts[:first], part, *stmts[last:]))
        case Let(var, value, body) if not any(isinstance(n, Load) and n.buffer.name == buffer.name for n in walk(value)):
            return s.with_(body=_place(body, buffer, ranges))
        case Allocate(_, body):
            return s.with_(body=_place(body, buffer, ranges))
        case If(condition, then, None) if not any(isinstance(n, Load) and n.buffer.name == buffer.name for n in walk(condition)):
            return s.with_(then=_place(then, buffer, ranges))
    return _allocate(s, buffer, ranges)


def _self_contained(s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> bool:
    """Whether every element of the buffer that `s` reads was written before, in the same run of `s`."""
    match s:
        case Allocate(_, body) | Let(_, _, body) | If(_, body, None):
            return _self_contained(body, buffer, ranges)
        case For(var, extent, body):
            return _self_contained(body, buffer, {**ranges, var.name: extent_range(extent, ranges)})
    written: Region | None = None
    for part in s.stmts if isinstance(s, Seq) else (s,):
        reads, writes = accessed(part, ranges)
        read = reads.get(buffer.name)
        # Within one statement a read may come before the write: only what earlier statements wrote counts, or its own order.
        if read is not None and (written is None or not _covers(written, read)):
            if part is s or not _self_contained(part, buffer, ranges):
                return False
        if buffer.name in writes:
            written = writes[buffer.name] if written is None else union(written, writes[buffer.name])
    return written is not None


def _covers(outer: Region, inner: Region) -> bool:
    for a, b in zip(outer.ranges, inner.ranges, strict=True):
        start = as_constant(add(polynomial(simplify(b.min)), polynomial(simplify(a.min)), -1))
        end = as_constant(add(polynomial(simplify(a.min + a.extent)), polynomial(simplify(b.min + b.extent)), -1))
        if start is None or end is None or start < 0 or end < 0:
            return False
    return True


def _allocate(s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> Stmt:
    """Allocate the region of the buffer that `s` touches, around `s`."""
    reads, writes = accessed(s, ranges)
    region = _merge(reads, writes, buffer)
    region = clip(region, ranges)
    starts: list[Expr] = []
    shape: list[Expr] = []
    for r, dim in zip(region.ranges, buffer.shape, strict=True):
        narrower = isinstance(r.extent, Const) and (not isinstance(dim, Const) or r.extent.value < dim.value)
        starts.append(r.min if narrower else Const(0, r.min.dtype))
        shape.append(r.extent if narrower else dim)
    if all(a == b for a, b in zip(shape, buffer.shape, strict=True)) and all(x == Const(0, x.dtype) for x in starts):
        return Allocate(buffer, s)
    small = buffer.with_(shape=tuple(shape))

    def relative(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i - start) for i, start in zip(indices, starts, strict=True))

    def visit(n):
        match n:
            case Load(b, indices) if b.name == buffer.name:
                return Load(small, relative(indices))
            case Store(b, indices, value) if b.name == buffer.name:
                return Store(small, relative(indices), value)
        return None

    return Allocate(small, rewrite(s, visit))  # type: ignore[arg-type]


def _merge(reads: Regions, writes: Regions, buffer: Buffer) -> Region:
    found = [r[buffer.name] for r in (reads, writes) if buffer.name in r]
    return found[0] if len(found) == 1 else union(found[0], found[1])


