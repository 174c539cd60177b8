"""Temporaries shrink to their live window and move into the loops that use them."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod

from tir.analysis.regions import accessed, clip_region, union
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Interval
from tir.arith.simplify import simplify
from tir.ir import Allocate, Buffer, Const, Expr, For, If, Kind, Let, PrimFunc, Region, Seq, Stmt, annotation
from tir.traverse import accessed_names, map_statements, move_accesses, replace_buffers, walk_stmts

from .free_variables import statements_using
from .lower_blocks import ALIGNED
from .separate_lives import iterations_conflict
from .share_temporaries import share_temporaries

Ranges = dict[str, Interval]


def compact_buffers(func: PrimFunc, target) -> PrimFunc:
    """Allocate each buffer in the innermost statement that holds all its accesses and reads nothing of an earlier iteration.

    Its shape becomes the region accessed there, and its indices relative to that. A buffer allocated inside of a loop stays
    there: each iteration has its own. A tile computed inside a loop thus takes the memory of one tile, and is private to the
    iterations of a parallel loop. `storage_align` applies to the shapes found here. Very many temporaries share memory first
    (`share_temporaries`).
    """
    func = share_temporaries(func)
    body = placed_deeper(func.body, {}, allocate_deepest)
    for buffer in func.allocs:
        if buffer.name in accessed_names(body):
            body = allocate_deepest(body, buffer, {})
    rules = annotation(func.attrs, ALIGNED, {})
    attrs = tuple(a for a in func.attrs if a[0] != ALIGNED)
    return func.with_(body=apply_strides(body, rules) if rules else body, allocs=(), attrs=attrs)


def placed_deeper(s: Stmt, ranges: Ranges, place: Callable[[Stmt, Buffer, Ranges], Stmt]) -> Stmt:
    """`s` with each of its allocations placed anew by `place`, within the body of the allocation."""
    inside = ranges_of([s], ranges)
    new = map_statements(s, lambda x: placed_deeper(x, inside, place))
    if isinstance(new, Allocate):
        return place(new.body, new.buffer, ranges) if new.buffer.name in accessed_names(new.body) else new.body
    return new


def apply_strides(body: Stmt, rules: dict[str, list[list[int]]]) -> Stmt:
    """`body` with its buffers padded by the rules: a dimension grows until the stride of the one before fits."""
    table: dict[str, Buffer] = {}
    for s in walk_stmts(body):
        if isinstance(s, Allocate) and s.buffer.name in rules and s.buffer.has_const_shape:
            shape = [int(dim.value) for dim in s.buffer.shape]  # type: ignore[attr-defined]
            for rule in sorted(rules[s.buffer.name], reverse=True):  # inner dimensions first
                match rule:
                    case [int(axis), int(factor), int(offset)] if 0 <= axis < len(shape) - 1:
                        inner, n = prod(shape[axis + 2 :]), shape[axis + 1]
                        shape[axis + 1] = aligned_extent(n, inner, factor, offset)
            new = tuple(Const(n, dim.dtype) for n, dim in zip(shape, s.buffer.shape, strict=True))
            table[s.buffer.name] = s.buffer.with_(shape=new)
    return replace_buffers(body, table)


def aligned_extent(n: int, inner: int, factor: int, offset: int) -> int:
    """The least m >= n with m * inner = offset (mod factor); n where no m has it."""
    common = gcd(inner, factor)
    if offset not in range(factor) or offset % common:
        return n
    period = factor // common
    return n + (offset // common * pow(inner // common, -1, period) - n) % period


def touched_region(s: Stmt, buffer: Buffer, ranges: Ranges) -> Region:
    """The bounding box of the accesses of `s` to the buffer; elements that guards exclude count."""
    found = [regions[buffer.name] for regions in accessed(s, ranges, only={buffer.name}) if buffer.name in regions]
    return found[0] if len(found) == 1 else union(found[0], found[1])


def _is_private(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    """True where an iteration writes elements of the buffer before it reads them, or the loop is parallel."""
    repeated = loop.kind is Kind.SERIAL or (loop.kind is Kind.UNROLLED and iterations_conflict(loop.body, buffer, ranges))
    return loop.kind is Kind.PARALLEL or (repeated and writes_before_reads(loop.body, buffer, ranges))


def _each_lane_its_own(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    """True where all lanes of a vectorised loop write the same elements, each before it reads them."""
    return iterations_conflict(loop, buffer, ranges) and writes_before_reads(loop.body, buffer, ranges_of([loop], ranges))


def allocate_deepest(
    s: Stmt,
    buffer: Buffer,
    ranges: Ranges,
    private: Callable[[For, Buffer, Ranges], bool] = _is_private,
    region: Callable[[Stmt, Buffer, Ranges], Region] | None = None,
) -> Stmt:
    """`s`, which holds all accesses of the buffer, with the buffer allocated as deep inside as possible: inside of loops to whose
    iterations it is `private`, and around the part of a sequence that uses it. Its shape is the `region` of that part."""
    region = region or (lambda s, buffer, ranges: touched_region(statements_using(s, buffer.name), buffer, ranges))

    def visit(s: Stmt, ranges: Ranges) -> Stmt:
        match s:
            case For(body=body) if private(s, buffer, ranges):
                return s.with_(body=visit(body, ranges_of([s], ranges)))
            case For(var, extent, body, Kind.VECTORIZED) if _each_lane_its_own(s, buffer, ranges):
                wide = buffer.with_(shape=(*buffer.shape, extent))
                lanes = move_accesses(body, lambda b, at: (wide, (*at, var)) if b.name == buffer.name else None)
                s = s.with_(body=lanes)
                return allocate(s, wide, ranges, region(s, wide, ranges))
            case Seq(stmts):
                users = [i for i, x in enumerate(stmts) if buffer.name in accessed_names(x)]
                first, last = users[0], users[-1] + 1
                if last - first < len(stmts):  # only the statements that need it see it
                    part = stmts[first] if last - first == 1 else Seq(stmts[first:last])
                    return Seq((*stmts[:first], visit(part, ranges), *stmts[last:]))
            case Let(_, value, body) if buffer.name not in accessed_names(value):
                return s.with_(body=visit(body, ranges))
            case Allocate(_, body):
                return s.with_(body=visit(body, ranges))
            case If(condition, then, orelse) if buffer.name not in accessed_names(condition):
                if orelse is None or buffer.name not in accessed_names(orelse):
                    return s.with_(then=visit(then, ranges))
                if buffer.name not in accessed_names(then):
                    return s.with_(orelse=visit(orelse, ranges))
        return allocate(s, buffer, ranges, region(s, buffer, ranges))

    return visit(s, ranges)


def allocate(s: Stmt, buffer: Buffer, ranges: Ranges, region: Region) -> Stmt:
    """`s` inside an allocation of a region of the buffer that covers its accesses."""
    region = clip_region(region, ranges)
    starts: list[Expr] = []
    shape: list[Expr] = []
    for r, dim in zip(region.ranges, buffer.shape, strict=True):
        narrower = isinstance(r.extent, Const) and (not isinstance(dim, Const) or r.extent.value < dim.value)
        starts.append(r.min if narrower else Const(0, r.min.dtype))
        _, most = (None, None) if narrower or isinstance(dim, Const) else bounds(dim, ranges)
        shape.append(r.extent if narrower else dim if most is None else Const(most, dim.dtype))
    if all(a == b for a, b in zip(shape, buffer.shape, strict=True)) and all(x.is_zero for x in starts):
        return Allocate(buffer, s)
    small = buffer.with_(shape=tuple(shape))

    def relative(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        if b.name != buffer.name:
            return None
        return small, tuple(simplify(i - start) for i, start in zip(indices, starts, strict=True))

    return Allocate(small, move_accesses(s, relative))
