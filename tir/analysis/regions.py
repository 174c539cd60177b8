"""The regions of buffers that statements read and write, as boxes over the variables around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .. import dtypes
from ..arith.bounds import bounds, ranges_of
from ..arith.intervals import Ranges, expr_bounds, polynomial_bounds
from ..arith.polynomial import add, as_constant, constant, polynomial, split_terms, to_expr, wraps
from ..arith.simplify import simplify
from ..arith.symbolic import symbolic_min
from ..ir import Block, Buffer, Const, Expr, Range, Region, Stmt, Store
from ..traverse import substatements
from .context import Context, accesses_and_blocks

Regions = dict[str, Region]  # by buffer name


def relax(indices: Iterable[Expr], buffer: Buffer, inner: Ranges, outer: Ranges) -> Region:
    """The box that `buffer[indices]` touches as the variables `inner` run over their ranges and all others are fixed.

    Where the index of a dimension has no bounds, the box has the whole dimension.
    """
    ranges = {**outer, **inner}
    result = []
    for index, dim in zip(indices, buffer.shape, strict=True):
        index = simplify(index, ranges)
        moving, fixed = split_terms(polynomial(index), set(inner))
        low, high = polynomial_bounds(moving, ranges)
        if moving and dtypes.bits(index.dtype) < 32 and wraps(index):  # a sum that may wrap around and still be an index
            fixed, (low, high) = {}, expr_bounds(index, ranges)
        if low is None or high is None:
            result.append(Range(Const(0, dim.dtype), dim))
        else:
            start = to_expr(add(fixed, constant(low)), index.dtype)
            result.append(Range(start, Const(high - low + 1, index.dtype)))
    return Region(buffer, tuple(result))


def union(a: Region, b: Region) -> Region:
    """The smallest box around both, where their distance is a constant; the whole dimension elsewhere."""
    pairs = zip(a.ranges, b.ranges, a.buffer.shape, strict=True)
    return Region(a.buffer, tuple(hull(x, y) or Range(Const(0, dim.dtype), dim) for x, y, dim in pairs))


def hull(a: Range, b: Range) -> Range | None:
    """The smallest range around both; None where their distance is no constant."""
    if a == b:
        return a
    pa, pb = polynomial(a.min), polynomial(b.min)
    distance = as_constant(add(pb, pa, -1))
    ea, eb = as_constant(polynomial(a.extent)), as_constant(polynomial(b.extent))
    if distance is None or ea is None or eb is None:
        return None
    low, high = min(0, distance), max(ea, distance + eb)
    return Range(to_expr(add(pa, constant(low)), a.min.dtype), Const(high - low, a.min.dtype))


def accessed(stmt: Stmt, ranges: Ranges | None = None, only: Collection[str] | None = None) -> tuple[Regions, Regions]:
    """The regions that `stmt` reads and writes, by buffer (all, or `only` some), as boxes over the variables free in it.

    Loops and block variables inside `stmt` are relaxed. `ranges` bounds the free variables. Guards do not shrink a region: it may
    exceed the buffer where a predicate or a lazy select keeps the access inside; see `clip_region`. Stated regions are trusted.
    """
    return _accessed([stmt], ranges or {}, only)


def _accessed(stmts: Iterable[Stmt], free: Ranges, only: Collection[str] | None) -> tuple[Regions, Regions]:
    found: dict[str, Regions] = {"reads": {}, "writes": {}}

    def note(kind: str, buffer: Buffer, indices: Iterable[Expr], around: Context) -> None:
        stated = any(getattr(b, kind) is not None for b in around.blocks)
        if not stated and (only is None or buffer.name in only):
            into = found[kind]
            region = relax([around.closed(i) for i in indices], buffer, around.ranges(free), free)
            into[buffer.name] = union(into[buffer.name], region) if buffer.name in into else region

    for n, around in (x for s in stmts for x in accesses_and_blocks(s, Context(), only)):
        if isinstance(n, Block):
            outside = around.with_(blocks=around.blocks[:-1])
            for kind, regions in (("reads", n.reads), ("writes", n.writes)):
                for region in regions or ():  # both corners of the box, as two accesses
                    note(kind, region.buffer, [r.min for r in region.ranges], outside)
                    note(kind, region.buffer, [r.min + r.extent - 1 for r in region.ranges], outside)
        else:
            note("writes" if isinstance(n, Store) else "reads", n.buffer, n.indices, around)
    return found["reads"], found["writes"]


def block_regions(block: Block) -> tuple[Regions, Regions]:
    """The regions that one instance of a block reads and writes, over its iteration variables."""
    reads, writes = _accessed(substatements(block), ranges_of([block]), None)
    if block.reads is not None:
        reads = {r.buffer.name: r for r in block.reads}
    if block.writes is not None:
        writes = {r.buffer.name: r for r in block.writes}
    return reads, writes


def with_regions(block: Block) -> Block:
    """The block with its regions stated."""
    reads, writes = block_regions(block)
    return block.with_(reads=tuple(reads.values()), writes=tuple(writes.values()))


def clip_region(region: Region, ranges: Ranges) -> Region:
    """The region clipped to its buffer, in dimensions that are constant, or where it is no shorter than the buffer."""
    result = []
    for r, dim in zip(region.ranges, region.buffer.shape, strict=True):
        low, high = bounds(r.min, ranges)
        _, size = bounds(dim, ranges)
        extent, _ = bounds(r.extent, ranges)
        if low is None or high is None or size is None or extent is None:
            result.append(r)
        elif low == high and isinstance(r.extent, Const) and isinstance(dim, Const):
            start = max(low, 0)
            stop = symbolic_min(low + extent, size)
            result.append(Range(Const(start, r.min.dtype), Const(max(stop - start, 0), r.min.dtype)))
        elif extent >= size:
            result.append(Range(Const(0, dim.dtype), dim))
        else:
            result.append(r)
    return Region(region.buffer, tuple(result))
